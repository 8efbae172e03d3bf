/* The life of a fabric: provider, endpoints, listener, address book; and the order in which they are given back. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fabric_impl.h"

static int failed(struct fabric *fabric, const char *what, int error)
{
    return fabric->config.host->error(TUTTI_ERR_BACKEND, "libfabric: %s failed: %s", what,
                                      fabric_library.strerror(error < 0 ? -error : error));
}

/* Connected endpoints with one receive queue for all of them.  The tcp provider's were faster here than its reliable
 * datagrams, tell of a peer's end, and carry a handshake; measured in docs/tcp-backend.md. */
static int find_provider(struct fabric *fabric, const struct fabric_where *where)
{
    const char *wanted = fabric->config.host->env("TUTTI_FABRIC_PROVIDER");
    const char *provider = wanted != NULL ? wanted : "tcp";
    struct fi_info *hints = fabric_library.dupinfo(NULL);
    if (hints == NULL) return fabric->config.host->error(TUTTI_ERR_NO_MEMORY, "no memory for libfabric");
    hints->caps = FI_MSG | FI_RMA;
    hints->addr_format = where->family == 4 ? FI_SOCKADDR_IN : FI_SOCKADDR_IN6;
    hints->ep_attr->type = FI_EP_MSG;
    hints->ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->domain_attr->control_progress = FI_PROGRESS_MANUAL;
    hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
    hints->fabric_attr->prov_name = strdup(provider);
    int status = fabric_library.getinfo(FI_VERSION(1, 11), where->text, NULL, FI_SOURCE, hints, &fabric->info);
    fabric_library.freeinfo(hints);
    if (status == 0) return TUTTI_OK;
    if (wanted != NULL)
        return fabric->config.host->error(TUTTI_ERR_BACKEND,
                                          "TUTTI_FABRIC_PROVIDER=%.64s: libfabric has no such provider with connected "
                                          "endpoints on %s (%s); `fi_info` lists what there is",
                                          wanted, where->text, fabric_library.strerror(-status));
    return fabric->config.host->error(TUTTI_ERR_BACKEND, "libfabric's tcp provider cannot use the address %s: %s",
                                      where->text, fabric_library.strerror(-status));
}

static int open_queues(struct fabric *fabric)
{
    struct fi_eq_attr eq = {.wait_obj = FI_WAIT_FD};
    struct fi_cq_attr cq = {.size = 4096, .format = FI_CQ_FORMAT_DATA, .wait_obj = FI_WAIT_FD};
    int status;
    if ((status = fabric_library.fabric(fabric->info->fabric_attr, &fabric->fabric, NULL)) != 0)
        return failed(fabric, "fi_fabric", status);
    if ((status = fi_eq_open(fabric->fabric, &eq, &fabric->eq, NULL)) != 0) return failed(fabric, "fi_eq_open", status);
    if ((status = fi_domain(fabric->fabric, fabric->info, &fabric->domain, NULL)) != 0)
        return failed(fabric, "fi_domain", status);
    if ((status = fi_cq_open(fabric->domain, &cq, &fabric->cq, NULL)) != 0) return failed(fabric, "fi_cq_open", status);
    if ((status = fi_control(&fabric->cq->fid, FI_GETWAIT, &fabric->cq_fd)) != 0 ||
        (status = fi_control(&fabric->eq->fid, FI_GETWAIT, &fabric->eq_fd)) != 0)
        return failed(fabric, "FI_GETWAIT", status);
    if ((status = fi_srx_context(fabric->domain, fabric->info->rx_attr, &fabric->srx, NULL)) != 0)
        return failed(fabric, "fi_srx_context", status);
    if ((status = fi_ep_bind(fabric->srx, &fabric->cq->fid, FI_RECV)) != 0) return failed(fabric, "fi_ep_bind", status);
    return fabric_post_receives(fabric);
}

/* Other ranks read the entry when they first need us. */
static int publish(struct fabric *fabric)
{
    char key[32];
    uint8_t entry[WIRE_ADDRESS];
    snprintf(key, sizeof key, "tcp/%d", fabric->config.rank);
    wire_address_encode(entry, &fabric->address);
    return fabric->config.host->store_set(fabric->config.store, key, entry, sizeof entry);
}

static void init_links(struct fabric *fabric)
{
    STAILQ_INIT(&fabric->spare[0]);
    STAILQ_INIT(&fabric->spare[1]);
    for (int32_t rank = 0; rank < fabric->config.world_size; rank++) {
        struct fabric_link *link = &fabric->link[rank];
        link->fabric = fabric;
        link->rank = rank;
        STAILQ_INIT(&link->waiting);
        STAILQ_INIT(&link->sent);
        for (int i = 0; i < FABRIC_CHUNKS; i++)
            link->chunk[i] = (struct fabric_chunk){.kind = FABRIC_CHUNK_WRITTEN, .link = link};
    }
}

int fabric_open(const struct fabric_config *config, struct fabric **out)
{
    size_t bytes = sizeof(struct fabric) + (size_t)config->world_size * sizeof(struct fabric_link);
    struct fabric *fabric = calloc(1, bytes);
    if (fabric == NULL) return config->host->error(TUTTI_ERR_NO_MEMORY, "no memory for %d links", config->world_size);
    fabric->config = *config;
    init_links(fabric);
    struct fabric_where where;
    int status = fabric_load(config->host);
    if (status == TUTTI_OK) status = fabric_read_limits(fabric);
    if (status == TUTTI_OK) status = fabric_choose_address(config, &where);
    if (status == TUTTI_OK) status = find_provider(fabric, &where);
    if (status == TUTTI_OK) status = open_queues(fabric);
    if (status == TUTTI_OK) status = fabric_listen(fabric);
    if (status == TUTTI_OK) status = publish(fabric);
    if (status != TUTTI_OK) {
        fabric_close(fabric);
        return status;
    }
    char text[64];
    fabric_print_address(&fabric->address, text, sizeof text);
    config->host->log(2, "tcp: rank %d listens on %s, provider %s", config->rank, text,
                      fabric->info->fabric_attr->prov_name);
    *out = fabric;
    return TUTTI_OK;
}

static void close_fid(struct fid *fid)
{
    if (fid != NULL) fi_close(fid);
}
#define CLOSE(object) close_fid((object) != NULL ? &(object)->fid : NULL)

void fabric_close(struct fabric *fabric)
{
    if (fabric == NULL) return;
    fabric->closing = true;
    for (int32_t rank = 0; rank < fabric->config.world_size; rank++)
        if (fabric->link[rank].state != FABRIC_IDLE) fabric_drop(fabric, rank, "closed", false);
    /* The provider would not free those who are just connecting: they are taken in, ended, and let go. */
    for (int i = 0; i < 4 && fabric->pep != NULL; i++) fabric_handle_events(fabric);
    CLOSE(fabric->srx);
    CLOSE(fabric->pep);
    CLOSE(fabric->cq);
    CLOSE(fabric->domain);
    CLOSE(fabric->eq); /* must not be read once the listener is closed */
    CLOSE(fabric->fabric);
    if (fabric->info != NULL) fabric_library.freeinfo(fabric->info);
    for (int32_t rank = 0; rank < fabric->config.world_size; rank++) fabric_forget(&fabric->link[rank]);
    fabric_free_buffers(&fabric->spare[0]);
    fabric_free_buffers(&fabric->spare[1]);
    free(fabric->receives);
    free(fabric);
}
