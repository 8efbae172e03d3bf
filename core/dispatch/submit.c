#include "dispatch/submit.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/sized.h"
#include "diagnose/recorder.h"
#include "dispatch/at_once.h"
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

/* Does submit_at_once's work.  Inline in the path of single calls. */
static inline __attribute__((always_inline)) int dispatch_or_finish(struct tutti_group *group, tutti_op *op,
                                                                    const struct checked_call *call,
                                                                    const tutti_opts *opts, struct tutti_work **out)
{
    struct engine *engine = group->engine;
    struct tutti_work *work = work_spare(engine);
    if (work == NULL) return TUTTI_ERR_UNSUPPORTED;
    uint64_t fingerprint = issue_place(group, op, call->fingerprint, opts, op->async);
    struct record_ring *ring = group_record(group, op->sequence);
    uint32_t record = record_issue(ring, &engine->now_ns, op, fingerprint);
    if (__builtin_expect(group->tool != NULL, 0) && group->stager.backend == NULL) /* else launch may wait */
        tool_op_issue(group->tool, op);
    int status = dispatch_at_once(work, group, op, fingerprint, call->entry);
    return at_once_finish(work, group, op, fingerprint, opts, record, status, out);
}

int submit_at_once(struct tutti_group *group, tutti_op *op, const struct checked_call *call, const tutti_opts *opts,
                   struct tutti_work **out)
{
    return dispatch_or_finish(group, op, call, opts, out);
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

/* Passes the work of an asynchronous call to the caller.  Lock held. */
static inline void pass(struct tutti_work *work, tutti_work **out)
{
    engine_take_round(work->engine);
    if (!work_ended(work)) engine_thread_notify(work->engine);
    at_once_hand_out(work, out);
}

/* Waits for the work of a blocking call, and frees it.  Lock held. */
static int wait_for(struct tutti_work *work)
{
    if (!work_ended(work)) engine_wait(work->engine, work, CLOCK_NEVER); /* it ends by its own deadline */
    int status = work_result(work);
    work_release_locked(work);
    return status;
}

int submit_finish(struct tutti_group *group, struct tutti_work *work, tutti_work **out)
{
    struct engine *engine = group->engine;
    if (out != NULL) {
        pass(work, out);
        engine_unlock(engine);
        return TUTTI_OK;
    }
    group_hold(group); /* another thread may destroy the group meanwhile */
    int status = wait_for(work);
    engine_unlock(engine);
    group_drop(group);
    return status;
}

int submit_to(tutti_op *op, const tutti_opts *opts, tutti_work **out)
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
    struct checked_call call;
    engine_lock(engine);
    int status = call_memo_check(group, op, opts, &call);
    if (status == TUTTI_OK) status = issue_check_usable(group, op);
    if (status != TUTTI_OK) { /* a refused call does not poll */
        engine_unlock(engine);
        return status;
    }
    engine_count_call(engine);
    int once = TUTTI_ERR_UNSUPPORTED;
    if (!async || op_is_message(op)) once = dispatch_or_finish(group, op, &call, opts, &work);
    if (once == TUTTI_REQUEST_DONE || (once < 0 && once != TUTTI_ERR_UNSUPPORTED)) {
        if (work != NULL) at_once_hand_out(work, out);
        engine_unlock(engine);
        return once == TUTTI_REQUEST_DONE ? TUTTI_OK : once;
    }
    bool waits = !async || group->stager.backend != NULL;
    if (waits) group_hold(group); /* another thread may destroy the group meanwhile */
    if (work == NULL) status = launch_operation(group, op, call.fingerprint, opts, async, &work);
    if (status == TUTTI_OK && async)
        pass(work, out);
    else if (status == TUTTI_OK)
        status = wait_for(work);
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
