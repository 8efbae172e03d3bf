/* The Work state machine.
 *
 * A work is made by issue.c, waits while an earlier work of its group uses the same memory, runs, and ends exactly
 * once, in work_end.  The caller's handle (if there is one), the engine until it has ended, and a callback that has not
 * run hold references.  The last one frees the Work.  The engine's lock guards all of it but `ended`, which
 * tutti_work_is_completed reads without the lock.
 */
#ifndef WORK_H
#define WORK_H

#include "base/clock.h"
#include "op/op.h"
#include "plan/exec.h"
#include "progress/engine.h"
#include "state/work_state.h"

/* Returns a spare work or a new one, uncleared, or NULL if out of memory. work_give_back returns one that was not
 * used. */
struct tutti_work *work_spare(struct engine *engine);
void work_give_back(struct engine *engine, struct tutti_work *work);

/* Clears a work, but for `op` and the fields from `fingerprint` on.  It has one reference, the engine's. */
void work_clear(struct tutti_work *work, struct engine *engine);

/* Makes a work of an operation that is complete.  It has one reference, the caller's. */
void work_end_at_once(struct tutti_work *work, struct engine *engine, const tutti_op *op,
                      const struct work_message *found);

/* Returns a work whose op, tensors and request are not filled yet; no backend has it.  NULL if out of memory. */
struct tutti_work *work_take(struct engine *engine);

/* Drops one reference.  work_release takes the lock itself; for work_release_locked the caller holds it. */
void work_release(struct tutti_work *work);
void work_release_locked(struct tutti_work *work);

/* Runs the work's callback and drops the callback's reference.  See engine_hooks.call_back. */
void work_call_back(struct tutti_work *work);

/* Drops the caller's handle, which also holds the engine. */
void work_give_up(struct tutti_work *work);

/* work_queue_run puts the work on the list of works with steps to do.  work_dequeue takes it off. */
void work_queue_run(struct tutti_work *work);
void work_dequeue(struct tutti_work *work);

/* Runs one turn of the work's plan: issues messages that may go, runs one local step, ends the work if all are done. */
void work_run(struct tutti_work *work);

/* Takes the work off the lists and counts of works under way.  Only a blocked one has not started. */
void work_delist(struct tutti_work *work);

/* Ends the work.  Copies text; if it is NULL, an error takes the thread's error text. */
void work_end(struct tutti_work *work, int status, const char *text);

/* Takes the work's requests back from the backend, then ends it.  If the backend still uses the memory, the work ends
 * once that is released, because the caller may free the memory as soon as it sees the failure.  See work_abandon. */
void work_withdraw(struct tutti_work *work, int status, const char *text);

/* Ends a withdrawn work whose backend does not release its memory in time.  Requests that the backend still has stay
 * allocated. */
void work_abandon(struct tutti_work *work);

/* Ends a work whose backend has been closed and has released everything. */
void work_closed(struct tutti_work *work);

/* Handles a completed request: the host service behind tutti_host.complete. */
void work_complete(tutti_request *request, int status);

/* Returns the work's exec to the plan cache.  Does not wait for its pending requests. */
void work_release_exec(struct tutti_work *work);

/* Sets how long the operation of a request ran.  The host service behind tutti_host.took. */
void work_took(tutti_request *request, int64_t ns);

/* Starts the work's time and its deadline. */
void work_start_clock(struct tutti_work *work, int64_t now);

static inline bool work_ended(const struct tutti_work *work)
{
    /* acquire pairs with work_end's release: a thread that sees `ended` also sees data, status and text */
    return atomic_load_explicit(&work->ended, memory_order_acquire);
}

/* True for a send or receive and for a copy that stages one: its failure leaves the group usable. */
static inline bool work_is_message(const struct tutti_work *work)
{
    return op_is_message(work->op.kind == TUTTI_COPY ? &work->parent->op : &work->op);
}

/* Returns the variables in which the caller of a message wants its source, tag and size. */
struct work_outs work_outs_of(const tutti_op *op, const tutti_opts *opts);

/* Returns the rank as the caller numbers it, or -1 if there is none. */
static inline int work_translate_rank(const struct tutti_group *group, bool group_rank, int source)
{
    if (source < 0 || source >= group->size) return -1;
    return group_rank ? source : group->global_ranks[source];
}

/* Returns the message of a completed request of a receive or probe. */
struct work_message work_read_message(const struct tutti_group *group, const tutti_op *op, bool group_rank,
                                      const tutti_request *request);

/* Stores it in the caller's variables. */
void work_report_message(const struct work_outs *outs, const struct work_message *found);

/* Returns the status of a work that has ended, and sets the thread's error text. */
int work_result(const struct tutti_work *work);

/* Writes text such as "all_reduce #41 of group world". */
void work_describe(const struct tutti_work *work, char *text, size_t size);

#endif
