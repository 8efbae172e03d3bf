#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ncclb.h"

enum { ASK_NS = 2000000, WATCH_NS = 5000000 };

void ncclb_channel_init(struct ncclb_channel *channel, struct ncclb_group *group, int rank, int size, const char *key)
{
    channel->group = group;
    channel->rank = rank;
    channel->size = size;
    snprintf(channel->key, sizeof channel->key, "%s", key);
    TAILQ_INIT(&channel->waiting);
    TAILQ_INIT(&channel->marks);
}

/* ---- failing ----------------------------------------------------------------------------------------------- */

void ncclb_tell(struct ncclb_group *group, int status, const char *text)
{
    if (group->told) return;
    group->told = true;
    snprintf(group->why, sizeof group->why, "%s", text);
    if (TUTTI_HAS(group->host, failed)) group->host->failed(group->info.core, status, text);
}

int ncclb_channel_fail(struct ncclb_channel *channel, int status, const char *text)
{
    channel->state = NCCLB_DEAD;
    ncclb_tell(channel->group, status, text);
    return channel->group->host->error(status, "%s", text);
}

int ncclb_channel_failed(struct ncclb_channel *channel, const char *what, ncclResult_t result)
{
    char text[700];
    const char *last = ncclb_lib.ncclGetLastError(channel->comm);
    bool peer = result == ncclRemoteError;
    snprintf(text, sizeof text, "nccl: %s on rank %d: %s%s%.350s (%s)", what, channel->group->info.rank,
             ncclb_lib.ncclGetErrorString(result), last != NULL && last[0] != '\0' ? ": " : "",
             last != NULL ? last : "", ncclb_versions());
    return ncclb_channel_fail(channel, peer ? TUTTI_ERR_PEER_LOST : TUTTI_ERR_BACKEND, text);
}

void ncclb_channel_watch(struct ncclb_channel *channel, int64_t now)
{
    ncclResult_t state = ncclSuccess;
    if (channel->state != NCCLB_READY || now < channel->look_ns) return;
    channel->look_ns = now + WATCH_NS;
    ncclResult_t result = ncclb_lib.ncclCommGetAsyncError(channel->comm, &state);
    if (result == ncclSuccess) result = state;
    if (result != ncclSuccess && result != ncclInProgress)
        ncclb_channel_failed(channel, "an error met meanwhile", result);
}

bool ncclb_channel_is_free(const struct ncclb_channel *channel)
{
    const struct ncclb_waiting *first = TAILQ_FIRST(&channel->waiting);
    return channel->state == NCCLB_READY && (first == NULL || first->place == NCCLB_HELD);
}

/* ---- opening ----------------------------------------------------------------------------------------------- */

static int make_stream(struct ncclb_channel *channel)
{
    int least = 0, greatest = 0;
    driver.cuCtxGetStreamPriorityRange(&least, &greatest);
    CUresult result = driver.cuStreamCreateWithPriority(&channel->stream, CU_STREAM_NON_BLOCKING,
                                                        channel->group->info.high_priority ? greatest : least);
    if (result == CUDA_SUCCESS) result = driver.cuEventCreate(&channel->entry, CU_EVENT_DISABLE_TIMING);
    return result == CUDA_SUCCESS ? TUTTI_OK : device_failed(&channel->group->device, "making a stream", result);
}

/* What a barrier adds up. */
static int make_word(struct ncclb_group *group)
{
    CUdeviceptr word = 0;
    if (group->word != NULL) return TUTTI_OK;
    CUresult result = driver.cuMemAlloc(&word, sizeof(int64_t));
    group->word = (void *)word;
    return result == CUDA_SUCCESS ? TUTTI_OK : device_failed(&group->device, "allocating", result);
}

struct start {
    struct ncclb_channel *channel;
    const ncclUniqueId *id;
};

static ncclResult_t init(void *argument)
{
    const struct start *start = argument;
    struct ncclb_channel *channel = start->channel;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    return ncclb_lib.ncclCommInitRankConfig(&channel->comm, channel->size, *start->id, channel->rank, &config);
}

static void start(struct ncclb_channel *channel, const ncclUniqueId *id)
{
    channel->state = NCCLB_STARTING;
    ncclResult_t result = ncclb_hand_do(channel->hand, init, &(struct start){channel, id});
    if (result != ncclSuccess && result != ncclInProgress)
        ncclb_channel_failed(channel, "making a communicator", result);
}

static void make_id(struct ncclb_channel *channel)
{
    struct ncclb_group *group = channel->group;
    ncclUniqueId id;
    ncclResult_t result = ncclb_lib.ncclGetUniqueId(&id);
    if (result != ncclSuccess) {
        ncclb_channel_failed(channel, "making a unique id", result);
        return;
    }
    int status = channel->size > 1 ? group->host->store_set(group->info.store, channel->key, &id, sizeof id) : TUTTI_OK;
    if (status == TUTTI_OK)
        start(channel, &id);
    else
        ncclb_channel_fail(channel, status, "nccl: the unique id could not be put into the store");
}

static void ask_for_id(struct ncclb_channel *channel)
{
    struct ncclb_group *group = channel->group;
    ncclUniqueId id;
    size_t bytes = 0;
    int64_t now = group->host->now_ns();
    if (now < channel->look_ns) return;
    channel->look_ns = now + ASK_NS;
    int status = group->host->store_get(group->info.store, channel->key, &id, sizeof id, &bytes, 0);
    if (status == TUTTI_ERR_TIMEOUT || status == TUTTI_ERR_NOT_FOUND) return; /* the other side has not come yet */
    if (status == TUTTI_OK && bytes == sizeof id)
        start(channel, &id);
    else
        ncclb_channel_fail(channel, TUTTI_ERR_STORE, "nccl: the unique id could not be read from the store");
}

static void look_at_start(struct ncclb_channel *channel)
{
    ncclResult_t state = ncclInProgress;
    ncclResult_t result = ncclb_lib.ncclCommGetAsyncError(channel->comm, &state);
    if (result == ncclSuccess) result = state;
    if (result == ncclInProgress) return;
    if (result != ncclSuccess) {
        ncclb_channel_failed(channel, "making a communicator", result);
        return;
    }
    channel->state = NCCLB_READY;
    if (channel == &channel->group->main) ncclb_memory_register(channel->group);
}

/* What is needed besides a communicator. */
static bool prepare(struct ncclb_channel *channel)
{
    TAILQ_INSERT_TAIL(&channel->group->open, channel, link);
    return make_stream(channel) == TUTTI_OK && make_word(channel->group) == TUTTI_OK &&
           ncclb_hand_new(channel->group, &channel->hand) == TUTTI_OK;
}

static void fail_to_prepare(struct ncclb_channel *channel)
{
    ncclb_channel_fail(channel, TUTTI_ERR_NO_MEMORY, "nccl: no stream or no memory for a communicator on the device");
}

void ncclb_channel_adopt(struct ncclb_channel *channel, ncclComm_t comm)
{
    bool entered = device_enter(&channel->group->device);
    channel->comm = comm;
    channel->state = NCCLB_READY;
    if (!prepare(channel)) fail_to_prepare(channel);
    device_leave(entered);
}

void ncclb_channel_open(struct ncclb_channel *channel)
{
    struct ncclb_group *group = channel->group;
    if (channel->state >= NCCLB_READY) return;
    bool entered = device_enter(&group->device);
    CUstreamCaptureMode mode = device_relax();
    if (channel->state == NCCLB_CLOSED) {
        channel->state = NCCLB_WANTS_ID;
        if (!prepare(channel))
            fail_to_prepare(channel);
        else if (channel->rank == 0)
            make_id(channel);
    }
    if (channel->state == NCCLB_WANTS_ID)
        ask_for_id(channel);
    else if (channel->state == NCCLB_STARTING)
        look_at_start(channel);
    device_unrelax(mode);
    device_leave(entered);
}

/* ---- ending ------------------------------------------------------------------------------------------------ */

void ncclb_channel_abort(struct ncclb_channel *channel)
{
    struct reaping *reaping = channel->comm != NULL ? ncclb_reap_new(channel->group, 1) : NULL;
    ncclb_reap_add(reaping, channel, false);
    if (reaping != NULL) channel->lingers = !ncclb_reap(channel->group, reaping);
    channel->state = NCCLB_DEAD;
}

void ncclb_channel_close(struct ncclb_channel *channel)
{
    ncclb_queue_clear(channel);
    ncclb_mark_clear(channel);
    if (channel->state != NCCLB_CLOSED) TAILQ_REMOVE(&channel->group->open, channel, link);
    if (channel->entry != NULL) driver.cuEventDestroy(channel->entry);
    if (channel->begin != NULL) driver.cuEventDestroy(channel->begin);
    if (channel->stream != NULL) driver.cuStreamDestroy(channel->stream);
    ncclb_hand_free(channel->hand);
    channel->hand = NULL;
    channel->entry = channel->begin = NULL;
    channel->stream = NULL;
    channel->state = NCCLB_CLOSED;
}
