/* From a descriptor to a stream.
 *
 * A blocking operation is enqueued on the caller's stream and reported as DONE.  An asynchronous operation, or a
 * barrier, for which the host waits, is enqueued on the comm stream's own stream, behind the work in the caller's
 * stream, followed by a completion event.
 */
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ncclb.h"

enum { SOON_NS = 200000, STREAM_NS = 20000000 };

static bool on_own_stream(const tutti_op *op)
{
    return op->async || op->kind == TUTTI_BARRIER;
}

static int refuse_capture(const struct ncclb_comm_stream *cs, const char *what)
{
    return cs->group->host->error(TUTTI_ERR_INVALID_ARGUMENT, "nccl: the stream is being captured into a graph: %s",
                                  what);
}

/* Rejects what a graph capture does not allow.  now: the operation is submitted to NCCL at once. */
static int check_capture(const struct ncclb_comm_stream *cs, const tutti_op *op, enum device_capture capture, bool now)
{
    if (capture == DEVICE_BARRED)
        return cs->group->host->error(TUTTI_ERR_INVALID_ARGUMENT,
                                      "nccl: the legacy default stream cannot be used while a blocking stream is "
                                      "being captured into a graph; use another stream");
    if (capture == DEVICE_CAPTURED && on_own_stream(op))
        return refuse_capture(cs, "only blocking calls other than barrier can be captured");
    if (capture == DEVICE_CAPTURED && !now)
        return refuse_capture(cs, "make one such call before the capture to open the communicator");
    return TUTTI_OK;
}

/* ---- queued operations ------------------------------------------------------------------------------------------ */

static size_t list_bytes(const tutti_op *op, int size)
{
    size_t n = (size_t)op->n_in + (size_t)op->n_out;
    return n * sizeof(tutti_tensor) + (op->in_splits != NULL ? 2 * (size_t)size * sizeof(int64_t) : 0);
}

static struct ncclb_waiting *copy(const tutti_op *op, int size)
{
    struct ncclb_waiting *waiting = calloc(1, sizeof *waiting + list_bytes(op, size));
    if (waiting == NULL) return NULL;
    tutti_tensor *tensors = (tutti_tensor *)(waiting + 1);
    int64_t *splits = (int64_t *)(tensors + op->n_in + op->n_out);
    waiting->op = *op;
    if (op->n_in > 0) memcpy(tensors, op->in, (size_t)op->n_in * sizeof *tensors);
    if (op->n_out > 0) memcpy(tensors + op->n_in, op->out, (size_t)op->n_out * sizeof *tensors);
    waiting->op.in = tensors;
    waiting->op.out = tensors + op->n_in;
    if (op->in_splits == NULL) return waiting;
    memcpy(splits, op->in_splits, (size_t)size * sizeof *splits);
    memcpy(splits + size, op->out_splits, (size_t)size * sizeof *splits);
    waiting->op.in_splits = splits;
    waiting->op.out_splits = splits + size;
    return waiting;
}

static void drop(struct ncclb_comm_stream *cs, struct ncclb_waiting *waiting)
{
    TAILQ_REMOVE(&cs->waiting, waiting, link);
    if (waiting->after != NULL) driver.cuEventDestroy(waiting->after);
    free(waiting);
}

static int defer(struct ncclb_comm_stream *cs, const tutti_op *op, tutti_request *request, enum ncclb_place place)
{
    struct ncclb_waiting *waiting = copy(op, cs->group->info.world_size);
    if (waiting == NULL)
        return cs->group->host->error(TUTTI_ERR_NO_MEMORY, "nccl: out of memory to queue %s",
                                      tutti_kind_find(op->kind)->name);
    waiting->request = request;
    waiting->place = place;
    TAILQ_INSERT_TAIL(&cs->waiting, waiting, link);
    if (on_own_stream(op) && place == NCCLB_HELD) {
        CUresult result = driver.cuEventCreate(&waiting->after, CU_EVENT_DISABLE_TIMING);
        if (result == CUDA_SUCCESS) result = driver.cuEventRecord(waiting->after, op->stream);
        if (result != CUDA_SUCCESS) {
            drop(cs, waiting);
            return device_failed(&cs->group->device, "cannot record an event", result);
        }
    }
    cs->group->moved_ns = cs->group->host->now_ns();
    return TUTTI_REQUEST_PENDING;
}

/* ---- submission ------------------------------------------------------------------------------------------------- */

/* Makes the comm stream's own stream wait for the caller's. */
static CUresult follow_caller(struct ncclb_comm_stream *cs, const tutti_op *op, CUevent after)
{
    CUresult result = CUDA_SUCCESS;
    if (after == NULL) {
        result = driver.cuEventRecord(cs->entry, op->stream);
        after = cs->entry;
    }
    return result == CUDA_SUCCESS ? driver.cuStreamWaitEvent(cs->stream, after, 0) : result;
}

struct submission {
    struct ncclb_comm_stream *cs;
    const tutti_op *op;
    CUstream stream;
};

static ncclResult_t call(void *argument)
{
    const struct submission *it = argument;
    return tutti_kind_reduces(it->op->kind) ? ncclb_reduce(it->cs, it->op, it->stream)
                                            : ncclb_collect(it->cs, it->op, it->stream);
}

static ncclResult_t submit(struct ncclb_comm_stream *cs, const tutti_op *op, CUstream stream)
{
    struct ncclb_proxy *proxy = cs->group->coalescing ? cs->group->proxy : cs->proxy;
    return ncclb_proxy_call(proxy, call, &(struct submission){cs, op, stream});
}

static ncclResult_t create_and_destroy_op(void *argument)
{
    const struct ncclb_comm_stream *cs = argument;
    double factor = 1;
    ncclRedOp_t op;
    ncclResult_t result =
        ncclb_lib.ncclRedOpCreatePreMulSum(&op, &factor, ncclFloat64, ncclScalarHostImmediate, cs->comm);
    return result == ncclSuccess ? ncclb_lib.ncclRedOpDestroy(op, cs->comm) : result;
}

/* Makes NCCL release the state of a call.  Before 2.23 it does so only in the communicator's next call, but the proxy
 * thread of an NCCL group may start something else first. */
static ncclResult_t release_call_state(struct ncclb_comm_stream *cs)
{
    return ncclb_lib.version < 22300 ? ncclb_proxy_call(cs->proxy, create_and_destroy_op, cs) : ncclSuccess;
}

/* Returns the progress of a submitted operation.  After an error it stays submitted until the communicator ends. */
static enum ncclb_place poll_submitted(struct ncclb_comm_stream *cs)
{
    ncclResult_t state = ncclSuccess;
    ncclResult_t result = ncclb_lib.ncclCommGetAsyncError(cs->comm, &state);
    if (result == ncclSuccess) result = state;
    if (result == ncclSuccess) result = release_call_state(cs);
    if (result == ncclSuccess) return NCCLB_ENQUEUED;
    if (result != ncclInProgress) ncclb_comm_stream_failed(cs, "cannot start an operation", result);
    return NCCLB_SUBMITTED;
}

/* Polls a submitted operation for a short time.  Since 2.23 a thread of NCCL processes each call almost at once, so
 * this avoids queueing the operation.  A longer delay means that NCCL is connecting. */
static enum ncclb_place poll_briefly(struct ncclb_comm_stream *cs, int64_t most_ns)
{
    static const struct timespec interval = {0, 50000};
    int64_t begin = cs->group->host->now_ns(), passed = 0;
    enum ncclb_place place = poll_submitted(cs);
    while (place == NCCLB_SUBMITTED && cs->state == NCCLB_READY && passed < most_ns) {
        if (passed < SOON_NS)
            sched_yield();
        else
            nanosleep(&interval, NULL);
        place = poll_submitted(cs);
        passed = cs->group->host->now_ns() - begin;
    }
    return place;
}

/* True if NCCL still works on a call that returned this result.  Before 2.24, ncclSend and ncclRecv return ncclSuccess
 * although they connect on a thread of NCCL's. */
static bool is_under_way(struct ncclb_comm_stream *cs, ncclResult_t result)
{
    ncclResult_t state = result;
    if (ncclb_lib.version < 22400 && result == ncclSuccess) ncclb_lib.ncclCommGetAsyncError(cs->comm, &state);
    return state != ncclSuccess;
}

/* Returns an enum ncclb_place, or an error. */
static int issue(struct ncclb_comm_stream *cs, const tutti_op *op, CUevent after, bool capturing)
{
    CUstream stream = on_own_stream(op) ? cs->stream : op->stream;
    CUresult ready = on_own_stream(op) ? follow_caller(cs, op, after) : CUDA_SUCCESS;
    if (ready != CUDA_SUCCESS) return device_failed(&cs->group->device, "cannot wait for the caller's stream", ready);
    if (!capturing) {
        int status = ncclb_completion_follow(cs, stream);
        if (status != TUTTI_OK) return status;
    }
    if (on_own_stream(op)) ready = ncclb_completion_begin(cs);
    if (ready != CUDA_SUCCESS) return device_failed(&cs->group->device, "cannot record an event", ready);
    ncclResult_t result = submit(cs, op, stream);
    if (result != ncclSuccess && result != ncclInProgress)
        return ncclb_comm_stream_failed(cs, "cannot start an operation", result);
    if (cs->group->coalescing) return NCCLB_GATHERED;
    return is_under_way(cs, result) ? poll_briefly(cs, SOON_NS) : NCCLB_ENQUEUED;
}

static int finish(struct ncclb_comm_stream *cs, const tutti_op *op, tutti_request *request, bool capturing)
{
    if (on_own_stream(op)) {
        int status = ncclb_completion_add(cs, cs->stream, op, request);
        return status == TUTTI_OK ? TUTTI_REQUEST_PENDING : status;
    }
    int status = capturing ? TUTTI_OK : ncclb_completion_add(cs, op->stream, op, NULL);
    return status == TUTTI_OK ? TUTTI_REQUEST_DONE : status;
}

static int submit_now(struct ncclb_comm_stream *cs, const tutti_op *op, tutti_request *request, bool capturing)
{
    int place = issue(cs, op, NULL, capturing);
    if (place < 0) return place;
    return place == NCCLB_ENQUEUED ? finish(cs, op, request, capturing)
                                   : defer(cs, op, request, (enum ncclb_place)place);
}

/* True if the next operation can be submitted at once: nothing is queued before it, or only operations of the same NCCL
 * group. */
static bool can_submit(const struct ncclb_comm_stream *cs)
{
    const struct ncclb_waiting *last = TAILQ_LAST(&cs->waiting, ncclb_waits);
    return cs->state == NCCLB_READY && (last == NULL || last->place == NCCLB_GATHERED);
}

int ncclb_queue(struct ncclb_comm_stream *cs, const tutti_op *op, tutti_request *request)
{
    struct ncclb_group *group = cs->group;
    if (group->failed)
        return group->host->error(TUTTI_ERR_ABORTED, "%s",
                                  group->why); /* the core may not have handled the failure yet */
    if (group->aborted || cs->state == NCCLB_DEAD)
        return group->host->error(TUTTI_ERR_ABORTED, "nccl: the communicator of group %s was aborted",
                                  group->info.name);
    int status = device_check(&group->device, op, op->stream, group->info.name);
    if (status != TUTTI_OK) return status;
    bool entered = device_enter(&group->device), now = can_submit(cs);
    enum device_capture capture = device_capture(op->stream);
    status = check_capture(cs, op, capture, now);
    if (status == TUTTI_OK)
        status = now ? submit_now(cs, op, request, capture == DEVICE_CAPTURED) : defer(cs, op, request, NCCLB_HELD);
    device_leave(entered);
    if (!now && !group->coalescing) ncclb_comm_stream_open(cs);
    return status;
}

/* ---- progress --------------------------------------------------------------------------------------------------- */

static void fail(struct ncclb_comm_stream *cs, struct ncclb_waiting *waiting, int status)
{
    tutti_request *request = waiting->request;
    drop(cs, waiting);
    if (request != NULL) cs->group->host->complete(request, status);
}

/* Handles the first queued operation once it is in its stream. */
static void finish_enqueued(struct ncclb_comm_stream *cs, struct ncclb_waiting *waiting)
{
    tutti_request *request = waiting->request;
    int status = request != NULL
                     ? finish(cs, &waiting->op, request, device_capture(waiting->op.stream) != DEVICE_NO_CAPTURE)
                     : TUTTI_OK;
    drop(cs, waiting);
    if (request == NULL || status == TUTTI_REQUEST_PENDING) return;
    cs->group->host->complete(request, status == TUTTI_REQUEST_DONE ? TUTTI_OK : status);
}

/* Advances the first queued operation.  Returns true if it moved. */
static bool advance(struct ncclb_comm_stream *cs, struct ncclb_waiting *waiting)
{
    int before = waiting->place,
        place = before == NCCLB_HELD ? issue(cs, &waiting->op, waiting->after, false) : (int)poll_submitted(cs);
    if (place < 0) {
        fail(cs, waiting, place);
        return true;
    }
    waiting->place = (enum ncclb_place)place;
    if (place == NCCLB_ENQUEUED) finish_enqueued(cs, waiting);
    return place != before;
}

int ncclb_queue_move(struct ncclb_comm_stream *cs, int64_t now)
{
    struct ncclb_waiting *waiting;
    int moved = 0;
    if (cs->group->coalescing) return 0; /* the operations of an NCCL group must not be interleaved with others */
    if (cs->state != NCCLB_CLOSED) ncclb_comm_stream_open(cs);
    if (cs->state != NCCLB_READY || TAILQ_EMPTY(&cs->waiting)) return 0;
    bool entered = device_enter(&cs->group->device);
    while (cs->state == NCCLB_READY && (waiting = TAILQ_FIRST(&cs->waiting)) != NULL && advance(cs, waiting)) moved++;
    device_leave(entered);
    if (moved > 0) cs->group->moved_ns = now;
    return moved;
}

static void poll_queue_briefly(struct ncclb_comm_stream *cs, int64_t most_ns)
{
    const struct ncclb_waiting *first = TAILQ_FIRST(&cs->waiting);
    if (cs->state == NCCLB_READY && first != NULL && first->place == NCCLB_SUBMITTED) poll_briefly(cs, most_ns);
    ncclb_queue_move(cs, cs->group->host->now_ns());
}

void ncclb_queue_poll_briefly(struct ncclb_group *group, const tutti_request *request)
{
    struct ncclb_comm_stream *cs;
    const struct ncclb_waiting *waiting;
    TAILQ_FOREACH(cs, &group->open, link)
    TAILQ_FOREACH(waiting, &cs->waiting, link)
    if (waiting->request == request) {
        poll_queue_briefly(cs, STREAM_NS);
        return;
    }
}

/* Detaches a request.  An operation submitted to NCCL stays queued, without its request, until it is in its stream. */
void ncclb_queue_forget(struct ncclb_comm_stream *cs, const tutti_request *request)
{
    struct ncclb_waiting *waiting;
    struct ncclb_completion *completion;
    TAILQ_FOREACH(completion, &cs->completions, link)
    if (completion->request == request) completion->request = NULL;
    TAILQ_FOREACH(waiting, &cs->waiting, link)
    {
        if (waiting->request != request) continue;
        waiting->request = NULL;
        if (waiting->place == NCCLB_HELD) drop(cs, waiting);
        return;
    }
}

void ncclb_queue_clear(struct ncclb_comm_stream *cs)
{
    struct ncclb_waiting *waiting;
    while ((waiting = TAILQ_FIRST(&cs->waiting)) != NULL) drop(cs, waiting);
}

/* ---- NCCL groups ------------------------------------------------------------------------------------------------ */

/* True if nothing is queued.  Only then are the operations submitted at once. */
static bool may_coalesce(const struct ncclb_group *group)
{
    const struct ncclb_comm_stream *cs;
    TAILQ_FOREACH(cs, &group->open, link)
    if (!TAILQ_EMPTY(&cs->waiting)) return false;
    return !group->aborted && !group->failed;
}

/* Opens comm streams that got their first operation inside the NCCL group. */
static void open_pairs(struct ncclb_group *group)
{
    for (int i = 0; group->pairs != NULL && i < 2 * group->info.world_size; i++)
        if (group->pairs[i].state == NCCLB_CLOSED && !TAILQ_EMPTY(&group->pairs[i].waiting))
            ncclb_comm_stream_open(&group->pairs[i]);
    if (group->main.state == NCCLB_CLOSED && !TAILQ_EMPTY(&group->main.waiting)) ncclb_comm_stream_open(&group->main);
}

/* Marks the operations of an NCCL group as submitted.  NCCL accepts all of them, or none. */
static void mark_submitted(struct ncclb_comm_stream *cs, int status)
{
    struct ncclb_waiting *waiting, *next;
    for (waiting = TAILQ_FIRST(&cs->waiting); waiting != NULL; waiting = next) {
        next = TAILQ_NEXT(waiting, link);
        if (waiting->place != NCCLB_GATHERED) continue;
        waiting->place = NCCLB_SUBMITTED;
        if (status != TUTTI_OK) fail(cs, waiting, status);
    }
}

static ncclResult_t start_group(void *unused)
{
    (void)unused;
    return ncclb_lib.ncclGroupStart();
}

static ncclResult_t end_group(void *unused)
{
    (void)unused;
    return ncclb_lib.ncclGroupEnd();
}

static bool begin_group(struct ncclb_group *group)
{
    return may_coalesce(group) && ncclb_proxy_start(group, &group->proxy) == TUTTI_OK &&
           ncclb_proxy_call(group->proxy, start_group, NULL) == ncclSuccess;
}

int ncclb_coalesce(void *state, bool begin)
{
    struct ncclb_group *group = state;
    struct ncclb_comm_stream *cs;
    if (begin) {
        group->coalescing = begin_group(group);
        return TUTTI_OK;
    }
    if (!group->coalescing) return TUTTI_OK;
    bool entered = device_enter(&group->device);
    ncclResult_t result = ncclb_proxy_call(group->proxy, end_group, NULL);
    group->coalescing = false;
    int status = result == ncclSuccess || result == ncclInProgress
                     ? TUTTI_OK
                     : ncclb_comm_stream_failed(&group->main, "cannot start a group of operations", result);
    TAILQ_FOREACH(cs, &group->open, link) mark_submitted(cs, status);
    if (status == TUTTI_OK) open_pairs(group);
    TAILQ_FOREACH(cs, &group->open, link) poll_queue_briefly(cs, SOON_NS);
    device_leave(entered);
    return status;
}
