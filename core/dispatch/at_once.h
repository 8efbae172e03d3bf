/* Ends what a call has begun before it has a Work: most operations complete within the call.  Inline, because it is in
 * the path of every operation. */
#ifndef AT_ONCE_H
#define AT_ONCE_H

#include <stdio.h>

#include "base/error.h"
#include "diagnose/recorder.h"
#include "dispatch/issue.h"
#include "dispatch/launch.h"
#include "group/failure.h"
#include "tool/tool.h"

/* Turns a struct whose request dispatch_at_once has used into a work. */
static inline void become_work(struct tutti_work *work, struct tutti_group *group, const tutti_op *op,
                               const tutti_opts *opts)
{
    work_clear(work, group->engine);
    issue_fill(work, group, op, opts);
    work->started = true;
}

/* Gives back the work whose request a completed message has borrowed.  The next call borrows the same one, which is
 * still cached.  found: what the Work of an async call has found, which goes to *out; NULL if the call is blocking. */
static inline void at_once_give(struct tutti_work *borrowed, struct engine *engine, const tutti_op *op,
                                const struct work_message *found, struct tutti_work **out)
{
    if (found != NULL) {
        struct tutti_work *ended = work_spare(engine);
        if (ended == NULL) ended = borrowed;
        work_end_at_once(ended, engine, op, found);
        *out = ended;
        if (ended == borrowed) return;
    }
    work_give_back(engine, borrowed);
}

/* Reports a message that has completed at once. */
static inline int complete_at_once(struct tutti_work *borrowed, struct tutti_group *group, const tutti_op *op,
                                   const tutti_opts *opts, struct tutti_work **out)
{
    struct work_message found = work_read_message(group, op, opts->group_rank, &borrowed->request);
    struct work_outs outs = work_outs_of(op, opts);
    work_report_message(&outs, &found);
    at_once_give(borrowed, group->engine, op, op->async ? &found : NULL, out);
    return TUTTI_REQUEST_DONE;
}

/* Ends a work whose request has completed with status before it was a work. */
static inline void at_once_end_work(struct tutti_work *work, int status)
{
    work->request.owner = work;
    work_complete(&work->request, status);
}

/* True if the caller asks for more than the operation's status, which a collective does not have. */
static inline bool wants_report(const tutti_op *op, const tutti_opts *opts)
{
    if (op->sequence != 0) return false;
    return op->async || opts->source != NULL || opts->received_tag != NULL || opts->received != NULL;
}

/* Reports a message that has failed at once. */
static __attribute__((noinline, unused)) void fail_at_once(struct tutti_work *borrowed, struct tutti_group *group,
                                                           const tutti_op *op, const tutti_opts *opts, uint32_t record,
                                                           int status)
{
    become_work(borrowed, group, op, opts);
    failure_explain(borrowed, &borrowed->request, status);
    record_end(&group->record_messages, record, status, 0);
    issue_count(group, op);
    group->stats->failed++;
    /* A loss may fail the group, which writes the record, too. */
    if (status != TUTTI_ERR_PEER_LOST) recorder_failed(group, status, error_text());
}

/* Records a collective that has failed at once.  Its number goes to the next one, unless the group has lost a rank:
 * then the group fails, which writes the record. */
static __attribute__((noinline, unused)) void fail_collective_at_once(struct tutti_group *group, uint32_t record,
                                                                      int status)
{
    record_end(&group->record, record, status, 0);
    if (status == TUTTI_ERR_PEER_LOST) return;
    char text[ERROR_TEXT_MAX];
    snprintf(text, sizeof text, "%s", error_text());
    recorder_failed(group, status, text);
    record_undo(&group->record, record);
    error_set(status, "%s", text);
}

/* Ends the beginning of op, whose backend has answered with status.  work: the one whose request was used.  Returns
 * what submit_at_once does. */
static inline __attribute__((always_inline)) int at_once_finish(struct tutti_work *work, struct tutti_group *group,
                                                                tutti_op *op, uint64_t fingerprint,
                                                                const tutti_opts *opts, uint32_t record, int status,
                                                                struct tutti_work **out)
{
    struct engine *engine = group->engine;
    struct record_ring *ring = group_record(group, op->sequence);
    if (status == TUTTI_REQUEST_PENDING) {
        int ended = work->status;
        become_work(work, group, op, opts);
        work->record = record;
        issue_detach_message(work, op);
        issue_enlist(work);
        *out = work;
        tool_started(op);
        issue_count(group, op);
        issue_advance(group, op, fingerprint);
        if (work->exec != NULL) {
            /* It is not ended here: a control message may explain its failure, and is handled first. */
            work_queue_run(work);
        } else if (work->request.owner == NULL) { /* it completed within the call */
            at_once_end_work(work, ended);
        }
        return status;
    }
    bool failed = status < 0 && status != TUTTI_ERR_UNSUPPORTED;
    if (status == TUTTI_REQUEST_DONE) {
        record_end(ring, record, TUTTI_OK, 0);
        issue_advance(group, op, fingerprint);
        issue_count(group, op);
        if (__builtin_expect(op->tool != NULL, 0)) tool_op_found(op->tool, &work->request);
        tool_ended(op, TUTTI_OK, NULL, false);
        if (wants_report(op, opts)) return complete_at_once(work, group, op, opts, out);
    } else if (failed && op->sequence == 0) {
        fail_at_once(work, group, op, opts, record, status);
    } else if (failed) {
        fail_collective_at_once(group, record, status);
    } else {
        record_undo(ring, record);
    }
    if (failed) tool_ended(op, status, error_text(), false);
    if (status == TUTTI_ERR_PEER_LOST) status = launch_explain_loss(group, op);
    work_give_back(engine, work); /* last: op may be its own */
    return status == TUTTI_REQUEST_COMPARE ? TUTTI_ERR_UNSUPPORTED : status;
}

static inline void at_once_hand_out(struct tutti_work *work, tutti_work **out)
{
    engine_add_handle(work->engine); /* a handle may outlive its group */
    *out = work;
}

#endif
