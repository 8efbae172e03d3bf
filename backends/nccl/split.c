/* Subgroups from their parent's communicator, by ncclCommSplit: where all of the parent's ranks make them, and
 * communicators are made with their groups (TUTTI_NCCL_EAGER).  Else each is made from a unique id of its own at its
 * first operation, for which the members alone have to come. */
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

static int too_late(struct ncclb_group *from)
{
    return from->host->error(TUTTI_ERR_TIMEOUT, "nccl: group %s was not split in time: %s", from->info.name,
                             from->main.state == NCCLB_READY ? "a rank of it did not come"
                                                             : "its communicator is not ready");
}

/* NCCL wants no operation under way on what is split. */
static int let_settle(struct ncclb_group *from, int64_t deadline)
{
    for (;;) {
        int64_t now = from->host->now_ns();
        bool busy = is_busy(&from->main, now);
        if (from->told || from->aborted || from->main.state == NCCLB_DEAD)
            return from->host->error(TUTTI_ERR_ABORTED, "nccl: group %s, which was to be split, has failed",
                                     from->info.name);
        if (!busy) return TUTTI_OK;
        if (now > deadline) return too_late(from);
        rest();
    }
}

/* *comm stays NULL until it is complete, and it is the parent that says so. */
static int let_end(struct ncclb_group *from, ncclResult_t result, int64_t deadline)
{
    while (result == ncclInProgress) {
        ncclResult_t asked = ncclb_lib.ncclCommGetAsyncError(from->main.comm, &result);
        if (asked != ncclSuccess) result = asked;
        if (result != ncclInProgress) break;
        if (from->host->now_ns() > deadline) return too_late(from);
        rest();
    }
    if (result == ncclSuccess) return TUTTI_OK;
    return ncclb_channel_failed(&from->main, "splitting a communicator", result);
}

int ncclb_split(struct ncclb_group *from, int color, int key, ncclComm_t *comm)
{
    int64_t ms = from->info.timeout_ms, now = from->host->now_ns();
    int64_t deadline = ms < INT64_MAX / 2000000 ? now + ms * 1000000 : INT64_MAX;
    bool entered = device_enter(&from->device);
    int status = let_settle(from, deadline);
    if (status == TUTTI_OK) {
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = 0;
        status = let_end(from, ncclb_lib.ncclCommSplit(from->main.comm, color, key, comm, &config), deadline);
    }
    device_leave(entered);
    return status;
}

int ncclb_abstain(void *state)
{
    struct ncclb_group *from = state;
    ncclComm_t none = NULL;
    return ncclb_is_eager(from) ? ncclb_split(from, NCCL_SPLIT_NOCOLOR, 0, &none) : TUTTI_OK;
}
