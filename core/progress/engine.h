/* Progress for a group tree: one lock, the backends to poll, the works under way, one thread.
 *
 * engine_step.c runs a round, engine_wait.c makes callers wait, engine_thread.c is the progress thread, and
 * engine_sleep.c lets both sleep.  docs/architecture.md describes who polls when.
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

#include "base/clock.h"
#include "base/descriptors.h"
#include "base/lock.h"
#include "progress/event_memory.h"
#include "progress/exits.h"
#include "state/group_state.h"
#include "stats/stats.h"

struct engine;
struct stage;

/* Maximum number of backends to poll: those of the tree's first group, and of each group with a backend that the first
 * one does not have. */
enum { ENGINE_SOURCES = 64 };

/* Maximum number of receives whose backend gets them late: with so many, it gets them at once. */
enum { DEFERRED_MOST = 256 };

/* A report that a backend has made from within one of its entries.  It is handled once the backend has returned, so
 * that no entry is ever called from within another. */
struct engine_event {
    TAILQ_ENTRY(engine_event) link;
    void (*handle)(struct engine_event *event); /* lock held; frees the event */
};

/* Functions of the layers above that the engine and its works call.  All but call_back are called with the lock
 * held. */
struct engine_hooks {
    const tutti_host *host; /* the services passed to backends */
    /* Ends operations whose deadline has passed.  Returns when the next check is due; one before that does little. */
    int64_t (*check_deadlines)(struct engine *engine, int64_t now);
    /* Dispatches works that waited for the memory of an earlier one. */
    void (*dispatch_unblocked)(struct tutti_group *first);
    /* Applies failures that peers have reported to groups of the tree, once they are due. */
    void (*apply_reported)(struct tutti_group *first);
    /* Fails all groups, because the program has closed the engine's descriptors. */
    void (*fail_disowned)(struct tutti_group *first);
    /* Fails all groups, because there was no memory for a control message. */
    void (*fail_starved)(struct tutti_group *first);
    /* Ends the creation of groups from a group that has failed. */
    void (*group_failed)(struct tutti_group *group);
    /* Waits at process exit until peers have received what was sent to them. */
    void (*drain_at_exit)(struct engine *engine);
    /* Handles a control message that a peer has sent over a backend's own messages. */
    void (*notified)(void *core, int32_t peer, const void *message, size_t bytes);

    /* Hands deferred receives to their backends.  waits: the caller is about to wait. */
    void (*issue_deferred)(struct engine *engine, bool waits);
    /* Dispatches a work after all ranks have called the same operation.  Returns an error if its backend refused it. */
    int (*resume)(struct tutti_work *work);
    /* Copies the results of a work that packs several small operations to their tensors, and frees the packing. */
    void (*part_ended)(struct tutti_work *work, int status);
    /* Ends the stage of an operation whose last part has ended. */
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

/* The fields that every operation uses come first: a large copy leaves little of the struct in the caches. */
struct engine {
    struct lock lock;
    int fork_generation;
    int n_sources;
    const struct engine_hooks *hooks;
    struct work_queue active;       /* works that were issued and have not ended */
    struct work_queue runnable;     /* active works with steps to do */
    struct work_queue callbacks;    /* ended works whose callback has not run */
    SLIST_HEAD(, tutti_work) spare; /* freed works, for the next operations */
    int n_spare;
    int n_deferred; /* receives that their backend does not have yet: engine_lock hands them over */
    TAILQ_HEAD(, engine_event) events;
    struct event_memory event_memory;
    struct tutti_group *first; /* first group of the tree */
    int n_reported;            /* groups that hold back a failure reported by a peer */
    int n_blocked;             /* works that wait for the memory of an earlier one */
    int n_unarmed;             /* groups whose control messages use a backend without arm */
    int n_comparing;           /* works whose ranks compare their calls first */
    tutti_stats *stats;        /* counters of the tree */
    bool recheck;              /* set when a work has ended: blocked ones may begin */

    /* Indexed by engine_poller.  Set under the lock, cleared by the poller without it. */
    atomic_bool polling[2];   /* in poll, without the lock */
    atomic_bool wake_sent[2]; /* woken, but has not read the eventfd yet */

    int wake_fd[2];              /* eventfds that end the pollers' sleep */
    bool own_core;               /* each rank of the host has its own core */
    int spins;                   /* idle rounds before yielding and sleeping, adapted to their success */
    int spins_max;               /* upper limit of spins */
    int yields;                  /* further rounds that yield the core */
    int64_t keeps_core_until_ns; /* no yields until then */
    unsigned n_useless_spins;
    unsigned rounds;
    int64_t now_ns;        /* time when the clock was last read */
    uint64_t moment;       /* the call and round in which engine_time_ns last read it */
    int64_t looked_ns;     /* time when the clocks of works were last started during rounds */
    int64_t next_check_ns; /* time of the next check of deadlines during rounds */
    int64_t checked_ns;    /* time of the last check of deadlines */
    int64_t due_ns;        /* time before which a check finds nothing for works that have been checked; 0: unknown */

    /* Written under the lock.  The thread reads them without it.  It would find the lock taken again and again, and
     * each release would wake it in vain. */
    _Atomic uint64_t calls;
    atomic_int callers; /* threads inside engine_wait */
    atomic_int n_async; /* number of active works that no caller may be waiting for */
    atomic_bool stopping;
    bool has_spare_cores;           /* the thread takes no core from the program */
    _Atomic int64_t alert_until_ns; /* the thread reads control messages without delay until this time */

    atomic_bool attending; /* the thread checks often for asynchronous work; it writes this without the lock */
    atomic_bool hurried;   /* the thread's next round comes without a grace */
    atomic_bool offered;   /* the thread leaves its next round to the next asynchronous call */

    pthread_mutex_t sleep_lock; /* taken while the engine's lock is held */
    pthread_cond_t changed;     /* with sleep_lock: signalled when a work has ended or the poller has stopped polling */
    int n_sleepers;             /* number of callers that wait on `changed` */

    /* Shows that the program has closed the engine's descriptors.  After that none is polled, written or closed. */
    struct descriptor_identity sentinel;
    atomic_bool disowned;

    struct pollfd polled[2][ENGINE_SOURCES * TUTTI_ARM_MAX + 1]; /* by engine_poller; too large for a small stack */

    pthread_t thread;
    bool has_thread, frees_itself;
    atomic_int references; /* groups, threads in a blocking call, and one for all handles of works */
    int n_handles;
    struct {
        const tutti_backend *backend;
        void *state; /* state of the tree's first group with this backend */
    } source[ENGINE_SOURCES];
    struct exit_watch exit_watch;
    struct deferred_receive deferred[DEFERRED_MOST];
};

/* Makes an engine.  The number of ranks on this host, local_world_size, decides how to wait. */
int engine_new(int local_world_size, const struct engine_hooks *hooks, struct engine **engine);
void engine_hold(struct engine *engine);
/* Drops a reference, without the lock.  The last one ends the thread, if it still runs. */
void engine_drop(struct engine *engine);

/* Frees an engine without references.  Called only by engine_drop and the thread. */
void engine_free(struct engine *engine);

/* True if this process is a fork of the one that made the engine.  It must not use the engine. */
bool engine_is_forked(const struct engine *engine);

/* Ends the thread and closes the engine's descriptors after all groups are closed, even if references remain. */
void engine_retire(struct engine *engine);

/* Hands deferred receives to their backends.  Lock held. */
static inline void engine_settle(struct engine *engine)
{
    if (engine->n_deferred > 0) engine->hooks->issue_deferred(engine, false);
}

/* Takes the lock, but leaves deferred receives as they are: see message.c. */
static inline void engine_lock_deferring(struct engine *engine)
{
    if (engine_is_forked(engine)) return; /* a thread of the parent may hold the lock; nothing is polled here */
    lock_take(&engine->lock);
}

static inline void engine_lock(struct engine *engine)
{
    if (engine_is_forked(engine)) return;
    lock_take(&engine->lock);
    engine_settle(engine);
}

/* Takes the lock to wait for works.  May first yield the core to a peer whose message a deferred receive lacks. */
static inline void engine_lock_to_wait(struct engine *engine)
{
    engine_lock_deferring(engine);
    if (!engine_is_forked(engine) && engine->n_deferred > 0) engine->hooks->issue_deferred(engine, true);
}

/* Counts a call, so that threads notice that others make progress.  Lock held. */
static inline void engine_count_call(struct engine *engine)
{
    /* relaxed, both: one thread writes at a time, and readers only compare the values */
    uint64_t calls = atomic_load_explicit(&engine->calls, memory_order_relaxed);
    atomic_store_explicit(&engine->calls, calls + 1, memory_order_relaxed);
}

/* Returns the time, as first read in this call or round: reading the clock takes longer than a small message.  Lock
 * held. */
static inline int64_t engine_time_ns(struct engine *engine)
{
    uint64_t moment = atomic_load_explicit(&engine->calls, memory_order_relaxed) + engine->rounds;
    if (engine->moment == moment) return engine->now_ns;
    engine->moment = moment;
    return engine->now_ns = clock_now_ns();
}

/* Counts a Work's handle, which may outlive its group.  Lock held: counting costs less than an atomic reference. */
static inline void engine_add_handle(struct engine *engine)
{
    if (engine->n_handles++ == 0) engine_hold(engine);
}

/* Uncounts handles.  Returns true if the caller must call engine_drop, after releasing the lock. */
static inline bool engine_remove_handles(struct engine *engine, int handles)
{
    engine->n_handles -= handles;
    return handles > 0 && engine->n_handles == 0;
}

/* Changes n_async.  Lock held, so that loading and storing does for an atomic addition. */
static inline void engine_count_async(struct engine *engine, int change)
{
    int n = atomic_load_explicit(&engine->n_async, memory_order_relaxed);
    if (n == 0)
        /* sequentially consistent: the thread must see it before this thread reads `attending`, see thread_main */
        atomic_store(&engine->n_async, change);
    else
        atomic_store_explicit(&engine->n_async, n + change, memory_order_relaxed); /* the thread attends already */
}

/* Unlocks, then runs the callbacks of ended works. */
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

/* Handles queued events.  Returns true if there were any. */
bool engine_handle_events(struct engine *engine);

/* Calls each backend's progress.  Returns true if any made progress; the next round handles completions. */
bool engine_poll_backends(struct engine *engine);

/* Wakes threads that sleep on the backends.  Must be called before a backend's progress, which cancels the backend's
 * promise to wake them. */
void engine_wake_pollers(struct engine *engine);

/* Wakes a poller.  Does nothing if it was woken already and has not run since.  wake_sent is set before the write and
 * cleared after the read, so that no wake is lost. */
void engine_wake(struct engine *engine, enum engine_poller who);

/* Wakes waiting callers, because a work that one of them waits for has ended. */
void engine_wake_waiters(struct engine *engine);

/* Wakes waiting callers that do not poll. */
void engine_wake_sleepers(struct engine *engine);

/* Makes the thread read control messages without delay for a while after a group has failed: peers ask for their memory
 * back and cannot continue without an answer. */
void engine_alert(struct engine *engine);

/* True if the program has closed the engine's descriptors. */
bool engine_is_disowned(struct engine *engine);

#endif
