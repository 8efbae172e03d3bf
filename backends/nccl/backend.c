/* The table of the nccl backend: CUDA tensors on NCCL, in the order and on the streams that torch.distributed has. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "ncclb.h"

#define TEXT(x) #x
#define DOTTED(a, b, c) TEXT(a) "." TEXT(b) "." TEXT(c)

enum { LOOK_SOON_NS = 10000, LOOK_LATE_NS = 1000000, LOOK_SLOW_NS = 100000000 };

static int nccl_probe(const tutti_host *host)
{
    return ncclb_load(host);
}

/* ---- life -------------------------------------------------------------------------------------------------- */

/* Before Hopper NCCL moves 8-bit floats but does not add them. */
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
        ncclb_channel_open(&group->main);
        return TUTTI_OK;
    }
    int status = ncclb_split(group->made_from, group->color, group->info.rank, &comm);
    if (status == TUTTI_OK) ncclb_channel_adopt(&group->main, comm);
    return status;
}

static int open_group(struct ncclb_group *group)
{
    int status = ncclb_load(group->host);
    if (status == TUTTI_OK) status = open_device(group);
    if (status != TUTTI_OK) return status;
    if (group->first == group) {
        group->clock = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
        if (group->clock < 0) return group->host->error(TUTTI_ERR_SYSTEM, "nccl: no timerfd");
        group->host->log(2, "nccl: %s", ncclb_versions());
    }
    return ncclb_is_eager(group) ? open_eagerly(group) : TUTTI_OK;
}

static int nccl_open(void *state, const tutti_group_info *info, const tutti_host *host)
{
    struct ncclb_group *group = state;
    group->host = host;
    group->info = *info;
    group->clock = -1;
    group->first = info->parent != NULL ? info->parent : group;
    if (TUTTI_HAS(info, made_from)) {
        group->made_from = info->made_from;
        group->color = info->color;
    }
    TAILQ_INIT(&group->family);
    TAILQ_INIT(&group->open);
    TAILQ_INIT(&group->spare[0]);
    TAILQ_INIT(&group->spare[1]);
    LIST_INIT(&group->blocks);
    TAILQ_INSERT_TAIL(&group->first->family, group, family_link);
    ncclb_channel_init(&group->main, group, info->rank, info->world_size, "nccl/id");
    return open_group(group);
}

/* All communicators, those in good order gently; whether they have ended, with those that were aborted before. */
static bool end_communicators(struct ncclb_group *group, bool gently)
{
    struct ncclb_channel *channel;
    int n = 0;
    TAILQ_FOREACH(channel, &group->open, link) n += channel->comm != NULL;
    struct reaping *reaping = n > 0 ? ncclb_reap_new(group, n) : NULL;
    TAILQ_FOREACH(channel, &group->open, link)
    {
        bool good = gently && ncclb_channel_is_free(channel);
        ncclb_reap_add(reaping, channel, good);
        channel->state = NCCLB_DEAD;
    }
    bool ended = reaping != NULL ? ncclb_reap(group, reaping) : n == 0;
    TAILQ_FOREACH(channel, &group->open, link)
    {
        channel->lingers |= !ended;
        if (channel->lingers) ended = false;
    }
    return ended;
}

/* Whether no operation is under way, though some may not have been seen to end. */
static bool is_quiet(const struct ncclb_group *group)
{
    const struct ncclb_channel *channel;
    TAILQ_FOREACH(channel, &group->open, link)
    {
        const struct ncclb_mark *last = TAILQ_LAST(&channel->marks, ncclb_marks);
        if (channel->lingers || !TAILQ_EMPTY(&channel->waiting)) return false;
        if (last != NULL && !ncclb_mark_has_ended(last)) return false;
    }
    return true;
}

static void nccl_close(void *state)
{
    struct ncclb_group *group = state;
    struct ncclb_channel *channel;
    struct ncclb_mark *mark;
    if (group->host == NULL) return;
    if (group->device.context != NULL) {
        bool entered = device_enter(&group->device);
        ncclb_memory_close(group, is_quiet(group));
        bool ended = end_communicators(group, !group->aborted);
        while ((channel = TAILQ_FIRST(&group->open)) != NULL) ncclb_channel_close(channel);
        for (int timed = 0; timed < 2; timed++)
            while ((mark = TAILQ_FIRST(&group->spare[timed])) != NULL) {
                TAILQ_REMOVE(&group->spare[timed], mark, link);
                ncclb_mark_free(mark);
            }
        if (ended) ncclb_hand_free(group->hand); /* else NCCL may still look there */
        if (group->word != NULL && ended) driver.cuMemFree((CUdeviceptr)group->word); /* else it would wait */
        device_leave(entered);
        device_close(&group->device);
    }
    TAILQ_REMOVE(&group->first->family, group, family_link);
    if (group->clock >= 0) close(group->clock);
    free(group->pairs);
    memset(group, 0, sizeof *group);
}

void ncclb_abort(void *state)
{
    struct ncclb_group *group = state;
    group->aborted = true;
    end_communicators(group, false);
}

/* ---- the native door --------------------------------------------------------------------------------------- */

static int nccl_move(void *group, const tutti_op *op, tutti_request *request)
{
    return ncclb_queue(&((struct ncclb_group *)group)->main, op, request);
}

static int nccl_reduce(void *state, const tutti_op *op, tutti_request *request)
{
    int status = ncclb_reduce_check(state, op);
    return status == TUTTI_OK ? nccl_move(state, op, request) : status;
}

/* Whether what goes to a peer lies where what comes from it is put; a rank's own part may stay where it is. */
static bool is_in_place(const struct ncclb_group *group, const tutti_op *op)
{
    if (!op->list) return op->in->numel > 0 && op->in->data == op->out->data && group->info.world_size > 1;
    for (int r = 0; r < group->info.world_size; r++)
        if (r != group->info.rank && op->in[r].numel > 0 && op->in[r].data == op->out[r].data) return true;
    return false;
}

static int nccl_all_to_all(void *state, const tutti_op *op, tutti_request *request)
{
    struct ncclb_group *group = state;
    if (is_in_place(group, op))
        return group->host->error(TUTTI_ERR_UNSUPPORTED, "nccl: NCCL has no all_to_all in place");
    return nccl_move(state, op, request);
}

/* The channel of one direction between two ranks; NULL when out of memory. */
static struct ncclb_channel *pair_channel(struct ncclb_group *group, int peer, bool sends)
{
    int size = group->info.world_size, own = group->info.rank;
    if (group->pairs == NULL) {
        group->pairs = calloc(2 * (size_t)size, sizeof *group->pairs);
        for (int i = 0; group->pairs != NULL && i < 2 * size; i++) {
            char key[48];
            bool to = i < size;
            snprintf(key, sizeof key, "nccl/id/%d-%d", to ? own : i - size, to ? i : own);
            ncclb_channel_init(&group->pairs[i], group, to ? 0 : 1, 2, key);
        }
    }
    return group->pairs != NULL ? &group->pairs[sends ? peer : size + peer] : NULL;
}

static int nccl_message(void *state, const tutti_op *op, tutti_request *request)
{
    struct ncclb_group *group = state;
    if (op->tag != 0) return group->host->error(TUTTI_ERR_UNSUPPORTED, "nccl: NCCL has no tags; only tag 0 goes");
    if (op->root == TUTTI_ANY_SOURCE)
        return group->host->error(TUTTI_ERR_UNSUPPORTED, "nccl: NCCL cannot receive from any source");
    request->source = op->root;
    struct ncclb_channel *channel = pair_channel(group, op->root, op->kind == TUTTI_SEND);
    if (channel == NULL) return group->host->error(TUTTI_ERR_NO_MEMORY, "nccl: no memory for a communicator");
    return ncclb_queue(channel, op, request);
}

/* ---- moving on --------------------------------------------------------------------------------------------- */

static int nccl_progress(void *state)
{
    struct ncclb_group *first = state, *group;
    struct ncclb_channel *channel;
    int moved = 0;
    if (first->device.context == NULL) return 0;
    int64_t now = first->host->now_ns();
    TAILQ_FOREACH(group, &first->family, family_link)
    {
        bool waits = false;
        TAILQ_FOREACH(channel, &group->open, link)
        {
            moved += ncclb_queue_move(channel, now);
            moved += ncclb_mark_move(channel, now);
            if (channel->state == NCCLB_DEAD) continue;
            if (!TAILQ_EMPTY(&channel->marks)) ncclb_channel_watch(channel, now);
            waits |= !TAILQ_EMPTY(&channel->marks) || !TAILQ_EMPTY(&channel->waiting);
        }
        if (waits)
            ncclb_look_for_note(group, now);
        else
            group->note_ns = 0;
    }
    return moved;
}

/* When to look again: soon where somebody waits, and less often the longer nothing moves; now and then where
 * enqueued operations are only watched; 0 for never. */
static int64_t next_look(const struct ncclb_group *first, int64_t now)
{
    const struct ncclb_group *group;
    const struct ncclb_channel *channel;
    int64_t next = 0;
    TAILQ_FOREACH(group, &first->family, family_link)
    TAILQ_FOREACH(channel, &group->open, link)
    {
        const struct ncclb_mark *mark = TAILQ_FIRST(&channel->marks), *last = TAILQ_LAST(&channel->marks, ncclb_marks);
        bool dead = channel->state == NCCLB_DEAD;
        bool awaited = (!dead && (!TAILQ_EMPTY(&channel->waiting) || channel->state < NCCLB_READY)) ||
                       (mark != NULL && (mark->request != NULL || last->request != NULL));
        int64_t soon = (now - group->moved_ns) / 8;
        soon = soon < LOOK_SOON_NS ? LOOK_SOON_NS : soon > LOOK_LATE_NS ? LOOK_LATE_NS : soon;
        int64_t this = awaited ? soon : mark != NULL && !dead ? LOOK_SLOW_NS : 0;
        if (this > 0 && (next == 0 || this < next)) next = this;
    }
    return next;
}

static int nccl_arm(void *state, int *descriptors)
{
    struct ncclb_group *first = state;
    int64_t next = next_look(first, first->host->now_ns());
    struct itimerspec when = {.it_value = {next / 1000000000, next % 1000000000}};
    timerfd_settime(first->clock, 0, &when, NULL); /* what it had counted is forgotten: it polls readable no more */
    descriptors[0] = first->clock;
    return 1;
}

/* Takes the request back from the channel, if it is there; whether it is not, or was. */
static bool take_back(struct ncclb_channel *channel, const tutti_request *request)
{
    const struct ncclb_mark *mark;
    const struct ncclb_waiting *waiting;
    TAILQ_FOREACH(mark, &channel->marks, link) if (mark->request == request) break;
    TAILQ_FOREACH(waiting, &channel->waiting, link) if (waiting->request == request) break;
    bool handed = waiting != NULL && waiting->place != NCCLB_HELD;
    if ((mark != NULL || handed) && channel->state != NCCLB_DEAD) ncclb_channel_abort(channel);
    if (mark != NULL ? !ncclb_mark_has_ended(mark) : handed && channel->lingers) return false;
    ncclb_queue_forget(channel, request);
    return true;
}

/* One operation of a communicator cannot be taken back: the communicator goes.  What is behind the program's own work
 * in its stream is there all the same, and is completed when that work has ended. */
static int nccl_cancel(void *state, tutti_request *request)
{
    struct ncclb_group *group = state;
    struct ncclb_channel *channel;
    TAILQ_FOREACH(channel, &group->open, link)
    {
        if (take_back(channel, request)) continue;
        return group->host->error(TUTTI_ERR_ABORTED, "nccl: an aborted operation of group %s has not left its stream",
                                  group->info.name);
    }
    return TUTTI_OK;
}

static int nccl_wait_stream(void *state, tutti_request *request, void *stream)
{
    if (request->priv[0] == NULL) ncclb_queue_hurry(state, request);
    const struct ncclb_mark *mark = request->priv[0];
    if (mark == NULL) return TUTTI_ERR_UNSUPPORTED; /* it waits for its communicator, or has ended */
    const struct device *device = &((struct ncclb_group *)state)->device;
    bool entered = device_enter(device);
    bool captured =
        device_capture(stream) != DEVICE_NO_CAPTURE; /* waiting for what is none of it would end the capture */
    CUresult result = captured ? CUDA_SUCCESS : driver.cuStreamWaitEvent(stream, mark->event, 0);
    device_leave(entered);
    if (captured) return TUTTI_ERR_UNSUPPORTED; /* the host waits */
    return result == CUDA_SUCCESS ? TUTTI_OK : device_failed(device, "waiting for an operation", result);
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
            [TUTTI_BROADCAST] = nccl_move,
            [TUTTI_ALL_REDUCE] = nccl_reduce,
            [TUTTI_REDUCE] = nccl_reduce,
            [TUTTI_ALL_GATHER] = nccl_move,
            [TUTTI_GATHER] = nccl_move,
            [TUTTI_SCATTER] = nccl_move,
            [TUTTI_REDUCE_SCATTER] = nccl_reduce,
            [TUTTI_ALL_TO_ALL] = nccl_all_to_all,
            [TUTTI_BARRIER] = nccl_move,
            [TUTTI_SEND] = nccl_message,
            [TUTTI_RECV] = nccl_message,
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
