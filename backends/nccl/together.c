/* What all ranks of a communicator do together, and wait for.
 *
 * Subgroups from their parent's communicator, by ncclCommSplit: where all of the parent's ranks make them, and
 * communicators are made with their groups (TUTTI_NCCL_EAGER).  Else each is made from a unique id of its own at its
 * first operation, for which the members alone have to come.
 *
 * Windows, by ncclCommWindowRegister, for the memory of tutti_alloc, where all ranks allocate together
 * (TUTTI_NCCL_WINDOWS): NCCL's kernels then reach the peers' memory itself. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ncclb.h"

static void rest(void)
{
    static const struct timespec nap = {0, 100000};
    nanosleep(&nap, NULL);
}

static bool is_busy(struct ncclb_channel *channel, int64_t now)
{
    if (channel->state < NCCLB_READY) ncclb_channel_open(channel);
    ncclb_queue_move(channel, now);
    ncclb_mark_move(channel, now);
    return channel->state != NCCLB_READY || !TAILQ_EMPTY(&channel->waiting) || !TAILQ_EMPTY(&channel->marks);
}

static int too_late(struct ncclb_group *group, const char *doing)
{
    return group->host->error(TUTTI_ERR_TIMEOUT, "nccl: %s of group %s took too long: its communicator is not ready",
                              doing, group->info.name);
}

/* NCCL wants no operation under way on what is split. */
static int let_settle(struct ncclb_group *group, const char *doing, int64_t deadline)
{
    for (;;) {
        int64_t now = group->host->now_ns();
        bool busy = is_busy(&group->main, now);
        if (group->told || group->aborted || group->main.state == NCCLB_DEAD)
            return group->host->error(TUTTI_ERR_ABORTED, "nccl: %s of group %s, which has failed", doing,
                                      group->info.name);
        if (!busy) return TUTTI_OK;
        if (now > deadline) return too_late(group, doing);
        rest();
    }
}

/* The communicator cannot be had back from what it does. */
static int fail_late(struct ncclb_group *group, const char *doing)
{
    char text[300];
    snprintf(text, sizeof text, "nccl: %s of group %s took too long: a rank did not come", doing, group->info.name);
    return ncclb_channel_fail(&group->main, TUTTI_ERR_TIMEOUT, text);
}

/* NCCL's answer to the call is success where it has only begun (it drops ncclInProgress on the way out); the
 * communicator knows better. */
static int let_end(struct ncclb_group *group, ncclResult_t result, const char *doing, int64_t deadline)
{
    while (result == ncclSuccess || result == ncclInProgress) {
        ncclResult_t asked = ncclb_lib.ncclCommGetAsyncError(group->main.comm, &result);
        if (asked != ncclSuccess) result = asked;
        if (result == ncclSuccess) return TUTTI_OK;
        if (result != ncclInProgress) break;
        if (group->host->now_ns() > deadline) return fail_late(group, doing);
        rest();
    }
    return ncclb_channel_failed(&group->main, doing, result);
}

/* Where NCCL puts a result, by a thread of its own, and perhaps when nobody waits for it any more: after an error it
 * stays NCCL's for good. */
static void *take(void **cell, int status, const struct ncclb_group *group, const char *doing)
{
    void *result = status == TUTTI_OK ? *cell : NULL;
    if (status == TUTTI_OK)
        free(cell);
    else
        group->host->log(2, "nccl: %s of group %s: what NCCL may still write to is left to it", doing,
                         group->info.name);
    return result;
}

static int no_memory(const struct ncclb_group *group)
{
    return group->host->error(TUTTI_ERR_NO_MEMORY, "nccl: no memory for what NCCL makes");
}

struct splitting {
    ncclComm_t comm;
    int color, key;
    ncclComm_t *cell;
};

static ncclResult_t call_split(void *argument)
{
    const struct splitting *it = argument;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    return ncclb_lib.ncclCommSplit(it->comm, it->color, it->key, it->cell, &config);
}

static int split(struct ncclb_group *from, int color, int key, ncclComm_t *comm, const char *doing, int64_t deadline)
{
    ncclComm_t *cell = calloc(1, sizeof *cell);
    if (cell == NULL) return no_memory(from);
    struct splitting it = {from->main.comm, color, key, cell};
    ncclResult_t result = ncclb_hand_do(from->main.hand, call_split, &it);
    int status = let_end(from, result, doing, deadline);
    *comm = take((void **)cell, status, from, doing);
    return status;
}

int ncclb_split(struct ncclb_group *from, int color, int key, ncclComm_t *comm)
{
    static const char doing[] = "splitting the communicator";
    int64_t deadline = ncclb_deadline(from->host->now_ns(), from->info.timeout_ms);
    bool entered = device_enter(&from->device);
    int status = let_settle(from, doing, deadline);
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
    int status = let_settle(group, doing, deadline);
    if (status != TUTTI_OK) return status;
    void **cell = calloc(1, sizeof *cell);
    if (cell == NULL) return no_memory(group);
    ncclResult_t result =
        ncclb_lib.window_register(group->main.comm, block->memory, block->bytes, cell, COLL_SYMMETRIC);
    status = let_end(group, result, doing, deadline);
    block->window = take(cell, status, group, doing);
    return status;
}
