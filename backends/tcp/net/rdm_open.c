/* Datagram endpoints: opens the provider, the endpoint and its buffers, and closes them in the right order. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tcp/net/rdm.h"

enum { RMA = FI_RMA | FI_READ | FI_REMOTE_READ };

/* Finds the provider with these capabilities.  Only IP providers accept the address, so the second try omits it.  A
 * provider whose names are text (shm) would give the same name to all ranks with that address. */
static int find_with(struct fabric *fabric, const char *provider, const struct iface *own, uint64_t caps)
{
    struct fi_info *hints = fabric_library.dupinfo(NULL);
    if (hints == NULL) return -FI_ENOMEM;
    hints->caps = caps;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->ep_attr->type = FI_EP_RDM;
    hints->tx_attr->msg_order = FI_ORDER_SAS;
    hints->rx_attr->msg_order = FI_ORDER_SAS;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    /* FI_MR_RAW is not among them: no provider with keys of more than 64 bits has been met. */
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_VIRT_ADDR | FI_MR_ENDPOINT;
    hints->fabric_attr->prov_name = strdup(provider);
    int status = fabric_library.getinfo(FI_VERSION(1, 11), own->text, NULL, FI_SOURCE, hints, &fabric->info);
    if (status == 0 && fabric->info->addr_format == FI_ADDR_STR) {
        fabric_library.freeinfo(fabric->info);
        fabric->info = NULL;
        status = -FI_ENODATA;
    }
    if (status != 0) status = fabric_library.getinfo(FI_VERSION(1, 11), NULL, NULL, 0, hints, &fabric->info);
    fabric_library.freeinfo(hints);
    return status;
}

int rdm_find(struct fabric *fabric, const char *provider, const struct iface *own)
{
    int status = find_with(fabric, provider, own, FI_MSG | RMA);
    fabric->rdm.has_rma = status == 0;
    return status == 0 ? 0 : find_with(fabric, provider, own, FI_MSG);
}

/* ---- buffers ------------------------------------------------------------------------------------------------- */

struct rdm_buffer *rdm_buffer_new(struct fabric *fabric)
{
    struct rdm_buffer *buffer = calloc(1, sizeof *buffer);
    if (buffer == NULL) return NULL;
    if (!(fabric->info->domain_attr->mr_mode & FI_MR_LOCAL)) return buffer;
    if (rdm_register(fabric, buffer->data, sizeof buffer->data, FI_SEND | FI_RECV, &buffer->region) == 0) return buffer;
    free(buffer);
    return NULL;
}

static void free_buffers(struct rdm_buffers *buffers)
{
    struct rdm_buffer *buffer;
    while ((buffer = TAILQ_FIRST(buffers)) != NULL) {
        TAILQ_REMOVE(buffers, buffer, entry);
        FABRIC_CLOSE(buffer->region);
        free(buffer);
    }
}

static int post_receives(struct fabric *fabric)
{
    const tutti_host *host = fabric->config.host;
    for (int i = 0; i < FABRIC_RECEIVES; i++) {
        struct rdm_buffer *buffer = rdm_buffer_new(fabric);
        if (buffer == NULL)
            return host->error(TUTTI_ERR_NO_MEMORY, "no memory for %d receive buffers", FABRIC_RECEIVES);
        TAILQ_INSERT_TAIL(&fabric->rdm.receives, buffer, entry);
        int status = rdm_post_receive(fabric, buffer);
        if (status == -FI_EAGAIN && i > 0) return TUTTI_OK; /* the provider has accepted as many as it can */
        if (status != 0) return fabric_fail(fabric, "fi_recv", status);
    }
    return TUTTI_OK;
}

/* ---- endpoint ------------------------------------------------------------------------------------------------ */

/* Without a descriptor the rank polls at intervals. */
int rdm_open_queue(struct fabric *fabric, struct fid_cq **cq, int *fd)
{
    struct fi_cq_attr attributes = {.size = 4096, .format = FI_CQ_FORMAT_MSG, .wait_obj = FI_WAIT_FD};
    *fd = -1;
    int status = fi_cq_open(fabric->domain, &attributes, cq, NULL);
    if (status == 0 && fi_control(&(*cq)->fid, FI_GETWAIT, fd) == 0) return 0;
    if (status == 0) FABRIC_CLOSE(*cq);
    *cq = NULL;
    *fd = -1;
    attributes.wait_obj = FI_WAIT_NONE;
    return fi_cq_open(fabric->domain, &attributes, cq, NULL);
}

static int open_endpoint(struct fabric *fabric)
{
    struct fi_av_attr av = {.type = fabric->info->domain_attr->av_type};
    int status;
    if ((status = fi_domain(fabric->fabric, fabric->info, &fabric->domain, NULL)) != 0)
        return fabric_fail(fabric, "fi_domain", status);
    if ((status = rdm_open_queue(fabric, &fabric->cq, &fabric->cq_fd)) != 0)
        return fabric_fail(fabric, "fi_cq_open", status);
    if ((status = fi_av_open(fabric->domain, &av, &fabric->rdm.av, NULL)) != 0)
        return fabric_fail(fabric, "fi_av_open", status);
    if ((status = fi_endpoint(fabric->domain, fabric->info, &fabric->rdm.ep, NULL)) != 0)
        return fabric_fail(fabric, "fi_endpoint", status);
    if ((status = fi_ep_bind(fabric->rdm.ep, &fabric->rdm.av->fid, 0)) != 0 ||
        (status = fi_ep_bind(fabric->rdm.ep, &fabric->cq->fid, FI_TRANSMIT | FI_RECV)) != 0)
        return fabric_fail(fabric, "fi_ep_bind", status);
    if ((status = fi_enable(fabric->rdm.ep)) != 0) return fabric_fail(fabric, "fi_enable", status);
    return TUTTI_OK;
}

void rdm_tune_listener(struct fabric *fabric, struct fid_ep *ep)
{
    uint32_t format = fabric->info->addr_format;
    struct sockaddr_storage own = {0};
    size_t bytes = sizeof own;
    if (format != FI_SOCKADDR && format != FI_SOCKADDR_IN && format != FI_SOCKADDR_IN6) return;
    if (fi_getname(&ep->fid, &own, &bytes) == 0) fabric_tune_listener(fabric, &own);
}

/* Fills this rank's address book entry. */
static int publish_name(struct fabric *fabric)
{
    struct wire_name name = {.bytes = sizeof name.name};
    size_t text = sizeof fabric->address_text;
    int status = fi_getname(&fabric->rdm.ep->fid, name.name, &name.bytes);
    if (status != 0 || name.bytes == 0) return fabric_fail(fabric, "fi_getname", status);
    fabric->address.family = fabric->rails.own[0].family;
    memcpy(fabric->address.ip, fabric->rails.own[0].ip, sizeof fabric->address.ip);
    rdm_open_probes(fabric, &fabric->address);
    name.host = fabric->address;
    fabric->rdm.name_bytes = name.bytes;
    fabric->rdm.names = calloc((size_t)fabric->config.world_size, rdm_name_words(fabric) * sizeof(uint64_t));
    if (fabric->rdm.names == NULL)
        return fabric->config.host->error(TUTTI_ERR_NO_MEMORY, "no memory for the addresses of %d ranks",
                                          fabric->config.world_size);
    fabric->entry_bytes = wire_name_encode(fabric->entry, &name);
    fi_av_straddr(fabric->rdm.av, name.name, fabric->address_text, &text);
    rdm_tune_listener(fabric, fabric->rdm.ep);
    return TUTTI_OK;
}

int rdm_open(struct fabric *fabric)
{
    fabric->cq_fd = -1;
    if (fabric->info->ep_attr->max_msg_size < RDM_MESSAGE)
        return fabric->config.host->error(
            TUTTI_ERR_BACKEND, "libfabric's provider %s is limited to messages of %zu bytes; %d bytes are required",
            fabric->info->fabric_attr->prov_name, fabric->info->ep_attr->max_msg_size, RDM_MESSAGE);
    size_t inject = fabric->info->tx_attr->inject_size;
    fabric->rdm.inject = inject < RDM_INJECT ? inject : RDM_INJECT;
    int status = rdm_open_timer(fabric);
    if (status == TUTTI_OK) status = open_endpoint(fabric);
    if (status == TUTTI_OK) status = post_receives(fabric);
    if (status == TUTTI_OK) status = publish_name(fabric);
    return status;
}

void rdm_close(struct fabric *fabric)
{
    rdm_close_reads(fabric);
    FABRIC_CLOSE(fabric->rdm.ep);
    FABRIC_CLOSE(fabric->rdm.av);
    FABRIC_CLOSE(fabric->cq);
    struct fabric_link *link;
    STAILQ_FOREACH(link, &fabric->all_links, entry)
    {
        free_buffers(&link->rdm.in_flight);
        fabric_free_buffers(&link->rdm.early);
    }
    free_buffers(&fabric->rdm.spare);
    free_buffers(&fabric->rdm.receives);
    free_buffers(&fabric->rdm.unposted);
    FABRIC_CLOSE(fabric->domain);
    if (fabric->rdm.timer_fd >= 0) close(fabric->rdm.timer_fd);
    rdm_close_probes(fabric);
    free(fabric->rdm.names);
}
