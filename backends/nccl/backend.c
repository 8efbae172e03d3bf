/* Function table of the nccl backend: CUDA tensors on NCCL, with the ordering and streams of torch.distributed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "ncclb.h"

#define TEXT(x) #x
#define DOTTED(a, b, c) TEXT(a) "." TEXT(b) "." TEXT(c)

enum { POLL_SOON_NS = 10000, POLL_LATE_NS = 1000000, POLL_SLOW_NS = 100000000 };

static int nccl_probe(const tutti_host *host)
{
    return ncclb_load(host);
}

/* ---- opening and closing ---------------------------------------------------------------------------------------- */

/* True if NCCL can reduce 8-bit floats on this GPU.  Before Hopper it can only move them. */
static bool reduces_fp8(const struct ncclb_group *group)
{
    int major = 0;
    driver.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, group->device.handle);
    return major >= 9 && ncclb_lib.version >= 22400;
}

static int open_device(struct ncclb_group *group)
{
    int status = device_choose(&group->device, &group->info, group->host, "nccl");
    group->device.what = ncclb_versions();
    if (status == TUTTI_OK) status = ncclb_check_alone(group);
    if (status == TUTTI_OK) status = device_open(&group->device);
    group->fp8_reduces = status == TUTTI_OK && reduces_fp8(group);
    return status;
}

bool ncclb_is_eager(const struct ncclb_group *group)
{
    return tutti_env_bool(group->host, "TUTTI_NCCL_EAGER", false);
}

static int open_eagerly(struct ncclb_group *group)
{
    ncclComm_t comm = NULL;
    if (group->made_from == NULL) {
        ncclb_comm_stream_open(&group->main);
        return TUTTI_OK;
    }
    int status = ncclb_split(group->made_from, group->color, group->info.rank, &comm);
    if (status == TUTTI_OK) ncclb_comm_stream_adopt(&group->main, comm);
    return status;
}

static int open_group(struct ncclb_group *group)
{
    int status = ncclb_load(group->host);
    if (status == TUTTI_OK) status = open_device(group);
    if (status != TUTTI_OK) return status;
    if (group->first == group) {
        group->clock = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
        if (group->clock < 0) return group->host->error(TUTTI_ERR_SYSTEM, "nccl: cannot create a timerfd");
        TUTTI_LOG_AS(group->host, "nccl", 2, "nccl: %s", ncclb_versions());
    }
    return ncclb_is_eager(group) ? open_eagerly(group) : TUTTI_OK;
}

static int nccl_open(void *state, const tutti_group_info *info, const tutti_host *host)
{
    struct ncclb_group *group = state;
    group->host = host;
    group->info = *info;
    group->counters = TUTTI_HAS(info, counters) ? info->counters : NULL;
    group->clock = -1;
    group->first = info->parent != NULL ? info->parent : group;
    if (TUTTI_HAS(info, made_from)) {
        group->made_from = info->made_from;
        group->color = info->color;
    }
    TAILQ_INIT(&group->tree);
    TAILQ_INIT(&group->open);
    TAILQ_INIT(&group->spare[0]);
    TAILQ_INIT(&group->spare[1]);
    LIST_INIT(&group->blocks);
    TAILQ_INSERT_TAIL(&group->first->tree, group, tree_link);
    ncclb_comm_stream_init(&group->main, group, info->rank, info->world_size, "nccl/id");
    return open_group(group);
}

/* Ends all communicators, those without errors gracefully.  Returns true if all have ended, including those aborted
 * earlier. */
static bool end_comms(struct ncclb_group *group, bool gently)
{
    struct ncclb_comm_stream *cs;
    int n = 0;
    TAILQ_FOREACH(cs, &group->open, link) n += cs->comm != NULL;
    struct reaping *reaping = n > 0 ? ncclb_reap_new(group, n) : NULL;
    TAILQ_FOREACH(cs, &group->open, link)
    {
        bool good = gently && ncclb_comm_stream_is_free(cs);
        ncclb_reap_add(reaping, cs, good);
        cs->state = NCCLB_DEAD;
    }
    bool ended = reaping != NULL ? ncclb_reap(group, reaping) : n == 0;
    TAILQ_FOREACH(cs, &group->open, link)
    {
        cs->is_ending |= !ended;
        if (cs->is_ending) ended = false;
    }
    return ended;
}

/* True if no operation is pending, even if some completions have not been observed yet. */
static bool is_quiet(const struct ncclb_group *group)
{
    const struct ncclb_comm_stream *cs;
    TAILQ_FOREACH(cs, &group->open, link)
    {
        const struct ncclb_completion *last = TAILQ_LAST(&cs->completions, ncclb_completions);
        if (cs->is_ending || !TAILQ_EMPTY(&cs->waiting)) return false;
        if (last != NULL && !ncclb_completion_has_ended(last)) return false;
    }
    return true;
}

static void nccl_close(void *state)
{
    struct ncclb_group *group = state;
    struct ncclb_comm_stream *cs;
    struct ncclb_completion *completion;
    if (group->host == NULL) return;
    if (group->device.context != NULL) {
        bool entered = device_enter(&group->device);
        ncclb_memory_close(group, is_quiet(group));
        bool ended = end_comms(group, !group->aborted);
        while ((cs = TAILQ_FIRST(&group->open)) != NULL) ncclb_comm_stream_close(cs);
        for (int timed = 0; timed < 2; timed++)
            while ((completion = TAILQ_FIRST(&group->spare[timed])) != NULL) {
                TAILQ_REMOVE(&group->spare[timed], completion, link);
                ncclb_completion_free(completion);
            }
        if (ended) ncclb_proxy_stop(group->proxy); /* otherwise NCCL may still use it */
        if (group->barrier_word != NULL && ended)
            driver.cuMemFree((CUdeviceptr)group->barrier_word); /* otherwise cuMemFree would wait */
        device_leave(entered);
        device_close(&group->device);
    }
    TAILQ_REMOVE(&group->first->tree, group, tree_link);
    if (group->clock >= 0) close(group->clock);
    free(group->pairs);
    memset(group, 0, sizeof *group);
}

void ncclb_abort(void *state)
{
    struct ncclb_group *group = state;
    group->aborted = true;
    end_comms(group, false);
}

/* ---- native entries --------------------------------------------------------------------------------------- */

/* Queues an operation, and counts its data. */
static int queue(struct ncclb_comm_stream *cs, const tutti_op *op, tutti_request *request)
{
    tutti_counters *counters = cs->group->counters;
    int status = ncclb_queue(cs, op, request);
    if (status >= 0 && counters != NULL) tutti_traffic_count(&counters->library, op);
    return status;
}

static int enqueue(void *group, const tutti_op *op, tutti_request *request)
{
    return queue(&((struct ncclb_group *)group)->main, op, request);
}

static int enqueue_reduction(void *state, const tutti_op *op, tutti_request *request)
{
    int status = ncclb_reduce_check(state, op);
    return status == TUTTI_OK ? enqueue(state, op, request) : status;
}

static int enqueue_all_to_all(void *state, const tutti_op *op, tutti_request *request)
{
    struct ncclb_group *group = state;
    if (group->info.world_size > 1 && tutti_op_is_in_place(op, group->info.rank))
        return group->host->error(TUTTI_ERR_UNSUPPORTED,
                                  "nccl: NCCL does not support all_to_all in place; pass separate tensors");
    return enqueue(state, op, request);
}

/* Returns the comm stream of one direction between two ranks, or NULL if out of memory. */
static struct ncclb_comm_stream *pair_comm_stream(struct ncclb_group *group, int peer, bool sends)
{
    int size = group->info.world_size, own = group->info.rank;
    if (group->pairs == NULL) {
        group->pairs = calloc(2 * (size_t)size, sizeof *group->pairs);
        for (int i = 0; group->pairs != NULL && i < 2 * size; i++) {
            char key[48];
            bool to = i < size;
            snprintf(key, sizeof key, "nccl/id/%d-%d", to ? own : i - size, to ? i : own);
            ncclb_comm_stream_init(&group->pairs[i], group, to ? 0 : 1, 2, key);
        }
    }
    return group->pairs != NULL ? &group->pairs[sends ? peer : size + peer] : NULL;
}

static int enqueue_message(void *state, const tutti_op *op, tutti_request *request)
{
    struct ncclb_group *group = state;
    if (op->tag != 0) return group->host->error(TUTTI_ERR_UNSUPPORTED, "nccl: NCCL has no tags; use tag 0");
    if (op->root == TUTTI_ANY_SOURCE)
        return group->host->error(TUTTI_ERR_UNSUPPORTED, "nccl: NCCL cannot receive from any source; name the source");
    request->source = op->root;
    struct ncclb_comm_stream *cs = pair_comm_stream(group, op->root, op->kind == TUTTI_SEND);
    if (cs == NULL)
        return group->host->error(TUTTI_ERR_NO_MEMORY, "nccl: out of memory for a communicator of group %s",
                                  group->info.name);
    return queue(cs, op, request);
}

/* ---- progress --------------------------------------------------------------------------------------------------- */

static int nccl_progress(void *state)
{
    struct ncclb_group *first = state, *group;
    struct ncclb_comm_stream *cs;
    int moved = 0;
    if (first->device.context == NULL) return 0;
    int64_t now = first->host->now_ns();
    TAILQ_FOREACH(group, &first->tree, tree_link)
    {
        bool waits = false;
        TAILQ_FOREACH(cs, &group->open, link)
        {
            moved += ncclb_queue_move(cs, now);
            moved += ncclb_completion_move(cs, now);
            if (cs->state == NCCLB_DEAD) continue;
            if (!TAILQ_EMPTY(&cs->completions)) ncclb_comm_stream_watch(cs, now);
            waits |= !TAILQ_EMPTY(&cs->completions) || !TAILQ_EMPTY(&cs->waiting);
        }
        if (waits)
            ncclb_poll_control(group, now);
        else
            group->control_ns = 0;
    }
    return moved;
}

/* Returns when to poll next, in ns: soon if a caller waits, less often the longer nothing moves, rarely if enqueued
 * operations are only watched for timeouts, and 0 for never. */
static int64_t next_poll(const struct ncclb_group *first, int64_t now)
{
    const struct ncclb_group *group;
    const struct ncclb_comm_stream *cs;
    int64_t next = 0;
    TAILQ_FOREACH(group, &first->tree, tree_link)
    TAILQ_FOREACH(cs, &group->open, link)
    {
        const struct ncclb_completion *completion = TAILQ_FIRST(&cs->completions),
                                      *last = TAILQ_LAST(&cs->completions, ncclb_completions);
        bool dead = cs->state == NCCLB_DEAD;
        bool awaited = (!dead && (!TAILQ_EMPTY(&cs->waiting) || cs->state < NCCLB_READY)) ||
                       (completion != NULL && (completion->request != NULL || last->request != NULL));
        int64_t soon = (now - group->moved_ns) / 8;
        soon = soon < POLL_SOON_NS ? POLL_SOON_NS : soon > POLL_LATE_NS ? POLL_LATE_NS : soon;
        int64_t this = awaited ? soon : completion != NULL && !dead ? POLL_SLOW_NS : 0;
        if (this > 0 && (next == 0 || this < next)) next = this;
    }
    return next;
}

static int nccl_arm(void *state, int *descriptors)
{
    struct ncclb_group *first = state;
    int64_t next = next_poll(first, first->host->now_ns());
    struct itimerspec when = {.it_value = {next / 1000000000, next % 1000000000}};
    timerfd_settime(first->clock, 0, &when, NULL); /* resets the count, so the descriptor is no longer readable */
    descriptors[0] = first->clock;
    return 1;
}

/* Cancels the request if this comm stream holds it.  Returns false if its operation cannot be cancelled. */
static bool cancel_in(struct ncclb_comm_stream *cs, const tutti_request *request)
{
    const struct ncclb_completion *completion;
    const struct ncclb_waiting *waiting;
    TAILQ_FOREACH(completion, &cs->completions, link) if (completion->request == request) break;
    TAILQ_FOREACH(waiting, &cs->waiting, link) if (waiting->request == request) break;
    bool submitted = waiting != NULL && waiting->place != NCCLB_HELD;
    if ((completion != NULL || submitted) && cs->state != NCCLB_DEAD) ncclb_comm_stream_abort(cs);
    if (completion != NULL ? !ncclb_completion_has_ended(completion) : submitted && cs->is_ending) return false;
    ncclb_queue_forget(cs, request);
    return true;
}

/* Cancels a request.  A single operation cannot be cancelled, so its communicator is aborted.  An operation queued
 * behind the program's own work stays in the stream and completes when that work does. */
static int nccl_cancel(void *state, tutti_request *request)
{
    struct ncclb_group *group = state;
    struct ncclb_comm_stream *cs;
    TAILQ_FOREACH(cs, &group->open, link)
    {
        if (cancel_in(cs, request)) continue;
        return group->host->error(TUTTI_ERR_ABORTED, "nccl: an aborted operation of group %s is still in its stream",
                                  group->info.name);
    }
    return TUTTI_OK;
}

static int nccl_wait_stream(void *state, tutti_request *request, void *stream)
{
    if (request->priv[0] == NULL) ncclb_queue_poll_briefly(state, request);
    const struct ncclb_completion *completion = request->priv[0];
    if (completion == NULL) return TUTTI_ERR_UNSUPPORTED; /* it waits for its communicator, or has completed */
    const struct device *device = &((struct ncclb_group *)state)->device;
    bool entered = device_enter(device);
    bool captured =
        device_capture(stream) != DEVICE_NO_CAPTURE; /* waiting for an event outside a capture would invalidate it */
    CUresult result = captured ? CUDA_SUCCESS : driver.cuStreamWaitEvent(stream, completion->event, 0);
    device_leave(entered);
    if (captured) return TUTTI_ERR_UNSUPPORTED; /* the host waits instead */
    return result == CUDA_SUCCESS ? TUTTI_OK : device_failed(device, "cannot wait for an operation", result);
}

static int nccl_describe(const tutti_host *host, void *state, char *text, size_t capacity)
{
    const struct ncclb_group *group = state;
    int devices = 0, status = ncclb_load(host);
    if (status != TUTTI_OK) return status;
    if (driver.cuDeviceGetCount(&devices) != CUDA_SUCCESS) devices = 0;
    if (group == NULL)
        snprintf(text, capacity, "%s, %d CUDA devices\n", ncclb_versions(), devices);
    else
        snprintf(text, capacity, "nccl: rank %d on CUDA device %d of %d, %s\n", group->info.rank, group->device.index,
                 devices, ncclb_versions());
    return TUTTI_OK;
}

TUTTI_BACKEND_EXPORT const tutti_backend tutti_backend_v1 = {
    TUTTI_BACKEND_HEADER,
    .name = "nccl",
    .version = "built against NCCL " DOTTED(NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH),
    .group_bytes = sizeof(struct ncclb_group),
    .devices = 1u << TUTTI_CUDA,
    .probe = nccl_probe,
    .open = nccl_open,
    .close = nccl_close,
    .native =
        {
            [TUTTI_BROADCAST] = enqueue,
            [TUTTI_ALL_REDUCE] = enqueue_reduction,
            [TUTTI_REDUCE] = enqueue_reduction,
            [TUTTI_ALL_GATHER] = enqueue,
            [TUTTI_GATHER] = enqueue,
            [TUTTI_SCATTER] = enqueue,
            [TUTTI_REDUCE_SCATTER] = enqueue_reduction,
            [TUTTI_ALL_TO_ALL] = enqueue_all_to_all,
            [TUTTI_BARRIER] = enqueue,
            [TUTTI_SEND] = enqueue_message,
            [TUTTI_RECV] = enqueue_message,
        },
    .progress = nccl_progress,
    .arm = nccl_arm,
    .cancel = nccl_cancel,
    .notify = ncclb_notify,
    .traits = TUTTI_BACKEND_ORDERED,
    .abort = ncclb_abort,
    .wait_stream = nccl_wait_stream,
    .alloc = ncclb_alloc,
    .free = ncclb_free,
    .coalesce = ncclb_coalesce,
    .describe = nccl_describe,
    .abstain = ncclb_abstain,
};
