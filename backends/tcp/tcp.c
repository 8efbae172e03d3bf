/* The tcp backend: its table, and the state of its groups.
 *
 * Messages are the protocol's (p2p/), over shared memory (shm/) between ranks that can attach each other and libfabric
 * (net/) between all others.  Groups whose ranks all share memory do collectives there (shm/coll/).
 */
#include <string.h>

#include "tcp/net/fabric.h"
#include "tcp/p2p/proto.h"
#if TUTTI_PORTABLE
#include "tcp/absent/shm.h"
#else
#include "tcp/shm/coll/coll.h"
#include "tcp/shm/shm.h"
#endif

enum { LOG_INFO = 2 };

/* State of one group.  A group tree's first one has the protocol and the transports, which the others share. */
struct tcp_group {
    struct proto_group group;
    struct coll_segment coll;
    struct tcp_group *first; /* NULL if the tree has a single rank, which needs no transport */
    /* Only in the first group: */
    struct proto proto;
    struct shm *shm;        /* NULL if this rank shares memory with no other */
    struct fabric *fabric;  /* NULL if all ranks share memory; libfabric is not loaded then */
    struct coll_list colls; /* segments with pending operations */
    unsigned coll_turns;    /* progress calls in which a collective advanced */
};

/* ---- opening ------------------------------------------------------------------------------------------------- */

/* Logs that a group has no collective segment, on the rank that tried to reserve it. */
static void log_refused_coll(struct shm *shm)
{
    if (shm->coll_refused == 0) return;
    TUTTI_LOG_AS(shm->config.host, "shm", LOG_INFO,
                 "tcp: no shared memory for a group's collectives (%s); they use messages instead",
                 strerror(shm->coll_refused));
    shm->coll_refused = 0;
}

/* Returns the index of the collective segment that was reserved for the group. */
static int coll_index(const tutti_group_info *info)
{
    int32_t index = COLL_ABSENT;
    if (info->parent == NULL) return COLL_FIRST;
    if (TUTTI_HAS(info, offer)) memcpy(&index, info->offer, sizeof index);
    return index;
}

static int tcp_offer(void *state, const tutti_group_info *info, uint8_t *offer)
{
    struct tcp_group *self = state;
    int32_t index = COLL_ABSENT;
    if (self->shm != NULL && !TUTTI_HAS(info, plans_only))
        index = coll_reserve(self->shm, info->world_size, info->global_ranks);
    if (self->shm != NULL) log_refused_coll(self->shm);
    memcpy(offer, &index, sizeof index);
    return TUTTI_OK;
}

static int add_group(struct tcp_group *self, struct tcp_group *first, const tutti_group_info *info)
{
    /* A group that may only run plans has no segment, which reduces in an order of its own. */
    struct shm *shm = TUTTI_HAS(info, plans_only) ? NULL : first->shm;
    self->first = first;
    int status = coll_open(&self->coll, shm, coll_index(info), info->rank, info->world_size, info->global_ranks);
    if (first->shm != NULL) log_refused_coll(first->shm);
    proto_add_group(&first->proto, &self->group);
    return status;
}

/* Attaches the ranks of this host.  Sets *reaches_all if these are all ranks of the tree. */
static int open_shm(struct tcp_group *self, const struct transport_config *config, bool *reaches_all)
{
    static const struct shm_colls colls = {.bytes = coll_bytes, .reserve = coll_directory_reserve};
    int status = shm_open_host(config, &colls, &self->shm);
    *reaches_all = false;
    if (status != TUTTI_OK || self->shm == NULL) return status;
    struct transport *transport = shm_transport(self->shm);
    if (transport != NULL) {
        *reaches_all = proto_add_transport(&self->proto, transport);
        return TUTTI_OK;
    }
    shm_close(self->shm);
    self->shm = NULL;
    return TUTTI_ERR_NO_MEMORY;
}

static int open_fabric(struct tcp_group *self, const struct transport_config *config)
{
    int status = fabric_open(config, &self->fabric);
    if (status == TUTTI_OK) proto_add_transport(&self->proto, fabric_transport(self->fabric));
    return status;
}

static int open_first(struct tcp_group *self, const tutti_group_info *info, const tutti_host *host)
{
    struct proto_config messages = {
        .rank = info->rank, .world_size = info->world_size, .host = host, .core = info->core};
    struct transport_config config = transport_configure(info, host, &proto_events, &self->proto);
    bool reaches_all = false;
    self->first = self;
    int status = proto_open(&self->proto, &messages);
    if (status == TUTTI_OK) status = open_shm(self, &config, &reaches_all);
    if (status == TUTTI_OK && !reaches_all) status = open_fabric(self, &config);
    return status == TUTTI_OK ? add_group(self, self, info) : status;
}

static int tcp_open(void *state, const tutti_group_info *info, const tutti_host *host)
{
    struct tcp_group *self = state, *first = info->parent;
    self->group = (struct proto_group){.id = info->id,
                                       .rank = info->rank,
                                       .world_size = info->world_size,
                                       .global_ranks = info->global_ranks,
                                       .core = info->core};
    if (first != NULL) return first->first != NULL ? add_group(self, first, info) : TUTTI_OK;
    return info->world_size > 1 ? open_first(self, info, host) : TUTTI_OK; /* one rank needs no transport */
}

/* ---- closing ------------------------------------------------------------------------------------------------- */

static bool is_first(const struct tcp_group *self)
{
    return self->first == self;
}

/* Ends an entry that may have sent messages and is not an operation: see shm_settle. */
static void settle(const struct tcp_group *self)
{
    if (self->first != NULL && self->first->shm != NULL) shm_settle(self->first->shm);
}

static void tcp_close(void *state)
{
    struct tcp_group *self = state;
    if (is_first(self)) self->proto.closing = true;
    coll_close(&self->coll);
    proto_remove_group(&self->group);
    if (is_first(self))
        proto_close(&self->proto);
    else
        settle(self);
    memset(self, 0, sizeof *self);
}

static void tcp_leave(void *state)
{
    struct tcp_group *self = state;
    if (is_first(self)) proto_leave(&self->proto);
    settle(self);
}

static int32_t tcp_drain(void *state)
{
    struct tcp_group *self = state;
    int32_t left = is_first(self) ? proto_drain(&self->proto) : -1;
    settle(self);
    return left;
}

/* ---- messages ------------------------------------------------------------------------------------------------ */

/* Counts an operation: see shm_settle_sometimes.  A group that has messages has a first group. */
static void settle_sometimes(const struct tcp_group *self)
{
    if (self->first->shm != NULL) shm_settle_sometimes(self->first->shm);
}

static int tcp_send(void *state, tutti_request *request)
{
    struct tcp_group *self = state;
    settle_sometimes(self);
    return proto_send(&self->group, request);
}

static int tcp_recv(void *state, tutti_request *request)
{
    struct tcp_group *self = state;
    int status = proto_recv(&self->group, request);
    settle_sometimes(self);
    return status;
}

static int tcp_recv_reduce(void *state, tutti_request *request)
{
    struct proto_group *group = &((struct tcp_group *)state)->group;
    if (request->bytes <= TRANSPORT_REDUCE_MAX) return tcp_recv(state, request);
    return group->proto->host->error(TUTTI_ERR_INVALID_ARGUMENT, "a recv_reduce of %zu bytes exceeds the limit of %d",
                                     request->bytes, TRANSPORT_REDUCE_MAX);
}

static int tcp_notify(void *state, int32_t peer, const void *message, size_t bytes)
{
    struct tcp_group *self = state;
    int status = self->first != NULL ? proto_notify(&self->group, peer, message, bytes) : TUTTI_OK;
    settle(self);
    return status;
}

static int tcp_tell(void *state, int32_t peer, const void *message, size_t bytes)
{
    struct tcp_group *self = state;
    int status = is_first(self) ? proto_tell(&self->group, peer, message, bytes) : TUTTI_OK;
    settle(self);
    return status;
}

/* ---- collectives --------------------------------------------------------------------------------------------- */

static int tcp_native(void *state, const tutti_op *op, tutti_request *request)
{
    struct tcp_group *self = state;
    if (self->coll.state != COLL_READY) return TUTTI_ERR_UNSUPPORTED;
    return coll_begin(&self->coll, op, request, &self->first->colls);
}

static const char *tcp_explain(void *state, const tutti_op *op)
{
    struct tcp_group *self = state;
    const struct tcp_group *first = self->first;
    if (op->kind != TUTTI_SEND) return coll_explain(&self->coll, op);
    if (first == NULL || (first->shm == NULL && first->fabric == NULL)) return NULL;
    int64_t bytes = op->in->numel * tutti_dtype_bytes(op->dtype);
    const tutti_path_row *row = tutti_path_find(self->group.choices, self->group.n_choices, TUTTI_SEND, bytes);
    return first->shm != NULL ? shm_explain_message(first->shm, (size_t)bytes, row)
                              : fabric_explain_message(first->fabric, (size_t)bytes, row);
}

static void tcp_choose(void *state, const tutti_path_row *rows, int32_t n)
{
    struct tcp_group *self = state;
    self->coll.choices = self->group.choices = rows;
    self->coll.n_choices = self->group.n_choices = n;
}

static const tutti_path paths[] = {COLL_PATHS, SHM_MESSAGE_PATHS, FABRIC_MESSAGE_PATHS, {TUTTI_SEND, 0, NULL}};

static void tcp_awaits(void *state, const tutti_request *request, bool *ranks)
{
    coll_awaits(&((struct tcp_group *)state)->coll, request, ranks);
}

/* ---- progress ------------------------------------------------------------------------------------------------ */

/* Drives messages only in every COLL_TURNS-th call while collectives advance, because the caller most likely waits for
 * a collective. */
static int tcp_progress(void *state)
{
    enum { COLL_TURNS = 16 };
    struct tcp_group *self = state;
    if (!is_first(self)) return 0;
    int moved = self->shm != NULL ? coll_progress(&self->colls) : 0;
    if (moved > 0 && ++self->coll_turns % COLL_TURNS != 0) return moved;
    moved += proto_progress(&self->proto);
    settle(self);
    return moved;
}

/* Checks the collectives last: proto_arm has marked this rank as asleep, so a peer that arrives at a step after the
 * check wakes it. */
static int tcp_arm(void *state, int *descriptors)
{
    struct tcp_group *self = state;
    if (!is_first(self)) return 0;
    int n = proto_arm(&self->proto, descriptors);
    settle(self); /* it may have sent messages that waited for space */
    return n > 0 && self->shm != NULL && coll_is_ready(&self->colls) ? 0 : n;
}

static int tcp_cancel(void *state, tutti_request *request)
{
    struct tcp_group *self = state;
    int status = coll_cancel(&self->coll, request) ? TUTTI_OK : proto_cancel(&self->group, request);
    settle(self);
    return status;
}

/* ---- memory, hosts, description ------------------------------------------------------------------------------ */

static int tcp_alloc(void *state, size_t bytes, void **memory)
{
    const struct tcp_group *first = ((struct tcp_group *)state)->first;
    if (first == NULL || first->shm == NULL) return TUTTI_ERR_UNSUPPORTED; /* no other rank maps it */
    return shm_alloc(first->shm, bytes, memory);
}

static int tcp_free(void *state, void *memory)
{
    const struct tcp_group *first = ((struct tcp_group *)state)->first;
    if (first == NULL || first->shm == NULL) return TUTTI_ERR_UNSUPPORTED;
    return shm_free(first->shm, memory);
}

static bool tcp_is_near(void *state)
{
    const struct tcp_group *self = state;
    return is_first(self) && self->shm != NULL;
}

static int tcp_hosts(void *state, int32_t *host)
{
    const struct tcp_group *self = state;
    if (!is_first(self)) return TUTTI_OK;
    if (self->fabric != NULL) return fabric_hosts(self->fabric, host);
    for (int32_t rank = 0; rank < self->group.world_size; rank++) host[rank] = 0; /* all ranks share memory */
    return TUTTI_OK;
}

/* Ranks that all share memory have no network, and the core's assumptions are about shared memory. */
static int tcp_links(void *state, tutti_links *links)
{
    const struct tcp_group *self = state;
    return is_first(self) && self->fabric != NULL ? fabric_find_links(self->fabric, self->shm != NULL, links)
                                                  : TUTTI_OK;
}

static int tcp_describe(const tutti_host *host, void *state, char *text, size_t capacity)
{
    const struct tcp_group *self = state;
    if (self == NULL) return fabric_describe_machine(host, text, capacity);
    return self->first != NULL ? proto_describe(&self->first->proto, text, capacity) : TUTTI_OK;
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
    .recv_reduce_most = TRANSPORT_REDUCE_MAX,
    .progress = tcp_progress,
    .arm = tcp_arm,
    .cancel = tcp_cancel,
    .notify = tcp_notify,
    .segment_bytes = 256 << 10,
    .traits = TUTTI_BACKEND_UNSIZED | TUTTI_BACKEND_OPENS_ALONE | TUTTI_BACKEND_DEFERS,
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
    .paths = paths,
    .choose = tcp_choose,
    .links = tcp_links,
};
