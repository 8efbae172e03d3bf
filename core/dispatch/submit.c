#include "dispatch/submit.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/sized.h"
#include "diagnose/recorder.h"
#include "dispatch/call_memo.h"
#include "dispatch/check.h"
#include "dispatch/coalesce.h"
#include "dispatch/dispatch.h"
#include "dispatch/issue.h"
#include "dispatch/launch.h"
#include "group/failure.h"
#include "group/group.h"
#include "group/group_check.h"
#include "progress/engine_thread.h"
#include "progress/engine_wait.h"
#include "tool/tool.h"

/* Turns a struct whose request dispatch_at_once has used into a work. */
static void become_work(struct tutti_work *work, struct tutti_group *group, const tutti_op *op, const tutti_opts *opts)
{
    work_clear(work, group->engine);
    issue_fill(work, group, op, opts);
    work->started = true;
}

/* Reports a message that has completed at once.  Makes a Work of it in *out if the call is async, else gives back the
 * work whose request was borrowed.  The next call borrows the same one, which is still cached. */
static int complete_at_once(struct tutti_work *borrowed, struct tutti_group *group, const tutti_op *op,
                            const tutti_opts *opts, struct tutti_work **out)
{
    struct engine *engine = group->engine;
    struct work_message found = work_read_message(group, op, opts->group_rank, &borrowed->request);
    struct work_outs outs = work_outs_of(op, opts);
    work_report_message(&outs, &found);
    if (op->async) {
        struct tutti_work *ended = work_spare(engine);
        if (ended == NULL) ended = borrowed;
        work_end_at_once(ended, engine, op, &found);
        *out = ended;
        if (ended == borrowed) return TUTTI_REQUEST_DONE;
    }
    work_give_back(engine, borrowed);
    return TUTTI_REQUEST_DONE;
}

/* True if the caller asks for more than the operation's status. */
static bool wants_report(const tutti_op *op, const tutti_opts *opts)
{
    return op->async || opts->source != NULL || opts->received_tag != NULL || opts->received != NULL;
}

/* Reports a message that has failed at once. */
static void fail_at_once(struct tutti_work *borrowed, struct tutti_group *group, const tutti_op *op,
                         const tutti_opts *opts, uint32_t record, int status)
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
static __attribute__((noinline)) void fail_collective_at_once(struct tutti_group *group, uint32_t record, int status)
{
    record_end(&group->record, record, status, 0);
    if (status == TUTTI_ERR_PEER_LOST) return;
    char text[ERROR_TEXT_MAX];
    snprintf(text, sizeof text, "%s", error_text());
    recorder_failed(group, status, text);
    record_undo(&group->record, record);
    error_set(status, "%s", text);
}

/* Does submit_at_once's work.  Inline in the path of single calls. */
static inline __attribute__((always_inline)) int dispatch_or_finish(struct tutti_group *group, tutti_op *op,
                                                                    uint64_t fingerprint,
                                                                    const struct backend_entry *entry,
                                                                    const tutti_opts *opts, struct tutti_work **out)
{
    struct engine *engine = group->engine;
    struct tutti_work *work = work_spare(engine);
    if (work == NULL) return TUTTI_ERR_UNSUPPORTED;
    fingerprint = issue_place(group, op, fingerprint, opts, op->async);
    struct record_ring *ring = group_record(group, op->sequence);
    uint32_t record = record_issue(ring, &engine->now_ns, op, fingerprint);
    if (__builtin_expect(group->tool != NULL, 0) && group->stager.backend == NULL) /* else launch may wait */
        tool_op_issue(group->tool, op);
    int status = dispatch_at_once(work, group, op, fingerprint, entry);
    if (status == TUTTI_REQUEST_PENDING) {
        int ended = work->status;
        become_work(work, group, op, opts);
        work->record = record;
        issue_detach_message(work);
        issue_enlist(work);
        *out = work;
        tool_started(op);
        issue_count(group, op);
        issue_advance(group, op, fingerprint);
        if (work->exec != NULL) {
            /* It is not ended here: a control message may explain its failure, and is handled first. */
            work_queue_run(work);
        } else if (work->request.owner == NULL) { /* it completed within the call */
            work->request.owner = work;
            work_complete(&work->request, ended);
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
    work_give_back(engine, work);
    if (status == TUTTI_ERR_PEER_LOST) return launch_explain_loss(group, op);
    return status == TUTTI_REQUEST_COMPARE ? TUTTI_ERR_UNSUPPORTED : status;
}

int submit_at_once(struct tutti_group *group, tutti_op *op, uint64_t fingerprint, const struct backend_entry *entry,
                   const tutti_opts *opts, struct tutti_work **out)
{
    return dispatch_or_finish(group, op, fingerprint, entry, opts, out);
}

/* Fills the fields of op that come from the options. */
static inline void fill_op(tutti_op *op, const tutti_opts *opts, bool async)
{
    op->size = sizeof *op;
    op->async = async;
    op->tag = opts->tag;
    op->factor = opts->factor;
    op->stream = opts->stream;
    op->up_to = op->kind == TUTTI_RECV && opts->received != NULL;
}

/* Checks op and keeps it until the end of the coalesced range. */
static int keep_op(struct tutti_group *group, tutti_op *op, const tutti_opts *opts, tutti_work **out)
{
    int status = check_op(group, op, opts);
    if (status != TUTTI_OK) return status;
    if (out != NULL) *out = NULL;
    return coalesce_add(group, op, opts);
}

static void hand_out(struct tutti_work *work, tutti_work **out)
{
    engine_add_handle(work->engine); /* a handle may outlive its group */
    *out = work;
}

/* Submits op with the library's own options.  out: where an async call gets its Work, or NULL. */
static int submit_to(tutti_op *op, const tutti_opts *opts, tutti_work **out)
{
    static const tutti_opts defaults;
    if (opts == NULL) opts = &defaults;
    struct tutti_group *group = group_for_call(opts->group);
    if (group == NULL) return TUTTI_ERR_INVALID_ARGUMENT;
    bool async = out != NULL;
    fill_op(op, opts, async);
    if (coalesce_is_open(group)) return keep_op(group, op, opts, out);
    struct engine *engine = group->engine;
    struct tutti_work *work = NULL;
    uint64_t fingerprint;
    engine_lock(engine);
    int status = call_memo_check(group, op, opts, &fingerprint);
    if (status == TUTTI_OK) status = issue_check_usable(group, op);
    if (status != TUTTI_OK) { /* a refused call does not poll */
        engine_unlock(engine);
        return status;
    }
    engine_count_call(engine);
    int once = TUTTI_ERR_UNSUPPORTED;
    if (!async || op_is_message(op))
        once = dispatch_or_finish(group, op, fingerprint, group->call_memos[op->kind].entry, opts, &work);
    if (once == TUTTI_REQUEST_DONE || (once < 0 && once != TUTTI_ERR_UNSUPPORTED)) {
        if (work != NULL) hand_out(work, out);
        engine_unlock(engine);
        return once == TUTTI_REQUEST_DONE ? TUTTI_OK : once;
    }
    bool waits = !async || group->stager.backend != NULL;
    if (waits) group_hold(group); /* another thread may destroy the group meanwhile */
    if (work == NULL) status = launch_operation(group, op, fingerprint, opts, async, &work);
    if (status == TUTTI_OK && async) {
        engine_take_round(engine);
        if (!work_ended(work)) engine_thread_notify(engine);
        hand_out(work, out);
    } else if (status == TUTTI_OK) {
        if (!work_ended(work)) engine_wait(engine, work, CLOCK_NEVER); /* it ends by its own deadline */
        status = work_result(work);
        work_release_locked(work);
    }
    engine_unlock(engine);
    if (waits) group_drop(group);
    return status;
}

int submit(tutti_op *op, const tutti_opts *opts, size_t opts_bytes)
{
    tutti_opts copy;
    int status = SIZED_READ(tutti_opts, opts, opts_bytes, &copy);
    return status == TUTTI_OK ? submit_to(op, opts, opts != NULL ? opts->async_op : NULL) : status;
}

int submit_async(tutti_op *op, const tutti_opts *opts, size_t opts_bytes, tutti_work **work)
{
    tutti_opts copy;
    int status = SIZED_READ(tutti_opts, opts, opts_bytes, &copy);
    return status == TUTTI_OK ? submit_to(op, opts, work) : status;
}
