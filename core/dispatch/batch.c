#include "dispatch/batch.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "dispatch/call_memo.h"
#include "dispatch/coalesce.h"
#include "dispatch/issue.h"
#include "dispatch/launch.h"
#include "dispatch/message.h"
#include "dispatch/submit.h"
#include "group/group.h"
#include "group/group_check.h"
#include "progress/engine_thread.h"

static tutti_op make_op(const tutti_p2p_op *message)
{
    bool send = message->kind == TUTTI_SEND;
    return (tutti_op){.kind = message->kind,
                      .root = message->peer,
                      .tag = message->tag,
                      .n_in = send,
                      .in = &message->tensor,
                      .n_out = !send,
                      .out = &message->tensor};
}

/* A checked message of a batch. */
struct checked_message {
    tutti_op op;
    struct checked_call call;
};

static tutti_opts make_opts(const tutti_p2p_op *message, const tutti_opts *opts)
{
    tutti_opts each = *opts;
    each.tag = message->tag;
    each.source = message->source;
    return each;
}

static int check_batch(struct tutti_group *group, const tutti_p2p_op *ops, int n, const tutti_opts *opts,
                       struct checked_message *checked)
{
    int status = TUTTI_OK;
    for (int i = 0; i < n && status == TUTTI_OK; i++) {
        if (ops[i].kind != TUTTI_SEND && ops[i].kind != TUTTI_RECV)
            return error_set(
                TUTTI_ERR_INVALID_ARGUMENT,
                "batch_isend_irecv: ops[%d] is neither a send nor a receive; set its kind to TUTTI_SEND or TUTTI_RECV",
                i);
        tutti_opts each = make_opts(&ops[i], opts);
        checked[i].op = make_op(&ops[i]);
        checked[i].op.size = sizeof checked[i].op;
        checked[i].op.stream = opts->stream;
        status = call_memo_check(group, &checked[i].op, &each, &checked[i].call);
    }
    return status;
}

static int launch_message(struct tutti_group *group, const tutti_p2p_op *given, struct checked_message *message,
                          const tutti_opts *opts, tutti_work **work)
{
    bool sends = given->kind == TUTTI_SEND;
    message->op.async = true;
    int status = message_issue(group, sends, &given->tensor, given->peer, opts, work);
    if (status == TUTTI_ERR_UNSUPPORTED) status = submit_at_once(group, &message->op, &message->call, opts, work);
    if (status != TUTTI_ERR_UNSUPPORTED) return status < 0 ? status : TUTTI_OK;
    return launch_operation(group, &message->op, message->call.fingerprint, opts, true, work);
}

/* Launches the messages of one kind. */
static int launch_kind(struct tutti_group *group, const tutti_p2p_op *ops, int n, tutti_kind kind,
                       const tutti_opts *opts, struct checked_message *checked, tutti_work **works)
{
    int status = TUTTI_OK;
    for (int i = 0; i < n && status == TUTTI_OK; i++) {
        if (ops[i].kind != kind) continue;
        tutti_opts each = make_opts(&ops[i], opts);
        status = launch_message(group, &ops[i], &checked[i], &each, &works[i]);
        if (status != TUTTI_OK) works[i] = NULL;
    }
    return status;
}

/* Launches receives first, so that messages which peers send meanwhile find them. */
static int launch_together(struct tutti_group *group, const tutti_p2p_op *ops, int n, const tutti_opts *opts,
                           struct checked_message *checked, tutti_work **works)
{
    int status = coalesce_mark(group);
    if (status == TUTTI_OK) status = launch_kind(group, ops, n, TUTTI_RECV, opts, checked, works);
    if (status == TUTTI_OK) status = launch_kind(group, ops, n, TUTTI_SEND, opts, checked, works);
    return coalesce_unmark(group, status);
}

/* Hands the works to the caller.  After an error it drops them instead; works that were launched continue. */
static void pass_works(struct engine *engine, int n, bool gives, tutti_work **works)
{
    bool attend = false;
    for (int i = 0; i < n; i++) {
        if (works[i] == NULL) continue;
        attend |= !work_ended(works[i]);
        if (gives) {
            engine_add_handle(engine); /* a handle may outlive its group */
            continue;
        }
        work_release_locked(works[i]);
        works[i] = NULL;
    }
    if (attend) engine_thread_notify(engine);
}

static int launch_batch(struct tutti_group *group, const tutti_p2p_op *ops, int n, const tutti_opts *opts,
                        struct checked_message *checked, tutti_work **works)
{
    struct engine *engine = group->engine;
    memset(works, 0, (size_t)n * sizeof *works);
    engine_lock(engine);
    int status = check_batch(group, ops, n, opts, checked);
    if (status == TUTTI_OK && n > 0) status = issue_check_usable(group, &checked[0].op);
    if (status != TUTTI_OK) {
        engine_unlock(engine);
        return status;
    }
    engine_count_call(engine);
    group_hold(group);
    status = launch_together(group, ops, n, opts, checked, works);
    pass_works(engine, n, status == TUTTI_OK, works);
    engine_unlock(engine);
    group_drop(group);
    return status;
}

/* Submits each message on its own: the range is coalesced, or one message may have to wait until another is staged. */
static int submit_each(const tutti_p2p_op *ops, int n, const tutti_opts *opts, tutti_work **works)
{
    for (int i = 0; i < n; i++) {
        tutti_op op = make_op(&ops[i]);
        tutti_opts each = make_opts(&ops[i], opts);
        int status = submit_async(&op, &each, sizeof each, &works[i]);
        if (status == TUTTI_OK) continue;
        while (i-- > 0) { /* earlier messages continue, but the caller gets an error and no handles */
            if (works[i] != NULL) work_give_up(works[i]); /* NULL: coalesced */
            works[i] = NULL;
        }
        return status;
    }
    return TUTTI_OK;
}

int batch_submit(const tutti_p2p_op *ops, int n, const tutti_opts *given, tutti_work **works)
{
    tutti_opts opts = given != NULL ? *given : (tutti_opts){0};
    struct tutti_group *group = group_for_call(opts.group);
    if (group == NULL) return TUTTI_ERR_INVALID_ARGUMENT;
    if (opts.received != NULL || opts.received_tag != NULL)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                         "batch_isend_irecv: %s of opts is set, but a batch may have several receives; use tutti_irecv "
                         "for this one",
                         opts.received != NULL ? "received" : "received_tag");
    struct checked_message *checked = malloc((size_t)n * sizeof *checked + 1);
    if (checked == NULL) return error_set(TUTTI_ERR_NO_MEMORY, "out of memory for a batch of %d messages", n);
    int status;
    if (coalesce_is_open(group) || group->stager.backend != NULL) {
        engine_lock(group->engine);
        status = check_batch(group, ops, n, &opts, checked);
        engine_unlock(group->engine);
        if (status == TUTTI_OK) status = submit_each(ops, n, &opts, works);
    } else {
        status = launch_batch(group, ops, n, &opts, checked, works);
    }
    free(checked);
    return status;
}
