#include "dispatch/dispatch.h"

#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "base/structs.h"
#include "base/user_op.h"
#include "group/failure.h"
#include "op/fingerprint.h"
#include "progress/engine_step.h"
#include "progress/plan_cache.h"
#include "progress/work.h"
#include "tool/tool.h"

static tutti_request *new_request(struct tutti_work *work, const tutti_op *op, const struct backend_entry *entry)
{
    structs_clear(&work->request, sizeof work->request);
    work->request.owner = work;
    work->request.peer = op_is_message(op) ? op->root : -1; /* a message waits for this rank */
    work->request.fingerprint = work->fingerprint;
    work->backend = entry->backend;
    work->state = entry->state;
    return &work->request;
}

/* True if the backend is asked to do op by itself.  It does not know the program's own reductions. */
static bool is_native(const tutti_backend *backend, const tutti_op *op)
{
    return TUTTI_HAS(backend, native[op->kind]) && !user_op_is(op->reduce_op);
}

static int begin_native(struct tutti_work *work, const tutti_op *op, const struct backend_entry *entry, uint32_t flags)
{
    tutti_request *request = new_request(work, op, entry);
    request->flags = flags;
    return entry->backend->native[op->kind](entry->state, op, request);
}

/* Completes the request of a receive or probe that does not know its message's tag or size. */
static void set_open_fields(tutti_request *request, const tutti_op *op)
{
    if (op->up_to) request->flags |= TUTTI_REQUEST_UP_TO;
    if (op->tag == TUTTI_ANY_TAG) request->flags |= TUTTI_REQUEST_ANY_TAG;
    if (op->kind == TUTTI_PROBE) request->flags |= TUTTI_REQUEST_PEEK;
    if (op->tag == TUTTI_ANY_TAG) request->tag = DISPATCH_MESSAGE_TAG;
    request->fingerprint_mask = fingerprint_mask(op);
}

static int begin_message(struct tutti_work *work, const tutti_op *op, const struct backend_entry *entry, uint32_t flags)
{
    tutti_request *request = new_request(work, op, entry);
    const tutti_tensor *tensor = op->kind == TUTTI_SEND ? op->in : op->out;
    request->flags = flags | (op->timeout_ms == 0 ? TUTTI_REQUEST_NOW : 0);
    request->tag = DISPATCH_MESSAGE_TAG | (uint64_t)op->tag;
    if (op_is_open(op)) set_open_fields(request, op);
    if (op->kind != TUTTI_PROBE) {
        request->data = tensor->data;
        request->bytes = op_tensor_bytes(tensor);
    }
    return op->kind == TUTTI_SEND ? entry->backend->send(entry->state, request)
                                  : entry->backend->recv(entry->state, request);
}

/* Starts an exec of the plan for op.  Returns TUTTI_OK, or an error if nothing has begun. */
static int start_plan(struct tutti_work *work, const struct tutti_group *group, const struct backend_entry *entry,
                      const tutti_op *op, uint64_t sequence, bool awaited)
{
    struct exec *exec = NULL;
    int status = plan_cache_take(group->cache, group, entry, op, &work->cached, &exec);
    if (status != TUTTI_OK) return status;
    exec->run = (struct exec_run){
        .backend = entry->backend,
        .state = entry->state,
        .in = op->in,
        .out = op->out,
        .n_in = op->n_in,
        .n_out = op->n_out,
        .dtype = op->dtype,
        .op = op->reduce_op,
        .factor = op->factor,
        .tag = (sequence & UINT32_MAX) << 28, /* 28 bits of slots, 32 of sequence, 3 free, 1 for messages */
        .fingerprint = work->fingerprint,
        .awaited = awaited,
        .owner = work,
    };
    status = exec_start(exec);
    if (status == TUTTI_OK)
        work->exec = exec;
    else
        plan_cache_give(group->cache, work->cached, exec);
    return status;
}

/* Runs the plan for op, which is the work's own or a barrier before it. */
static int begin_plan(struct tutti_work *work, const struct backend_entry *entry, const tutti_op *op)
{
    int status = start_plan(work, work->group, entry, op, work->op.sequence, false);
    if (status != TUTTI_OK) return status;
    work_run(work); /* from here on a failure ends the operation and is not returned by the call */
    return TUTTI_REQUEST_PENDING;
}

/* Polls the plan's backend for a while if this rank has a core.  A round of one backend is cheaper than one of the
 * engine, and most plans complete before a work is made of them. */
__attribute__((noinline)) static void poll_briefly(struct exec *exec, struct engine *engine, void *first)
{
    enum { ROUNDS = 4 }; /* rounds of the backend per round of the engine */
    const tutti_backend *backend = exec->run.backend;
    int rounds = engine->own_core && TUTTI_HAS(backend, progress) ? engine->spins * ROUNDS : 0;
    bool computes = exec_advance(exec);
    if (exec->left > 0 && rounds > 0) engine_wake_pollers(engine);
    for (int i = 0; i < rounds && exec->left > 0 && exec->status == TUTTI_OK && !lock_is_wanted(&engine->lock); i++) {
        if (!computes) backend->progress(first);
        computes = exec_advance(exec);
    }
    if (exec->left == 0) engine_step_works(engine); /* otherwise the next round does this */
}

static int plan_at_once(struct tutti_work *work, const struct tutti_group *group, const struct backend_entry *entry,
                        const tutti_op *op)
{
    /* a barrier of one rank needs no plan, unless a bad name of an algorithm is to be reported */
    if (group->size == 1 && group->algorithm == NULL && op->n_in + op->n_out == 0) return TUTTI_REQUEST_DONE;
    int status = start_plan(work, group, entry, op, op->sequence, true);
    if (status != TUTTI_OK) return status;
    poll_briefly(work->exec, group->engine, entry->first);
    if (work->exec->left > 0) return TUTTI_REQUEST_PENDING;
    plan_cache_give(group->cache, work->cached, work->exec);
    work->exec = NULL;
    return TUTTI_REQUEST_DONE;
}

static bool takes_open(const tutti_backend *backend)
{
    return TUTTI_HAS(backend, traits) && (backend->traits & TUTTI_BACKEND_UNSIZED) != 0;
}

const struct backend_entry *dispatch_entry(const struct tutti_group *group, const tutti_op *op)
{
    int device = group_device_of(group, op);
    if (group->n_entries[device] == 0 || group->stager.backend != NULL) return NULL;
    const struct backend_entry *entry = &group->entries[device][0];
    bool transfers = op->kind == TUTTI_SEND || op->kind == TUTTI_RECV, native = is_native(entry->backend, op);
    if (transfers) return TUTTI_HAS(entry->backend, send) && !native ? entry : NULL;
    return native && !op_is_message(op) ? entry : NULL;
}

/* Begins op through an entry.  native: its backend is asked to do op by itself. */
static int begin_through(struct tutti_work *work, const struct tutti_group *group, const tutti_op *op,
                         const struct backend_entry *entry, bool native)
{
    bool message = op_is_message(op);
    if (!message && !TAILQ_EMPTY(&group->works)) return TUTTI_ERR_UNSUPPORTED;
    int status = native ? begin_native(work, op, entry, 0) : TUTTI_ERR_UNSUPPORTED;
    if (status != TUTTI_ERR_UNSUPPORTED || !TUTTI_HAS(entry->backend, send)) return status;
    return message ? begin_message(work, op, entry, op->async ? 0 : TUTTI_REQUEST_AWAITED)
                   : plan_at_once(work, group, entry, op);
}

/* Does dispatch_at_once's work for an op whose entry is not known. */
__attribute__((noinline)) static int dispatch_other(struct tutti_work *work, const struct tutti_group *group,
                                                    const tutti_op *op)
{
    int device = group_device_of(group, op);
    if (group->n_entries[device] == 0 || group->stager.backend != NULL) return TUTTI_ERR_UNSUPPORTED;
    const struct backend_entry *entry = &group->entries[device][0];
    if (op_is_open(op) && !takes_open(entry->backend)) return TUTTI_ERR_UNSUPPORTED;
    return begin_through(work, group, op, entry, is_native(entry->backend, op));
}

int dispatch_at_once(struct tutti_work *work, const struct tutti_group *group, const tutti_op *op, uint64_t fingerprint,
                     const struct backend_entry *entry)
{
    work->fingerprint = fingerprint;
    work->group = NULL; /* tells work_complete that this is not a work yet */
    work->exec = NULL;
    if (entry == NULL || op_is_open(op)) return dispatch_other(work, group, op);
    return begin_through(work, group, op, entry, !op_is_message(op));
}

/* Runs a barrier whose messages carry the operation's fingerprint, for a backend that cannot compare calls itself.  The
 * barrier completes only if all ranks have called the same operation. */
static int compare_first(struct tutti_work *work, const struct backend_entry *entry)
{
    static const tutti_op barrier = {.size = sizeof barrier, .kind = TUTTI_BARRIER, .dtype = TUTTI_UINT8, .root = -1};
    work->request.owner = NULL;
    work->comparing = entry;
    int status = begin_plan(work, entry, &barrier);
    if (status < 0)
        work->comparing = NULL;
    else
        work->engine->n_comparing++;
    return status;
}

int dispatch_compared(struct tutti_work *work)
{
    const struct backend_entry *entry = work->comparing;
    work->comparing = NULL;
    work->engine->n_comparing--;
    work_release_exec(work);
    work_dequeue(work);           /* the barrier has no more steps */
    work->engine->recheck = true; /* a work that was blocked by this may begin */
    int status = begin_native(work, &work->op, entry, TUTTI_REQUEST_COMPARED);
    if (status < 0) work->request.owner = NULL;
    if (status == TUTTI_REQUEST_DONE) work_complete(&work->request, TUTTI_OK);
    return status;
}

static int through_entry(struct tutti_work *work, const struct backend_entry *entry)
{
    int status = TUTTI_ERR_UNSUPPORTED;
    if (is_native(entry->backend, &work->op)) status = begin_native(work, &work->op, entry, 0);
    if (status == TUTTI_REQUEST_COMPARE) return compare_first(work, entry);
    if (status != TUTTI_ERR_UNSUPPORTED || !TUTTI_HAS(entry->backend, send)) return status;
    if (!op_is_message(&work->op)) return begin_plan(work, entry, &work->op);
    status = begin_message(work, &work->op, entry, 0);
    return status < 0 && status != TUTTI_ERR_UNSUPPORTED ? failure_explain(work, &work->request, status) : status;
}

int dispatch_through(struct tutti_work *work, const struct backend_entry *entry)
{
    work->started = true;
    tool_started(&work->op);
    if (work->op.kind == TUTTI_COPY && work->parent->failing != TUTTI_OK) { /* nothing to copy */
        work_end(work, work->parent->failing, work->parent->text);
        return TUTTI_REQUEST_PENDING;
    }
    if (op_is_open(&work->op) && !takes_open(entry->backend))
        return error_set(TUTTI_ERR_UNSUPPORTED, "%s supports neither probes nor receives of any tag or of unknown size",
                         entry->backend->name);
    int status = through_entry(work, entry);
    if (status != TUTTI_REQUEST_DONE) return status;
    work_complete(&work->request, TUTTI_OK); /* also records the source of a receive */
    return TUTTI_REQUEST_PENDING;
}
