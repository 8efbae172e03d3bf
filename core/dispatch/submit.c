#include "dispatch/submit.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/dtype.h"
#include "base/error.h"
#include "base/log.h"
#include "base/sized.h"
#include "diagnose/health.h"
#include "dispatch/call_memo.h"
#include "dispatch/check.h"
#include "dispatch/coalesce.h"
#include "dispatch/dispatch.h"
#include "dispatch/hazards.h"
#include "dispatch/stage.h"
#include "group/failure.h"
#include "group/group.h"
#include "op/fingerprint.h"
#include "op/op.h"
#include "progress/engine_step.h"
#include "progress/engine_thread.h"
#include "progress/engine_wait.h"
#include "progress/work.h"

/* The call has returned: after an error the ranks are out of step. */
static void begin_late(struct tutti_work *work)
{
    int status = dispatch_work(work);
    if (status >= 0) return;
    work->request.owner = NULL; /* no backend has it */
    group_fail(work->group, status, error_text(), true);
}

/* What is begun may end others, or all where it fails the group. */
void submit_unblocked(struct tutti_group *first)
{
    struct tutti_group *group;
    TAILQ_FOREACH(group, &first->family, family_link)
    {
        struct tutti_work *work, *next;
        for (work = TAILQ_FIRST(&group->works); work != NULL && !group->failed; work = next) {
            next = TAILQ_NEXT(work, group_link);
            if (work->started || hazards_must_wait(work)) continue;
            group->engine->n_blocked--;
            if (next != NULL) next->references++;
            begin_late(work);
            if (next == NULL) continue;
            struct tutti_work *after = next;
            if (work_ended(next)) next = TAILQ_FIRST(&group->works);
            work_release_locked(after);
        }
    }
}

/* ---- submitting -------------------------------------------------------------------------------------------- */

/* The operation's place in its group; what its fingerprint is there. */
static uint64_t place(const struct tutti_group *group, tutti_op *op, uint64_t fingerprint, const tutti_opts *opts,
                      bool async)
{
    bool alone = op_is_message(op) || op->kind == TUTTI_COPY;
    op->async = async;
    op->timeout_ms = group_timeout(group, opts->timeout_ms);
    op->sequence = alone ? 0 : group->sequence + 1;
    return alone ? fingerprint : fingerprint_with_past(fingerprint, group->past);
}

/* Goes on to the next place. */
static void placed(struct tutti_group *group, const tutti_op *op, uint64_t fingerprint)
{
    if (op->sequence == 0) return;
    group->sequence++;
    group->past = fingerprint_past_after(group->past, fingerprint);
    health_issued(group->health, group->sequence, fingerprint);
}

/* What a caller who waits has given stays where it is. */
static void fill(struct tutti_work *work, struct tutti_group *group, const tutti_op *op, const tutti_opts *opts)
{
    work->op = *op;
    work->group = group;
    work->point_to_point = op->sequence == 0;
    work->async = op->async;
    work->outs = work_outs_of(op, opts);
    work->group_rank = opts->group_rank;
    work->deadline_ns = CLOCK_NEVER;
}

static int new_work(struct tutti_group *group, tutti_op *op, uint64_t fingerprint, const tutti_opts *opts, bool async,
                    struct tutti_work **out)
{
    struct tutti_work *work = work_take(group->engine);
    if (work == NULL) return error_set(TUTTI_ERR_NO_MEMORY, "no memory for an operation");
    work->fingerprint = place(group, op, fingerprint, opts, async);
    fill(work, group, op, opts);
    int status = TUTTI_OK;
    if (async) status = op_copy(&work->op, op, group->size, work->tensors, WORK_INLINE_TENSORS, &work->lists);
    if (status != TUTTI_OK) {
        work_release_locked(work);
        return status;
    }
    if (async)
        work_start_clock(work, clock_now_ns()); /* a caller who waits starts it once he finds that it takes long */
    *out = work;
    return TUTTI_OK;
}

/* What is staged takes its places among the collectives when it begins: at once, as its parts wait. */
static bool has_to_begin(const struct tutti_work *work)
{
    bool tensors = work->op.n_in + work->op.n_out > 0;
    return tensors && work->group->stager.backend != NULL && work->entry == NULL &&
           group_device_of(work->group, &work->op) == 1;
}

/* A backend that keeps the order by itself does not know of operations that are staged beside it: on the way to it the
 * host waits for those. */
static void let_staged_end(struct tutti_group *group, const tutti_op *op)
{
    struct tutti_work *work = TAILQ_FIRST(&group->works);
    if (group_device_of(group, op) == 0 || !group_takes_device(group->entries[1][0].backend, 1)) return;
    while (work != NULL) {
        if (work->stage == NULL) {
            work = TAILQ_NEXT(work, group_link);
            continue;
        }
        work->references++;
        engine_wait(group->engine, work, CLOCK_NEVER); /* its own deadline ends it */
        work_release_locked(work);
        work = TAILQ_FIRST(&group->works);
    }
}

static void enlist(struct tutti_work *work)
{
    hazards_enlist(work);
    TAILQ_INSERT_TAIL(&work->engine->active, work, link);
    TAILQ_INSERT_TAIL(&work->group->works, work, group_link);
    if (work->async) work->engine->n_async++;
    work->references++; /* the caller's */
}

/* Puts the work in its place and begins it; after an error it is as if it had never been. */
static int issue(struct tutti_work *work)
{
    struct tutti_group *group = work->group;
    struct engine *engine = group->engine;
    enlist(work);
    if (!has_to_begin(work) && hazards_must_wait(work)) {
        engine->n_blocked++;
    } else {
        int status = dispatch_work(work);
        if (status < 0) {
            TAILQ_REMOVE(&engine->active, work, link);
            TAILQ_REMOVE(&group->works, work, group_link);
            if (work->async) engine->n_async--;
            coalesce_drop(work->packing);
            work->references = 1;
            work_release_locked(work);
            return status;
        }
    }
    placed(group, &work->op, work->fingerprint);
    return TUTTI_OK;
}

static int check_usable(struct tutti_group *group, const tutti_op *op)
{
    if (group_is_usable(group)) return TUTTI_OK;
    const char *doing = tutti_kind_find(op->kind)->name;
    return op_is_message(op) ? group_check_usable(group, doing) : group_check_collective(group, doing);
}

int submit_make_way(struct tutti_group *group, const tutti_op *op)
{
    if (group->stager.backend == NULL) return TUTTI_OK;
    let_staged_end(group, op);
    return check_usable(group, op); /* time has passed */
}

/* Returns the error of an operation that could not begin because its peer is lost.  The peer may have left because of
 * another rank's failure, and its control message that says so may wait to be handled: one round of progress handles
 * it, and the group fails with that cause. */
static int explain_loss(struct tutti_group *group, const tutti_op *op)
{
    char text[ERROR_TEXT_MAX];
    snprintf(text, sizeof text, "%s", error_text());
    engine_step(group->engine);
    if (group->told != TUTTI_OK) group_fail(group, TUTTI_ERR_PEER_LOST, text, true); /* with the cause that was sent */
    int status = group->failed ? TUTTI_OK : check_usable(group, op);
    if (!group->failed) return status != TUTTI_OK ? status : error_set(TUTTI_ERR_PEER_LOST, "%s", text);
    group->failed_met = true;
    return error_set(group->failed, "%s", group->failed_text != NULL ? group->failed_text : text);
}

static int submit_locked(struct tutti_group *group, tutti_op *op, uint64_t fingerprint, const tutti_opts *opts,
                         bool async, struct tutti_work **work)
{
    int status = submit_make_way(group, op);
    if (status == TUTTI_OK) status = new_work(group, op, fingerprint, opts, async, work);
    if (status == TUTTI_OK) status = issue(*work);
    return status == TUTTI_ERR_PEER_LOST ? explain_loss(group, op) : status;
}

/* What a work that only lent its request becomes. */
static void become(struct tutti_work *work, struct tutti_group *group, const tutti_op *op, const tutti_opts *opts)
{
    work_clear(work, group->engine);
    fill(work, group, op, opts);
    work->started = true;
}

/* What the caller of a receive or a probe that is over wants to know. */
static void report_at_once(struct tutti_work *work, struct tutti_group *group, const tutti_op *op,
                           const tutti_opts *opts)
{
    work_clear(work, group->engine);
    fill(work, group, op, opts);
    work_learn_message(work, &work->request);
    work_report_message(work);
}

/* Most operations that are waited for are over when the backend has begun them: no work is made of these.
 * TUTTI_REQUEST_DONE; TUTTI_REQUEST_PENDING, with *out; UNSUPPORTED: nothing was begun, and the long way may take it;
 * another error: the operation's. */
static int submit_at_once(struct tutti_group *group, tutti_op *op, uint64_t fingerprint, const tutti_opts *opts,
                          struct tutti_work **out)
{
    struct engine *engine = group->engine;
    struct tutti_work *work = work_spare(engine);
    if (work == NULL) return TUTTI_ERR_UNSUPPORTED;
    fingerprint = place(group, op, fingerprint, opts, false);
    int status = dispatch_at_once(work, group, op, fingerprint);
    if (status == TUTTI_REQUEST_PENDING) {
        int ended = work->status;
        become(work, group, op, opts);
        enlist(work);
        *out = work;
        placed(group, op, fingerprint);
        if (work->exec != NULL) {
            work_queue_run(work); /* if it has failed, a note that came with the failure says why: that first */
        } else if (work->request.owner == NULL) { /* it has ended within the call */
            work->request.owner = work;
            work_complete(&work->request, ended);
        }
        return status;
    }
    if (status == TUTTI_REQUEST_DONE) {
        placed(group, op, fingerprint);
        if (opts->source != NULL || opts->received_tag != NULL || opts->received != NULL)
            report_at_once(work, group, op, opts);
    } else if (status < 0 && status != TUTTI_ERR_UNSUPPORTED && op->sequence == 0) {
        become(work, group, op, opts);
        failure_explain(work, &work->request, status);
    }
    work_give_back(engine, work);
    if (status == TUTTI_ERR_PEER_LOST) return explain_loss(group, op);
    return status == TUTTI_REQUEST_COMPARE ? TUTTI_ERR_UNSUPPORTED : status;
}

int submit_part(struct tutti_group *group, tutti_op *op, const tutti_opts *opts, struct tutti_work *parent,
                struct coalesce_packing *packing, bool *staged)
{
    struct tutti_work *work = NULL;
    int status = check_usable(group, op);
    if (status == TUTTI_OK) status = new_work(group, op, fingerprint_of(op, group->size), opts, true, &work);
    if (status != TUTTI_OK) {
        coalesce_drop(packing);
        return status;
    }
    work->packing = packing;
    work->parent = parent;
    parent->parts++;
    status = issue(work);
    *staged = status == TUTTI_OK && work->stage != NULL;
    if (status == TUTTI_OK)
        work_release_locked(work); /* the parent's handle stands for it */
    else
        parent->parts--;
    return status;
}

int submit_staged(struct tutti_work *whole, tutti_op *op, const struct backend_entry *entry)
{
    struct tutti_group *group = whole->group;
    tutti_opts opts = {.timeout_ms = whole->op.timeout_ms > 0 ? whole->op.timeout_ms : TUTTI_NOW,
                       .group_rank = whole->group_rank};
    struct tutti_work *work = NULL;
    const tutti_op *seen = op->kind == TUTTI_COPY ? op : &whole->op;
    int status = new_work(group, op, fingerprint_of(seen, group->size), &opts, true, &work);
    if (status != TUTTI_OK) return status;
    work->entry = entry;
    work->parent = whole;
    whole->parts++;
    status = issue(work);
    if (status == TUTTI_OK)
        work_release_locked(work);
    else
        whole->parts--;
    return status;
}

static int submit_work(tutti_op *op, const tutti_opts *opts, bool async, struct tutti_work **out)
{
    static const tutti_opts defaults;
    if (opts == NULL) opts = &defaults;
    struct tutti_group *group = group_for_call(opts->group);
    if (group == NULL) return TUTTI_ERR_INVALID_ARGUMENT;
    op->size = sizeof *op;
    op->tag = opts->tag;
    op->factor = opts->factor;
    op->stream = opts->stream;
    op->up_to = op->kind == TUTTI_RECV && opts->received != NULL;
    if (coalesce_is_open(group)) {
        int status = check_op(group, op, opts);
        if (status != TUTTI_OK) return status;
        if (async) *out = NULL;
        return coalesce_add(group, op, opts);
    }
    struct engine *engine = group->engine;
    struct tutti_work *work = NULL;
    uint64_t fingerprint;
    engine_lock(engine);
    int status = call_memo_check(group, op, opts, &fingerprint);
    if (status == TUTTI_OK) status = check_usable(group, op);
    if (status != TUTTI_OK) { /* who is refused drives nothing, and is no sign of life */
        engine_unlock(engine);
        return status;
    }
    engine_count_call(engine);
    int once = async ? TUTTI_ERR_UNSUPPORTED : submit_at_once(group, op, fingerprint, opts, &work);
    if (once == TUTTI_REQUEST_DONE || (once < 0 && once != TUTTI_ERR_UNSUPPORTED)) {
        engine_unlock(engine);
        return once == TUTTI_REQUEST_DONE ? TUTTI_OK : once;
    }
    group_hold(group); /* another thread may destroy it while this one waits */
    if (work == NULL) status = submit_locked(group, op, fingerprint, opts, async, &work);
    if (status == TUTTI_OK && async) {
        if (!work_ended(work)) engine_thread_notify(engine);
        engine_hold(engine); /* a handle may outlive its group */
        *out = work;
    } else if (status == TUTTI_OK) {
        if (!work_ended(work)) engine_wait(engine, work, CLOCK_NEVER); /* its own deadline ends it */
        status = work_result(work);
        work_release_locked(work);
    }
    engine_unlock(engine);
    group_drop(group);
    return status;
}

int submit(tutti_op *op, const tutti_opts *opts, size_t opts_bytes)
{
    tutti_opts copy;
    int status = SIZED_READ(tutti_opts, opts, opts_bytes, &copy);
    if (status != TUTTI_OK) return status;
    if (opts != NULL && opts->async_op != NULL) return submit_work(op, opts, true, opts->async_op);
    return submit_work(op, opts, false, NULL);
}

int submit_async(tutti_op *op, const tutti_opts *opts, size_t opts_bytes, tutti_work **work)
{
    tutti_opts copy;
    int status = SIZED_READ(tutti_opts, opts, opts_bytes, &copy);
    if (status != TUTTI_OK) return status;
    return submit_work(op, opts, true, work);
}

/* One round of progress.  engine_wait would let other threads in behind it. */
static bool ends_in_a_step(struct engine *engine, const struct tutti_work *work)
{
    engine_step(engine);
    return work_ended(work);
}

static int begin_probe(struct tutti_group *group, const tutti_op *probe, const tutti_opts *opts,
                       struct tutti_work **work)
{
    tutti_op op = *probe; /* the check changes it */
    uint64_t fingerprint;
    int status = call_memo_check(group, &op, opts, &fingerprint);
    if (status == TUTTI_OK) status = check_usable(group, &op);
    return status == TUTTI_OK ? submit_locked(group, &op, fingerprint, opts, false, work) : status;
}

/* Begins a probe and leaves it when it finds nothing in one round, in which the lock may be let go, or, with `holds`,
 * is not.  *found: it has. */
static int look(struct tutti_group *group, const tutti_op *probe, const tutti_opts *opts, bool holds, bool *found)
{
    struct tutti_work *work = NULL;
    *found = false;
    int status = begin_probe(group, probe, opts, &work);
    if (status != TUTTI_OK) return status;
    struct engine *engine = group->engine;
    *found = work_ended(work) || (holds ? ends_in_a_step(engine, work) : engine_wait(engine, work, 0));
    if (*found) status = work_result(work);
    if (!*found) work_withdraw(work, TUTTI_ERR_ABORTED, "nothing was there");
    work_release_locked(work);
    return status;
}

static int wait_for_message(struct tutti_group *group, const tutti_op *probe, const tutti_opts *opts)
{
    struct tutti_work *work = NULL;
    int status = begin_probe(group, probe, opts, &work);
    if (status != TUTTI_OK) return status;
    if (!work_ended(work)) engine_wait(group->engine, work, CLOCK_NEVER); /* its own deadline ends it */
    status = work_result(work);
    work_release_locked(work);
    return status;
}

/* The same op, as its caller gave it, with opts' own fields in it. */
static tutti_op with_opts(const tutti_op *given, const tutti_opts *opts)
{
    tutti_op op = *given;
    op.size = sizeof op;
    op.tag = opts->tag;
    return op;
}

int submit_look(const tutti_op *given, const tutti_opts *opts, bool *found)
{
    struct tutti_group *group = group_for_call(opts->group);
    if (group == NULL) return TUTTI_ERR_INVALID_ARGUMENT;
    struct engine *engine = group->engine;
    tutti_op op = with_opts(given, opts);
    engine_lock(engine);
    engine_count_call(engine);
    group_hold(group);
    int status = look(group, &op, opts, false, found);
    engine_unlock(engine);
    if (!*found && !engine->own_core) sched_yield(); /* the sender may need this core */
    group_drop(group);
    return status;
}

static int take_found(struct tutti_group *group, tutti_tensor tensor, int source, const tutti_opts *opts)
{
    tutti_op op = with_opts(&(tutti_op){.kind = TUTTI_RECV, .root = source, .n_out = 1, .out = &tensor}, opts);
    struct tutti_work *work = NULL;
    uint64_t fingerprint;
    int status = call_memo_check(group, &op, opts, &fingerprint);
    if (status == TUTTI_OK) status = submit_locked(group, &op, fingerprint, opts, false, &work);
    if (status != TUTTI_OK) return status;
    if (!work_ended(work)) engine_wait(group->engine, work, CLOCK_NEVER);
    status = work_result(work);
    work_release_locked(work);
    return status;
}

/* The message is there, and stays there while the lock is held. */
static int take_bytes(struct tutti_group *group, const tutti_opts *found, tutti_bytes *out)
{
    /* Its data may still have to come: with TUTTI_NOW, too, the receive has the group's time. */
    tutti_opts opts = {.timeout_ms = found->timeout_ms > 0 ? found->timeout_ms : 0,
                       .tag = *found->received_tag,
                       .group_rank = found->group_rank};
    size_t bytes = (size_t)*found->received;
    void *data = malloc(bytes > 0 ? bytes : 1);
    if (data == NULL) return error_set(TUTTI_ERR_NO_MEMORY, "recv_bytes: no memory for %zu bytes", bytes);
    int status = take_found(group, tutti_tensor_of(data, (int64_t)bytes, TUTTI_UINT8), *found->source, &opts);
    if (status == TUTTI_OK)
        *out = (tutti_bytes){data, bytes};
    else
        free(data);
    return status;
}

int submit_recv_bytes(const tutti_op *given, const tutti_opts *opts, tutti_bytes *out)
{
    struct tutti_group *group = group_for_call(opts->group);
    if (group == NULL) return TUTTI_ERR_INVALID_ARGUMENT;
    tutti_op op = with_opts(given, opts);
    engine_lock(group->engine);
    engine_count_call(group->engine);
    group_hold(group);
    bool found = false;
    int status = look(group, &op, opts, true, &found);
    while (status == TUTTI_OK && !found) { /* another thread may take what has come while this one waits */
        status = wait_for_message(group, &op, opts);
        if (status == TUTTI_OK) status = look(group, &op, opts, true, &found);
    }
    if (status == TUTTI_OK) status = take_bytes(group, opts, out);
    engine_unlock(group->engine);
    group_drop(group);
    return status;
}

static tutti_op message_op(const tutti_p2p_op *message)
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

/* A message of a batch, checked. */
struct checked_message {
    tutti_op op;
    uint64_t fingerprint;
};

static tutti_opts opts_of(const tutti_p2p_op *message, const tutti_opts *opts)
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
            return error_set(TUTTI_ERR_INVALID_ARGUMENT, "batch_isend_irecv: ops[%d] is neither a send nor a receive",
                             i);
        tutti_opts each = opts_of(&ops[i], opts);
        checked[i].op = message_op(&ops[i]);
        checked[i].op.size = sizeof checked[i].op;
        checked[i].op.stream = opts->stream;
        status = call_memo_check(group, &checked[i].op, &each, &checked[i].fingerprint);
    }
    return status;
}

/* Begins those of one kind. */
static int begin_batch(struct tutti_group *group, const tutti_p2p_op *ops, int n, tutti_kind kind,
                       const tutti_opts *opts, struct checked_message *checked, tutti_work **works)
{
    int status = TUTTI_OK;
    for (int i = 0; i < n && status == TUTTI_OK; i++) {
        if (ops[i].kind != kind) continue;
        tutti_opts each = opts_of(&ops[i], opts);
        status = submit_locked(group, &checked[i].op, checked[i].fingerprint, &each, true, &works[i]);
        if (status != TUTTI_OK) works[i] = NULL;
    }
    return status;
}

/* Receives first: what peers send meanwhile then goes where it belongs. */
static int begin_together(struct tutti_group *group, const tutti_p2p_op *ops, int n, const tutti_opts *opts,
                          struct checked_message *checked, tutti_work **works)
{
    int status = coalesce_tell(group, true);
    if (status == TUTTI_OK) status = begin_batch(group, ops, n, TUTTI_RECV, opts, checked, works);
    if (status == TUTTI_OK) status = begin_batch(group, ops, n, TUTTI_SEND, opts, checked, works);
    return coalesce_tell_end(group, status);
}

/* Gives the works to the caller, or, after an error, gives them up: those that were begun go on. */
static void hand_out(struct engine *engine, int n, bool gives, tutti_work **works)
{
    bool attend = false;
    for (int i = 0; i < n; i++) {
        if (works[i] == NULL) continue;
        attend |= !work_ended(works[i]);
        if (gives) {
            engine_hold(engine); /* a handle may outlive its group */
            continue;
        }
        work_release_locked(works[i]);
        works[i] = NULL;
    }
    if (attend) engine_thread_notify(engine);
}

static int submit_together(struct tutti_group *group, const tutti_p2p_op *ops, int n, const tutti_opts *opts,
                           struct checked_message *checked, tutti_work **works)
{
    struct engine *engine = group->engine;
    memset(works, 0, (size_t)n * sizeof *works);
    engine_lock(engine);
    int status = check_batch(group, ops, n, opts, checked);
    if (status == TUTTI_OK && n > 0) status = check_usable(group, &checked[0].op);
    if (status != TUTTI_OK) {
        engine_unlock(engine);
        return status;
    }
    engine_count_call(engine);
    group_hold(group);
    status = begin_together(group, ops, n, opts, checked, works);
    hand_out(engine, n, status == TUTTI_OK, works);
    engine_unlock(engine);
    group_drop(group);
    return status;
}

/* Between coalesce_begin and _end, or where one message may have to wait until another is staged. */
static int submit_each(const tutti_p2p_op *ops, int n, const tutti_opts *opts, tutti_work **works)
{
    for (int i = 0; i < n; i++) {
        tutti_op op = message_op(&ops[i]);
        tutti_opts each = opts_of(&ops[i], opts);
        int status = submit_work(&op, &each, true, &works[i]);
        if (status == TUTTI_OK) continue;
        while (i-- > 0) { /* those before go on; their handles are of no use to a caller who has an error */
            if (works[i] != NULL) work_give_up(works[i]); /* NULL: it is coalesced */
            works[i] = NULL;
        }
        return status;
    }
    return TUTTI_OK;
}

int submit_batch(const tutti_p2p_op *ops, int n, const tutti_opts *given, tutti_work **works)
{
    tutti_opts opts = given != NULL ? *given : (tutti_opts){0};
    struct tutti_group *group = group_for_call(opts.group);
    if (group == NULL) return TUTTI_ERR_INVALID_ARGUMENT;
    opts.received = NULL;
    opts.received_tag = NULL;
    struct checked_message *checked = malloc((size_t)n * sizeof *checked + 1);
    if (checked == NULL) return error_set(TUTTI_ERR_NO_MEMORY, "no memory for a batch of %d messages", n);
    int status;
    if (coalesce_is_open(group) || group->stager.backend != NULL) {
        engine_lock(group->engine);
        status = check_batch(group, ops, n, &opts, checked);
        engine_unlock(group->engine);
        if (status == TUTTI_OK) status = submit_each(ops, n, &opts, works);
    } else {
        status = submit_together(group, ops, n, &opts, checked, works);
    }
    free(checked);
    return status;
}
