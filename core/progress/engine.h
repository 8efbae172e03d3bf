/* Progress for a group tree: one lock, the backends to poll, the works under way, one thread.
 *
 * engine_step.c runs a round, engine_wait.c is how callers wait, engine_thread.c the progress thread, engine_sleep.c
 * how both sleep.  docs/architecture.md tells who polls when.
 *
 * The engine's lock is the only one held while backends are called.  All functions here want it held, except
 * engine_new, engine_hold, engine_drop, engine_retire and engine_lock.
 */
#ifndef ENGINE_H
#define ENGINE_H

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>
#include <tutti/backend.h>
#include <tutti/tutti.h>

#include "base/descriptors.h"
#include "base/lock.h"
#include "progress/event_memory.h"
#include "progress/exits.h"
#include "state/group_state.h"

struct engine;
struct stage;

/* The backends of the tree's first group, and of each group with a backend that the first one does not have. */
enum { ENGINE_SOURCES = 64 };

/* What a backend has reported from within one of its entries.  It is handled once the backend has returned, so that no
 * entry is ever called from within another. */
struct engine_event {
    TAILQ_ENTRY(engine_event) link;
    void (*handle)(struct engine_event *event); /* lock held; frees the event */
};

/* What the layers above do when the engine or one of its works asks for it.  Called with the lock held, but for
 * call_back. */
struct engine_hooks {
    const tutti_host *host; /* the services that backends get */
    /* Ends what is late.  Returns when the next check is due. */
    int64_t (*check_deadlines)(struct engine *engine, int64_t now);
    /* Dispatches works that waited for the memory of an earlier one. */
    void (*dispatch_unblocked)(struct tutti_group *first);
    /* Applies failures that peers have reported to groups of the tree, once they are due. */
    void (*apply_reported)(struct tutti_group *first);
    /* Fails all groups, because the program has closed the engine's descriptors. */
    void (*fail_disowned)(struct tutti_group *first);
    /* Fails all groups, because a control message was lost for want of memory. */
    void (*fail_starved)(struct tutti_group *first);
    /* A group has failed: ends the creation of groups from it. */
    void (*group_failed)(struct tutti_group *group);
    /* The process exits: waits until peers have received what was sent to them. */
    void (*drain_at_exit)(struct engine *engine);
    /* Handles a control message that a peer has sent over a backend's own messages. */
    void (*notified)(void *core, int32_t peer, const void *message, size_t bytes);

    /* All ranks have called the same operation as this work: dispatches it.  An error: its backend refused it. */
    int (*resume)(struct tutti_work *work);
    /* Copies the results of a work that packs several small operations to their tensors, and frees the packing. */
    void (*part_ended)(struct tutti_work *work, int status);
    /* The last part of a staged operation has ended. */
    void (*stage_ended)(struct stage *stage);
    /* Runs a work's callback and releases the work.  Lock not held. */
    void (*call_back)(struct tutti_work *work);
    /* Writes the error message of a work's request that failed with status; request may be NULL. */
    void (*describe_failure)(const struct tutti_work *work, const tutti_request *request, int status, char *text,
                             size_t size);
    /* Ends a failed work, and its group if the group fails with it. */
    void (*end_failed)(struct tutti_work *work, int status);
};

enum engine_poller { POLLER_CALLER, POLLER_THREAD };

/* The fields of each operation come first: after the copy of a large one little of the struct is left in the caches. */
struct engine {
    struct lock lock;
    int fork_generation;
    int n_sources;
    const struct engine_hooks *hooks;
    struct work_queue active;       /* issued, not ended */
    struct work_queue runnable;     /* active ones with steps to do */
    struct work_queue callbacks;    /* ended, their callback is owed */
    SLIST_HEAD(, tutti_work) spare; /* freed, for the next operation */
    int n_spare;
    TAILQ_HEAD(, engine_event) events;
    struct event_memory event_memory;
    struct tutti_group *first; /* of the tree */
    int n_reported;            /* groups that hold back a failure reported by a peer */
    int n_blocked;             /* works that wait for the memory of an earlier one */
    int n_unarmed;             /* groups whose control messages come over a backend without arm */
    int n_comparing;           /* works whose ranks compare their calls first */
    bool recheck;              /* a work has ended: blocked ones may begin */

    /* By engine_poller.  Set under the lock, cleared by the poller without it. */
    atomic_bool polling[2];   /* in poll, without the lock */
    atomic_bool wake_sent[2]; /* woken, and has not read that yet */

    int wake_fd[2]; /* eventfds that end either's poll */
    bool own_core;  /* each rank of the host has one */
    int spins;      /* idle rounds before yielding and sleeping: adapted to their success, */
    int spins_max;  /* up to this many */
    int yields;     /* rounds after these that yield the core */
    unsigned n_useless_spins;
    unsigned rounds;
    int64_t now_ns;        /* when the clock was last read */
    int64_t next_check_ns; /* of deadlines, where nobody sleeps */

    /* Written under the lock.  The thread reads them without it: it would find the lock taken again and again, and each
     * release would wake it in vain. */
    _Atomic uint64_t calls;
    atomic_int callers; /* threads inside engine_wait */
    atomic_int n_async; /* active works that nobody may be waiting for */
    atomic_bool stopping;
    _Atomic int64_t alert_until_ns; /* until then the thread reads control messages without delay */

    atomic_bool attending; /* the thread looks for asynchronous work often; written by it, without the lock */

    pthread_mutex_t sleep_lock; /* taken under the lock */
    pthread_cond_t changed;     /* with sleep_lock: a work ended, the poller left */
    int n_sleepers;             /* callers on it */

    /* The program has closed the engine's descriptors: none is polled, written or closed any more. */
    struct descriptor_identity sentinel;
    atomic_bool disowned;

    struct pollfd polled[2][ENGINE_SOURCES * TUTTI_ARM_MAX + 1]; /* by engine_poller: too much for a small stack */

    pthread_t thread;
    bool has_thread, frees_itself;
    atomic_int references; /* groups, handles of works, threads in a blocking call */
    struct {
        const tutti_backend *backend;
        void *state; /* of the tree's first group */
    } source[ENGINE_SOURCES];
    struct exit_watch exit_watch;
};

/* local_world_size: ranks on this host, which decides how to wait. */
int engine_new(int local_world_size, const struct engine_hooks *hooks, struct engine **engine);
void engine_hold(struct engine *engine);
/* Drops a reference, without the lock.  The last one ends the thread, if it still runs. */
void engine_drop(struct engine *engine);
void engine_drop_many(struct engine *engine, int references);

/* Frees an engine without references.  For engine_drop and the thread. */
void engine_free(struct engine *engine);

/* True if this process is a fork of the one that made the engine: nothing of it may be used. */
bool engine_is_forked(const struct engine *engine);

/* All groups are closed: ends the thread and closes the engine's descriptors, whoever still has references. */
void engine_retire(struct engine *engine);

static inline void engine_lock(struct engine *engine)
{
    if (engine_is_forked(engine)) return; /* a thread of the parent may hold the lock; nothing is polled here */
    lock_take(&engine->lock);
}

/* Counts a call, so that threads notice that others make progress.  Lock held. */
static inline void engine_count_call(struct engine *engine)
{
    /* relaxed, both: one thread writes at a time, and readers only compare */
    uint64_t calls = atomic_load_explicit(&engine->calls, memory_order_relaxed);
    atomic_store_explicit(&engine->calls, calls + 1, memory_order_relaxed);
}

/* Unlocks, then runs owed callbacks. */
void engine_unlock_and_call(struct engine *engine);

static inline void engine_unlock(struct engine *engine)
{
    if (engine_is_forked(engine)) return;
    if (TAILQ_EMPTY(&engine->callbacks))
        lock_give(&engine->lock);
    else
        engine_unlock_and_call(engine);
}

int engine_add_source(struct engine *engine, const tutti_backend *backend, void *state);
void engine_remove_source(struct engine *engine, void *state);

/* Queues an event for the next round. */
void engine_post(struct engine *engine, struct engine_event *event);

/* Handles queued events.  Returns whether there were any. */
bool engine_handle_events(struct engine *engine);

/* Calls each backend's progress.  Returns whether any moved; the next round handles what they completed. */
bool engine_poll_backends(struct engine *engine);

/* Wakes threads that sleep on the backends.  Call it before a backend's progress, which cancels the backend's promise
 * to wake them. */
void engine_wake_pollers(struct engine *engine);

/* Wakes a poller, once: it may take a while until the woken thread has a core.  wake_sent is set before the write and
 * cleared after the read, so that no wake is lost. */
void engine_wake(struct engine *engine, enum engine_poller who);

/* Wakes waiting callers: a work that one of them waits for has ended. */
void engine_wake_waiters(struct engine *engine);

/* Wakes waiting callers that do not poll. */
void engine_wake_sleepers(struct engine *engine);

/* A group has failed: the thread reads control messages without delay for a while, because peers ask for their memory
 * back and cannot continue without an answer. */
void engine_alert(struct engine *engine);

/* True if the program has closed the engine's descriptors. */
bool engine_is_disowned(struct engine *engine);

#endif
