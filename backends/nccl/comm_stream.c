#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ncclb.h"

enum { POLL_NS = 2000000, WATCH_NS = 5000000 };

void ncclb_comm_stream_init(struct ncclb_comm_stream *cs, struct ncclb_group *group, int rank, int size,
                            const char *key)
{
    cs->group = group;
    cs->rank = rank;
    cs->size = size;
    snprintf(cs->key, sizeof cs->key, "%s", key);
    TAILQ_INIT(&cs->waiting);
    TAILQ_INIT(&cs->completions);
}

/* ---- failing ----------------------------------------------------------------------------------------------- */

void ncclb_fail_group(struct ncclb_group *group, int status, const char *text)
{
    if (group->failed) return;
    group->failed = true;
    snprintf(group->why, sizeof group->why, "%s", text);
    if (TUTTI_HAS(group->host, failed)) group->host->failed(group->info.core, status, text);
}

int ncclb_comm_stream_fail(struct ncclb_comm_stream *cs, int status, const char *text)
{
    cs->state = NCCLB_DEAD;
    ncclb_fail_group(cs->group, status, text);
    return cs->group->host->error(status, "%s", text);
}

int ncclb_comm_stream_failed(struct ncclb_comm_stream *cs, const char *what, ncclResult_t result)
{
    char text[700];
    const char *last = ncclb_lib.ncclGetLastError(cs->comm);
    bool peer = result == ncclRemoteError;
    snprintf(text, sizeof text, "nccl: %s on rank %d: %s%s%.350s (%s)", what, cs->group->info.rank,
             ncclb_lib.ncclGetErrorString(result), last != NULL && last[0] != '\0' ? ": " : "",
             last != NULL ? last : "", ncclb_versions());
    return ncclb_comm_stream_fail(cs, peer ? TUTTI_ERR_PEER_LOST : TUTTI_ERR_BACKEND, text);
}

void ncclb_comm_stream_watch(struct ncclb_comm_stream *cs, int64_t now)
{
    ncclResult_t state = ncclSuccess;
    if (cs->state != NCCLB_READY || now < cs->poll_ns) return;
    cs->poll_ns = now + WATCH_NS;
    ncclResult_t result = ncclb_lib.ncclCommGetAsyncError(cs->comm, &state);
    if (result == ncclSuccess) result = state;
    if (result != ncclSuccess && result != ncclInProgress) ncclb_comm_stream_failed(cs, "asynchronous error", result);
}

bool ncclb_comm_stream_is_free(const struct ncclb_comm_stream *cs)
{
    const struct ncclb_waiting *first = TAILQ_FIRST(&cs->waiting);
    return cs->state == NCCLB_READY && (first == NULL || first->place == NCCLB_HELD);
}

/* ---- opening ----------------------------------------------------------------------------------------------- */

/* Streams share the device's queues, and what waits at the head of a queue delays all behind it: on an H100, twelve
 * waiting receives stopped an all_reduce with 8 queues, not with 32. */
static atomic_int message_streams;

static void warn_if_crowded(const struct ncclb_comm_stream *cs, int streams)
{
    enum { USUAL = 8 };
    static atomic_bool warned;
    const char *text = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    int queues = text != NULL ? atoi(text) : USUAL;
    if (streams < queues || atomic_exchange_explicit(&warned, true, memory_order_relaxed)) return;
    TUTTI_LOG_AS(cs->group->host, "nccl", 1,
                 "nccl: messages use %d streams now, but the device has %d queues for streams, and receives that wait "
                 "in all of them stop every other operation; set CUDA_DEVICE_MAX_CONNECTIONS to more, at most 32, "
                 "before the program uses CUDA",
                 streams, queues);
}

static int create_stream(struct ncclb_comm_stream *cs)
{
    int least = 0, greatest = 0;
    driver.cuCtxGetStreamPriorityRange(&least, &greatest);
    CUresult result = driver.cuStreamCreateWithPriority(&cs->stream, CU_STREAM_NON_BLOCKING,
                                                        cs->group->info.high_priority ? greatest : least);
    if (result == CUDA_SUCCESS && cs != &cs->group->main)
        warn_if_crowded(cs, atomic_fetch_add_explicit(&message_streams, 1, memory_order_relaxed) + 1);
    if (result == CUDA_SUCCESS) result = driver.cuEventCreate(&cs->entry, CU_EVENT_DISABLE_TIMING);
    return result == CUDA_SUCCESS ? TUTTI_OK : device_failed(&cs->group->device, "cannot create a stream", result);
}

/* Allocates the operand of a barrier's all_reduce. */
static int create_barrier_word(struct ncclb_group *group)
{
    CUdeviceptr barrier_word = 0;
    if (group->barrier_word != NULL) return TUTTI_OK;
    CUresult result = driver.cuMemAlloc(&barrier_word, sizeof(int64_t));
    group->barrier_word = (void *)barrier_word;
    return result == CUDA_SUCCESS ? TUTTI_OK : device_failed(&group->device, "cannot allocate memory", result);
}

struct start {
    struct ncclb_comm_stream *cs;
    const ncclUniqueId *id;
};

static ncclResult_t init(void *argument)
{
    const struct start *start = argument;
    struct ncclb_comm_stream *cs = start->cs;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    return ncclb_lib.ncclCommInitRankConfig(&cs->comm, cs->size, *start->id, cs->rank, &config);
}

static void start(struct ncclb_comm_stream *cs, const ncclUniqueId *id)
{
    cs->state = NCCLB_STARTING;
    ncclResult_t result = ncclb_proxy_call(cs->proxy, init, &(struct start){cs, id});
    if (result != ncclSuccess && result != ncclInProgress)
        ncclb_comm_stream_failed(cs, "cannot create a communicator", result);
}

static void publish_id(struct ncclb_comm_stream *cs)
{
    struct ncclb_group *group = cs->group;
    ncclUniqueId id;
    ncclResult_t result = ncclb_lib.ncclGetUniqueId(&id);
    if (result != ncclSuccess) {
        ncclb_comm_stream_failed(cs, "cannot create a unique id", result);
        return;
    }
    int status = cs->size > 1 ? group->host->store_set(group->info.store, cs->key, &id, sizeof id) : TUTTI_OK;
    if (status == TUTTI_OK)
        start(cs, &id);
    else
        ncclb_comm_stream_fail(cs, status, "nccl: cannot write the unique id to the store");
}

static void poll_id(struct ncclb_comm_stream *cs)
{
    struct ncclb_group *group = cs->group;
    ncclUniqueId id;
    size_t bytes = 0;
    int64_t now = group->host->now_ns();
    if (now < cs->poll_ns) return;
    cs->poll_ns = now + POLL_NS;
    int status = group->host->store_get(group->info.store, cs->key, &id, sizeof id, &bytes, 0);
    if (status == TUTTI_ERR_TIMEOUT || status == TUTTI_ERR_NOT_FOUND)
        return; /* the other side has not published it yet */
    if (status == TUTTI_OK && bytes == sizeof id)
        start(cs, &id);
    else
        ncclb_comm_stream_fail(cs, TUTTI_ERR_STORE, "nccl: cannot read the unique id from the store");
}

static void poll_start(struct ncclb_comm_stream *cs)
{
    ncclResult_t state = ncclInProgress;
    ncclResult_t result = ncclb_lib.ncclCommGetAsyncError(cs->comm, &state);
    if (result == ncclSuccess) result = state;
    if (result == ncclInProgress) return;
    if (result != ncclSuccess) {
        ncclb_comm_stream_failed(cs, "cannot create a communicator", result);
        return;
    }
    cs->state = NCCLB_READY;
    if (cs == &cs->group->main) ncclb_memory_register(cs->group);
}

/* Creates what is needed besides a communicator. */
static bool create_resources(struct ncclb_comm_stream *cs)
{
    TAILQ_INSERT_TAIL(&cs->group->open, cs, link);
    return create_stream(cs) == TUTTI_OK && create_barrier_word(cs->group) == TUTTI_OK &&
           ncclb_proxy_start(cs->group, &cs->proxy) == TUTTI_OK;
}

static void fail_without_resources(struct ncclb_comm_stream *cs)
{
    ncclb_comm_stream_fail(cs, TUTTI_ERR_NO_MEMORY, "nccl: cannot allocate a stream or memory on the device");
}

void ncclb_comm_stream_adopt(struct ncclb_comm_stream *cs, ncclComm_t comm)
{
    bool entered = device_enter(&cs->group->device);
    cs->comm = comm;
    cs->state = NCCLB_READY;
    if (!create_resources(cs)) fail_without_resources(cs);
    device_leave(entered);
}

void ncclb_comm_stream_open(struct ncclb_comm_stream *cs)
{
    struct ncclb_group *group = cs->group;
    if (cs->state >= NCCLB_READY) return;
    bool entered = device_enter(&group->device);
    CUstreamCaptureMode mode = device_relax();
    if (cs->state == NCCLB_CLOSED) {
        cs->state = NCCLB_WANTS_ID;
        if (!create_resources(cs))
            fail_without_resources(cs);
        else if (cs->rank == 0)
            publish_id(cs);
    }
    if (cs->state == NCCLB_WANTS_ID)
        poll_id(cs);
    else if (cs->state == NCCLB_STARTING)
        poll_start(cs);
    device_unrelax(mode);
    device_leave(entered);
}

/* ---- ending ------------------------------------------------------------------------------------------------ */

void ncclb_comm_stream_abort(struct ncclb_comm_stream *cs)
{
    struct reaping *reaping = cs->comm != NULL ? ncclb_reap_new(cs->group, 1) : NULL;
    ncclb_reap_add(reaping, cs, false);
    if (reaping != NULL) cs->is_ending = !ncclb_reap(cs->group, reaping);
    cs->state = NCCLB_DEAD;
}

void ncclb_comm_stream_close(struct ncclb_comm_stream *cs)
{
    ncclb_queue_clear(cs);
    ncclb_completion_clear(cs);
    if (cs->state != NCCLB_CLOSED) TAILQ_REMOVE(&cs->group->open, cs, link);
    if (cs->entry != NULL) driver.cuEventDestroy(cs->entry);
    if (cs->begin != NULL) driver.cuEventDestroy(cs->begin);
    if (cs->stream != NULL && cs != &cs->group->main)
        atomic_fetch_sub_explicit(&message_streams, 1, memory_order_relaxed);
    if (cs->stream != NULL) driver.cuStreamDestroy(cs->stream);
    ncclb_proxy_stop(cs->proxy);
    cs->proxy = NULL;
    cs->entry = cs->begin = NULL;
    cs->stream = NULL;
    cs->state = NCCLB_CLOSED;
}
