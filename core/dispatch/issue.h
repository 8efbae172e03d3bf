/* Makes the Works of operations and gives them their place among the operations of their group. */
#ifndef ISSUE_H
#define ISSUE_H

#include "base/clock.h"
#include "base/user_op.h"
#include "diagnose/health.h"
#include "group/group_check.h"
#include "op/fingerprint.h"
#include "op/op.h"
#include "op/record.h"
#include "progress/work.h"

/* Gives op its place in the group.  Returns its fingerprint there. */
static inline uint64_t issue_place(const struct tutti_group *group, tutti_op *op, uint64_t fingerprint,
                                   const tutti_opts *opts, bool async)
{
    bool alone = op_is_message(op) || op->kind == TUTTI_COPY;
    op->async = async;
    op->timeout_ms = group_timeout(group, opts->timeout_ms);
    op->sequence = alone ? 0 : group->sequence + 1;
    return alone ? fingerprint : fingerprint_with_past(fingerprint, group->past);
}

/* Counts an operation of the program.  The parts that stage one are not counted. */
static inline void issue_count(struct tutti_group *group, const tutti_op *op)
{
    group->stats->operations[op->kind]++;
}

/* Advances the group past op, which has been issued. */
static inline void issue_advance(struct tutti_group *group, const tutti_op *op, uint64_t fingerprint)
{
    if (op->sequence == 0) return;
    group->sequence++;
    group->past = fingerprint_past_after(group->past, fingerprint);
    health_issued(group->health, group->sequence, fingerprint);
}

/* Fills a cleared work; op may be its own already.  The tensors are not copied, because a blocking caller's outlive the
 * call. */
static inline void issue_fill(struct tutti_work *work, struct tutti_group *group, const tutti_op *op,
                              const tutti_opts *opts)
{
    if (op != &work->op) work->op = *op;
    if (user_op_is(op->reduce_op)) {
        work->user_op = op->reduce_op;
        user_op_hold(work->user_op);
    }
    work->group = group;
    work->point_to_point = op->sequence == 0;
    work->async = op->async;
    work->outs = work_outs_of(op, opts);
    work->group_rank = opts->group_rank;
    work->deadline_ns = CLOCK_NEVER;
}

/* Copies an async message's tensor, unless op is the work's own, which has a copy.  Starts the clock of a long one.
 * That of a short one, like that of a blocking call, starts within a few rounds: reading it would take longer than the
 * message. */
static inline void issue_detach_message(struct tutti_work *work, const tutti_op *op)
{
    enum { TIMED_MIN = 64 << 10 }; /* bytes */
    if (!work->async) return;
    if (work->request.bytes >= TIMED_MIN) work_start_clock(work, engine_time_ns(work->engine));
    if (op != &work->op) op_keep_message(&work->op, work->tensors);
}

/* The same for any operation that has not been dispatched.  Returns NO_MEMORY if there is none for the lists of a
 * collective. */
static inline int issue_detach(struct tutti_work *work)
{
    if (!work->async) return TUTTI_OK;
    work_start_clock(work, engine_time_ns(work->engine));
    return op_keep_lists(&work->op, work->group->size, work->tensors, WORK_INLINE_TENSORS, &work->lists);
}

/* Makes the Work of op, with its place. */
int issue_new(struct tutti_group *group, tutti_op *op, uint64_t fingerprint, const tutti_opts *opts, bool async,
              struct tutti_work **work);

/* Puts a work on the lists of works under way. */
static inline void issue_enlist_message(struct tutti_work *work)
{
    TAILQ_INSERT_TAIL(&work->engine->active, work, link);
    TAILQ_INSERT_TAIL(&work->group->works, work, group_link);
    if (work->async) engine_count_async(work->engine, 1);
}

/* Does the same for any operation.  Adds the caller's reference. */
void issue_enlist(struct tutti_work *work);

/* Undoes issue_enlist and frees the work. */
void issue_undo(struct tutti_work *work);

/* Returns why the group cannot take op, or TUTTI_OK. */
static inline int issue_check_usable(struct tutti_group *group, const tutti_op *op)
{
    if (group_is_usable(group)) return TUTTI_OK;
    const char *doing = tutti_kind_find(op->kind)->name;
    return op_is_message(op) ? group_check_usable(group, doing) : group_check_collective(group, doing);
}

#endif
