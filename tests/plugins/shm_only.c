/* A backend of collectives in shared memory alone: backends/tcp/shm as another backend would use it, without the tcp
 * backend's protocol and without libfabric. */
#include <tutti/backend.h>

#include "tcp/shm/coll/coll.h"
#include "tcp/shm/shm.h"

struct group {
    struct shm *shm;
    struct coll_segment coll;
    struct coll_list running;
    void *core;
    const tutti_host *host;
};

static bool on_message(void *user, const struct transport *from, const struct transport_header *header,
                       const void *payload, size_t bytes)
{
    (void)user, (void)from, (void)header, (void)payload, (void)bytes;
    return false; /* the ranks send no messages */
}

static void on_lost(void *user, int32_t rank, const char *why)
{
    const struct group *self = user;
    self->host->peer_lost(self->core, rank, false, why);
}

static const struct transport_events events = {.message = on_message, .lost = on_lost};

static int open_group(void *state, const tutti_group_info *info, const tutti_host *host)
{
    struct group *self = state;
    static const struct shm_colls colls = {.bytes = coll_bytes, .reserve = coll_directory_reserve};
    struct transport_config config = transport_configure(info, host, &events, self);
    self->host = host;
    self->core = info->core;
    if (info->parent != NULL) return host->error(TUTTI_ERR_UNSUPPORTED, "shm_only has no subgroups");
    int status = shm_open_host(&config, &colls, &self->shm);
    if (status != TUTTI_OK || self->shm == NULL) return status;
    return coll_open(&self->coll, self->shm, COLL_FIRST, info->rank, info->world_size, info->global_ranks);
}

static void close_group(void *state)
{
    struct group *self = state;
    coll_close(&self->coll);
    shm_close(self->shm);
}

static int native(void *state, const tutti_op *op, tutti_request *request)
{
    struct group *self = state;
    if (self->coll.state != COLL_READY) return TUTTI_ERR_UNSUPPORTED;
    return coll_begin(&self->coll, op, request, &self->running);
}

static int cancel(void *state, tutti_request *request)
{
    struct group *self = state;
    return coll_cancel(&self->coll, request) ? TUTTI_OK : TUTTI_ERR_NOT_FOUND;
}

static int progress(void *state)
{
    struct group *self = state;
    return self->shm != NULL ? coll_progress(&self->running) + shm_progress(self->shm) : 0;
}

static int arm(void *state, int *descriptors)
{
    struct group *self = state;
    if (self->shm == NULL) return 0;
    int n = shm_arm(self->shm, descriptors);
    shm_settle(self->shm);
    return coll_is_ready(&self->running) ? 0 : n;
}

TUTTI_BACKEND_EXPORT extern const tutti_backend tutti_backend_v1;

const tutti_backend tutti_backend_v1 = {TUTTI_BACKEND_HEADER,
                                        .name = "shm_only",
                                        .version = "1",
                                        .group_bytes = sizeof(struct group),
                                        .devices = 1u << TUTTI_CPU,
                                        .open = open_group,
                                        .close = close_group,
                                        .native = {[TUTTI_BROADCAST] = native,
                                                   [TUTTI_ALL_REDUCE] = native,
                                                   [TUTTI_ALL_GATHER] = native,
                                                   [TUTTI_REDUCE_SCATTER] = native,
                                                   [TUTTI_ALL_TO_ALL] = native,
                                                   [TUTTI_BARRIER] = native},
                                        .cancel = cancel,
                                        .progress = progress,
                                        .arm = arm};
