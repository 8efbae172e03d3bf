#include "submit.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/dtype.h"
#include "base/error.h"
#include "base/log.h"
#include "cache.h"
#include "check.h"
#include "coalesce.h"
#include "fingerprint.h"
#include "group.h"
#include "health.h"
#include "op.h"
#include "stage.h"
#include "work.h"

/* 0 for CPU, 1 for CUDA: the group's where the operation has no tensors. */
static int device_of(const struct tutti_group *group, const tutti_op *op)
{
    return group_device_index(op->n_in > 0 ? op->in[0].device : op->n_out > 0 ? op->out[0].device : group->device);
}

static bool is_message(const struct tutti_work *work)
{
    return work->op.kind == TUTTI_SEND || work->op.kind == TUTTI_RECV;
}

static bool is_copy(const struct tutti_work *work)
{
    return work->op.kind == TUTTI_COPY;
}

/* ---- order by memory --------------------------------------------------------------------------------------- */

static bool touches(const tutti_tensor *a, int na, const tutti_tensor *b, int nb)
{
    for (int i = 0; i < na; i++)
        for (int k = 0; k < nb; k++)
            if (op_overlap(op_span_of(&a[i]), op_span_of(&b[k]))) return true;
    return false;
}

bool submit_conflicts(const tutti_op *a, const tutti_op *b)
{
    return touches(a->out, a->n_out, b->out, b->n_out) || touches(a->out, a->n_out, b->in, b->n_in) ||
           touches(a->in, a->n_in, b->out, b->n_out);
}

/* Whether the work goes to a backend that keeps the order by itself; on such a one, beginning later operations before
 * one that was held back would put the ranks out of step. */
static bool is_ordered(const struct tutti_work *work)
{
    if (work->door != NULL) return false;
    const tutti_backend *backend = work->group->doors[device_of(work->group, &work->op)][0].backend;
    return backend != NULL && TUTTI_HAS(backend, traits) && (backend->traits & TUTTI_BACKEND_ORDERED) != 0;
}

/* Whether a backend of the group may do the work itself.  Libraries that do (MPI) match collectives by the order in
 * which each rank begins them: a later one may not overtake an earlier one that is held back. */
static bool may_be_native(const struct tutti_work *work)
{
    for (int device = 0; device < 2; device++)
        for (int i = 0; i < work->group->n_doors[device]; i++)
            if (TUTTI_HAS(work->group->doors[device][i].backend, native[work->op.kind])) return true;
    return false;
}

/* Messages that may meet the same receive keep their order. */
static bool same_way(const tutti_op *a, const tutti_op *b)
{
    bool any = a->root == TUTTI_ANY_SOURCE || b->root == TUTTI_ANY_SOURCE;
    return a->kind == b->kind && a->tag == b->tag && (any || a->root == b->root);
}

static bool must_follow(const struct tutti_work *earlier, const struct tutti_work *work)
{
    bool messages = is_message(earlier) || is_message(work);
    if (earlier->parts > 0) return false; /* its parts stand for it */
    if (is_copy(earlier) || is_copy(work)) return submit_conflicts(&earlier->op, &work->op);
    if (is_message(earlier) && is_message(work)) return !earlier->started && same_way(&earlier->op, &work->op);
    if (messages) return false;
    if (submit_conflicts(&earlier->op, &work->op)) return true;
    return (!earlier->started || earlier->comparing != NULL) && may_be_native(earlier) && may_be_native(work);
}

/* Collectives of a group complete as if run in the order of issue: one that writes what an earlier one still uses waits
 * for it.  Messages wait for their copies alone, where there are such. */
static bool must_wait(const struct tutti_work *work)
{
    if (is_message(work) ? work->group->stager.backend == NULL : is_ordered(work)) return false;
    const struct tutti_work *earlier;
    TAILQ_FOREACH(earlier, &work->group->works, group_link)
    {
        if (earlier == work) return false;
        if (must_follow(earlier, work)) return true;
    }
    return false;
}

/* ---- the doors --------------------------------------------------------------------------------------------- */

static int begin_native(struct tutti_work *work, const struct group_door *door, uint32_t flags)
{
    memset(&work->request, 0, sizeof work->request);
    work->request.owner = work;
    work->request.flags = flags;
    work->request.peer = work->point_to_point ? work->op.root : -1; /* whom it waits for, if that is one rank */
    work->request.fingerprint = work->fingerprint;
    work->backend = door->backend;
    work->state = door->state;
    return door->backend->native[work->op.kind](door->state, &work->op, &work->request);
}

static int begin_message(struct tutti_work *work, const struct group_door *door)
{
    tutti_request *request = &work->request;
    const tutti_tensor *tensor = work->op.kind == TUTTI_SEND ? work->op.in : work->op.out;
    memset(request, 0, sizeof *request);
    request->owner = work;
    request->peer = work->op.root;
    request->tag = UINT64_C(1) << 63 | (uint64_t)work->op.tag; /* collectives have the other half of the tags */
    request->fingerprint = work->fingerprint;
    request->data = tensor->data;
    request->bytes = (size_t)(tensor->numel * tutti_dtype_bytes(tensor->dtype));
    work->backend = door->backend;
    work->state = door->state;
    int status = work->op.kind == TUTTI_SEND ? door->backend->send(door->state, request)
                                             : door->backend->recv(door->state, request);
    return status < 0 && status != TUTTI_ERR_UNSUPPORTED ? work_explain(work, request, status) : status;
}

/* Runs the plan for op, which is the work's own or a barrier before it. */
static int begin_plan(struct tutti_work *work, const struct group_door *door, const tutti_op *op)
{
    struct tutti_group *group = work->group;
    struct exec *exec = NULL;
    int status = cache_take(group->cache, group, door, op, &work->cached, &exec);
    if (status != TUTTI_OK) return status;
    struct exec_run run = {
        .backend = door->backend,
        .state = door->state,
        .in = op->in,
        .out = op->out,
        .n_in = op->n_in,
        .n_out = op->n_out,
        .dtype = op->dtype,
        .op = op->reduce_op,
        .factor = op->factor,
        .tag = (work->op.sequence & UINT32_MAX) << 28, /* 28 bits of slots, 32 of sequence, 3 free, 1 for messages */
        .fingerprint = work->fingerprint,
        .owner = work,
    };
    status = exec_start(exec, &run);
    if (status != TUTTI_OK) {
        cache_give(group->cache, work->cached, exec);
        return status;
    }
    work->exec = exec;
    work_run(work); /* from here on a failure is the operation's, not the call's */
    return TUTTI_REQUEST_PENDING;
}

/* In a barrier whose messages carry the operation's fingerprint nobody is done before all have found that theirs fit:
 * a backend that cannot tell begins only then. */
static int compare_first(struct tutti_work *work, const struct group_door *door)
{
    static const tutti_op barrier = {.size = sizeof barrier, .kind = TUTTI_BARRIER, .dtype = TUTTI_UINT8, .root = -1};
    work->request.owner = NULL;
    work->comparing = door;
    int status = begin_plan(work, door, &barrier);
    if (status < 0) work->comparing = NULL;
    return status;
}

int submit_compared(struct tutti_work *work)
{
    const struct group_door *door = work->comparing;
    work->comparing = NULL;
    work_release_exec(work);
    work->engine->recheck = true; /* one that was held back for this may begin */
    int status = begin_native(work, door, TUTTI_REQUEST_COMPARED);
    if (status < 0) work->request.owner = NULL;
    if (status == TUTTI_REQUEST_DONE) work_complete(&work->request, TUTTI_OK);
    return status;
}

static int through_door(struct tutti_work *work, const struct group_door *door)
{
    int status = TUTTI_ERR_UNSUPPORTED;
    if (TUTTI_HAS(door->backend, native[work->op.kind])) status = begin_native(work, door, 0);
    if (status == TUTTI_REQUEST_COMPARE) return compare_first(work, door);
    if (status != TUTTI_ERR_UNSUPPORTED || !TUTTI_HAS(door->backend, send)) return status;
    return is_message(work) ? begin_message(work, door) : begin_plan(work, door, &work->op);
}

/* PENDING also where it has ended meanwhile. */
static int enter(struct tutti_work *work, const struct group_door *door)
{
    if (is_copy(work) && work->parent->failing != TUTTI_OK) { /* of what would be copied there is nothing */
        work_end(work, work->parent->failing, work->parent->text);
        return TUTTI_REQUEST_PENDING;
    }
    if (work->door == NULL && stage_is_needed(door, &work->op)) return stage_begin(work, door);
    int status = through_door(work, door);
    if (status != TUTTI_REQUEST_DONE) return status;
    work_complete(&work->request, TUTTI_OK); /* with it the rank that a receive came from */
    return TUTTI_REQUEST_PENDING;
}

/* Through the first door that takes it, or its own. */
static int begin(struct tutti_work *work)
{
    struct tutti_group *group = work->group;
    int device = device_of(group, &work->op);
    char why[ERROR_TEXT_MAX / 2]; /* what the backends say themselves */
    why[0] = '\0';                /* all of it would cost more than the rest of this */
    work->started = true;
    if (work->door != NULL) return enter(work, work->door);
    for (int i = 0; i < group->n_doors[device]; i++) {
        struct group_door *door = &group->doors[device][i];
        unsigned errors = error_count();
        int status = enter(work, door);
        if (status != TUTTI_ERR_UNSUPPORTED) return status;
        if (error_count() != errors && why[0] == '\0') snprintf(why, sizeof why, ": %s", error_text());
        if (i + 1 < group->n_doors[device] && !door->told) {
            door->told = true;
            log_write(LOG_INFO, "group %s: %s on %s is not for %s; it goes to %s", group->name,
                      fingerprint_kind_name(work->op.kind), dtype_name(work->op.dtype), door->backend->name,
                      group->doors[device][i + 1].backend->name);
        }
    }
    return error_set(TUTTI_ERR_UNSUPPORTED, "%s on %s %s is not supported by backend %s of group %s%s",
                     fingerprint_kind_name(work->op.kind), device == 0 ? "CPU" : "CUDA", dtype_name(work->op.dtype),
                     group->backend_text, group->name, why);
}

void submit_unblocked(struct tutti_group *first)
{
    struct tutti_group *group;
    TAILQ_FOREACH(group, &first->family, family_link)
    {
        struct tutti_work *work, *next;
        for (work = TAILQ_FIRST(&group->works); work != NULL; work = next) {
            next = TAILQ_NEXT(work, group_link);
            if (work->started || must_wait(work)) continue;
            group->engine->n_blocked--;
            int status = begin(work);
            if (status >= 0) continue;
            group_fail(group, status, error_text(), true); /* the call has returned: the ranks are out of step now */
            break;
        }
    }
}

/* ---- submitting -------------------------------------------------------------------------------------------- */

static int new_work(struct tutti_group *group, const tutti_op *op, const tutti_opts *opts, bool async,
                    struct tutti_work **out)
{
    struct tutti_work *work = work_take(group->engine);
    if (work == NULL) return error_set(TUTTI_ERR_NO_MEMORY, "no memory for an operation");
    int status = op_copy(&work->op, op, group->size, work->tensors, WORK_INLINE_TENSORS, &work->lists);
    if (status != TUTTI_OK) {
        work_release_locked(work);
        return status;
    }
    work->group = group;
    work->point_to_point = is_message(work) || is_copy(work);
    work->async = async;
    work->source_out = work->op.kind == TUTTI_RECV ? opts->source : NULL;
    work->group_rank = opts->group_rank;
    work->op.async = async;
    work->op.timeout_ms = opts->timeout_ms > 0 ? opts->timeout_ms : group->timeout_ms;
    work->op.sequence = work->point_to_point ? 0 : group->sequence + 1;
    work->fingerprint = fingerprint_with_past(fingerprint_of(&work->op, group->size), group->past);
    work->deadline_ns = CLOCK_NEVER;
    if (async)
        work_start_clock(work, clock_now_ns()); /* a caller who waits starts it once he finds that it takes long */
    *out = work;
    return TUTTI_OK;
}

/* What is staged takes its places among the collectives when it begins: at once, as its parts wait. */
static bool has_to_begin(const struct tutti_work *work)
{
    bool tensors = work->op.n_in + work->op.n_out > 0;
    return tensors && work->group->stager.backend != NULL && work->door == NULL &&
           device_of(work->group, &work->op) == 1;
}

/* A backend that keeps the order by itself does not know of operations that are staged beside it: on the way to it the
 * host waits for those. */
static void let_staged_end(struct tutti_group *group, const tutti_op *op)
{
    struct tutti_work *work = TAILQ_FIRST(&group->works);
    if (device_of(group, op) == 0 || !group_takes_device(group->doors[1][0].backend, 1)) return;
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

/* Puts the work in its place and begins it; after an error it is as if it had never been. */
static int issue(struct tutti_work *work)
{
    struct tutti_group *group = work->group;
    struct engine *engine = group->engine;
    TAILQ_INSERT_TAIL(&engine->active, work, link);
    TAILQ_INSERT_TAIL(&group->works, work, group_link);
    if (work->async) engine->n_async++;
    work->references++; /* the caller's */
    if (!has_to_begin(work) && must_wait(work)) {
        engine->n_blocked++;
    } else {
        int status = begin(work);
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
    if (!work->point_to_point) {
        group->sequence++;
        group->past = fingerprint_past_after(group->past, work->fingerprint);
        health_issued(group->health, group->sequence, work->fingerprint);
    }
    return TUTTI_OK;
}

static int check_usable(struct tutti_group *group, const tutti_op *op)
{
    const char *doing = fingerprint_kind_name(op->kind);
    bool message = op->kind == TUTTI_SEND || op->kind == TUTTI_RECV;
    return message ? group_check_usable(group, doing) : group_check_collective(group, doing);
}

static int make_way(struct tutti_group *group, const tutti_op *op)
{
    int status = check_usable(group, op);
    if (status != TUTTI_OK || group->stager.backend == NULL) return status;
    let_staged_end(group, op);
    return check_usable(group, op);
}

static int submit_locked(struct tutti_group *group, const tutti_op *op, const tutti_opts *opts, bool async,
                         struct tutti_work **work)
{
    int status = make_way(group, op);
    if (status == TUTTI_OK) status = new_work(group, op, opts, async, work);
    return status == TUTTI_OK ? issue(*work) : status;
}

int submit_part(struct tutti_group *group, const tutti_op *op, const tutti_opts *opts, struct tutti_work *parent,
                struct coalesce_packing *packing)
{
    struct tutti_work *work = NULL;
    int status = make_way(group, op);
    if (status == TUTTI_OK) status = new_work(group, op, opts, true, &work);
    if (status != TUTTI_OK) {
        coalesce_drop(packing);
        return status;
    }
    work->packing = packing;
    work->parent = parent;
    parent->parts++;
    status = issue(work);
    if (status == TUTTI_OK)
        work_release_locked(work); /* the parent's handle stands for it */
    else
        parent->parts--;
    return status;
}

int submit_staged(struct tutti_work *whole, const tutti_op *op, const struct group_door *door)
{
    struct tutti_group *group = whole->group;
    tutti_opts opts = {.timeout_ms = whole->op.timeout_ms, .group_rank = whole->group_rank};
    struct tutti_work *work = NULL;
    int status = new_work(group, op, &opts, true, &work);
    if (status != TUTTI_OK) return status;
    if (!is_copy(work)) work->fingerprint = fingerprint_with_past(fingerprint_of(&whole->op, group->size), group->past);
    work->door = door;
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
    int status = check_op(group, op, opts);
    if (status != TUTTI_OK) return status;
    if (coalesce_is_open(group)) {
        if (async) *out = NULL;
        return coalesce_add(group, op, opts);
    }
    struct engine *engine = group->engine;
    engine_hold(engine); /* another thread may destroy the group while this one waits */
    engine_lock(engine);
    engine->calls++;
    struct tutti_work *work = NULL;
    status = submit_locked(group, op, opts, async, &work);
    if (status == TUTTI_OK && async) {
        if (!work_ended(work)) engine_attend(engine);
        engine_hold(engine); /* a handle may outlive its group */
        *out = work;
    } else if (status == TUTTI_OK) {
        if (!work_ended(work)) engine_wait(engine, work, CLOCK_NEVER); /* its own deadline ends it */
        status = work_result(work);
        work_release_locked(work);
    }
    engine_unlock(engine);
    engine_drop(engine);
    return status;
}

int submit(tutti_op *op, const tutti_opts *opts)
{
    if (opts != NULL && opts->async_op != NULL) return submit_work(op, opts, true, opts->async_op);
    return submit_work(op, opts, false, NULL);
}

int submit_async(tutti_op *op, const tutti_opts *opts, tutti_work **work)
{
    return submit_work(op, opts, true, work);
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

int submit_batch(const tutti_p2p_op *ops, int n, const tutti_opts *opts, tutti_work **works)
{
    tutti_opts each = opts != NULL ? *opts : (tutti_opts){0};
    struct tutti_group *group = group_for_call(each.group);
    if (group == NULL) return TUTTI_ERR_INVALID_ARGUMENT;
    int status = TUTTI_OK;
    for (int i = 0; i < n && status == TUTTI_OK; i++) {
        if (ops[i].kind != TUTTI_SEND && ops[i].kind != TUTTI_RECV)
            return error_set(TUTTI_ERR_INVALID_ARGUMENT, "batch_isend_irecv: ops[%d] is neither a send nor a receive",
                             i);
        tutti_op op = message_op(&ops[i]);
        each.tag = ops[i].tag;
        status = check_op(group, &op, &each);
    }
    if (status != TUTTI_OK) return status;
    for (int i = 0; i < n; i++) {
        tutti_op op = message_op(&ops[i]);
        each.tag = ops[i].tag;
        each.source = ops[i].source;
        status = submit_work(&op, &each, true, &works[i]);
        if (status == TUTTI_OK) continue;
        while (i-- > 0) { /* those before go on; their handles are of no use to a caller who has an error */
            work_give_up(works[i]);
            works[i] = NULL;
        }
        return status;
    }
    return TUTTI_OK;
}
