/* tutti_alloc: memory that is best for NCCL's transports, and registered with the communicator. */
#include <stdlib.h>
#include <time.h>

#include "ncclb.h"

/* Registers a block with the communicator.  Registration only improves speed, so errors are ignored. */
static void register_block(struct ncclb_group *group, struct ncclb_block *block)
{
    if (ncclb_lib.ncclCommRegister == NULL || block->driver || !ncclb_comm_stream_is_free(&group->main)) return;
    if (ncclb_has_windows(group)) return; /* registered as a window, or not at all */
    ncclResult_t result = ncclb_lib.ncclCommRegister(group->main.comm, block->memory, block->bytes, &block->handle);
    if (result != ncclSuccess) block->handle = NULL;
}

void ncclb_memory_register(struct ncclb_group *group)
{
    struct ncclb_block *block;
    LIST_FOREACH(block, &group->blocks, link) register_block(group, block);
}

/* True if ncclMemAlloc suits a block of this size.  Before 2.26 NCCL rounds sizes up to the GPU's recommended multicast
 * granularity, which suits large blocks only.  The threshold is conservative, since that granularity varies. */
static bool suits_nccl_alloc(size_t bytes)
{
    enum { LARGE = 256 << 20 };
    return ncclb_lib.version >= 22600 || bytes >= LARGE;
}

static int allocate(struct ncclb_group *group, struct ncclb_block *block)
{
    if (suits_nccl_alloc(block->bytes) && ncclb_lib.ncclMemAlloc != NULL && ncclb_lib.ncclMemFree != NULL &&
        ncclb_lib.ncclMemAlloc(&block->memory, block->bytes) == ncclSuccess)
        return TUTTI_OK;
    CUdeviceptr memory = 0;
    CUresult result = driver.cuMemAlloc(&memory, block->bytes);
    block->memory = (void *)memory;
    block->driver = true;
    return result == CUDA_SUCCESS ? TUTTI_OK : device_failed(&group->device, "cannot allocate memory", result);
}

int ncclb_alloc(void *state, size_t bytes, void **memory)
{
    struct ncclb_group *group = state;
    struct ncclb_block *block = calloc(1, sizeof *block);
    if (block == NULL)
        return group->host->error(TUTTI_ERR_NO_MEMORY, "nccl: out of memory to record an allocation of %zu bytes",
                                  bytes);
    block->bytes = bytes > 0 ? bytes : 1;
    bool entered = device_enter(&group->device);
    int status = allocate(group, block);
    if (status != TUTTI_OK) {
        free(block);
    } else {
        LIST_INSERT_HEAD(&group->blocks, block,
                         link); /* kept until the group closes if the window fails: NCCL may still use it */
        if (ncclb_has_windows(group) && !block->driver)
            status = ncclb_make_window(group, block);
        else
            register_block(group, block);
        *memory = status == TUTTI_OK ? block->memory : NULL;
    }
    device_leave(entered);
    return status;
}

/* Deregisters the memory from the communicator. */
static void deregister_block(struct ncclb_group *group, struct ncclb_block *block)
{
    if (group->main.comm == NULL) return;
    if (block->handle != NULL) ncclb_lib.ncclCommDeregister(group->main.comm, block->handle);
    if (block->window != NULL) ncclb_lib.window_deregister(group->main.comm, block->window);
}

static void free_block(struct ncclb_group *group, struct ncclb_block *block)
{
    LIST_REMOVE(block, link);
    deregister_block(group, block);
    if (block->driver)
        driver.cuMemFree((CUdeviceptr)block->memory);
    else
        ncclb_lib.ncclMemFree(block->memory);
    free(block);
}

/* Waits until nothing uses the memory, as cudaFree does.  The wait for NCCL's operations is bounded; the program's own
 * kernels complete by themselves. */
static int await_idle(struct ncclb_group *group)
{
    static const struct timespec interval = {0, 50000};
    int64_t now = group->host->now_ns(), deadline = ncclb_deadline(now, group->info.timeout_ms);
    struct ncclb_comm_stream *cs;
    bool busy = !group->aborted;
    while (busy && (now = group->host->now_ns()) < deadline) {
        busy = false;
        TAILQ_FOREACH(cs, &group->open, link)
        {
            if (cs->state == NCCLB_DEAD) continue;
            ncclb_queue_move(cs, now);
            ncclb_completion_move(cs, now);
            busy |= !TAILQ_EMPTY(&cs->completions) || !TAILQ_EMPTY(&cs->waiting);
        }
        if (busy && !group->failed) nanosleep(&interval, NULL);
        busy &= !group->failed;
    }
    if (group->failed && !group->aborted) ncclb_abort(group); /* otherwise its operations would never complete */
    if (busy)
        return group->host->error(TUTTI_ERR_TIMEOUT,
                                  "nccl: cannot free memory: operations that may use it have not completed");
    driver.cuCtxSynchronize();
    return TUTTI_OK;
}

int ncclb_free(void *state, void *memory)
{
    struct ncclb_group *group = state;
    struct ncclb_block *block;
    LIST_FOREACH(block, &group->blocks, link)
    {
        if (block->memory != memory) continue;
        bool entered = device_enter(&group->device);
        int status = await_idle(group);
        if (status == TUTTI_OK) free_block(group, block);
        device_leave(entered);
        return status;
    }
    return group->host->error(TUTTI_ERR_INVALID_ARGUMENT, "nccl: %p was not allocated by tutti_alloc for group %s",
                              memory, group->info.name);
}

/* Deregisters memory that the program has not freed; the memory remains the program's.  While an operation is pending
 * it stays registered until its communicator has ended. */
void ncclb_memory_close(struct ncclb_group *group, bool quiet)
{
    struct ncclb_block *block;
    while ((block = LIST_FIRST(&group->blocks)) != NULL) {
        LIST_REMOVE(block, link);
        if (quiet) deregister_block(group, block);
        free(block);
    }
}
