/* Further connections of a link, over further interfaces (rails).  They carry pieces of large writes, and fences.
 *
 * The client of a link requests them once the link is up, unless the peer is on the same host.  The link does without a
 * connection that cannot be made.  If one that is up ends, the link is lost, because pieces may be lost with it.
 *
 * Fences: a message that must follow all writes waits until the pieces on other connections have arrived.  An empty
 * message on each of them, whose completion means delivery, follows the pieces.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tcp/net/msg.h"

static const char *name_of(const struct fabric_link *link, const struct msg_rail *rail)
{
    return link->fabric->rails.own[rail->index].name;
}

/* ---- states -------------------------------------------------------------------------------------------------- */

/* True if the connection has a deadline.  One that waits has failed. */
static bool is_timed(const struct msg_rail *rail)
{
    return rail->state == FABRIC_CONNECTING || rail->state == FABRIC_ACCEPTING || rail->state == FABRIC_WAITING;
}

static void set_state(struct fabric_link *link, struct msg_rail *rail, enum fabric_state state)
{
    struct fabric *fabric = link->fabric;
    fabric->msg.rails_connecting -= is_timed(rail);
    rail->state = (uint8_t)state;
    fabric->msg.rails_connecting += is_timed(rail);
    if (is_timed(rail)) fabric_watch(fabric);
    rail->deadline_ns = fabric->config.host->now_ns() + (int64_t)FABRIC_CONNECT_MS * 1000000;
}

/* Gives up a connection that was not made.  A server lets the client try again.  A client reports the failure only if
 * the link is still there after a while, because a peer that leaves refuses connections too. */
static void do_without(struct fabric_link *link, struct msg_rail *rail, const char *why)
{
    enum { REPORT_MS = 1000 };
    msg_close_endpoint(link, rail);
    set_state(link, rail, rail->state == FABRIC_ACCEPTING ? FABRIC_IDLE : FABRIC_WAITING);
    rail->deadline_ns = link->fabric->config.host->now_ns() + (int64_t)REPORT_MS * 1000000;
    rail->why = why;
}

static void report(struct fabric_link *link, struct msg_rail *rail)
{
    set_state(link, rail, FABRIC_LOST);
    TUTTI_LOG_AS(link->fabric->config.host, "net", 1,
                 "tcp: no connection to rank %d over %s (%s): %s; its messages do without it", link->rank,
                 name_of(link, rail), link->fabric->rails.own[rail->index].text, rail->why);
}

static void drop_link(struct fabric_link *link, const struct msg_rail *rail, const char *what)
{
    char why[96];
    snprintf(why, sizeof why, "%s over %s", what, name_of(link, rail));
    fabric_drop(link->fabric, link->rank, why, true);
}

void msg_end_rails(struct fabric_link *link)
{
    for (int i = 1; i < link->fabric->rails.n && link->msg.further != NULL; i++) {
        msg_close_endpoint(link, &link->msg.further[i - 1]);
        set_state(link, &link->msg.further[i - 1], FABRIC_LOST);
    }
}

struct msg_rail *msg_find_rail(struct fabric_link *link, const struct fid *fid)
{
    for (int i = 0; i < link->fabric->rails.n; i++) {
        struct msg_rail *rail = fabric_rail(link, i);
        if (rail != NULL && rail->ep != NULL && &rail->ep->fid == fid) return rail;
    }
    return NULL;
}

/* ---- opening ------------------------------------------------------------------------------------------------- */

int msg_describe_rails(struct fabric *fabric)
{
    const tutti_host *host = fabric->config.host;
    if (fabric->rails.n == 1) return TUTTI_OK;
    fabric->msg.peers = calloc((size_t)fabric->config.world_size, sizeof *fabric->msg.peers);
    if (fabric->msg.peers == NULL)
        return host->error(TUTTI_ERR_NO_MEMORY, "no memory for the addresses of %d ranks", fabric->config.world_size);
    for (int i = 1; i < fabric->rails.n; i++) {
        const struct iface *own = &fabric->rails.own[i];
        struct wire_address address = {.family = own->family};
        struct sockaddr_storage name;
        memcpy(address.ip, own->ip, sizeof address.ip);
        socklen_t bytes = fabric_to_sockaddr(&address, &name);
        struct fi_info *info = fabric->msg.info[i] = fabric_library.dupinfo(fabric->info);
        if (info == NULL) return fabric_fail(fabric, "fi_dupinfo", -FI_ENOMEM);
        if (info->src_addr == NULL || info->src_addrlen != bytes) return fabric_fail(fabric, "fi_getinfo", -FI_EINVAL);
        memcpy(info->src_addr, &name, bytes);
    }
    return TUTTI_OK;
}

void msg_free_rails(struct fabric *fabric)
{
    for (int i = 1; i < FABRIC_RAILS; i++)
        if (fabric->msg.info[i] != NULL) fabric_library.freeinfo(fabric->msg.info[i]);
    free(fabric->msg.peers);
}

/* Returns connection i, or NULL if out of memory. */
static struct msg_rail *make_rail(struct fabric_link *link, int i)
{
    int n = link->fabric->rails.n;
    if (link->msg.further == NULL) {
        link->msg.further = calloc((size_t)n - 1, sizeof *link->msg.further);
        for (int at = 1; at < n && link->msg.further != NULL; at++)
            fabric_init_rail(link, &link->msg.further[at - 1], at);
    }
    return fabric_rail(link, i);
}

/* ---- client -------------------------------------------------------------------------------------------------- */

/* rail->handshake.kind says which interface of the peer the request is for. */
static void request(struct fabric_link *link, struct msg_rail *rail)
{
    struct fabric *fabric = link->fabric;
    struct sockaddr_storage to;
    struct wire_address address = {.family = fabric->address.family, .port = rail->peer.port};
    uint8_t data[HANDSHAKE_BYTES];
    memcpy(address.ip, rail->peer.ip, sizeof address.ip);
    fabric_to_sockaddr(&address, &to);
    fabric->config.host->random(rail->handshake.client_nonce, HANDSHAKE_NONCE);
    peer_handshake_sign(fabric->config.host, &rail->handshake, data);
    set_state(link, rail, FABRIC_CONNECTING);
    int status = msg_make_endpoint(link, fabric->msg.info[rail->index], &rail->ep);
    if (status == 0) status = fi_connect(rail->ep, &to, data, sizeof data);
    if (status != 0) do_without(link, rail, fabric_reason(status));
}

/* Returns the peer's interface for this rank's interface `own`: one in the same network, or else the next one that is
 * not taken.  Returns -1 if there is none. */
static int choose_peer_rail(const struct wire_rails *peers, unsigned taken, const struct iface *own)
{
    int next = -1;
    for (int i = 0; i < (int)peers->n; i++) {
        if (taken & 1U << i) continue;
        if (iface_in_network(own, own->family, peers->at[i].ip, own->bits)) return i;
        if (next < 0) next = i;
    }
    return next;
}

static bool is_same_host(const struct wire_address *x, const struct wire_address *y)
{
    if (x->host != 0 && y->host != 0) return x->host == y->host;
    return x->family == y->family && memcmp(x->ip, y->ip, sizeof x->ip) == 0;
}

void msg_connect_rails(struct fabric_link *link)
{
    struct fabric *fabric = link->fabric;
    const struct wire_address *peer = &fabric->addresses[link->rank];
    if (fabric->rails.n == 1 || is_same_host(&fabric->address, peer) || peer->family != fabric->address.family) return;
    unsigned taken = 0;
    for (int i = 1; i < fabric->rails.n; i++) {
        int at = choose_peer_rail(&fabric->msg.peers[link->rank], taken, &fabric->rails.own[i]);
        struct msg_rail *rail = at >= 0 ? make_rail(link, i) : NULL;
        if (rail == NULL) return;
        taken |= 1U << at;
        rail->peer = fabric->msg.peers[link->rank].at[at];
        rail->handshake = link->handshake;
        rail->handshake.kind = (uint32_t)(HANDSHAKE_RAIL + at);
        request(link, rail);
    }
}

/* ---- server -------------------------------------------------------------------------------------------------- */

/* Returns the connection that an authentic request asks for, or NULL if it cannot be made (now). */
static struct msg_rail *find_requested(struct fabric *fabric, int i, const void *data, size_t n,
                                       struct peer_handshake *handshake)
{
    if (fabric->closing ||
        !fabric_verify_handshake(fabric, data, n, (enum peer_handshake_kind)(HANDSHAKE_RAIL + i - 1), handshake) ||
        !fabric_is_for_this_rank(fabric, handshake))
        return NULL;
    struct fabric_link *link = fabric->link[handshake->from];
    if (link == NULL || (link->state != FABRIC_UP && link->state != FABRIC_ACCEPTING)) return NULL;
    struct msg_rail *rail = make_rail(link, i);
    return rail != NULL && rail->state == FABRIC_IDLE ? rail : NULL;
}

void msg_accept_rail(struct fabric *fabric, int i, struct fi_info *info, const void *data, size_t n)
{
    struct peer_handshake handshake;
    uint8_t answer[HANDSHAKE_BYTES];
    struct msg_rail *rail = find_requested(fabric, i, data, n, &handshake);
    struct fabric_link *link = rail != NULL ? fabric->link[handshake.from] : NULL;
    if (rail == NULL || msg_make_endpoint(link, info, &rail->ep) != 0) {
        fi_reject(fabric->msg.pep[i], info->handle, NULL, 0);
        return;
    }
    handshake.kind = HANDSHAKE_ACCEPT;
    peer_handshake_sign(fabric->config.host, &handshake, answer);
    set_state(link, rail, FABRIC_ACCEPTING);
    int status = fi_accept(rail->ep, answer, sizeof answer);
    if (status != 0) do_without(link, rail, fabric_reason(status));
}

/* ---- events -------------------------------------------------------------------------------------------------- */

static void handle_connected(struct fabric_link *link, struct msg_rail *rail, const void *data, size_t n)
{
    struct peer_handshake handshake;
    if (rail->state == FABRIC_CONNECTING &&
        (!fabric_verify_handshake(link->fabric, data, n, HANDSHAKE_ACCEPT, &handshake) ||
         !fabric_is_answer(&rail->handshake, &handshake))) {
        do_without(link, rail, "the answer does not prove the job's token");
        return;
    }
    set_state(link, rail, FABRIC_UP);
    link->msg.up |= (uint8_t)(1 << rail->index);
    fabric_tune_rail(link, rail);
    fabric_limit_unsent(rail);
    fabric_limit_unsent(&link->msg.first);
    TUTTI_LOG_AS(link->fabric->config.host, "net", 3, "tcp: connected to rank %d over %s, too", link->rank,
                 name_of(link, rail));
}

/* Repeats a request that the peer's listener closed unread, as for the first connection. */
static void repeat_or_do_without(struct fabric_link *link, struct msg_rail *rail)
{
    enum { REPEATS_MAX = 5 };
    if (rail->state != FABRIC_CONNECTING || rail->repeats == REPEATS_MAX || link->fabric->closing) {
        do_without(link, rail, "connection closed during the handshake");
        return;
    }
    rail->repeats++;
    msg_close_endpoint(link, rail);
    request(link, rail);
}

void msg_handle_rail(struct fabric_link *link, struct msg_rail *rail, uint32_t kind, int error, const void *data,
                     size_t n)
{
    if (kind == FI_CONNECTED) {
        handle_connected(link, rail, data, n);
    } else if (rail->state == FABRIC_UP) {
        while (msg_read_completions(link->fabric) > 0) continue; /* deliver messages that arrived before the end */
        drop_link(link, rail, "connection closed");
    } else if (kind == FI_SHUTDOWN || msg_is_closed(error)) {
        repeat_or_do_without(link, rail);
    } else {
        do_without(link, rail, fabric_library.strerror(error));
    }
}

void msg_check_rails(struct fabric *fabric)
{
    int64_t now = fabric->config.host->now_ns();
    struct fabric_link *link;
    STAILQ_FOREACH(link, &fabric->all_links, entry)
    {
        for (int i = 1; i < fabric->rails.n && link->msg.further != NULL; i++) {
            struct msg_rail *rail = &link->msg.further[i - 1];
            if (!is_timed(rail) || now <= rail->deadline_ns) continue;
            if (rail->state == FABRIC_WAITING)
                report(link, rail);
            else
                do_without(link, rail, "no answer within 15 s");
        }
    }
}

/* ---- fences -------------------------------------------------------------------------------------------------- */

bool msg_fence(struct fabric_link *link)
{
    for (int i = 1; i < link->fabric->rails.n && link->msg.further != NULL; i++) {
        struct msg_rail *rail = &link->msg.further[i - 1];
        if (!rail->is_written) continue;
        struct fi_msg message = {.context = &rail->fence};
        if (fi_sendmsg(rail->ep, &message, FI_COMPLETION | FI_DELIVERY_COMPLETE) != 0) {
            drop_link(link, rail, "no memory for a fence");
            return true;
        }
        fabric_watch(link->fabric);
        rail->is_written = false;
        link->msg.fences++;
    }
    return link->msg.fences > 0;
}

void msg_end_fence(struct fabric_link *link)
{
    if (link->state == FABRIC_UP && --link->msg.fences == 0) msg_flush_waiting(link);
}
