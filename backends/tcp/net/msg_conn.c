/* Links of connected endpoints.  Handshakes in the connection's private data authenticate them.
 *
 * A request that fails to authenticate is rejected without an answer.  A rank's link is made once, so a repeated
 * request is rejected too.  If two ranks connect to each other at the same time, the request of the lower rank counts.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tcp/net/msg.h"

union event {
    struct fi_eq_cm_entry entry; /* followed by the private data */
    uint8_t bytes[sizeof(struct fi_eq_cm_entry) + 256];
};

/* ---- endpoints ----------------------------------------------------------------------------------------------- */

void msg_close_endpoint(struct fabric_link *link, struct msg_rail *rail)
{
    if (rail->ep == NULL) return;
    if (link->msg.up & 1 << rail->index) {
        fi_shutdown(rail->ep, 0);
        const tutti_host *host = link->fabric->config.host;
        if (TUTTI_HAS(host, forked_forgets)) host->forked_forgets(rail->fd);
    }
    link->msg.up &= (uint8_t) ~(1 << rail->index);
    fi_close(&rail->ep->fid);
    rail->ep = NULL;
    for (int i = 0; i < FABRIC_CHUNKS; i++) rail->chunk[i].write = NULL;
}

void msg_end(struct fabric_link *link)
{
    msg_end_rails(link);
    msg_close_endpoint(link, &link->msg.first);
}

int msg_make_endpoint(struct fabric_link *link, struct fi_info *info, struct fid_ep **out)
{
    struct fabric *fabric = link->fabric;
    struct fid_ep *ep = NULL;
    int status = fi_endpoint(fabric->domain, info, &ep, link);
    if (status != 0) return status;
    if ((status = fi_ep_bind(ep, &fabric->msg.eq->fid, 0)) == 0 &&
        (status = fi_ep_bind(ep, &fabric->cq->fid, FI_TRANSMIT | FI_SELECTIVE_COMPLETION)) == 0 &&
        (status = fi_ep_bind(ep, &fabric->cq->fid, FI_RECV)) == 0 &&
        (status = fi_ep_bind(ep, &fabric->msg.srx->fid, 0)) == 0 && (status = fi_enable(ep)) == 0) {
        *out = ep;
        return 0;
    }
    fi_close(&ep->fid);
    return status;
}

/* ---- client -------------------------------------------------------------------------------------------------- */

bool msg_read_entry(struct fabric *fabric, int32_t rank, const uint8_t *entry, size_t bytes)
{
    struct wire_address address;
    struct wire_rails rails;
    if (!wire_address_parse(entry, bytes, &address, &rails)) return false;
    fabric->addresses[rank] = address;
    if (fabric->msg.peers != NULL) fabric->msg.peers[rank] = rails;
    return true;
}

int msg_connect(struct fabric_link *link)
{
    struct fabric *fabric = link->fabric;
    struct sockaddr_storage to;
    uint8_t data[HANDSHAKE_BYTES];
    int status = fabric_look_up(fabric, link->rank);
    if (status != TUTTI_OK) return status;
    const struct wire_address *address = &fabric->addresses[link->rank];
    fabric_print_address(address, link->address_text, sizeof link->address_text);
    status = msg_make_endpoint(link, fabric->info, &link->msg.first.ep);
    if (status != 0)
        return fabric->config.host->error(TUTTI_ERR_SYSTEM, "cannot create an endpoint for rank %d: %s", link->rank,
                                          fabric_reason(status));
    fabric_start_handshake(link);
    peer_handshake_sign(fabric->config.host, &link->handshake, data);
    fabric_to_sockaddr(address, &to);
    fabric_set_state(link, FABRIC_CONNECTING);
    status = fi_connect(link->msg.first.ep, &to, data, sizeof data);
    if (status != 0) fabric_fail_connecting(link, fabric_library.strerror(-status));
    return TUTTI_OK;
}

/* ---- server -------------------------------------------------------------------------------------------------- */

/* Listens on interface i and sets address. */
static int listen_on(struct fabric *fabric, int i, struct wire_address *address)
{
    struct sockaddr_storage own;
    struct fid_pep **pep = &fabric->msg.pep[i];
    int status = fi_passive_ep(fabric->fabric, i == 0 ? fabric->info : fabric->msg.info[i], pep, NULL);
    if (status == 0) status = fi_pep_bind(*pep, &fabric->msg.eq->fid, 0);
    if (status == 0) status = fi_listen(*pep);
    if (status == 0 && !fabric_own_name(&(*pep)->fid, &own)) status = -FI_EOTHER;
    if (status != 0)
        return fabric->config.host->error(TUTTI_ERR_SYSTEM,
                                          "cannot listen on %s: %s (TUTTI_IFACE chooses the interface)",
                                          fabric->rails.own[i].text, fabric_reason(status));
    fabric_from_sockaddr(&own, address);
    int fd = fabric_tune_listener(fabric, &own);
    if (i == 0) fabric->msg.listener_fd = fd;
    return TUTTI_OK;
}

int msg_listen(struct fabric *fabric)
{
    int status = msg_describe_rails(fabric);
    if (status == TUTTI_OK) status = listen_on(fabric, 0, &fabric->address);
    for (int i = 1; i < fabric->rails.n && status == TUTTI_OK; i++) {
        struct wire_address address;
        status = listen_on(fabric, i, &address);
        if (status != TUTTI_OK) break;
        struct wire_rail *own = &fabric->msg.own.at[fabric->msg.own.n++];
        own->port = address.port;
        memcpy(own->ip, address.ip, sizeof own->ip);
    }
    if (status != TUTTI_OK) return status;
    fabric->entry_bytes = wire_address_encode(fabric->entry, &fabric->address, &fabric->msg.own);
    fabric_print_address(&fabric->address, fabric->address_text, sizeof fabric->address_text);
    fcntl(fabric->msg.eq_fd, F_SETFD, FD_CLOEXEC);
    return TUTTI_OK;
}

/* Fails a link because this rank cannot accept the peer's connection.  The reason names this rank. */
static void fail_accepting(struct fabric_link *link, int error)
{
    char what[120];
    snprintf(what, sizeof what, "rank %d cannot accept the connection: %s", link->fabric->config.rank,
             fabric_reason(error));
    fabric_fail_connecting(link, what);
}

static void accept_request(struct fabric_link *link, struct fi_info *info, struct peer_handshake *handshake)
{
    struct fabric *fabric = link->fabric;
    uint8_t data[HANDSHAKE_BYTES];
    msg_close_endpoint(link, &link->msg.first); /* this rank's own request, if the two crossed */
    int status = msg_make_endpoint(link, info, &link->msg.first.ep);
    if (status != 0) {
        fi_reject(fabric->msg.pep[0], info->handle, NULL, 0);
        if (fabric_is_connecting(link))
            fail_accepting(link, status);
        else
            TUTTI_LOG_AS(fabric->config.host, "net", 1, "tcp: cannot accept the connection of rank %d: %s", link->rank,
                         fabric_reason(status));
        return;
    }
    struct wire_address from = {.family = fabric->address.family};
    if (info->dest_addr != NULL) fabric_from_sockaddr(info->dest_addr, &from);
    fabric_print_address(&from, link->address_text, sizeof link->address_text);
    handshake->kind = HANDSHAKE_ACCEPT;
    peer_handshake_sign(fabric->config.host, handshake, data);
    fabric_set_state(link, FABRIC_ACCEPTING);
    status = fi_accept(link->msg.first.ep, data, sizeof data);
    if (status != 0) fabric_fail_connecting(link, fabric_library.strerror(-status));
}

static void handle_request(struct fabric *fabric, struct fi_info *info, const void *data, size_t n)
{
    struct peer_handshake handshake;
    if (fabric->closing || !fabric_verify_handshake(fabric, data, n, HANDSHAKE_CONNECT, &handshake) ||
        !fabric_is_for_this_rank(fabric, &handshake)) {
        TUTTI_LOG_AS(fabric->config.host, "net", 3, "tcp: rejected a connection that did not prove the job's token");
        fi_reject(fabric->msg.pep[0], info->handle, NULL, 0);
        return;
    }
    struct fabric_link *link = fabric_make_link(fabric, (int32_t)handshake.from);
    if (link == NULL) {
        TUTTI_LOG_AS(fabric->config.host, "net", 1, "tcp: cannot accept the connection of rank %u: no memory",
                     handshake.from);
        fi_reject(fabric->msg.pep[0], info->handle, NULL, 0);
        return;
    }
    bool first = link->state == FABRIC_IDLE || link->state == FABRIC_WAITING;
    bool crossed = link->state == FABRIC_CONNECTING;
    if (first || (crossed && link->rank < fabric->config.rank)) {
        accept_request(link, info, &handshake);
    } else if (crossed) {
        uint8_t answer[HANDSHAKE_BYTES];
        handshake.kind = HANDSHAKE_BUSY;
        peer_handshake_sign(fabric->config.host, &handshake, answer);
        fi_reject(fabric->msg.pep[0], info->handle, answer, sizeof answer);
    } else {
        fi_reject(fabric->msg.pep[0], info->handle, NULL, 0);
    }
}

/* ---- events -------------------------------------------------------------------------------------------------- */

static void handle_connected(struct fabric_link *link, const void *data, size_t n)
{
    struct peer_handshake handshake;
    if (link->state == FABRIC_CONNECTING &&
        (!fabric_verify_handshake(link->fabric, data, n, HANDSHAKE_ACCEPT, &handshake) ||
         !fabric_is_answer(&link->handshake, &handshake))) {
        fabric_fail_connecting(link, "the answer does not prove the job's token");
        return;
    }
    bool is_client = link->state == FABRIC_CONNECTING;
    link->msg.up |= 1;
    fabric_set_state(link, FABRIC_UP);
    fabric_tune_rail(link, &link->msg.first);
    msg_flush_waiting(link);
    if (is_client && link->state == FABRIC_UP) msg_connect_rails(link);
}

bool msg_is_closed(int error)
{
    return error == FI_EIO || error == FI_ECONNRESET || error == FI_ECONNABORTED || error == EPIPE;
}

/* Repeats a request that the peer may have closed unread.  A peer does so because it limits unauthenticated connections
 * and reads a request only for a short time.  A peer that has exited refuses the next request. */
static void repeat_or_fail(struct fabric_link *link)
{
    enum { REPEATS_MAX = 5 };
    if (link->state != FABRIC_CONNECTING || link->repeats == REPEATS_MAX || link->fabric->closing) {
        fabric_fail_connecting(link, MSG_CLOSED);
        return;
    }
    int64_t last_ns = link->last_ns;
    link->repeats++;
    msg_close_endpoint(link, &link->msg.first);
    if (msg_connect(link) != TUTTI_OK)
        fabric_fail_connecting(link, MSG_CLOSED);
    else
        link->last_ns = last_ns;
}

static void handle_failure(struct fabric_link *link, int error, const void *data, size_t n)
{
    struct peer_handshake handshake;
    if (link->state == FABRIC_CONNECTING && error == FI_ECONNREFUSED &&
        fabric_verify_handshake(link->fabric, data, n, HANDSHAKE_BUSY, &handshake) &&
        fabric_is_answer(&link->handshake, &handshake)) {
        msg_close_endpoint(link, &link->msg.first);
        fabric_set_state(link, FABRIC_WAITING);
        return;
    }
    if (error == FI_ECONNREFUSED)
        fabric_fail_connecting(link, "connection refused (it has left or died, or its job token differs)");
    else if (msg_is_closed(error))
        repeat_or_fail(link);
    else
        fabric_fail_connecting(link, fabric_library.strerror(error));
}

static void read_failure(struct fabric *fabric)
{
    uint8_t data[256];
    struct fi_eq_err_entry error = {.err_data = data, .err_data_size = sizeof data};
    if (fi_eq_readerr(fabric->msg.eq, &error, 0) < 0 || error.fid == NULL || error.fid->fclass != FI_CLASS_EP) return;
    struct fabric_link *link = error.fid->context;
    struct msg_rail *rail = msg_find_rail(link, error.fid);
    int number = error.err < 0 ? -error.err : error.err;
    size_t n = error.err_data != NULL ? error.err_data_size : 0;
    if (rail == &link->msg.first)
        handle_failure(link, number, error.err_data, n);
    else if (rail != NULL)
        msg_handle_rail(link, rail, 0, number, error.err_data, n);
}

static void handle_connection_request(struct fabric *fabric, const struct fi_eq_cm_entry *event, size_t bytes)
{
    for (int i = 0; i < fabric->rails.n; i++) {
        if (fabric->msg.pep[i] == NULL || &fabric->msg.pep[i]->fid != event->fid) continue;
        if (i == 0)
            handle_request(fabric, event->info, event->data, bytes);
        else
            msg_accept_rail(fabric, i, event->info, event->data, bytes);
    }
    fabric_library.freeinfo(event->info);
}

static void handle_event(struct fabric *fabric, uint32_t kind, const struct fi_eq_cm_entry *event, size_t bytes)
{
    struct fabric_link *link = event->fid->context;
    struct msg_rail *rail = link != NULL ? msg_find_rail(link, event->fid) : NULL;
    if (rail == NULL) return;
    if (rail != &link->msg.first) {
        msg_handle_rail(link, rail, kind, 0, event->data, bytes);
        return;
    }
    if (kind == FI_CONNECTED) handle_connected(link, event->data, bytes);
    if (kind != FI_SHUTDOWN) return;
    if (link->state == FABRIC_UP) {
        while (msg_read_completions(fabric) > 0) continue; /* deliver messages that arrived before the end */
        fabric_drop(fabric, link->rank, "connection closed", true);
    } else {
        repeat_or_fail(link);
    }
}

/* True if a connection waits for which this process has no descriptor, and none is about to become free: the last check
 * for unauthenticated connections has ended none. */
static bool lacks_descriptor(const struct fabric *fabric, int64_t now)
{
    enum { RECENT_MS = 2000 };
    const struct fabric_unauthenticated *unauthenticated = &fabric->msg.unauthenticated;
    bool is_checked = now - unauthenticated->checked_ns < (int64_t)RECENT_MS * 1000000;
    bool has_ended = now - unauthenticated->ended_ns < (int64_t)RECENT_MS * 1000000;
    return !fabric->closing && is_checked && !has_ended && fabric_cannot_accept(fabric);
}

/* Looks now and then whether a connection lacks a descriptor.  It may come from any rank, or from a stranger.  A link
 * that has waited for a connection for a while fails: it is most likely this one. */
static void check_accepting(struct fabric *fabric)
{
    enum { CHECK_MS = 1000, LATE_MS = 2000 }; /* the program may be about to close some */
    int64_t now = fabric->config.host->now_ns();
    struct fabric_link *link;
    if (now - fabric->msg.accept_checked_ns < (int64_t)CHECK_MS * 1000000) return;
    bool failed = fabric->msg.accept_failed;
    fabric->msg.accept_checked_ns = now;
    fabric->msg.accept_failed = lacks_descriptor(fabric, now);
    if (!fabric->msg.accept_failed) return;
    if (!failed)
        TUTTI_LOG_AS(fabric->config.host, "net", 1,
                     "tcp: a connection waits for which this process has no descriptor; raise `ulimit -n`");
    STAILQ_FOREACH(link, &fabric->all_links, entry)
    {
        int64_t left_ms = (link->deadline_ns - now) / 1000000;
        if (link->state == FABRIC_WAITING && FABRIC_CONNECT_MS - left_ms >= LATE_MS) fail_accepting(link, FI_EMFILE);
    }
}

int msg_handle_events(struct fabric *fabric)
{
    int handled = 0;
    fabric_end_unauthenticated(fabric, fabric->closing);
    for (;;) {
        union event event;
        uint32_t kind = 0;
        errno = 0; /* otherwise the provider takes a stale EAGAIN for its own, and keeps a closed connection forever */
        ssize_t n = fi_eq_read(fabric->msg.eq, &kind, &event, sizeof event, 0);
        if (n == -FI_EAVAIL) {
            read_failure(fabric);
            handled++;
            continue;
        }
        if (n < (ssize_t)sizeof event.entry) break;
        handled++;
        size_t bytes = (size_t)n - sizeof event.entry;
        if (kind == FI_CONNREQ)
            handle_connection_request(fabric, &event.entry, bytes);
        else
            handle_event(fabric, kind, &event.entry, bytes);
    }
    check_accepting(fabric); /* behind the events, which may have closed connections */
    return handled;
}

/* True if this rank may wait longer: the peer's host has accepted the connection, but its process has not answered.  It
 * may be stopped or get no processor time. */
static bool may_wait_on(struct fabric_link *link, int64_t now)
{
    enum { CHECK_MS = 1000 };
    if (link->state != FABRIC_CONNECTING || now > link->last_ns || !fabric_host_answers(link)) return false;
    link->deadline_ns = now + (int64_t)CHECK_MS * 1000000;
    return true;
}

void msg_check_deadlines(struct fabric *fabric)
{
    int64_t now = fabric->config.host->now_ns();
    struct fabric_link *link;
    STAILQ_FOREACH(link, &fabric->all_links, entry)
    {
        if (fabric_is_connecting(link) && now > link->deadline_ns && !may_wait_on(link, now))
            fabric_fail_connecting(link, now > link->last_ns ? "no answer within the group's timeout"
                                                             : "no answer within 15 s");
    }
    if (fabric->msg.rails_connecting > 0) msg_check_rails(fabric);
}
