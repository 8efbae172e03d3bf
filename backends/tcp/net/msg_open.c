/* Connected endpoints: opens the provider, its queues and the listener, and closes them in the right order. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "portable/sockets.h"
#include "tcp/net/msg.h"

/* Finds the provider.  Asks for one receive queue that all endpoints share. */
int msg_find(struct fabric *fabric, const char *provider, const struct iface *own)
{
    struct fi_info *hints = fabric_library.dupinfo(NULL);
    if (hints == NULL) return -FI_ENOMEM;
    hints->caps = FI_MSG | FI_RMA;
    hints->addr_format = own->family == 4 ? FI_SOCKADDR_IN : FI_SOCKADDR_IN6;
    hints->ep_attr->type = FI_EP_MSG;
    hints->ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->domain_attr->control_progress = FI_PROGRESS_MANUAL;
    hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
    hints->fabric_attr->prov_name = strdup(provider);
    int status = fabric_library.getinfo(FI_VERSION(1, 11), own->text, NULL, FI_SOURCE, hints, &fabric->info);
    fabric_library.freeinfo(hints);
    return status;
}

int msg_open(struct fabric *fabric)
{
    struct fi_eq_attr eq = {.wait_obj = FI_WAIT_FD};
    struct fi_cq_attr cq = {.size = 4096, .format = FI_CQ_FORMAT_DATA, .wait_obj = FI_WAIT_FD};
    int status;
    fabric->msg.listener_fd = -1;
    if ((status = fi_eq_open(fabric->fabric, &eq, &fabric->msg.eq, NULL)) != 0)
        return fabric_fail(fabric, "fi_eq_open", status);
    if ((status = fi_domain(fabric->fabric, fabric->info, &fabric->domain, NULL)) != 0)
        return fabric_fail(fabric, "fi_domain", status);
    if ((status = fi_cq_open(fabric->domain, &cq, &fabric->cq, NULL)) != 0)
        return fabric_fail(fabric, "fi_cq_open", status);
    if ((status = fi_control(&fabric->cq->fid, FI_GETWAIT, &fabric->cq_fd)) != 0 ||
        (status = fi_control(&fabric->msg.eq->fid, FI_GETWAIT, &fabric->msg.eq_fd)) != 0)
        return fabric_fail(fabric, "FI_GETWAIT", status);
    if ((status = fi_srx_context(fabric->domain, fabric->info->rx_attr, &fabric->msg.srx, NULL)) != 0)
        return fabric_fail(fabric, "fi_srx_context", status);
    if ((status = fi_ep_bind(fabric->msg.srx, &fabric->cq->fid, FI_RECV)) != 0)
        return fabric_fail(fabric, "fi_ep_bind", status);
    fabric->msg.timer_fd = sockets_timer(); /* without timers the kernel alone finds that a host is silent */
    status = msg_post_receives(fabric);
    return status == TUTTI_OK ? msg_listen(fabric) : status;
}

void msg_close(struct fabric *fabric)
{
    /* Accept, end and release connections in their handshake, because the provider would not free them. */
    for (int i = 0; i < 4 && fabric->msg.pep[0] != NULL; i++) msg_handle_events(fabric);
    FABRIC_CLOSE(fabric->msg.srx);
    for (int i = 0; i < FABRIC_RAILS; i++) FABRIC_CLOSE(fabric->msg.pep[i]);
    FABRIC_CLOSE(fabric->cq);
    FABRIC_CLOSE(fabric->domain);
    FABRIC_CLOSE(fabric->msg.eq); /* must not be read after the listener is closed */
    struct fabric_link *link;
    STAILQ_FOREACH(link, &fabric->all_links, entry) fabric_free_buffers(&link->msg.sent);
    if (fabric->msg.timer_fd >= 0) close(fabric->msg.timer_fd);
    free(fabric->msg.receives);
    msg_free_rails(fabric);
}
