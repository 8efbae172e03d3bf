/* From a descriptor to a stream.
 *
 * A blocking operation goes straight into the caller's stream and is answered DONE; an asynchronous one, and a barrier,
 * for which the host waits, go into the channel's own stream, behind what the caller's held, and end with a mark.
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

static int refuse_capture(const struct ncclb_channel *channel, const char *what)
{
    return channel->group->host->error(TUTTI_ERR_INVALID_ARGUMENT,
                                       "nccl: the stream is being captured into a graph: %s", what);
}

/* What of op cannot be done while a graph is captured; now: it goes to NCCL at once. */
static int check_capture(const struct ncclb_channel *channel, const tutti_op *op, enum device_capture capture, bool now)
{
    if (capture == DEVICE_BARRED)
        return channel->group->host->error(
            TUTTI_ERR_INVALID_ARGUMENT, "nccl: the legacy default stream takes nothing while a stream that waits for "
                                        "it is being captured into a graph; name another one");
    if (capture == DEVICE_CAPTURED && on_own_stream(op))
        return refuse_capture(channel, "only blocking calls, and no barrier, can go into it");
    if (capture == DEVICE_CAPTURED && !now)
        return refuse_capture(channel, "make one such call before the capture, which opens the communicator");
    return TUTTI_OK;
}

/* ---- what waits -------------------------------------------------------------------------------------------- */

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

static void drop(struct ncclb_channel *channel, struct ncclb_waiting *waiting)
{
    TAILQ_REMOVE(&channel->waiting, waiting, link);
    if (waiting->after != NULL) driver.cuEventDestroy(waiting->after);
    free(waiting);
}

static int defer(struct ncclb_channel *channel, const tutti_op *op, tutti_request *request, enum ncclb_place place)
{
    struct ncclb_waiting *waiting = copy(op, channel->group->info.world_size);
    if (waiting == NULL) return channel->group->host->error(TUTTI_ERR_NO_MEMORY, "nccl: no memory for an operation");
    waiting->request = request;
    waiting->place = place;
    TAILQ_INSERT_TAIL(&channel->waiting, waiting, link);
    if (on_own_stream(op) && place == NCCLB_HELD) {
        CUresult result = driver.cuEventCreate(&waiting->after, CU_EVENT_DISABLE_TIMING);
        if (result == CUDA_SUCCESS) result = driver.cuEventRecord(waiting->after, op->stream);
        if (result != CUDA_SUCCESS) {
            drop(channel, waiting);
            return device_failed(&channel->group->device, "an event", result);
        }
    }
    channel->group->moved_ns = channel->group->host->now_ns();
    return TUTTI_REQUEST_PENDING;
}

/* ---- into the stream --------------------------------------------------------------------------------------- */

/* Lets the channel's stream wait for what the caller's holds. */
static CUresult follow_caller(struct ncclb_channel *channel, const tutti_op *op, CUevent after)
{
    CUresult result = CUDA_SUCCESS;
    if (after == NULL) {
        result = driver.cuEventRecord(channel->entry, op->stream);
        after = channel->entry;
    }
    return result == CUDA_SUCCESS ? driver.cuStreamWaitEvent(channel->stream, after, 0) : result;
}

struct handing {
    struct ncclb_channel *channel;
    const tutti_op *op;
    CUstream stream;
};

static ncclResult_t call(void *argument)
{
    const struct handing *it = argument;
    return tutti_kind_reduces(it->op->kind) ? ncclb_reduce(it->channel, it->op, it->stream)
                                            : ncclb_collect(it->channel, it->op, it->stream);
}

static ncclResult_t hand_over(struct ncclb_channel *channel, const tutti_op *op, CUstream stream)
{
    struct ncclb_hand *hand = channel->group->coalescing ? channel->group->hand : channel->hand;
    return ncclb_hand_do(hand, call, &(struct handing){channel, op, stream});
}

static ncclResult_t make_sure(void *argument)
{
    const struct ncclb_channel *channel = argument;
    double factor = 1;
    ncclRedOp_t op;
    ncclResult_t result =
        ncclb_lib.ncclRedOpCreatePreMulSum(&op, &factor, ncclFloat64, ncclScalarHostImmediate, channel->comm);
    return result == ncclSuccess ? ncclb_lib.ncclRedOpDestroy(op, channel->comm) : result;
}

/* Before 2.23 NCCL lets go of what a call has begun only in the communicator's next call, though a group's hand may
 * have something else to begin before. */
static ncclResult_t forget_job(struct ncclb_channel *channel)
{
    return ncclb_lib.version < 22300 ? ncclb_hand_do(channel->hand, make_sure, channel) : ncclSuccess;
}

/* Where one is that NCCL has.  After an error it stays there until the communicator is ended. */
static enum ncclb_place ask(struct ncclb_channel *channel)
{
    ncclResult_t state = ncclSuccess;
    ncclResult_t result = ncclb_lib.ncclCommGetAsyncError(channel->comm, &state);
    if (result == ncclSuccess) result = state;
    if (result == ncclSuccess) result = forget_job(channel);
    if (result == ncclSuccess) return NCCLB_ENQUEUED;
    if (result != ncclInProgress) ncclb_channel_failed(channel, "starting an operation", result);
    return NCCLB_HANDED;
}

/* From 2.23 on a thread of NCCL's own does each call, which takes it some microseconds: worth waiting for, as nothing
 * has to be kept and asked for then.  What takes longer is that NCCL connects. */
static enum ncclb_place ask_a_while(struct ncclb_channel *channel, int64_t most_ns)
{
    static const struct timespec nap = {0, 50000};
    int64_t begin = channel->group->host->now_ns(), passed = 0;
    enum ncclb_place place = ask(channel);
    while (place == NCCLB_HANDED && channel->state == NCCLB_READY && passed < most_ns) {
        if (passed < SOON_NS)
            sched_yield();
        else
            nanosleep(&nap, NULL);
        place = ask(channel);
        passed = channel->group->host->now_ns() - begin;
    }
    return place;
}

/* Answers how far the operation came, or an error. */
static int issue(struct ncclb_channel *channel, const tutti_op *op, CUevent after, bool capturing)
{
    CUstream stream = on_own_stream(op) ? channel->stream : op->stream;
    CUresult ready = on_own_stream(op) ? follow_caller(channel, op, after) : CUDA_SUCCESS;
    if (ready != CUDA_SUCCESS) return device_failed(&channel->group->device, "an event of the given stream", ready);
    if (!capturing) {
        int status = ncclb_mark_follow(channel, stream);
        if (status != TUTTI_OK) return status;
    }
    if (on_own_stream(op)) ready = ncclb_mark_begin(channel);
    if (ready != CUDA_SUCCESS) return device_failed(&channel->group->device, "an event", ready);
    ncclResult_t result = hand_over(channel, op, stream);
    if (result != ncclSuccess && result != ncclInProgress)
        return ncclb_channel_failed(channel, "starting an operation", result);
    if (channel->group->coalescing) return NCCLB_GATHERED;
    return result == ncclInProgress ? ask_a_while(channel, SOON_NS) : NCCLB_ENQUEUED;
}

static int finish(struct ncclb_channel *channel, const tutti_op *op, tutti_request *request, bool capturing)
{
    if (on_own_stream(op)) {
        int status = ncclb_mark(channel, channel->stream, op, request);
        return status == TUTTI_OK ? TUTTI_REQUEST_PENDING : status;
    }
    int status = capturing ? TUTTI_OK : ncclb_mark(channel, op->stream, op, NULL);
    return status == TUTTI_OK ? TUTTI_REQUEST_DONE : status;
}

static int run(struct ncclb_channel *channel, const tutti_op *op, tutti_request *request, bool capturing)
{
    int place = issue(channel, op, NULL, capturing);
    if (place < 0) return place;
    return place == NCCLB_ENQUEUED ? finish(channel, op, request, capturing)
                                   : defer(channel, op, request, (enum ncclb_place)place);
}

/* Whether the next one goes to NCCL at once: nothing is before it, or only what is in the same NCCL group. */
static bool is_clear(const struct ncclb_channel *channel)
{
    const struct ncclb_waiting *last = TAILQ_LAST(&channel->waiting, ncclb_waits);
    return channel->state == NCCLB_READY && (last == NULL || last->place == NCCLB_GATHERED);
}

int ncclb_queue(struct ncclb_channel *channel, const tutti_op *op, tutti_request *request)
{
    struct ncclb_group *group = channel->group;
    if (group->told) return group->host->error(TUTTI_ERR_ABORTED, "%s", group->why); /* the core may not know yet */
    if (group->aborted || channel->state == NCCLB_DEAD)
        return group->host->error(TUTTI_ERR_ABORTED, "nccl: the communicator of group %s was aborted",
                                  group->info.name);
    int status = device_check(&group->device, op, op->stream, group->info.name);
    if (status != TUTTI_OK) return status;
    bool entered = device_enter(&group->device), now = is_clear(channel);
    enum device_capture capture = device_capture(op->stream);
    status = check_capture(channel, op, capture, now);
    if (status == TUTTI_OK)
        status = now ? run(channel, op, request, capture == DEVICE_CAPTURED) : defer(channel, op, request, NCCLB_HELD);
    device_leave(entered);
    if (!now && !group->coalescing) ncclb_channel_open(channel);
    return status;
}

/* ---- moving on --------------------------------------------------------------------------------------------- */

static void refuse(struct ncclb_channel *channel, struct ncclb_waiting *waiting, int status)
{
    tutti_request *request = waiting->request;
    drop(channel, waiting);
    if (request != NULL) channel->group->host->complete(request, status);
}

/* The first one is in the stream. */
static void settle(struct ncclb_channel *channel, struct ncclb_waiting *waiting)
{
    tutti_request *request = waiting->request;
    int status = request != NULL
                     ? finish(channel, &waiting->op, request, device_capture(waiting->op.stream) != DEVICE_NO_CAPTURE)
                     : TUTTI_OK;
    drop(channel, waiting);
    if (request == NULL || status == TUTTI_REQUEST_PENDING) return;
    channel->group->host->complete(request, status == TUTTI_REQUEST_DONE ? TUTTI_OK : status);
}

/* Takes the first one further; whether it did. */
static bool advance(struct ncclb_channel *channel, struct ncclb_waiting *waiting)
{
    int before = waiting->place,
        place = before == NCCLB_HELD ? issue(channel, &waiting->op, waiting->after, false) : (int)ask(channel);
    if (place < 0) {
        refuse(channel, waiting, place);
        return true;
    }
    waiting->place = (enum ncclb_place)place;
    if (place == NCCLB_ENQUEUED) settle(channel, waiting);
    return place != before;
}

int ncclb_queue_move(struct ncclb_channel *channel, int64_t now)
{
    struct ncclb_waiting *waiting;
    int moved = 0;
    if (channel->group->coalescing) return 0; /* nothing may come between what is one */
    if (channel->state != NCCLB_CLOSED) ncclb_channel_open(channel);
    if (channel->state != NCCLB_READY || TAILQ_EMPTY(&channel->waiting)) return 0;
    bool entered = device_enter(&channel->group->device);
    while (channel->state == NCCLB_READY && (waiting = TAILQ_FIRST(&channel->waiting)) != NULL &&
           advance(channel, waiting))
        moved++;
    device_leave(entered);
    if (moved > 0) channel->group->moved_ns = now;
    return moved;
}

static void look_a_while(struct ncclb_channel *channel, int64_t most_ns)
{
    const struct ncclb_waiting *first = TAILQ_FIRST(&channel->waiting);
    if (channel->state == NCCLB_READY && first != NULL && first->place == NCCLB_HANDED) ask_a_while(channel, most_ns);
    ncclb_queue_move(channel, channel->group->host->now_ns());
}

void ncclb_queue_hurry(struct ncclb_group *group, const tutti_request *request)
{
    struct ncclb_channel *channel;
    const struct ncclb_waiting *waiting;
    TAILQ_FOREACH(channel, &group->open, link)
    TAILQ_FOREACH(waiting, &channel->waiting, link)
    if (waiting->request == request) {
        look_a_while(channel, STREAM_NS);
        return;
    }
}

/* One that NCCL has keeps its place, without the request, until it is in the stream. */
void ncclb_queue_forget(struct ncclb_channel *channel, const tutti_request *request)
{
    struct ncclb_waiting *waiting;
    struct ncclb_mark *mark;
    TAILQ_FOREACH(mark, &channel->marks, link)
    if (mark->request == request) mark->request = NULL;
    TAILQ_FOREACH(waiting, &channel->waiting, link)
    {
        if (waiting->request != request) continue;
        waiting->request = NULL;
        if (waiting->place == NCCLB_HELD) drop(channel, waiting);
        return;
    }
}

void ncclb_queue_clear(struct ncclb_channel *channel)
{
    struct ncclb_waiting *waiting;
    while ((waiting = TAILQ_FIRST(&channel->waiting)) != NULL) drop(channel, waiting);
}

/* ---- several as one ---------------------------------------------------------------------------------------- */

/* Only where nothing waits: what is queued then goes to NCCL at once, behind nothing. */
static bool may_coalesce(const struct ncclb_group *group)
{
    const struct ncclb_channel *channel;
    TAILQ_FOREACH(channel, &group->open, link)
    if (!TAILQ_EMPTY(&channel->waiting)) return false;
    return !group->aborted && !group->told;
}

/* Those whose first operation has come in between. */
static void open_pairs(struct ncclb_group *group)
{
    for (int i = 0; group->pairs != NULL && i < 2 * group->info.world_size; i++)
        if (group->pairs[i].state == NCCLB_CLOSED && !TAILQ_EMPTY(&group->pairs[i].waiting))
            ncclb_channel_open(&group->pairs[i]);
    if (group->main.state == NCCLB_CLOSED && !TAILQ_EMPTY(&group->main.waiting)) ncclb_channel_open(&group->main);
}

/* NCCL has them all, or none. */
static void end_gathering(struct ncclb_channel *channel, int status)
{
    struct ncclb_waiting *waiting, *next;
    for (waiting = TAILQ_FIRST(&channel->waiting); waiting != NULL; waiting = next) {
        next = TAILQ_NEXT(waiting, link);
        if (waiting->place != NCCLB_GATHERED) continue;
        waiting->place = NCCLB_HANDED;
        if (status != TUTTI_OK) refuse(channel, waiting, status);
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
    return may_coalesce(group) && ncclb_hand_new(group, &group->hand) == TUTTI_OK &&
           ncclb_hand_do(group->hand, start_group, NULL) == ncclSuccess;
}

int ncclb_coalesce(void *state, bool begin)
{
    struct ncclb_group *group = state;
    struct ncclb_channel *channel;
    if (begin) {
        group->coalescing = begin_group(group);
        return TUTTI_OK;
    }
    if (!group->coalescing) return TUTTI_OK;
    bool entered = device_enter(&group->device);
    ncclResult_t result = ncclb_hand_do(group->hand, end_group, NULL);
    group->coalescing = false;
    int status = result == ncclSuccess || result == ncclInProgress
                     ? TUTTI_OK
                     : ncclb_channel_failed(&group->main, "starting operations together", result);
    TAILQ_FOREACH(channel, &group->open, link) end_gathering(channel, status);
    if (status == TUTTI_OK) open_pairs(group);
    TAILQ_FOREACH(channel, &group->open, link) look_a_while(channel, SOON_NS);
    device_leave(entered);
    return status;
}
