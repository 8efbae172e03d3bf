/* Links: made when first needed, proved by a handshake in the connection's private data, watched until they end.
 *
 * A rank publishes its address together with a nonce.  Who connects sends a nonce of its own and an authentication
 * code over both, the ranks and the family under the job's token; the listener answers with a code over the same of
 * another kind.  So both prove that they hold the token, for this listener and this connection alone.  A request that
 * fails is dropped without a word.  A rank's link is made once: a repeated request finds it made and is dropped too.
 *
 * Where two ranks connect to each other at the same time, the request of the lower rank counts. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fabric_impl.h"

struct event {
    struct fi_eq_cm_entry entry;
    uint8_t data[256];
};

/* ---- handshake --------------------------------------------------------------------------------------------- */

static void sign(const struct fabric *fabric, struct wire_greeting *greeting, uint8_t out[WIRE_GREETING])
{
    wire_greeting_encode(out, greeting);
    fabric->config.host->token_mac(greeting->mac, out, WIRE_GREETING_SIGNED);
    wire_greeting_encode(out, greeting);
}

/* Is this a greeting of this kind, between these two of this family, by someone who knows the token? */
static bool verify(const struct fabric *fabric, const void *data, size_t n, enum wire_greeting_kind kind,
                   struct wire_greeting *greeting)
{
    uint8_t mac[WIRE_MAC];
    if (!wire_greeting_parse(data, n, greeting) || greeting->kind != kind) return false;
    if (greeting->world_size != (uint32_t)fabric->config.world_size || greeting->family != fabric->config.family)
        return false;
    fabric->config.host->token_mac(mac, data, WIRE_GREETING_SIGNED);
    return fabric->config.host->token_equal(mac, greeting->mac);
}

/* The answer to what we asked on this link. */
static bool is_answer(const struct fabric_link *link, const struct wire_greeting *greeting)
{
    const struct wire_greeting *asked = &link->greeting;
    return greeting->from == asked->from && greeting->to == asked->to &&
           memcmp(greeting->client_nonce, asked->client_nonce, WIRE_NONCE) == 0 &&
           memcmp(greeting->server_nonce, asked->server_nonce, WIRE_NONCE) == 0;
}

/* ---- states ------------------------------------------------------------------------------------------------ */

static bool is_on_its_way(const struct fabric_link *link)
{
    return link->state == FABRIC_CONNECTING || link->state == FABRIC_WAITING || link->state == FABRIC_ACCEPTING;
}

static void set_state(struct fabric_link *link, enum fabric_state state)
{
    link->fabric->connecting -= is_on_its_way(link);
    link->state = (uint8_t)state;
    link->fabric->connecting += is_on_its_way(link);
    if (is_on_its_way(link))
        link->deadline_ns = link->fabric->config.host->now_ns() + (int64_t)FABRIC_CONNECT_MS * 1000000;
}

static void close_endpoint(struct fabric_link *link)
{
    if (link->ep == NULL) return;
    if (link->state == FABRIC_UP) fi_shutdown(link->ep, 0);
    fi_close(&link->ep->fid);
    link->ep = NULL;
}

void fabric_drop(struct fabric *fabric, int32_t rank, const char *why, bool notify)
{
    struct fabric_link *link = &fabric->link[rank];
    if (link->state == FABRIC_LOST) return;
    close_endpoint(link);
    set_state(link, FABRIC_LOST);
    snprintf(link->why, sizeof link->why, "%s", why);
    link->first_write = link->last_write = NULL;
    for (int i = 0; i < FABRIC_CHUNKS; i++) link->chunk[i].write = NULL;
    if (notify && !fabric->closing) fabric->config.events->lost(fabric->config.user, rank, link->why);
}

static int make_endpoint(struct fabric_link *link, struct fi_info *info, struct fid_ep **out)
{
    struct fabric *fabric = link->fabric;
    struct fid_ep *ep = NULL;
    int status = fi_endpoint(fabric->domain, info, &ep, link);
    if (status != 0) return status;
    if ((status = fi_ep_bind(ep, &fabric->eq->fid, 0)) == 0 &&
        (status = fi_ep_bind(ep, &fabric->cq->fid, FI_TRANSMIT | FI_SELECTIVE_COMPLETION)) == 0 &&
        (status = fi_ep_bind(ep, &fabric->cq->fid, FI_RECV)) == 0 &&
        (status = fi_ep_bind(ep, &fabric->srx->fid, 0)) == 0 && (status = fi_enable(ep)) == 0) {
        *out = ep;
        return 0;
    }
    fi_close(&ep->fid);
    return status;
}

/* ---- asking ------------------------------------------------------------------------------------------------ */

int fabric_look_up(struct fabric_link *link)
{
    struct fabric *fabric = link->fabric;
    char key[32];
    uint8_t entry[WIRE_ADDRESS];
    size_t bytes = 0;
    /* The key is there since the peer opened its group; a store that does not answer must not hold us for long. */
    int64_t limit = fabric->config.timeout_ms < 10000 ? fabric->config.timeout_ms : 10000;
    snprintf(key, sizeof key, "tcp/%d", link->rank);
    int status = fabric->config.host->store_get(fabric->config.store, key, entry, sizeof entry, &bytes, limit);
    if (status != TUTTI_OK) return status;
    if (!wire_address_parse(entry, bytes, &link->address))
        return fabric->config.host->error(TUTTI_ERR_STORE,
                                          "the store's entry %s is no address of this version of Tutti: do all ranks "
                                          "run the same?",
                                          key);
    fabric_print_address(&link->address, link->where, sizeof link->where);
    return TUTTI_OK;
}

static void to_sockaddr(const struct wire_address *address, struct sockaddr_storage *out)
{
    memset(out, 0, sizeof *out);
    if (address->family == 4) {
        struct sockaddr_in *in = (void *)out;
        in->sin_family = AF_INET;
        in->sin_port = htons(address->port);
        memcpy(&in->sin_addr, address->ip, 4);
    } else {
        struct sockaddr_in6 *in = (void *)out;
        in->sin6_family = AF_INET6;
        in->sin6_port = htons(address->port);
        memcpy(&in->sin6_addr, address->ip, 16);
    }
}

static void lose_connecting(struct fabric_link *link, const char *what)
{
    char why[160];
    snprintf(why, sizeof why, "%s at %s", what, link->where);
    fabric_drop(link->fabric, link->rank, why, true);
}

static int ask(struct fabric_link *link)
{
    struct fabric *fabric = link->fabric;
    struct sockaddr_storage to;
    uint8_t data[WIRE_GREETING];
    int status = fabric_look_up(link);
    if (status != TUTTI_OK) return status;
    status = make_endpoint(link, fabric->info, &link->ep);
    if (status != 0)
        return fabric->config.host->error(TUTTI_ERR_SYSTEM, "no endpoint for rank %d: %s", link->rank,
                                          fabric_library.strerror(-status));
    link->greeting = (struct wire_greeting){.kind = WIRE_CONNECT,
                                            .from = (uint32_t)fabric->config.rank,
                                            .to = (uint32_t)link->rank,
                                            .world_size = (uint32_t)fabric->config.world_size,
                                            .family = fabric->config.family};
    fabric->config.host->random(link->greeting.client_nonce, WIRE_NONCE);
    memcpy(link->greeting.server_nonce, link->address.nonce, WIRE_NONCE);
    sign(fabric, &link->greeting, data);
    to_sockaddr(&link->address, &to);
    set_state(link, FABRIC_CONNECTING);
    status = fi_connect(link->ep, &to, data, sizeof data);
    if (status != 0) lose_connecting(link, fabric_library.strerror(-status));
    return TUTTI_OK;
}

int fabric_connect(struct fabric *fabric, int32_t rank)
{
    struct fabric_link *link = &fabric->link[rank];
    if (link->state == FABRIC_IDLE) {
        int status = ask(link);
        if (status != TUTTI_OK) return status;
    }
    if (link->state != FABRIC_LOST) return TUTTI_OK;
    return fabric->config.host->error(TUTTI_ERR_PEER_LOST, "rank %d is lost: %s", rank, link->why);
}

/* ---- being asked ------------------------------------------------------------------------------------------- */

int fabric_listen(struct fabric *fabric)
{
    const tutti_host *host = fabric->config.host;
    struct sockaddr_storage own;
    size_t bytes = sizeof own;
    memset(&own, 0, sizeof own);
    int status = fi_passive_ep(fabric->fabric, fabric->info, &fabric->pep, NULL);
    if (status == 0) status = fi_pep_bind(fabric->pep, &fabric->eq->fid, 0);
    if (status == 0) status = fi_listen(fabric->pep);
    if (status == 0) status = fi_getname(&fabric->pep->fid, &own, &bytes);
    if (status != 0)
        return host->error(TUTTI_ERR_SYSTEM, "cannot listen: %s (TUTTI_IFACE chooses the interface)",
                           fabric_library.strerror(-status));
    if (own.ss_family == AF_INET) {
        const struct sockaddr_in *in = (const void *)&own;
        fabric->address = (struct wire_address){.family = 4, .port = ntohs(in->sin_port)};
        memcpy(fabric->address.ip, &in->sin_addr, 4);
    } else {
        const struct sockaddr_in6 *in = (const void *)&own;
        fabric->address = (struct wire_address){.family = 6, .port = ntohs(in->sin6_port)};
        memcpy(fabric->address.ip, &in->sin6_addr, 16);
    }
    host->random(fabric->address.nonce, WIRE_NONCE);
    fabric_tune_listener(fabric);
    return TUTTI_OK;
}

static bool is_for_us(const struct fabric *fabric, const struct wire_greeting *greeting)
{
    return greeting->to == (uint32_t)fabric->config.rank &&
           memcmp(greeting->server_nonce, fabric->address.nonce, WIRE_NONCE) == 0;
}

static void accept_request(struct fabric_link *link, struct fi_info *info, struct wire_greeting *greeting)
{
    struct fabric *fabric = link->fabric;
    uint8_t data[WIRE_GREETING];
    close_endpoint(link); /* our own request, if it crossed this one */
    int status = make_endpoint(link, info, &link->ep);
    if (status != 0) {
        fi_reject(fabric->pep, info->handle, NULL, 0);
        fabric->config.host->log(1, "tcp: rank %d cannot be accepted: %s", link->rank,
                                 fabric_library.strerror(-status));
        return;
    }
    struct wire_address from = {.family = fabric->address.family};
    if (info->dest_addr != NULL && from.family == 4) {
        memcpy(from.ip, &((struct sockaddr_in *)info->dest_addr)->sin_addr, 4);
        from.port = ntohs(((struct sockaddr_in *)info->dest_addr)->sin_port);
    } else if (info->dest_addr != NULL) {
        memcpy(from.ip, &((struct sockaddr_in6 *)info->dest_addr)->sin6_addr, 16);
        from.port = ntohs(((struct sockaddr_in6 *)info->dest_addr)->sin6_port);
    }
    fabric_print_address(&from, link->where, sizeof link->where);
    greeting->kind = WIRE_ACCEPT;
    sign(fabric, greeting, data);
    set_state(link, FABRIC_ACCEPTING);
    status = fi_accept(link->ep, data, sizeof data);
    if (status != 0) lose_connecting(link, fabric_library.strerror(-status));
}

static void handle_request(struct fabric *fabric, struct fi_info *info, const void *data, size_t n)
{
    struct wire_greeting greeting;
    if (fabric->closing || !verify(fabric, data, n, WIRE_CONNECT, &greeting) || !is_for_us(fabric, &greeting)) {
        fabric->config.host->log(3, "tcp: dropped a connection that did not prove the job's token");
        fi_reject(fabric->pep, info->handle, NULL, 0);
        return;
    }
    struct fabric_link *link = &fabric->link[greeting.from];
    bool first = link->state == FABRIC_IDLE || link->state == FABRIC_WAITING;
    bool crossed = link->state == FABRIC_CONNECTING;
    if (first || (crossed && link->rank < fabric->config.rank)) {
        accept_request(link, info, &greeting);
    } else if (crossed) {
        uint8_t answer[WIRE_GREETING];
        greeting.kind = WIRE_BUSY;
        sign(fabric, &greeting, answer);
        fi_reject(fabric->pep, info->handle, answer, sizeof answer);
    } else {
        fi_reject(fabric->pep, info->handle, NULL, 0);
    }
}

/* ---- events ------------------------------------------------------------------------------------------------ */

static void handle_connected(struct fabric_link *link, const void *data, size_t n)
{
    struct wire_greeting greeting;
    if (link->state == FABRIC_CONNECTING &&
        (!verify(link->fabric, data, n, WIRE_ACCEPT, &greeting) || !is_answer(link, &greeting))) {
        lose_connecting(link, "something that does not know the job's token answers");
        return;
    }
    set_state(link, FABRIC_UP);
    fabric_tune_link(link);
    fabric_flush_waiting(link);
}

static void handle_failure(struct fabric_link *link, int error, const void *data, size_t n)
{
    struct wire_greeting greeting;
    if (link->state == FABRIC_CONNECTING && error == FI_ECONNREFUSED &&
        verify(link->fabric, data, n, WIRE_BUSY, &greeting) && is_answer(link, &greeting)) {
        close_endpoint(link);
        set_state(link, FABRIC_WAITING);
        return;
    }
    if (error == FI_ECONNREFUSED)
        lose_connecting(link, "connection refused (it is gone, or its job token differs)");
    else
        lose_connecting(link, fabric_library.strerror(error));
}

static void read_failure(struct fabric *fabric)
{
    uint8_t data[256];
    struct fi_eq_err_entry error = {.err_data = data, .err_data_size = sizeof data};
    if (fi_eq_readerr(fabric->eq, &error, 0) < 0 || error.fid == NULL || error.fid->fclass != FI_CLASS_EP) return;
    struct fabric_link *link = error.fid->context;
    if (link->ep != NULL && &link->ep->fid == error.fid)
        handle_failure(link, error.err < 0 ? -error.err : error.err, error.err_data,
                       error.err_data != NULL ? error.err_data_size : 0);
}

int fabric_handle_events(struct fabric *fabric)
{
    int handled = 0;
    fabric_end_strangers(fabric, fabric->closing);
    for (;;) {
        struct event event;
        uint32_t kind = 0;
        errno = 0; /* the provider takes an old EAGAIN for its own, and then keeps a closed connection for ever */
        ssize_t n = fi_eq_read(fabric->eq, &kind, &event, sizeof event, 0);
        if (n == -FI_EAVAIL) {
            read_failure(fabric);
            handled++;
            continue;
        }
        if (n < (ssize_t)sizeof event.entry) return handled;
        handled++;
        size_t bytes = (size_t)n - sizeof event.entry;
        if (kind == FI_CONNREQ) {
            handle_request(fabric, event.entry.info, event.data, bytes);
            fabric_library.freeinfo(event.entry.info);
            continue;
        }
        struct fabric_link *link = event.entry.fid->context;
        if (link == NULL || link->ep == NULL || &link->ep->fid != event.entry.fid) continue;
        if (kind == FI_CONNECTED) handle_connected(link, event.data, bytes);
        if (kind != FI_SHUTDOWN) continue;
        if (link->state == FABRIC_UP) {
            while (fabric_drain(fabric) > 0) continue; /* what came before the end counts */
            fabric_drop(fabric, link->rank, "connection closed", true);
        } else {
            lose_connecting(link, "connection closed during the handshake");
        }
    }
}

void fabric_check_deadlines(struct fabric *fabric)
{
    int64_t now = fabric->config.host->now_ns();
    for (int32_t rank = 0; rank < fabric->config.world_size; rank++) {
        struct fabric_link *link = &fabric->link[rank];
        if (is_on_its_way(link) && now > link->deadline_ns) lose_connecting(link, "no answer within 15 s");
    }
}
