/* The Work state machine.
 *
 * A work is made by issue.c, waits while an earlier work of its group uses the same memory, runs, and ends exactly
 * once, in work_end.  It is referenced by the caller's handle (if one was given out), by the engine while it has not
 * ended, and by an owed callback; the last one gives it back.  All of it under the engine's lock but for `ended`,
 * which tutti_work_is_completed reads without.
 */
#ifndef WORK_H
#define WORK_H

#include "op/op.h"
#include "plan/exec.h"
#include "progress/engine.h"
#include "state/work_state.h"

/* From the spare ones or new, with nothing in it; NULL when out of memory.  It is cleared before it is used, and given
 * back if it was not. */
struct tutti_work *work_spare(struct engine *engine);
void work_give_back(struct engine *engine, struct tutti_work *work);

/* All but what was lent.  One reference: the engine's. */
void work_clear(struct tutti_work *work, struct engine *engine);

/* Both. */
struct tutti_work *work_take(struct engine *engine);

/* Drops one reference; takes the lock itself, or with the lock held. */
void work_release(struct tutti_work *work);
void work_release_locked(struct tutti_work *work);

/* Runs its callback and drops the reference that this had.  See engine_hooks.call_back. */
void work_call_back(struct tutti_work *work);

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
