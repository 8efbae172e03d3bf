/* Completion events.  Only the first of a comm stream is queried: its operations complete in the order they were
 * issued, including those in different streams, which wait for each other.
 *
 * An operation reported as done when it was enqueued has one too, so that a hang is detected even though nobody on the
 * host waits for it.  One event, re-recorded, serves consecutive operations whose deadlines nearly coincide.  It may
 * not be re-recorded without limit, or it would never show that the first operation is stuck.
 */
#include <stdio.h>
#include <stdlib.h>

#include "ncclb.h"

enum { MANY = 64 };

static struct ncclb_completion *allocate(struct ncclb_group *group, bool timed)
{
    struct ncclb_completion *completion = TAILQ_FIRST(&group->spare[timed]);
    if (completion != NULL) {
        TAILQ_REMOVE(&group->spare[timed], completion, link);
        return completion;
    }
    completion = calloc(1, sizeof *completion);
    if (completion == NULL) return NULL;
    completion->timed = timed;
    if (driver.cuEventCreate(&completion->event, timed ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS)
        return completion;
    free(completion);
    return NULL;
}

static void recycle(struct ncclb_comm_stream *cs, struct ncclb_completion *completion)
{
    TAILQ_REMOVE(&cs->completions, completion, link);
    TAILQ_INSERT_HEAD(&cs->group->spare[completion->timed], completion, link);
}

CUresult ncclb_completion_begin(struct ncclb_comm_stream *cs)
{
    CUresult result = cs->begin != NULL ? CUDA_SUCCESS : driver.cuEventCreate(&cs->begin, CU_EVENT_DEFAULT);
    if (result == CUDA_SUCCESS) result = driver.cuEventRecord(cs->begin, cs->stream);
    cs->begun = result == CUDA_SUCCESS;
    return result;
}

/* Attaches the start event that was recorded last.  Operations in one NCCL group share the last one's. */
static void attach_begin(struct ncclb_comm_stream *cs, struct ncclb_completion *completion)
{
    CUevent spare = completion->begin;
    completion->begun = completion->timed && cs->begun;
    if (!completion->begun) return;
    completion->begin = cs->begin;
    cs->begin = spare;
    cs->begun = false;
}

static void report_duration(struct ncclb_group *group, const struct ncclb_completion *completion)
{
    float ms = 0;
    if (!completion->begun || !TUTTI_HAS(group->host, took)) return;
    if (driver.elapsed(&ms, completion->begin, completion->event) == CUDA_SUCCESS)
        group->host->took(completion->request, (int64_t)((double)ms * 1e6));
}

/* True if an existing completion event may also cover another operation. */
static bool can_extend(const struct ncclb_completion *completion, CUstream stream, int64_t deadline, int64_t now)
{
    if (completion == NULL || completion->request != NULL || completion->stream != stream) return false;
    return deadline >= completion->first_ns && deadline - completion->first_ns <= (deadline - now) / 8;
}

int ncclb_completion_add(struct ncclb_comm_stream *cs, CUstream stream, const tutti_op *op, tutti_request *request)
{
    struct ncclb_group *group = cs->group;
    struct ncclb_completion *completion = TAILQ_LAST(&cs->completions, ncclb_completions);
    int64_t now = group->host->now_ns(), deadline = ncclb_deadline(now, op->timeout_ms);
    if (request != NULL || !can_extend(completion, stream, deadline, now)) {
        completion = allocate(group, request != NULL);
        if (completion == NULL)
            return group->host->error(TUTTI_ERR_NO_MEMORY, "nccl: cannot create an event for an operation");
        TAILQ_INSERT_TAIL(&cs->completions, completion, link);
        completion->first_ns = deadline;
    }
    completion->cs = cs;
    completion->stream = stream;
    completion->request = request;
    completion->kind = op->kind;
    attach_begin(cs, completion);
    completion->deadline_ns = deadline;
    if (request != NULL) {
        request->priv[0] = completion;
        group->moved_ns = now;
    }
    CUresult result = driver.cuEventRecord(completion->event, stream);
    if (result != CUDA_SUCCESS) {
        recycle(cs, completion);
        return device_failed(&group->device, "cannot record an event", result);
    }
    /* A program that only makes blocking calls never makes progress otherwise. */
    if (request == NULL && ++group->calls % MANY == 0) {
        ncclb_completion_move(cs, now);
        ncclb_comm_stream_watch(cs, now);
    }
    return TUTTI_OK;
}

int ncclb_completion_follow(struct ncclb_comm_stream *cs, CUstream stream)
{
    const struct ncclb_completion *last = TAILQ_LAST(&cs->completions, ncclb_completions);
    if (last == NULL || last->stream == stream) return TUTTI_OK;
    CUresult result = driver.cuStreamWaitEvent(stream, last->event, 0);
    return result == CUDA_SUCCESS ? TUTTI_OK : device_failed(&cs->group->device, "cannot wait for a stream", result);
}

static void check_deadline(struct ncclb_comm_stream *cs, const struct ncclb_completion *completion, int64_t now)
{
    char text[300];
    if (completion->request != NULL || cs->state == NCCLB_DEAD || now < completion->deadline_ns) return;
    snprintf(text, sizeof text,
             "nccl: %s, enqueued on a stream of cuda:%d, has not completed within its timeout; a peer did not arrive "
             "or called a different operation (%s)",
             tutti_kind_find(completion->kind)->name, cs->group->device.index, ncclb_versions());
    ncclb_fail_group(cs->group, TUTTI_ERR_TIMEOUT, text);
}

bool ncclb_completion_has_ended(const struct ncclb_completion *completion)
{
    bool entered = device_enter(&completion->cs->group->device);
    CUstreamCaptureMode mode = device_relax();
    CUresult result = driver.cuEventQuery(completion->event);
    device_unrelax(mode);
    device_leave(entered);
    return result != CUDA_ERROR_NOT_READY;
}

/* Returns the status of the operation, given its event's result. */
static int outcome(const struct ncclb_completion *completion, CUresult result)
{
    struct ncclb_group *group = completion->cs->group;
    if (result != CUDA_SUCCESS) return device_failed(&group->device, "device error in an operation", result);
    if (completion->cs->state != NCCLB_DEAD || completion->request == NULL) return TUTTI_OK;
    return group->host->error(TUTTI_ERR_ABORTED, "nccl: the communicator of group %s was aborted", group->info.name);
}

int ncclb_completion_move(struct ncclb_comm_stream *cs, int64_t now)
{
    struct ncclb_group *group = cs->group;
    struct ncclb_completion *completion;
    int moved = 0;
    if (TAILQ_EMPTY(&cs->completions)) return 0;
    bool entered = device_enter(&group->device);
    CUstreamCaptureMode mode = device_relax();
    while ((completion = TAILQ_FIRST(&cs->completions)) != NULL) {
        CUresult result = driver.cuEventQuery(completion->event);
        if (result == CUDA_ERROR_NOT_READY) {
            check_deadline(cs, completion, now);
            break;
        }
        tutti_request *request = completion->request;
        if (request != NULL && result == CUDA_SUCCESS) report_duration(group, completion);
        int status = outcome(completion, result);
        recycle(cs, completion);
        if (request != NULL) request->priv[0] = NULL;
        moved++;
        if (request != NULL)
            group->host->complete(request, status);
        else if (status != TUTTI_OK)
            ncclb_fail_group(group, status, "nccl: device error in an operation enqueued earlier");
    }
    device_unrelax(mode);
    device_leave(entered);
    if (moved > 0) group->moved_ns = now;
    return moved;
}

void ncclb_completion_clear(struct ncclb_comm_stream *cs)
{
    struct ncclb_completion *completion;
    while ((completion = TAILQ_FIRST(&cs->completions)) != NULL) recycle(cs, completion);
}

void ncclb_completion_free(struct ncclb_completion *completion)
{
    driver.cuEventDestroy(completion->event);
    if (completion->begin != NULL) driver.cuEventDestroy(completion->begin);
    free(completion);
}
