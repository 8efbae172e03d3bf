/* Function table of the cuda plug-in. */
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "stager.h"

/* Scope in the device's context.  It does not invalidate another thread's graph capture, although it queries events and
 * allocates pinned memory. */
struct scope {
    bool entered;
    CUstreamCaptureMode mode;
};

static struct scope scope(const struct stager *first)
{
    bool entered = device_enter(&first->device);
    return (struct scope){entered, device_relax()};
}

static void scope_leave(struct scope scope)
{
    device_unrelax(scope.mode);
    device_leave(scope.entered);
}

static int cuda_probe(const tutti_host *host)
{
    return driver_load(host, "cuda");
}

static int open_root(struct stager *first)
{
    LIST_INIT(&first->idle);
    TAILQ_INIT(&first->under_way);
    TAILQ_INIT(&first->spare);
    int status = device_choose(&first->device, &first->info, first->host, "cuda");
    if (status == TUTTI_OK) status = device_open(&first->device);
    if (status != TUTTI_OK) return status;
    first->doorbell_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return first->doorbell_fd >= 0 ? TUTTI_OK : first->host->error(TUTTI_ERR_SYSTEM, "cuda: cannot create an eventfd");
}

static int cuda_open(void *state, const tutti_group_info *info, const tutti_host *host)
{
    struct stager *stager = state;
    stager->host = host;
    stager->info = *info;
    stager->doorbell_fd = -1;
    stager->first = info->parent != NULL ? info->parent : stager;
    int status = driver_load(host, "cuda");
    return status == TUTTI_OK && stager->first == stager ? open_root(stager) : status;
}

static void cuda_close(void *state)
{
    struct stager *stager = state;
    if (stager->first == stager && stager->device.context != NULL) {
        struct scope here = scope(stager);
        lane_end(stager);
        scope_leave(here);
        if (stager->lanes > 0) { /* their copies ring the doorbell when they complete */
            TUTTI_LOG_AS(stager->host, "cuda", 1,
                         "cuda: copies of group %s have not completed; their memory is not freed", stager->info.name);
        } else {
            if (stager->doorbell_fd >= 0) close(stager->doorbell_fd);
            device_close(&stager->device);
        }
    }
    memset(stager, 0, sizeof *stager);
}

/* ---- staging ----------------------------------------------------------------------------------------------- */

static int cuda_stage_open(void *state, const tutti_op *op, size_t bytes, void **stage, void **memory)
{
    struct stager *stager = state, *first = stager->first;
    struct lane *lane = NULL;
    int status = device_check(&first->device, op, op->stream, stager->info.name);
    if (status != TUTTI_OK) return status;
    struct scope here = scope(first);
    if (device_capture(op->stream) != DEVICE_NO_CAPTURE)
        status =
            stager->host->error(TUTTI_ERR_INVALID_ARGUMENT, "cuda: the stream is being captured into a graph; "
                                                            "operations staged through host memory cannot be captured");
    else
        status = lane_open(first, op->stream, bytes, &lane);
    scope_leave(here);
    if (status != TUTTI_OK) return status;
    *stage = lane;
    *memory = lane->memory;
    return TUTTI_OK;
}

static void cuda_stage_close(void *state, void *stage)
{
    struct stager *stager = state;
    struct scope here = scope(stager->first);
    lane_close(stager->first, stage);
    scope_leave(here);
}

static int cuda_copy(void *state, const tutti_op *op, tutti_request *request)
{
    struct stager *first = ((struct stager *)state)->first;
    struct scope here = scope(first);
    int status = lane_copy(first, op->stream, op, request);
    scope_leave(here);
    return status;
}

static int cuda_progress(void *state)
{
    struct stager *first = state;
    if (first->device.context == NULL || (TAILQ_EMPTY(&first->under_way) && first->rings == 0)) return 0;
    struct scope here = scope(first);
    int moved = lane_move(first);
    scope_leave(here);
    return moved;
}

static int cuda_arm(void *state, int *descriptors)
{
    descriptors[0] = ((struct stager *)state)->doorbell_fd;
    return 1;
}

static int cuda_cancel(void *state, tutti_request *request)
{
    struct stager *first = ((struct stager *)state)->first;
    struct scope here = scope(first);
    int status = lane_cancel(first, request);
    scope_leave(here);
    return status;
}

/* ---- tutti_alloc ----------------------------------------------------------------------------------------------- */

static int cuda_alloc(void *state, size_t bytes, void **memory)
{
    const struct stager *first = ((struct stager *)state)->first;
    CUdeviceptr at = 0;
    bool entered = device_enter(&first->device);
    CUresult result = driver.cuMemAlloc(&at, bytes > 0 ? bytes : 1);
    device_leave(entered);
    if (result != CUDA_SUCCESS) return device_failed(&first->device, "cannot allocate memory", result);
    *memory = (void *)at;
    return TUTTI_OK;
}

/* Waits, like cudaFree, for work that may use the memory. */
static int cuda_free(void *state, void *memory)
{
    const struct stager *first = ((struct stager *)state)->first;
    bool entered = device_enter(&first->device);
    CUresult result = driver.cuMemFree((CUdeviceptr)memory);
    device_leave(entered);
    if (result == CUDA_SUCCESS) return TUTTI_OK;
    return first->host->error(TUTTI_ERR_INVALID_ARGUMENT, "cuda: %p was not allocated by tutti_alloc: %s", memory,
                              driver_error(result));
}

#define TEXT(x) #x
#define NUMBER(x) TEXT(x)

TUTTI_BACKEND_EXPORT const tutti_backend tutti_backend_v1 = {
    TUTTI_BACKEND_HEADER,
    .name = "cuda",
    .version = "built against CUDA " NUMBER(CUDA_VERSION),
    .group_bytes = sizeof(struct stager),
    .devices = 1u << TUTTI_CUDA,
    .probe = cuda_probe,
    .open = cuda_open,
    .close = cuda_close,
    .native = {[TUTTI_COPY] = cuda_copy},
    .progress = cuda_progress,
    .arm = cuda_arm,
    .cancel = cuda_cancel,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .stage_open = cuda_stage_open,
    .stage_close = cuda_stage_close,
};
