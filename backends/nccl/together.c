/* Collective setup that waits for all ranks of a communicator.
 *
 * Subgroups are split from their parent's communicator with ncclCommSplit, if all ranks of the parent create them and
 * communicators are created with their groups (TUTTI_NCCL_EAGER).  Otherwise each is created from a unique id at its
 * first operation, which needs only its members.
 *
 * tutti_alloc's memory is registered with ncclCommWindowRegister, if all ranks allocate together (TUTTI_NCCL_WINDOWS).
 * NCCL's kernels then access the peers' memory directly.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ncclb.h"

static void sleep_briefly(void)
{
    static const struct timespec nap = {0, 100000};
    nanosleep(&nap, NULL);
}

static bool is_busy(struct ncclb_comm_stream *cs, int64_t now)
{
    if (cs->state < NCCLB_READY) ncclb_comm_stream_open(cs);
    ncclb_queue_move(cs, now);
    ncclb_completion_move(cs, now);
    return cs->state != NCCLB_READY || !TAILQ_EMPTY(&cs->waiting) || !TAILQ_EMPTY(&cs->completions);
}

static int report_timeout(struct ncclb_group *group, const char *doing)
{
    return group->host->error(TUTTI_ERR_TIMEOUT, "nccl: %s of group %s timed out: its communicator is not ready", doing,
                              group->info.name);
}

/* Waits until no operation is pending, because NCCL allows none on a communicator that is split. */
static int await_idle(struct ncclb_group *group, const char *doing, int64_t deadline)
{
    for (;;) {
        int64_t now = group->host->now_ns();
        bool busy = is_busy(&group->main, now);
        if (group->failed || group->aborted || group->main.state == NCCLB_DEAD)
            return group->host->error(TUTTI_ERR_ABORTED, "nccl: %s of group %s, which has failed", doing,
                                      group->info.name);
        if (!busy) return TUTTI_OK;
        if (now > deadline) return report_timeout(group, doing);
        sleep_briefly();
    }
}

/* Fails the group after a timeout, because a communicator cannot recover from an unfinished collective call. */
static int fail_timeout(struct ncclb_group *group, const char *doing)
{
    char text[300];
    snprintf(text, sizeof text, "nccl: %s of group %s timed out: a rank did not arrive", doing, group->info.name);
    return ncclb_comm_stream_fail(&group->main, TUTTI_ERR_TIMEOUT, text);
}

/* Waits for a collective call.  NCCL returns success for a call that has only started (it drops ncclInProgress), so
 * this polls the communicator. */
static int await_call(struct ncclb_group *group, ncclResult_t result, const char *doing, int64_t deadline)
{
    while (result == ncclSuccess || result == ncclInProgress) {
        ncclResult_t asked = ncclb_lib.ncclCommGetAsyncError(group->main.comm, &result);
        if (asked != ncclSuccess) result = asked;
        if (result == ncclSuccess) return TUTTI_OK;
        if (result != ncclInProgress) break;
        if (group->host->now_ns() > deadline) return fail_timeout(group, doing);
        sleep_briefly();
    }
    return ncclb_comm_stream_failed(&group->main, doing, result);
}

/* Returns the result of an asynchronous call, NULL after an error, and frees its memory.  NCCL writes it from a thread
 * of its own, possibly after the wait has ended, so after an error the memory stays as long as the communicator.  A
 * group has at most one such result, because an error fails the group. */
static void *take_result(void **async_result, int status, struct ncclb_group *group)
{
    void *result = NULL;
    if (status == TUTTI_OK) {
        result = *async_result;
        free(async_result);
    } else {
        group->main.async_result = async_result;
    }
    return result;
}

static int no_memory(const struct ncclb_group *group)
{
    return group->host->error(TUTTI_ERR_NO_MEMORY, "nccl: out of memory for a result of NCCL in group %s",
                              group->info.name);
}

struct splitting {
    ncclComm_t comm;
    int color, key;
    ncclComm_t *async_result;
};

static ncclResult_t call_split(void *argument)
{
    const struct splitting *it = argument;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    return ncclb_lib.ncclCommSplit(it->comm, it->color, it->key, it->async_result, &config);
}

static int split(struct ncclb_group *from, int color, int key, ncclComm_t *comm, const char *doing, int64_t deadline)
{
    ncclComm_t *async_result = calloc(1, sizeof *async_result);
    if (async_result == NULL) return no_memory(from);
    struct splitting it = {from->main.comm, color, key, async_result};
    ncclResult_t result = ncclb_proxy_call(from->main.proxy, call_split, &it);
    int status = await_call(from, result, doing, deadline);
    *comm = take_result((void **)async_result, status, from);
    return status;
}

int ncclb_split(struct ncclb_group *from, int color, int key, ncclComm_t *comm)
{
    static const char doing[] = "splitting the communicator";
    int64_t deadline = ncclb_deadline(from->host->now_ns(), from->info.timeout_ms);
    bool entered = device_enter(&from->device);
    int status = await_idle(from, doing, deadline);
    if (status == TUTTI_OK) status = split(from, color, key, comm, doing, deadline);
    device_leave(entered);
    return status;
}

int ncclb_abstain(void *state)
{
    struct ncclb_group *from = state;
    ncclComm_t none = NULL;
    return ncclb_is_eager(from) ? ncclb_split(from, NCCL_SPLIT_NOCOLOR, 0, &none) : TUTTI_OK;
}

bool ncclb_has_windows(const struct ncclb_group *group)
{
    return tutti_env_bool(group->host, "TUTTI_NCCL_WINDOWS", false) && ncclb_lib.window_register != NULL &&
           ncclb_lib.window_deregister != NULL;
}

int ncclb_make_window(struct ncclb_group *group, struct ncclb_block *block)
{
    enum { COLL_SYMMETRIC = 1 };
    static const char doing[] = "registering a window";
    int64_t deadline = ncclb_deadline(group->host->now_ns(), group->info.timeout_ms);
    int status = await_idle(group, doing, deadline);
    if (status != TUTTI_OK) return status;
    void **async_result = calloc(1, sizeof *async_result);
    if (async_result == NULL) return no_memory(group);
    ncclResult_t result =
        ncclb_lib.window_register(group->main.comm, block->memory, block->bytes, async_result, COLL_SYMMETRIC);
    status = await_call(group, result, doing, deadline);
    block->window = take_result(async_result, status, group);
    return status;
}
