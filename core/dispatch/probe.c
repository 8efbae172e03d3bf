#include "dispatch/probe.h"

#include <sched.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "dispatch/call_memo.h"
#include "dispatch/issue.h"
#include "dispatch/launch.h"
#include "group/group.h"
#include "group/group_check.h"
#include "progress/engine_step.h"
#include "progress/engine_wait.h"

/* Runs one round of progress without letting other threads in, as engine_wait would.  Returns true if work has
 * ended. */
static bool ends_in_one_round(struct engine *engine, const struct tutti_work *work)
{
    engine_step(engine);
    return work_ended(work);
}

static int launch_probe(struct tutti_group *group, const tutti_op *probe, const tutti_opts *opts,
                        struct tutti_work **work)
{
    tutti_op op = *probe; /* check_op changes it */
    struct checked_call call;
    int status = call_memo_check(group, &op, opts, &call);
    if (status == TUTTI_OK) status = issue_check_usable(group, &op);
    return status == TUTTI_OK ? launch_operation(group, &op, call.fingerprint, opts, false, work) : status;
}

/* Launches a probe and withdraws it if it finds nothing in one round.  With `holds` the lock is held all the time.
 * Sets *found. */
static int look_once(struct tutti_group *group, const tutti_op *probe, const tutti_opts *opts, bool holds, bool *found)
{
    struct tutti_work *work = NULL;
    *found = false;
    int status = launch_probe(group, probe, opts, &work);
    if (status != TUTTI_OK) return status;
    struct engine *engine = group->engine;
    *found = work_ended(work) || (holds ? ends_in_one_round(engine, work) : engine_wait(engine, work, 0));
    if (*found) status = work_result(work);
    if (!*found) work_withdraw(work, TUTTI_ERR_ABORTED, "no matching message has arrived");
    work_release_locked(work);
    return status;
}

static int wait_for_message(struct tutti_group *group, const tutti_op *probe, const tutti_opts *opts)
{
    struct tutti_work *work = NULL;
    int status = launch_probe(group, probe, opts, &work);
    if (status != TUTTI_OK) return status;
    if (!work_ended(work)) engine_wait(group->engine, work, CLOCK_NEVER); /* it ends by its own deadline */
    status = work_result(work);
    work_release_locked(work);
    return status;
}

/* Returns op with tag and size filled in. */
static tutti_op with_opts(const tutti_op *given, const tutti_opts *opts)
{
    tutti_op op = *given;
    op.size = sizeof op;
    op.tag = opts->tag;
    return op;
}

int probe_now(const tutti_op *given, const tutti_opts *opts, bool *found)
{
    struct tutti_group *group = group_for_call(opts->group);
    if (group == NULL) return TUTTI_ERR_INVALID_ARGUMENT;
    struct engine *engine = group->engine;
    tutti_op op = with_opts(given, opts);
    engine_lock(engine);
    engine_count_call(engine);
    group_hold(group);
    int status = look_once(group, &op, opts, false, found);
    engine_unlock(engine);
    if (!*found && !engine->own_core) sched_yield(); /* the sender may need this core */
    group_drop(group);
    return status;
}

static int receive_found(struct tutti_group *group, tutti_tensor tensor, int source, const tutti_opts *opts)
{
    tutti_op op = with_opts(&(tutti_op){.kind = TUTTI_RECV, .root = source, .n_out = 1, .out = &tensor}, opts);
    struct tutti_work *work = NULL;
    struct checked_call call;
    int status = call_memo_check(group, &op, opts, &call);
    if (status == TUTTI_OK) status = launch_operation(group, &op, call.fingerprint, opts, false, &work);
    if (status != TUTTI_OK) return status;
    if (!work_ended(work)) engine_wait(group->engine, work, CLOCK_NEVER);
    status = work_result(work);
    work_release_locked(work);
    return status;
}

/* Receives the message that a probe has found.  No other thread can receive it while the lock is held. */
static int receive_bytes(struct tutti_group *group, const tutti_opts *found, tutti_bytes *out)
{
    /* The data may still be on its way, so the receive has the group's timeout even with TUTTI_NOW. */
    tutti_opts opts = {.timeout_ms = found->timeout_ms > 0 ? found->timeout_ms : 0,
                       .tag = *found->received_tag,
                       .group_rank = found->group_rank};
    size_t bytes = (size_t)*found->received;
    void *data = malloc(bytes > 0 ? bytes : 1);
    if (data == NULL) return error_set(TUTTI_ERR_NO_MEMORY, "recv_bytes: out of memory for %zu bytes", bytes);
    int status = receive_found(group, tutti_tensor_of(data, (int64_t)bytes, TUTTI_UINT8), *found->source, &opts);
    if (status == TUTTI_OK)
        *out = (tutti_bytes){data, bytes};
    else
        free(data);
    return status;
}

int probe_recv_bytes(const tutti_op *given, const tutti_opts *opts, tutti_bytes *out)
{
    struct tutti_group *group = group_for_call(opts->group);
    if (group == NULL) return TUTTI_ERR_INVALID_ARGUMENT;
    tutti_op op = with_opts(given, opts);
    engine_lock(group->engine);
    engine_count_call(group->engine);
    group_hold(group);
    bool found = false;
    int status = look_once(group, &op, opts, true, &found);
    while (status == TUTTI_OK && !found) { /* another thread may receive the message while this one waits */
        status = wait_for_message(group, &op, opts);
        if (status == TUTTI_OK) status = look_once(group, &op, opts, true, &found);
    }
    if (status == TUTTI_OK) status = receive_bytes(group, opts, out);
    engine_unlock(group->engine);
    group_drop(group);
    return status;
}
