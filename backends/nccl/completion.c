/* Marks are asked in order and only the first of a channel: its operations end in the order in which they were begun,
 * also those in different streams, which are made to follow each other.
 *
 * An operation that was answered when it had been enqueued is marked too, so that one that never ends is seen: its
 * time-out is not the business of whoever waits for the stream.  One mark, moved on, serves those in a row whose time
 * is up at about the same moment: moved on for ever, it would never show that the first one stands still. */
#include <stdio.h>
#include <stdlib.h>

#include "ncclb.h"

enum { MANY = 64 };

static struct ncclb_mark *take(struct ncclb_group *group, bool timed)
{
    struct ncclb_mark *mark = TAILQ_FIRST(&group->spare[timed]);
    if (mark != NULL) {
        TAILQ_REMOVE(&group->spare[timed], mark, link);
        return mark;
    }
    mark = calloc(1, sizeof *mark);
    if (mark == NULL) return NULL;
    mark->timed = timed;
    if (driver.cuEventCreate(&mark->event, timed ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS)
        return mark;
    free(mark);
    return NULL;
}

static void give(struct ncclb_channel *channel, struct ncclb_mark *mark)
{
    TAILQ_REMOVE(&channel->marks, mark, link);
    TAILQ_INSERT_HEAD(&channel->group->spare[mark->timed], mark, link);
}

CUresult ncclb_mark_begin(struct ncclb_channel *channel)
{
    CUresult result = channel->begin != NULL ? CUDA_SUCCESS : driver.cuEventCreate(&channel->begin, CU_EVENT_DEFAULT);
    if (result == CUDA_SUCCESS) result = driver.cuEventRecord(channel->begin, channel->stream);
    channel->begun = result == CUDA_SUCCESS;
    return result;
}

/* The beginning that was recorded last is this operation's; of those in one NCCL group, the last one's. */
static void take_begin(struct ncclb_channel *channel, struct ncclb_mark *mark)
{
    CUevent spare = mark->begin;
    mark->begun = mark->timed && channel->begun;
    if (!mark->begun) return;
    mark->begin = channel->begin;
    channel->begin = spare;
    channel->begun = false;
}

static void tell_time(struct ncclb_group *group, const struct ncclb_mark *mark)
{
    float ms = 0;
    if (!mark->begun || !TUTTI_HAS(group->host, took)) return;
    if (driver.elapsed(&ms, mark->begin, mark->event) == CUDA_SUCCESS)
        group->host->took(mark->request, (int64_t)((double)ms * 1e6));
}

/* Whether an operation's end may be that of mark, too. */
static bool moves_on(const struct ncclb_mark *mark, CUstream stream, int64_t deadline, int64_t now)
{
    if (mark == NULL || mark->request != NULL || mark->stream != stream) return false;
    return deadline >= mark->first_ns && deadline - mark->first_ns <= (deadline - now) / 8;
}

int ncclb_mark(struct ncclb_channel *channel, CUstream stream, const tutti_op *op, tutti_request *request)
{
    struct ncclb_group *group = channel->group;
    struct ncclb_mark *mark = TAILQ_LAST(&channel->marks, ncclb_marks);
    int64_t now = group->host->now_ns(), deadline = ncclb_deadline(now, op->timeout_ms);
    if (request != NULL || !moves_on(mark, stream, deadline, now)) {
        mark = take(group, request != NULL);
        if (mark == NULL) return group->host->error(TUTTI_ERR_NO_MEMORY, "nccl: no event for an operation");
        TAILQ_INSERT_TAIL(&channel->marks, mark, link);
        mark->first_ns = deadline;
    }
    mark->channel = channel;
    mark->stream = stream;
    mark->request = request;
    mark->kind = op->kind;
    take_begin(channel, mark);
    mark->deadline_ns = deadline;
    if (request != NULL) {
        request->priv[0] = mark;
        group->moved_ns = now;
    }
    CUresult result = driver.cuEventRecord(mark->event, stream);
    if (result != CUDA_SUCCESS) {
        give(channel, mark);
        return device_failed(&group->device, "an event", result);
    }
    /* Nobody drives a program of blocking calls that never rests. */
    if (request == NULL && ++group->calls % MANY == 0) {
        ncclb_mark_move(channel, now);
        ncclb_channel_watch(channel, now);
    }
    return TUTTI_OK;
}

int ncclb_mark_follow(struct ncclb_channel *channel, CUstream stream)
{
    const struct ncclb_mark *last = TAILQ_LAST(&channel->marks, ncclb_marks);
    if (last == NULL || last->stream == stream) return TUTTI_OK;
    CUresult result = driver.cuStreamWaitEvent(stream, last->event, 0);
    return result == CUDA_SUCCESS ? TUTTI_OK : device_failed(&channel->group->device, "waiting for a stream", result);
}

static void look_at_time(struct ncclb_channel *channel, const struct ncclb_mark *mark, int64_t now)
{
    static const char *const names[TUTTI_KIND_COUNT] = {
        "broadcast", "all_reduce",     "reduce",     "all_gather", "gather",
        "scatter",   "reduce_scatter", "all_to_all", "barrier",    "monitored_barrier",
        "send",      "recv",           "coalesced",  "copy",       "probe"};
    char text[300];
    if (mark->request != NULL || channel->state == NCCLB_DEAD || now < mark->deadline_ns) return;
    snprintf(text, sizeof text,
             "nccl: %s, enqueued on a stream of cuda:%d, has not ended in its time; a peer did not come, or called "
             "something "
             "else (%s)",
             names[mark->kind], channel->group->device.index, ncclb_versions());
    ncclb_tell(channel->group, TUTTI_ERR_TIMEOUT, text);
}

bool ncclb_mark_has_ended(const struct ncclb_mark *mark)
{
    bool entered = device_enter(&mark->channel->group->device);
    CUstreamCaptureMode mode = device_relax();
    CUresult result = driver.cuEventQuery(mark->event);
    device_unrelax(mode);
    device_leave(entered);
    return result != CUDA_ERROR_NOT_READY;
}

/* What the operation that the mark is behind has come to, whose event gave result. */
static int outcome(const struct ncclb_mark *mark, CUresult result)
{
    struct ncclb_group *group = mark->channel->group;
    if (result != CUDA_SUCCESS) return device_failed(&group->device, "the device, in an operation", result);
    if (mark->channel->state != NCCLB_DEAD || mark->request == NULL) return TUTTI_OK;
    return group->host->error(TUTTI_ERR_ABORTED, "nccl: the communicator of group %s was aborted", group->info.name);
}

int ncclb_mark_move(struct ncclb_channel *channel, int64_t now)
{
    struct ncclb_group *group = channel->group;
    struct ncclb_mark *mark;
    int moved = 0;
    if (TAILQ_EMPTY(&channel->marks)) return 0;
    bool entered = device_enter(&group->device);
    CUstreamCaptureMode mode = device_relax();
    while ((mark = TAILQ_FIRST(&channel->marks)) != NULL) {
        CUresult result = driver.cuEventQuery(mark->event);
        if (result == CUDA_ERROR_NOT_READY) {
            look_at_time(channel, mark, now);
            break;
        }
        tutti_request *request = mark->request;
        if (request != NULL && result == CUDA_SUCCESS) tell_time(group, mark);
        int status = outcome(mark, result);
        give(channel, mark);
        if (request != NULL) request->priv[0] = NULL;
        moved++;
        if (request != NULL)
            group->host->complete(request, status);
        else if (status != TUTTI_OK)
            ncclb_tell(group, status, "nccl: the device met an error in an operation that was enqueued before");
    }
    device_unrelax(mode);
    device_leave(entered);
    if (moved > 0) group->moved_ns = now;
    return moved;
}

void ncclb_mark_clear(struct ncclb_channel *channel)
{
    struct ncclb_mark *mark;
    while ((mark = TAILQ_FIRST(&channel->marks)) != NULL) give(channel, mark);
}

void ncclb_mark_free(struct ncclb_mark *mark)
{
    driver.cuEventDestroy(mark->event);
    if (mark->begin != NULL) driver.cuEventDestroy(mark->begin);
    free(mark);
}
