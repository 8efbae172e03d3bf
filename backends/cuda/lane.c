#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "stager.h"

enum { IDLE_MOST = 256 << 20, LEAST = 64 << 10, END_MS = 1000 };

/* ---- lanes ----------------------------------------------------------------------------------------------------- */

static void free_lane(struct stager *first, struct lane *lane)
{
    if (lane->out != NULL) driver.cuStreamDestroy(lane->out);
    if (lane->back != NULL) driver.cuStreamDestroy(lane->back);
    if (lane->entry != NULL) driver.cuEventDestroy(lane->entry);
    if (lane->memory != NULL) driver.cuMemFreeHost(lane->memory);
    free(lane);
    first->lanes--;
}

/* Rounds a size up so that later operations find a lane that fits. */
static size_t round_up(size_t bytes)
{
    size_t size = LEAST;
    while (size < bytes && size < SIZE_MAX / 2) size += size < (64 << 20) ? size : size / 4 / 4096 * 4096;
    return size;
}

static CUresult create_lane_resources(struct lane *lane, bool high)
{
    int least = 0, greatest = 0;
    driver.cuCtxGetStreamPriorityRange(&least, &greatest);
    int priority = high ? greatest : least;
    CUresult result = driver.cuStreamCreateWithPriority(&lane->out, CU_STREAM_NON_BLOCKING, priority);
    if (result == CUDA_SUCCESS)
        result = driver.cuStreamCreateWithPriority(&lane->back, CU_STREAM_NON_BLOCKING, priority);
    if (result == CUDA_SUCCESS) result = driver.cuEventCreate(&lane->entry, CU_EVENT_DISABLE_TIMING);
    if (result == CUDA_SUCCESS) result = driver.cuMemHostAlloc(&lane->memory, lane->bytes, CU_MEMHOSTALLOC_PORTABLE);
    return result;
}

static int new_lane(struct stager *first, size_t bytes, struct lane **out)
{
    struct lane *lane = calloc(1, sizeof *lane);
    if (lane == NULL) return first->host->error(TUTTI_ERR_NO_MEMORY, "cuda: out of memory to stage %zu bytes", bytes);
    lane->bytes = round_up(bytes);
    first->lanes++;
    CUresult result = create_lane_resources(lane, first->info.high_priority);
    if (result != CUDA_SUCCESS) {
        free_lane(first, lane);
        if (result != CUDA_ERROR_OUT_OF_MEMORY) return device_failed(&first->device, "cannot create a stream", result);
        return first->host->error(TUTTI_ERR_NO_MEMORY,
                                  "cuda: cannot allocate %zu bytes of pinned host memory for cuda:%d", bytes,
                                  first->device.index);
    }
    *out = lane;
    return TUTTI_OK;
}

/* Takes the smallest idle lane that fits. */
static struct lane *find_lane(struct stager *first, size_t bytes)
{
    struct lane *lane, *best = NULL;
    LIST_FOREACH(lane, &first->idle, link)
    {
        if (lane->bytes >= bytes && (best == NULL || lane->bytes < best->bytes)) best = lane;
    }
    if (best == NULL) return NULL;
    LIST_REMOVE(best, link);
    first->idle_bytes -= best->bytes;
    return best;
}

static void park_lane(struct stager *first, struct lane *lane)
{
    if (first->idle_bytes + lane->bytes > IDLE_MOST) {
        free_lane(first, lane);
        return;
    }
    LIST_INSERT_HEAD(&first->idle, lane, link);
    first->idle_bytes += lane->bytes;
}

int lane_open(struct stager *first, CUstream stream, size_t bytes, struct lane **out)
{
    struct lane *lane = find_lane(first, bytes);
    int status = lane == NULL ? new_lane(first, bytes, &lane) : TUTTI_OK;
    if (status != TUTTI_OK) return status;
    lane->closed = false;
    CUresult result = driver.cuEventRecord(lane->entry, stream);
    if (result == CUDA_SUCCESS) result = driver.cuStreamWaitEvent(lane->out, lane->entry, 0);
    if (result == CUDA_SUCCESS) result = driver.cuStreamWaitEvent(lane->back, lane->entry, 0);
    if (result != CUDA_SUCCESS) {
        park_lane(first, lane);
        return device_failed(&first->device, "cannot record an event on the caller's stream", result);
    }
    *out = lane;
    return TUTTI_OK;
}

void lane_close(struct stager *first, struct lane *lane)
{
    lane->closed = true;
    if (lane->copies == 0) park_lane(first, lane);
}

/* ---- copies ------------------------------------------------------------------------------------------------ */

static struct copy *take_copy(struct stager *first)
{
    struct copy *copy = TAILQ_FIRST(&first->spare);
    if (copy != NULL) {
        TAILQ_REMOVE(&first->spare, copy, link);
        return copy;
    }
    copy = calloc(1, sizeof *copy);
    if (copy != NULL && driver.cuEventCreate(&copy->ended, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS) return copy;
    free(copy);
    return NULL;
}

/* Runs on a driver thread, which may not call CUDA; wakes the core's poll. */
static void CUDA_CB ring(void *argument)
{
    uint64_t one = 1;
    ssize_t written = write((int)(intptr_t)argument, &one, sizeof one);
    (void)written; /* EAGAIN: it is readable already */
}

static CUresult enqueue(const struct copy *copy, const tutti_op *op, CUstream stream)
{
    CUresult result = CUDA_SUCCESS;
    for (int i = 0; i < op->n_in && result == CUDA_SUCCESS; i++) {
        void *from = op->in[i].data, *to = op->out[i].data;
        size_t bytes = (size_t)(op->in[i].numel * tutti_dtype_bytes(op->dtype));
        result = copy->out ? driver.cuMemcpyDtoHAsync(to, (CUdeviceptr)from, bytes, stream)
                           : driver.cuMemcpyHtoDAsync((CUdeviceptr)to, from, bytes, stream);
    }
    return result;
}

/* Enqueues the completion event and the doorbell after the copies. */
static CUresult enqueue_end(struct stager *first, const struct copy *copy, CUstream stream)
{
    CUresult result = driver.cuEventRecord(copy->ended, stream);
    if (result == CUDA_SUCCESS) result = driver.cuLaunchHostFunc(stream, ring, (void *)(intptr_t)first->doorbell_fd);
    first->rings += result == CUDA_SUCCESS;
    return result;
}

/* Starts the copies of op.  If one fails to enqueue, earlier ones are still running and keep the lane busy. */
int lane_copy(struct stager *first, struct lane *lane, const tutti_op *op, tutti_request *request)
{
    struct copy *copy = take_copy(first);
    if (copy == NULL) return first->host->error(TUTTI_ERR_NO_MEMORY, "cuda: cannot create an event for a copy");
    copy->lane = lane;
    copy->out = op->in->device.type != TUTTI_CPU;
    CUstream stream = copy->out ? lane->out : lane->back;
    CUresult result = enqueue(copy, op, stream), ended = enqueue_end(first, copy, stream);
    if (result == CUDA_SUCCESS) result = ended;
    copy->request = result == CUDA_SUCCESS ? request : NULL;
    lane->copies++;
    TAILQ_INSERT_TAIL(&first->under_way, copy, link);
    return result == CUDA_SUCCESS ? TUTTI_REQUEST_PENDING
                                  : device_failed(&first->device, "cannot copy a tensor", result);
}

/* Recycles a completed copy; an idle, closed lane becomes reusable. */
static void recycle_copy(struct stager *first, struct copy *copy)
{
    struct lane *lane = copy->lane;
    TAILQ_REMOVE(&first->under_way, copy, link);
    TAILQ_INSERT_HEAD(&first->spare, copy, link);
    if (--lane->copies == 0 && lane->closed) park_lane(first, lane);
}

int lane_move(struct stager *first)
{
    struct copy *copy, *next;
    uint64_t count;
    int moved = 0;
    /* Drain the doorbell before querying events, so that a later copy rings again.  Drain it even if no copy is left:
     * an event can be seen before the ring behind it, and an undrained doorbell keeps the core awake. */
    if (read(first->doorbell_fd, &count, sizeof count) == sizeof count) first->rings -= count;
    if (TAILQ_EMPTY(&first->under_way)) return 0;
    for (copy = TAILQ_FIRST(&first->under_way); copy != NULL; copy = next) {
        next = TAILQ_NEXT(copy, link);
        CUresult result = driver.cuEventQuery(copy->ended);
        if (result == CUDA_ERROR_NOT_READY) continue;
        tutti_request *request = copy->request;
        recycle_copy(first, copy);
        moved++;
        if (request == NULL) continue;
        first->host->complete(
            request, result == CUDA_SUCCESS ? TUTTI_OK : device_failed(&first->device, "cannot copy a tensor", result));
    }
    return moved;
}

int lane_cancel(struct stager *first, const tutti_request *request)
{
    struct copy *copy;
    TAILQ_FOREACH(copy, &first->under_way, link)
    {
        if (copy->request != request) continue;
        /* The copy uses the caller's memory until it completes.  It cannot have started while the caller's stream is
         * busy; then it can be cancelled, because it only reads data that nobody will use. */
        if (!copy->out || driver.cuEventQuery(copy->lane->entry) != CUDA_ERROR_NOT_READY) return TUTTI_ERR_ABORTED;
        copy->request = NULL;
        return TUTTI_OK;
    }
    return TUTTI_ERR_NOT_FOUND;
}

/* ---- closing --------------------------------------------------------------------------------------------------- */

/* True if a copy or its doorbell is still running.  The doorbell is enqueued behind a copy's event, so this checks the
 * streams. */
static bool is_busy(const struct lane *lane)
{
    return driver.cuStreamQuery(lane->out) == CUDA_ERROR_NOT_READY ||
           driver.cuStreamQuery(lane->back) == CUDA_ERROR_NOT_READY;
}

void lane_end(struct stager *first)
{
    static const struct timespec interval = {0, 100000};
    int64_t deadline = first->host->now_ns() + INT64_C(1000000) * END_MS;
    struct copy *copy;
    struct lane *lane;
    TAILQ_FOREACH(copy, &first->under_way, link) copy->request = NULL;
    while (!TAILQ_EMPTY(&first->under_way) && first->host->now_ns() < deadline) {
        if (lane_move(first) == 0) nanosleep(&interval, NULL);
    }
    while ((lane = LIST_FIRST(&first->idle)) != NULL) {
        LIST_REMOVE(lane, link);
        while (is_busy(lane) && first->host->now_ns() < deadline) nanosleep(&interval, NULL);
        if (!is_busy(lane)) free_lane(first, lane);
    }
    while ((copy = TAILQ_FIRST(&first->spare)) != NULL) {
        TAILQ_REMOVE(&first->spare, copy, link);
        driver.cuEventDestroy(copy->ended);
        free(copy);
    }
}
