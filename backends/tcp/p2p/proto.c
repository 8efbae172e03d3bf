/* Opens the protocol, drives it, and ends it with a goodbye to every peer. */
#include "tcp/p2p/proto.h"

#include <stdlib.h>
#include <unistd.h>

int proto_open(struct proto *proto, const struct proto_config *config)
{
    const tutti_host *host = config->host;
    *proto = (struct proto){.host = host, .rank = config->rank, .world_size = config->world_size, .core = config->core};
    TAILQ_INIT(&proto->reading);
    TAILQ_INIT(&proto->delayed);
    TAILQ_INIT(&proto->revoked);
    LIST_INIT(&proto->groups);
    proto->peer = calloc((size_t)config->world_size, sizeof *proto->peer);
    if (proto->peer == NULL || !tutti_match_reserve(&proto->messages, malloc, free) ||
        !tutti_match_reserve(&proto->grants, malloc, free))
        return host->error(TUTTI_ERR_NO_MEMORY, "no memory for a group of %d ranks", config->world_size);
    return TUTTI_OK;
}

bool proto_add_transport(struct proto *proto, struct transport *transport)
{
    bool reaches_all = true;
    proto->transport[proto->n_transports++] = transport;
    for (int32_t rank = 0; rank < proto->world_size; rank++) {
        struct proto_peer *peer = &proto->peer[rank];
        if (peer->transport == NULL && transport->ops->reaches(transport, rank)) peer->transport = transport;
        reaches_all &= peer->transport != NULL;
    }
    return reaches_all;
}

/* ---- ending -------------------------------------------------------------------------------------------------- */

/* Says goodbye to a peer.  Returns true once nothing more will pass between this rank and the peer. */
static bool say_goodbye_to(struct proto *proto, int32_t rank)
{
    struct proto_peer *peer = &proto->peer[rank];
    struct transport *transport = peer->transport;
    if (transport == NULL) return true; /* the peer's transport could not be opened */
    if (!transport->ops->is_up(transport, rank)) return transport->ops->is_flushed(transport, rank);
    if (!peer->said_bye) {
        struct transport_header header = {.kind = KIND_BYE, .after_writes = true};
        proto_transmit(proto, rank, &header, NULL, 0);
        peer->said_bye = true;
    }
    return (peer->left || transport->delivers_late) && transport->ops->is_flushed(transport, rank);
}

/* Says goodbye to all peers, then waits until all data have left and the peers have said goodbye too.  The wait is
 * needed because data that arrive at a closed socket reset the connection, and the peer would lose unread data. */
static void say_goodbye(struct proto *proto, int64_t limit_ms)
{
    enum { NAP_US = 50, NAPS_MAX = 10 };
    int64_t end_ns = proto->host->now_ns() + limit_ms * 1000000;
    int naps = 1;
    for (int32_t peer = 0; peer < proto->world_size;) {
        if (peer == proto->rank || say_goodbye_to(proto, peer)) {
            peer++;
            continue;
        }
        if (proto->host->now_ns() > end_ns) break;
        if (proto_progress(proto) == 0) {
            usleep((useconds_t)(naps * NAP_US));
            if (naps < NAPS_MAX) naps++;
        } else {
            naps = 1;
        }
    }
}

/* True if the peer may lack data of completed sends.  Its credit proves that it has the eager messages.  Only its
 * goodbye proves that it has the writes. */
static bool may_lack_data(const struct proto *proto, int32_t peer)
{
    const struct proto_peer *state = &proto->peer[peer];
    return state->was_written || state->eager_sent != state->eager_credited;
}

int32_t proto_drain(struct proto *proto)
{
    int32_t found = -1;
    if (proto->n_transports == 0) return -1;
    proto->closing = true;
    for (int32_t peer = 0; peer < proto->world_size; peer++) {
        if (peer == proto->rank) continue;
        bool is_done = say_goodbye_to(proto, peer);
        if (found < 0 && !is_done && may_lack_data(proto, peer)) found = peer;
    }
    return found;
}

void proto_leave(struct proto *proto)
{
    enum { LIMIT_MS = 300 };
    if (proto->n_transports == 0) return;
    proto->closing = true;
    say_goodbye(proto, LIMIT_MS);
}

static void drop_links(struct proto *proto)
{
    for (int32_t rank = 0; rank < proto->world_size; rank++) {
        struct transport *transport = proto->peer[rank].transport;
        if (transport != NULL) transport->ops->drop(transport, rank, "closed", false);
    }
}

void proto_close(struct proto *proto)
{
    enum { LIMIT_MS = 900 };
    proto->closing = true;
    if (proto->n_transports > 0) {
        say_goodbye(proto, LIMIT_MS);
        drop_links(proto);
    }
    proto_free_ops(proto);
    for (int i = proto->n_transports; i-- > 0;) proto->transport[i]->ops->close(proto->transport[i]);
    proto_free_closed(proto);
    tutti_match_release(&proto->messages, free);
    tutti_match_release(&proto->grants, free);
    spares_free(&proto->arrivals);
    free(proto->peer);
    *proto = (struct proto){0};
}

/* ---- progress ------------------------------------------------------------------------------------------------ */

static bool is_overdue(const struct proto *proto, const struct proto_op *op, int64_t now_ns)
{
    int64_t silent_ns = proto->peer[op->peer].silent_ns, ms = (now_ns - op->start_ns) / 1000000;
    if (ms < PROTO_REVOKE_MS) return false;
    return ms >= PROTO_REVOKE_MAX_MS || (silent_ns != 0 && (now_ns - silent_ns) / 1000000 >= PROTO_SILENT_MS);
}

/* Sends the RTS of expected sends that got no CTS.  If the receive differs, the RTS reveals it. */
static void send_delayed(struct proto *proto, int64_t now_ns)
{
    struct proto_op *op;
    const int64_t delay_ns = (int64_t)PROTO_RTS_DELAY_MS * 1000000;
    while ((op = TAILQ_FIRST(&proto->delayed)) != NULL && now_ns - op->start_ns > delay_ns) {
        TAILQ_REMOVE(&proto->delayed, op, timed);
        op->is_timed = false;
        proto_send_rts(proto, op);
    }
}

static void end_overdue(struct proto *proto, int64_t now_ns)
{
    struct proto_op *op;
    while ((op = TAILQ_FIRST(&proto->revoked)) != NULL && is_overdue(proto, op, now_ns)) {
        proto_drop(proto, op->peer, "it did not return the memory that an operation had exposed to it");
        if (TAILQ_FIRST(&proto->revoked) == op) /* not ended by the drop: the link is already lost, or is closing */
            proto_finish(proto, op->request, proto_fail_lost(proto, op->peer));
    }
}

int proto_progress(struct proto *proto)
{
    int moved = 0;
    proto->moved = 0;
    for (int i = 0; i < proto->n_transports; i++) moved += proto->transport[i]->ops->progress(proto->transport[i]);
    moved += proto_continue_reads(proto);
    if (!TAILQ_EMPTY(&proto->delayed) || !TAILQ_EMPTY(&proto->revoked)) {
        int64_t now_ns = proto->host->now_ns();
        send_delayed(proto, now_ns);
        end_overdue(proto, now_ns);
    }
    return moved + proto->moved;
}

int proto_arm(struct proto *proto, int *descriptors)
{
    int n = 0;
    if (!TAILQ_EMPTY(&proto->reading)) return 0;
    for (int i = 0; i < proto->n_transports; i++) {
        int added = proto->transport[i]->ops->arm(proto->transport[i], descriptors + n);
        if (added <= 0) return added;
        n += added;
    }
    return n;
}

int proto_describe(const struct proto *proto, char *text, size_t capacity)
{
    size_t used = 0;
    for (int i = 0; i < proto->n_transports && used < capacity; i++) {
        int n = proto->transport[i]->ops->describe(proto->transport[i], text + used, capacity - used);
        if (n > 0) used += (size_t)n;
    }
    return TUTTI_OK;
}
