/* Progress for a family of groups: one lock, one place to sleep, one thread that is mostly asleep.
 *
 * Whoever waits drives: a blocking caller runs the backends itself, spins a little where the cores allow it, and then
 * sleeps on the backends' descriptors.  Of several waiting threads one polls and the others sleep on a condition; while
 * other threads call, none polls (engine_step takes what comes) and they look now and then.
 * The family's thread drives only while asynchronous work is under way and no caller waits, and, when nobody has
 * called for a while, sleeps on the descriptors so that notes from peers are answered; it costs nothing idle.
 *
 * Lock order: the engine's lock is the only one held while backends are called.  All functions here want it held,
 * except engine_new, engine_hold, engine_drop, engine_retire and engine_lock.
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
#include "state/group_state.h"

struct engine;
struct stage;

/* The backends of the family's first group, and of each group with one that this does not have. */
enum { ENGINE_SOURCES = 64 };

/* Something a backend told from within one of its entries.  It is dealt with once the backend has returned, so that
 * no entry is ever called from within another. */
struct engine_event {
    TAILQ_ENTRY(engine_event) link;
    void (*handle)(struct engine_event *event); /* with the lock held; frees it */
};

/* What the layers above do when the engine or one of its works asks for it.  All are called with the lock held. */
struct engine_hooks {
    /* Ends what is late.  Returns when the next look is due. */
    int64_t (*check_deadlines)(struct engine *engine, int64_t now);
    /* Begins works that waited for an earlier one's memory. */
    void (*begin_unblocked)(struct tutti_group *first);
    /* Takes in the failures that the family's groups were told of, once they are due. */
    void (*take_told)(struct tutti_group *first);
    /* Fails all groups, because the program has closed the engine's descriptors. */
    void (*disowned)(struct tutti_group *first);
    /* The process exits: waits until peers have received what was sent to them. */
    void (*drain_at_exit)(struct engine *engine);
    /* A control message of a peer has come in over a backend's own messages. */
    void (*notified)(void *core, int32_t peer, const void *message, size_t bytes);

    /* All ranks have called what work is.  An error: its backend could not begin it. */
    int (*resume)(struct tutti_work *work);
    /* Copies the results of a work that packs several small operations to where they belong, and frees the packing. */
    void (*part_ended)(struct tutti_work *work, int status);
    /* The last part of a staged operation has ended. */
    void (*stage_ended)(struct stage *stage);
    /* Writes the error message of a work's request that failed with status; request may be NULL. */
    void (*describe_failure)(const struct tutti_work *work, const tutti_request *request, int status, char *text,
                             size_t size);
    /* Ends a failed work, and its group where it fails with it. */
    void (*end_failed)(struct tutti_work *work, int status);
};

enum engine_poller { POLLER_CALLER, POLLER_THREAD };

/* What each operation looks at comes first: after a large one's copy little of it is left in the caches. */
struct engine {
    struct lock lock;
    int fork_generation;
    int n_sources;
    const struct engine_hooks *hooks;
    struct work_queue active;       /* begun, not ended */
    struct work_queue runnable;     /* those of them with steps to do */
    struct work_queue callbacks;    /* ended, their callback is owed */
    SLIST_HEAD(, tutti_work) spare; /* ended and given back, for the next operation */
    int n_spare;
    TAILQ_HEAD(, engine_event) events;
    struct tutti_group *first; /* the family's */
    int n_told;                /* groups that hold a peer's failure back */
    int n_blocked;             /* works that wait for an earlier one's memory */
    int n_unarmed;             /* groups whose notes come over a backend without arm */
    int n_comparing;           /* works whose ranks compare their calls first */
    bool recheck;              /* one ended since: some of them may begin */

    /* By engine_poller.  Set under the lock, taken back by the poller without it. */
    atomic_bool polling[2]; /* it is in poll, without the lock */
    atomic_bool wanted[2];  /* it has been told to come out of it, and not heard that yet */

    int wake_fd[2];   /* eventfds that get either out of poll */
    bool own_core;    /* each rank of the host has one */
    int spins;        /* empty rounds before yielding and sleeping, as many as have been of use, */
    int spins_most;   /* up to here */
    int yields;       /* and rounds after these in which the core is given away */
    unsigned in_vain; /* waits that these did not end */
    unsigned rounds;
    int64_t now_ns;  /* by the latest look at the clock */
    int64_t look_ns; /* the next look at deadlines, where nobody sleeps */

    /* Written under the lock.  The thread looks at them without it: it would find it taken again and again, and each
     * release would wake it in vain. */
    _Atomic uint64_t calls;
    atomic_int callers; /* threads inside engine_wait */
    atomic_int n_async; /* active works that nobody may be waiting for */
    atomic_bool stopping;
    _Atomic int64_t alert_ns; /* until then the thread leaves peers' notes unread for no longer than it must */

    atomic_bool attending; /* the thread looks for asynchronous work often; written by it, without the lock */

    pthread_mutex_t asleep; /* taken under the lock */
    pthread_cond_t changed; /* with asleep: a work ended, the poller left */
    int dozing;             /* callers on it */

    /* The program has closed the engine's descriptors: nothing is polled, woken or closed any more. */
    struct witness witness;
    atomic_bool disowned;

    struct pollfd polled[2][ENGINE_SOURCES * TUTTI_ARM_MAX + 1]; /* by engine_poller: too much for a small stack */

    pthread_t thread;
    bool has_thread, frees_itself;
    atomic_int references; /* groups, works that were given out, threads in a blocking call */
    struct {
        const tutti_backend *backend;
        void *state; /* of the family's first group */
    } source[ENGINE_SOURCES];
    LIST_ENTRY(engine) exits_link;
    bool watches_exit; /* it is on exits.c's list */
};

/* local_world_size: ranks on this host, which decides how to wait. */
int engine_new(int local_world_size, const struct engine_hooks *hooks, struct engine **engine);
void engine_hold(struct engine *engine);
/* Gives a reference back, without the lock; the last one ends the thread, if it still runs. */
void engine_drop(struct engine *engine);

/* This process is a fork of the one that made the engine: nothing of it may be used. */
bool engine_is_forked(const struct engine *engine);

/* All groups are closed: ends the thread and gives its descriptors back, whoever still has references. */
void engine_retire(struct engine *engine);

static inline void engine_lock(struct engine *engine)
{
    if (engine_is_forked(engine)) return; /* who held it may be a thread of the parent's; nothing is driven here */
    lock_take(&engine->lock);
}

/* With the lock: somebody has called. */
static inline void engine_called(struct engine *engine)
{
    /* relaxed, both: a sign of life, which one thread writes at a time */
    uint64_t calls = atomic_load_explicit(&engine->calls, memory_order_relaxed);
    atomic_store_explicit(&engine->calls, calls + 1, memory_order_relaxed);
}

/* Unlocks, then runs the callbacks that are owed. */
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

/* Drives until work has ended or the moment has passed; whether it has ended. */
bool engine_wait(struct engine *engine, struct tutti_work *work, int64_t deadline_ns);

/* The same for any one of n works; its index, or -1. */
int engine_wait_any(struct engine *engine, struct tutti_work *const *works, int n, int64_t deadline_ns);

/* To be handled in the next round. */
void engine_post(struct engine *engine, struct engine_event *event);

/* Deals with what was posted; whether there was anything. */
bool engine_handle_events(struct engine *engine);

/* Somebody is about to call a backend's progress: with that ends its promise to wake who sleeps on it. */
void engine_drives(struct engine *engine);

/* Calls each backend's progress.  Returns whether any moved; what they completed is handled by the next round. */
bool engine_poll_backends(struct engine *engine);

/* One round without waiting. */
bool engine_step(struct engine *engine);

/* The part of a round that is the core's own: works go on with what backends have completed.  For whoever calls a
 * backend's progress alone. */
void engine_go_on(struct engine *engine);

/* The thread, if it does not run yet. */
void engine_start_thread(struct engine *engine);

/* Asynchronous work was begun: the thread is to look after it. */
void engine_attend(struct engine *engine);

/* A group has failed: its peers ask for their memory back and cannot go on before they have an answer. */
void engine_alert(struct engine *engine);

/* True if the program has closed the engine's descriptors. */
bool engine_is_disowned(struct engine *engine);

/* Someone's wait is over. */
void engine_notice(struct engine *engine);

#endif
