/* tutti_alloc: memory that NCCL's transports can use best, and that its communicator knows. */
#include <stdlib.h>
#include <time.h>

#include "ncclb.h"

/* Without it all goes as well, only not as fast: errors are no errors. */
static void make_known(struct ncclb_group *group, struct ncclb_block *block)
{
    if (ncclb_lib.ncclCommRegister == NULL || block->driver || !ncclb_channel_is_free(&group->main)) return;
    if (ncclb_has_windows(group)) return; /* registered as one, or not at all */
    ncclResult_t result = ncclb_lib.ncclCommRegister(group->main.comm, block->memory, block->bytes, &block->handle);
    if (result != ncclSuccess) block->handle = NULL;
}

void ncclb_memory_register(struct ncclb_group *group)
{
    struct ncclb_block *block;
    LIST_FOREACH(block, &group->blocks, link) make_known(group, block);
}

/* Before 2.26 NCCL rounds up to the granularity that the GPU recommends for multicast objects, which is made for large
 * ones; nobody here has seen how large it is. */
static bool is_worth_it(size_t bytes)
{
    enum { LARGE = 256 << 20 };
    return ncclb_lib.version >= 22600 || bytes >= LARGE;
}

static int allocate(struct ncclb_group *group, struct ncclb_block *block)
{
    if (is_worth_it(block->bytes) && ncclb_lib.ncclMemAlloc != NULL && ncclb_lib.ncclMemFree != NULL &&
        ncclb_lib.ncclMemAlloc(&block->memory, block->bytes) == ncclSuccess)
        return TUTTI_OK;
    CUdeviceptr memory = 0;
    CUresult result = driver.cuMemAlloc(&memory, block->bytes);
    block->memory = (void *)memory;
    block->driver = true;
    return result == CUDA_SUCCESS ? TUTTI_OK : device_failed(&group->device, "allocating", result);
}

int ncclb_alloc(void *state, size_t bytes, void **memory)
{
    struct ncclb_group *group = state;
    struct ncclb_block *block = calloc(1, sizeof *block);
    if (block == NULL) return group->host->error(TUTTI_ERR_NO_MEMORY, "nccl: no memory to allocate with");
    block->bytes = bytes > 0 ? bytes : 1;
    bool entered = device_enter(&group->device);
    int status = allocate(group, block);
    if (status != TUTTI_OK) {
        free(block);
    } else {
        LIST_INSERT_HEAD(&group->blocks, block, link); /* to the group's end where a window fails: NCCL may have it */
        if (ncclb_has_windows(group) && !block->driver)
            status = ncclb_make_window(group, block);
        else
            make_known(group, block);
        *memory = status == TUTTI_OK ? block->memory : NULL;
    }
    device_leave(entered);
    return status;
}

/* The memory is not the communicator's any more. */
static void forget(struct ncclb_group *group, struct ncclb_block *block)
{
    if (group->main.comm == NULL) return;
    if (block->handle != NULL) ncclb_lib.ncclCommDeregister(group->main.comm, block->handle);
    if (block->window != NULL) ncclb_lib.window_deregister(group->main.comm, block->window);
}

static void give_back(struct ncclb_group *group, struct ncclb_block *block)
{
    LIST_REMOVE(block, link);
    forget(group, block);
    if (block->driver)
        driver.cuMemFree((CUdeviceptr)block->memory);
    else
        ncclb_lib.ncclMemFree(block->memory);
    free(block);
}

/* As cudaFree: what still uses the memory ends first.  NCCL's operations are waited for with a bound, the program's
 * own kernels end by themselves. */
static int let_end(struct ncclb_group *group)
{
    static const struct timespec nap = {0, 50000};
    int64_t now = group->host->now_ns(), deadline = ncclb_deadline(now, group->info.timeout_ms);
    struct ncclb_channel *channel;
    bool busy = !group->aborted;
    while (busy && (now = group->host->now_ns()) < deadline) {
        busy = false;
        TAILQ_FOREACH(channel, &group->open, link)
        {
            if (channel->state == NCCLB_DEAD) continue;
            ncclb_queue_move(channel, now);
            ncclb_mark_move(channel, now);
            busy |= !TAILQ_EMPTY(&channel->marks) || !TAILQ_EMPTY(&channel->waiting);
        }
        if (busy && !group->told) nanosleep(&nap, NULL);
        busy &= !group->told;
    }
    if (group->told && !group->aborted) ncclb_abort(group); /* or its operations would never end */
    if (busy) return group->host->error(TUTTI_ERR_TIMEOUT, "nccl: free: operations that may use the memory do not end");
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
        int status = let_end(group);
        if (status == TUTTI_OK) give_back(group, block);
        device_leave(entered);
        return status;
    }
    return group->host->error(TUTTI_ERR_INVALID_ARGUMENT, "nccl: %p was not allocated by tutti_alloc for group %s",
                              memory, group->info.name);
}

/* What the program did not give back is not NCCL's any more; the memory stays the program's.  Under an operation it
 * stays registered until its communicator has ended. */
void ncclb_memory_close(struct ncclb_group *group, bool quiet)
{
    struct ncclb_block *block;
    while ((block = LIST_FIRST(&group->blocks)) != NULL) {
        LIST_REMOVE(block, link);
        if (quiet) forget(group, block);
        free(block);
    }
}
