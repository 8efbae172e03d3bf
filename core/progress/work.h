/* The Work state machine.
 *
 * A work is made by submit.c, waits while an earlier work of its group uses the same memory, runs, and ends exactly
 * once, in work_end.  It is referenced by the caller's handle (if one was given out), by the engine while it has not
 * ended, and by an owed callback; the last one gives it back.  All of it under the engine's lock but for `ended`,
 * which tutti_work_is_completed reads without.
 */
#ifndef WORK_H
#define WORK_H

#include <stdatomic.h>
#include <sys/queue.h>
#include <tutti/backend.h>
#include <tutti/tutti.h>

#include "op/op.h"

#include "plan/exec.h"
#include "progress/engine.h"

struct plan_cache_entry;

enum { WORK_INLINE_TENSORS = 2 };

struct tutti_work {
    TAILQ_ENTRY(tutti_work) link; /* active or callbacks */
    SLIST_ENTRY(tutti_work) spare_link;
    TAILQ_ENTRY(tutti_work) run_link;   /* runnable */
    TAILQ_ENTRY(tutti_work) group_link; /* the group's works that have not ended, in order of issue */
    struct engine *engine;
    struct tutti_group *group; /* NULL: it is no work yet (dispatch_at_once) */
    int references;
    bool started; /* handed to a backend; false while it waits for an earlier one */
    bool apart;   /* its memory, from that of all collectives that were under way when it was issued */
    bool queued;  /* in runnable */
    bool async;   /* counted in engine->n_async */
    bool awaited; /* a caller has gone to sleep until it ends */
    bool point_to_point;
    struct tutti_work *parent;         /* of a part of a coalesced or staged operation: ends when its last part has */
    int parts;                         /* a parent's that have not ended */
    struct coalesce_packing *packing;  /* several small operations in one: where their results go */
    struct stage *stage;               /* a parent's, whose parts work on copies in host memory */
    const struct backend_entry *entry; /* a staged part's: it goes here and nowhere else */
    bool group_rank;
    atomic_bool ended;
    int status;
    int failing;   /* a request of it failed with this: it ends so in its next turn */
    bool draining; /* it has failed, but the backend still has some of its memory: it ends when that is given back */
    char *text;    /* the error's sentence */

    tutti_op op;
    tutti_tensor tensors[WORK_INLINE_TENSORS];
    void *lists; /* tensors and splits that do not fit, one allocation */

    const struct backend_entry
        *comparing; /* exec lets the ranks compare their calls, before this entry begins the work */

    int64_t start_ns, end_ns, deadline_ns;
    int64_t took_ns;  /* by the backend's own clock; 0: not told */
    int64_t asked_ns; /* when peers were last asked where they are */
    bool moved;       /* something completed since */
    bool warned;
    int source;
    int tag;          /* a receive's or a probe's: the message's, once it is known */
    int64_t received; /* bytes of it */
    struct work_outs {
        int *source, *tag;
        int64_t *received;
    } outs; /* where the caller wants these at the end */
    int event_fd;
    void (*callback)(struct tutti_work *work, void *argument);
    void *argument;

    /* What is lent before it is a work (dispatch_at_once): the rest of it is cleared after that. */
    uint64_t fingerprint;
    struct exec *exec; /* a plan that runs, from: */
    struct plan_cache_entry *cached;
    const tutti_backend *backend; /* unless exec is set: one request with this backend */
    void *state;
    tutti_request request;
};

/* From the spare ones or new, with nothing in it; NULL when out of memory.  It is cleared before it is used, and given
 * back if it was not. */
struct tutti_work *work_spare(struct engine *engine);
void work_give_back(struct engine *engine, struct tutti_work *work);

/* All but what was lent.  One reference: the engine's. */
void work_clear(struct tutti_work *work, struct engine *engine);

/* Both. */
struct tutti_work *work_take(struct engine *engine);

/* Gives one reference back (takes the lock itself), or with the lock held. */
void work_release(struct tutti_work *work);
void work_release_locked(struct tutti_work *work);
void work_destroy(struct tutti_work *work);

/* The caller's handle, which also keeps the engine, is given up. */
void work_give_up(struct tutti_work *work);

/* Puts it among those with steps to do; takes it from there. */
void work_queue_run(struct tutti_work *work);
void work_dequeue(struct tutti_work *work);

/* One turn: issue what may be issued, one local step, end if done. */
void work_run(struct tutti_work *work);

/* Ends it.  text (copied) may be NULL: then the thread's error text is taken for a status that is an error. */
void work_end(struct tutti_work *work, int status, const char *text);

/* Takes back what the backend has of it, then ends it: at once, or when the backend has let go, for the caller may free
 * the memory as soon as it hears of the failure.  A backend that never does is waited for so long, then left with it.
 */
void work_withdraw(struct tutti_work *work, int status, const char *text);

/* Ends a withdrawn work whose backend does not let go of it in time.  What the backend still uses stays allocated. */
void work_abandon(struct tutti_work *work);

/* Its backend is closed, which has given everything back. */
void work_closed(struct tutti_work *work);

/* The backend ended a request: the host service behind tutti_host.complete. */
void work_complete(tutti_request *request, int status);

/* The plan has done its part; what it had under way is not waited for. */
void work_release_exec(struct tutti_work *work);

/* The host service behind tutti_host.took. */
void work_took(tutti_request *request, int64_t ns);

/* From now on the work's time runs, its deadline too. */
void work_start_clock(struct tutti_work *work, int64_t now);

static inline bool work_ended(const struct tutti_work *work)
{
    /* acquire pairs with work_end's release: who sees it ended also sees the data, the status and the text */
    return atomic_load_explicit(&work->ended, memory_order_acquire);
}

/* A send or a receive, itself or as a copy for one: its failure leaves the group usable. */
static inline bool work_is_message(const struct tutti_work *work)
{
    return op_is_message(work->op.kind == TUTTI_COPY ? &work->parent->op : &work->op);
}

/* Where the caller of a message wants what becomes known of it. */
struct work_outs work_outs_of(const tutti_op *op, const tutti_opts *opts);

/* Sets work's source, tag and received by what the request of its receive or probe has met. */
void work_learn_message(struct tutti_work *work, const tutti_request *request);

/* Hands them to the caller. */
void work_report_message(const struct tutti_work *work);

/* The result of a work that has ended, with its text as the calling thread's. */
int work_result(const struct tutti_work *work);

/* "all_reduce #41 of group world" */
void work_describe(const struct tutti_work *work, char *text, size_t size);

#endif
