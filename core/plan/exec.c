#include "plan/exec.h"

#include <stdlib.h>
#include <string.h>

#include "base/aligned.h"
#include "base/error.h"
#include "base/reduce_clock.h"

struct exec *exec_new(const struct plan *plan)
{
    struct exec *exec = calloc(1, sizeof *exec);
    if (exec == NULL) return NULL;
    size_t n = plan->n_steps > 0 ? plan->n_steps : 1;
    exec->plan = plan;
    exec->requests = calloc(n, sizeof *exec->requests);
    exec->waits = malloc(3 * n * sizeof *exec->waits); /* one allocation: for most plans it fits a cache line */
    if (exec->requests == NULL || exec->waits == NULL) {
        exec_free(exec);
        return NULL;
    }
    exec->messages = exec->waits + n;
    exec->locals = exec->messages + n;
    return exec;
}

void exec_free(struct exec *exec)
{
    if (exec == NULL) return;
    free(exec->requests);
    free(exec->waits); /* messages and locals are in this allocation */
    aligned_free(exec->scratch);
    free(exec);
}

static inline void enqueue(struct exec *exec, uint32_t id)
{
    if (exec->plan->steps[id].kind <= PLAN_RECV_REDUCE)
        exec->messages[exec->messages_tail++] = id;
    else
        exec->locals[exec->locals_tail++] = id;
}

static int reserve_scratch(struct exec *exec)
{
    int64_t block = exec->user_op.fn != NULL ? user_op_block(exec->element) : 0;
    size_t need = (size_t)(exec->plan->scratch * exec->element + block);
    if (need <= exec->scratch_bytes) return TUTTI_OK;
    aligned_free(exec->scratch);
    exec->scratch_bytes = 0;
    exec->scratch = NULL;
    exec->scratch = aligned_new(64, need);
    if (exec->scratch == NULL) return error_set(TUTTI_ERR_NO_MEMORY, "out of memory for %zu bytes of scratch", need);
    exec->scratch_bytes = need;
    return TUTTI_OK;
}

/* Finds the loops or the program's op.  Returns INVALID_ARGUMENT if that does not exist, which a Work's hold on it
 * prevents. */
static int find_op(struct exec *exec)
{
    exec->element = tutti_dtype_bytes(exec->run.dtype);
    exec->reduce = NULL;
    exec->user_op.fn = NULL;
    if (!user_op_is(exec->run.op)) {
        if (exec->plan->reduces) exec->reduce = reduce_find(exec->run.dtype, exec->run.op);
        return TUTTI_OK;
    }
    if (!user_op_find(exec->run.op, &exec->user_op))
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "reduce op 0x%x has been freed", (unsigned)exec->run.op);
    exec->element *= user_op_units(&exec->user_op);
    return TUTTI_OK;
}

int exec_start(struct exec *exec)
{
    const struct plan *plan = exec->plan;
    int status = find_op(exec);
    if (status == TUTTI_OK) status = reserve_scratch(exec);
    if (status != TUTTI_OK) return status;
    exec->messages_head = exec->messages_tail = exec->locals_head = exec->locals_tail = 0;
    exec->left = plan->n_steps;
    exec->in_flight = 0;
    exec->status = TUTTI_OK;
    exec->failed = NULL;
    for (uint32_t i = 0; i < plan->n_steps; i++) exec->waits[i] = plan->steps[i].waits;
    for (uint32_t i = 0; i < plan->n_ready; i++) enqueue(exec, plan->ready[i]);
    return TUTTI_OK;
}

/* Returns the address of a range.  A zero-length range may be in a tensor without memory; its address is not used. */
static inline void *address(const struct exec *exec, struct plan_ref ref)
{
    char *base;
    if (ref.buffer == PLAN_SCRATCH)
        base = exec->scratch;
    else if (ref.buffer & 1)
        base = exec->run.in[(ref.buffer - 1) / 2].data;
    else
        base = exec->run.out[(ref.buffer - 2) / 2].data;
    return base + ref.at * exec->element;
}

static inline void complete_step(struct exec *exec, uint32_t id)
{
    const struct plan_step *step = &exec->plan->steps[id];
    const uint32_t *next = exec->plan->next + step->first_next;
    for (uint32_t i = 0; i < step->nexts; i++)
        if (--exec->waits[next[i]] == 0) enqueue(exec, next[i]);
    exec->left--;
}

static void fail(struct exec *exec, int status, tutti_request *request)
{
    if (exec->status != TUTTI_OK) return;
    exec->status = status;
    exec->failed = request;
}

static void issue(struct exec *exec, uint32_t id)
{
    const struct plan_step *step = &exec->plan->steps[id];
    tutti_request *request = &exec->requests[id];
    const struct exec_run *run = &exec->run;
    /* Set field by field: a memset of this size would cost more than the rest of the step. */
    request->peer = step->peer;
    request->flags = TUTTI_REQUEST_EXPECTED;
    if (run->awaited && exec->messages_head == exec->messages_tail && exec->locals_head == exec->locals_tail)
        request->flags |= TUTTI_REQUEST_AWAITED;
    request->tag = run->tag + step->slot;
    request->fingerprint = run->fingerprint;
    request->bytes = (size_t)(step->numel * exec->element);
    request->addend = NULL;
    request->owner = run->owner;
    request->source = -1;
    request->found_fingerprint = 0;
    request->found_bytes = 0;
    memset(request->priv, 0, sizeof request->priv);
    int status;
    exec->in_flight++; /* before the call, which may already complete the request */
    if (step->kind == PLAN_SEND) {
        request->data = step->numel > 0 ? address(exec, step->a) : NULL;
        status = run->backend->send(run->state, request);
    } else {
        request->data = step->numel > 0 ? address(exec, step->dst) : NULL;
        if (step->kind == PLAN_RECV) {
            status = run->backend->recv(run->state, request);
        } else {
            request->addend = step->numel > 0 ? address(exec, step->a) : NULL;
            request->dtype = run->dtype;
            request->op = tutti_reduce_op_pairwise(run->op);
            status = run->backend->recv_reduce(run->state, request);
        }
    }
    if (status == TUTTI_REQUEST_PENDING) return;
    exec->in_flight--;
    request->owner = NULL;
    if (status == TUTTI_REQUEST_DONE)
        complete_step(exec, id);
    else
        fail(exec, status, request);
}

static inline void reduce(struct exec *exec, void *dst, const void *a, const void *b, int64_t n)
{
    uint64_t begin = reduce_clock_begin(exec->reduce != NULL ? n : INT64_MAX); /* a user's op may take long */
    if (exec->reduce != NULL)
        exec->reduce(dst, a, b, n);
    else
        user_op_combine(&exec->user_op, exec->run.dtype, dst, a, b, n,
                        exec->scratch + exec->plan->scratch * exec->element);
    reduce_clock_end(begin);
}

static void scale(const struct exec *exec, const struct plan_step *step, void *dst, const void *a)
{
    uint64_t begin = reduce_clock_begin(step->numel);
    if (step->kind == PLAN_SCALE)
        reduce_scale(exec->run.dtype, dst, a, step->numel, exec->run.factor);
    else
        reduce_average(exec->run.dtype, dst, a, step->numel, exec->plan->size);
    reduce_clock_end(begin);
}

static void run_local(struct exec *exec, uint32_t id)
{
    const struct plan_step *step = &exec->plan->steps[id];
    void *dst = address(exec, step->dst);
    const void *a = address(exec, step->a);
    switch (step->kind) {
    case PLAN_REDUCE:
        reduce(exec, dst, a, address(exec, step->b), step->numel);
        break;
    case PLAN_COPY:
        tutti_copy(dst, a, (size_t)(step->numel * exec->element)); /* the caller's tensors may be the same memory */
        break;
    case PLAN_SCALE:
    case PLAN_AVERAGE:
        scale(exec, step, dst, a);
        break;
    }
    complete_step(exec, id);
}

static inline bool is_small(const struct exec *exec, uint32_t id)
{
    enum { SMALL = 64 << 10 };
    return exec->plan->steps[id].numel * exec->element <= SMALL;
}

/* True if a receive should be issued after the local steps.  The backend polls for a message at once only if no other
 * step can run, and a waiting caller may depend on just this message. */
static inline bool should_issue_last(const struct exec *exec, uint32_t id)
{
    return exec->run.awaited && exec->messages_head + 1 == exec->messages_tail &&
           exec->plan->steps[id].kind != PLAN_SEND && exec->locals_head < exec->locals_tail && is_small(exec, id) &&
           is_small(exec, exec->locals[exec->locals_head]);
}

static void issue_messages(struct exec *exec)
{
    while (exec->messages_head < exec->messages_tail && exec->status == TUTTI_OK) {
        uint32_t id = exec->messages[exec->messages_head];
        if (should_issue_last(exec, id)) {
            run_local(exec, exec->locals[exec->locals_head++]);
            continue;
        }
        exec->messages_head++;
        issue(exec, id);
    }
}

bool exec_advance(struct exec *exec)
{
    issue_messages(exec);
    if (exec->locals_head < exec->locals_tail && exec->status == TUTTI_OK) {
        run_local(exec, exec->locals[exec->locals_head++]);
        issue_messages(exec); /* sends that this step enabled are issued before the next local step */
    }
    return exec->status == TUTTI_OK && exec->locals_head < exec->locals_tail;
}

void exec_complete(struct exec *exec, tutti_request *request, int status)
{
    exec->in_flight--;
    request->owner = NULL;
    if (status == TUTTI_OK)
        complete_step(exec, (uint32_t)(request - exec->requests));
    else
        fail(exec, status, request);
}

void exec_cancel(struct exec *exec, int status)
{
    fail(exec, status, NULL);
    const tutti_backend *backend = exec->run.backend;
    if (!TUTTI_HAS(backend, cancel)) return;
    for (uint32_t i = 0; i < exec->plan->n_steps && exec->in_flight > 0; i++) {
        tutti_request *request = &exec->requests[i];
        if (request->owner == NULL) continue;
        if (backend->cancel(exec->run.state, request) != TUTTI_OK) continue;
        request->owner = NULL;
        exec->in_flight--;
    }
}

void exec_each_pending(const struct exec *exec, void (*visit)(const tutti_request *request, void *argument),
                       void *argument)
{
    for (uint32_t i = 0; i < exec->plan->n_steps; i++)
        if (exec->requests[i].owner != NULL) visit(&exec->requests[i], argument);
}
