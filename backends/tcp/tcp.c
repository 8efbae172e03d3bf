/* The tcp backend: the table and its groups.  Messages are in proto, collectives within a host in shm/coll. */
#include <string.h>

#include "tcp/p2p/proto.h"

/* State of one group; the family's first one has the protocol and the links, which the others share. */
struct tcp_group {
    struct proto proto; /* unused where there is a parent, or nobody to talk to */
    struct proto_group group;
    bool opened;
};

/* Returns the index of the collective segment that was reserved for the group. */
static int coll_index(const tutti_group_info *info)
{
    int32_t at = COLL_ABSENT;
    if (info->parent == NULL) return COLL_FIRST;
    if (TUTTI_HAS(info, offer)) memcpy(&at, info->offer, sizeof at);
    return at;
}

static int tcp_offer(void *state, const tutti_group_info *info, uint8_t *offer)
{
    struct tcp_group *self = state;
    int32_t at = self->opened ? proto_reserve_coll(&self->proto, info) : COLL_ABSENT;
    memcpy(offer, &at, sizeof at);
    return TUTTI_OK;
}

static int tcp_open(void *state, const tutti_group_info *info, const tutti_host *host)
{
    struct tcp_group *self = state;
    self->group = (struct proto_group){.id = info->id,
                                       .rank = info->rank,
                                       .world_size = info->world_size,
                                       .global_ranks = info->global_ranks,
                                       .core = info->core,
                                       .plans_only = TUTTI_HAS(info, plans_only),
                                       .coll_index = coll_index(info)};
    if (info->parent != NULL) {
        struct tcp_group *first = info->parent;
        return first->opened ? proto_add_group(&first->proto, &self->group) : TUTTI_OK;
    }
    if (info->world_size == 1) return TUTTI_OK; /* nobody to talk to */
    struct fabric_config config = {.rank = info->rank,
                                   .world_size = info->world_size,
                                   .local_world_size = info->local_world_size,
                                   .family = info->id,
                                   .timeout_ms = info->timeout_ms,
                                   .open_timeout_ms = TUTTI_HAS(info, open_timeout_ms) && info->open_timeout_ms > 0
                                                          ? info->open_timeout_ms
                                                          : info->timeout_ms,
                                   .host = host,
                                   .store = info->store};
    self->opened = true;
    int status = proto_open(&self->proto, &config, info->core);
    return status == TUTTI_OK ? proto_add_group(&self->proto, &self->group) : status;
}

static void tcp_close(void *state)
{
    struct tcp_group *self = state;
    if (self->opened) self->proto.closing = true;
    proto_remove_group(&self->group);
    if (self->opened) proto_close(&self->proto);
    memset(self, 0, sizeof *self);
}

static int tcp_send(void *state, tutti_request *request)
{
    return proto_send(&((struct tcp_group *)state)->group, request);
}

static int tcp_recv(void *state, tutti_request *request)
{
    return proto_recv(&((struct tcp_group *)state)->group, request);
}

static int tcp_recv_reduce(void *state, tutti_request *request)
{
    struct proto_group *group = &((struct tcp_group *)state)->group;
    if (request->bytes <= PROTO_REDUCE_MOST) return proto_recv(group, request);
    return group->proto->host->error(TUTTI_ERR_INVALID_ARGUMENT, "a recv_reduce of %zu bytes; at most %d",
                                     request->bytes, PROTO_REDUCE_MOST);
}

static int tcp_progress(void *state)
{
    struct tcp_group *self = state;
    return self->opened ? proto_progress(&self->proto) : 0;
}

static int tcp_arm(void *state, int *descriptors)
{
    struct tcp_group *self = state;
    return self->opened ? link_arm(&self->proto, descriptors) : 0;
}

static int tcp_native(void *state, const tutti_op *op, tutti_request *request)
{
    struct proto_group *group = &((struct tcp_group *)state)->group;
    if (group->coll.state != COLL_READY) return TUTTI_ERR_UNSUPPORTED;
    return coll_begin(&group->coll, op, request, &group->proto->colls);
}

static const char *tcp_explain(void *state, const tutti_op *op)
{
    return coll_explain(&((struct tcp_group *)state)->group.coll, op);
}

static void tcp_awaits(void *state, const tutti_request *request, bool *ranks)
{
    coll_awaits(&((struct tcp_group *)state)->group.coll, request, ranks);
}

static bool tcp_is_near(void *state)
{
    struct tcp_group *self = state;
    return self->opened && self->proto.shm != NULL;
}

static int tcp_alloc(void *state, size_t bytes, void **memory)
{
    const struct proto *proto = ((struct tcp_group *)state)->group.proto;
    if (proto == NULL || proto->shm == NULL) return TUTTI_ERR_UNSUPPORTED; /* nobody to share it with */
    return shm_alloc(proto->shm, bytes, memory);
}

static int tcp_free(void *state, void *memory)
{
    struct tcp_group *self = state;
    const struct proto *proto = self->group.proto;
    if (proto != NULL && proto->shm != NULL) return shm_free(proto->shm, memory);
    return TUTTI_ERR_UNSUPPORTED;
}

static int tcp_cancel(void *state, tutti_request *request)
{
    if (coll_cancel(&((struct tcp_group *)state)->group.coll, request)) return TUTTI_OK;
    return proto_cancel(&((struct tcp_group *)state)->group, request);
}

static int tcp_notify(void *state, int32_t peer, const void *message, size_t bytes)
{
    struct proto_group *group = &((struct tcp_group *)state)->group;
    return group->proto != NULL ? proto_notify(group, peer, message, bytes) : TUTTI_OK;
}

static int tcp_tell(void *state, int32_t peer, const void *message, size_t bytes)
{
    struct tcp_group *self = state;
    return self->opened ? proto_tell(&self->group, peer, message, bytes) : TUTTI_OK;
}

static int tcp_hosts(void *state, int32_t *host)
{
    struct tcp_group *self = state;
    return self->opened ? link_hosts(&self->proto, host) : TUTTI_OK;
}

static void tcp_leave(void *state)
{
    struct tcp_group *self = state;
    if (self->opened) proto_leave(&self->proto);
}

static int32_t tcp_drain(void *state)
{
    struct tcp_group *self = state;
    return self->opened ? proto_drain(&self->proto) : -1;
}

static int tcp_describe(const tutti_host *host, void *state, char *text, size_t capacity)
{
    const struct tcp_group *self = state;
    if (self == NULL) return fabric_describe_machine(host, text, capacity);
    const struct proto *proto = self->group.proto;
    return proto != NULL ? link_describe(proto, text, capacity) : TUTTI_OK;
}

TUTTI_BACKEND_EXPORT extern const tutti_backend tutti_backend_v1;

const tutti_backend tutti_backend_v1 = {
    TUTTI_BACKEND_HEADER,
    .name = "tcp",
    .version = "1, shared memory and libfabric",
    .group_bytes = sizeof(struct tcp_group),
    .devices = 1u << TUTTI_CPU,
    .open = tcp_open,
    .close = tcp_close,
    .native = {[TUTTI_BROADCAST] = tcp_native,
               [TUTTI_ALL_REDUCE] = tcp_native,
               [TUTTI_REDUCE] = tcp_native,
               [TUTTI_ALL_GATHER] = tcp_native,
               [TUTTI_GATHER] = tcp_native,
               [TUTTI_SCATTER] = tcp_native,
               [TUTTI_REDUCE_SCATTER] = tcp_native,
               [TUTTI_ALL_TO_ALL] = tcp_native,
               [TUTTI_BARRIER] = tcp_native,
               [TUTTI_MONITORED_BARRIER] = tcp_native},
    .send = tcp_send,
    .recv = tcp_recv,
    .recv_reduce = tcp_recv_reduce,
    .recv_reduce_most = PROTO_REDUCE_MOST,
    .progress = tcp_progress,
    .arm = tcp_arm,
    .cancel = tcp_cancel,
    .notify = tcp_notify,
    .latency_ns = 7000,
    .bytes_per_us = 2500,
    .segment_bytes = 256 << 10,
    .traits = TUTTI_BACKEND_UNSIZED | TUTTI_BACKEND_OPENS_ALONE,
    .alloc = tcp_alloc,
    .free = tcp_free,
    .hosts = tcp_hosts,
    .awaits = tcp_awaits,
    .is_near = tcp_is_near,
    .explain = tcp_explain,
    .describe = tcp_describe,
    .leave = tcp_leave,
    .drain = tcp_drain,
    .tell = tcp_tell,
    .offer = tcp_offer,
    .reclaim = shm_reclaim,
};
