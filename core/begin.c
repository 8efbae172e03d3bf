#include "begin.h"

#include <inttypes.h>
#include <string.h>

#include "base/dtype.h"
#include "base/error.h"
#include "base/log.h"
#include "cache.h"
#include "fingerprint.h"
#include "group.h"
#include "stage.h"
#include "work.h"

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

int begin_compared(struct tutti_work *work)
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
    return work_has_message(work) ? begin_message(work, door) : begin_plan(work, door, &work->op);
}

/* PENDING also where it has ended meanwhile. */
static int enter(struct tutti_work *work, const struct group_door *door)
{
    if (work->op.kind == TUTTI_COPY && work->parent->failing != TUTTI_OK) { /* of what would be copied there is nothing */
        work_end(work, work->parent->failing, work->parent->text);
        return TUTTI_REQUEST_PENDING;
    }
    if (work->door == NULL && stage_is_needed(door, &work->op)) return stage_begin(work, door);
    int status = through_door(work, door);
    if (status != TUTTI_REQUEST_DONE) return status;
    work_complete(&work->request, TUTTI_OK); /* with it the rank that a receive came from */
    return TUTTI_REQUEST_PENDING;
}

int begin_work(struct tutti_work *work)
{
    struct tutti_group *group = work->group;
    int device = group_device_of(group, &work->op);
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

