/* Posts receives and probes. */
#include <stdlib.h>

#include "tcp/p2p/proto.h"

/* ---- answers to an RTS --------------------------------------------------------------------------------------- */

/* Exposes the memory of an operation and sends its CTS, which answers the RTS ref, or none (0). */
static int send_cts(struct proto *proto, struct proto_op *op, uint64_t ref)
{
    struct transport *transport = proto->peer[op->peer].transport;
    op->memory = (struct transport_memory){.request = op->request, .key = op->id, .parts = 1};
    int status = transport->ops->expose(transport, op->peer, &op->memory);
    if (status != TUTTI_OK) return status;
    op->peer_id = ref;
    struct transport_header header = proto_header(op, KIND_CTS);
    header.ref = ref;
    header.flags = (uint8_t)(op->memory.parts - 1);
    return proto_transmit(proto, op->peer, &header, NULL, 0);
}

/* Exposes a receive's memory to the peer, whose RTS ref this answers, or none (0).  Returns PENDING or an error. */
static int expose_receive(struct proto_group *group, tutti_request *request, int32_t peer, uint64_t ref)
{
    struct proto *proto = group->proto;
    struct proto_op *op = proto_op_new(group, request, peer, PROTO_RECV_EXPOSED);
    int status = op != NULL ? send_cts(proto, op, ref) : TUTTI_ERR_NO_MEMORY;
    bool has_ended = proto_pending(request)->op != op; /* the link was dropped, for lack of memory */
    if (status == TUTTI_OK || has_ended) return TUTTI_REQUEST_PENDING;
    proto_withdraw(proto, request);
    return status;
}

/* True if the receiver reads the message.  If it is offered, it can wait for the writer instead. */
static bool reads(const struct proto *proto, const tutti_request *request, const struct transport_header *rts)
{
    struct transport *transport = proto->peer[rts->source].transport;
    if (rts->kind != KIND_RTS_READ) return false;
    bool can_wait = (rts->flags & KIND_OFFER) != 0 && (request->flags & TUTTI_REQUEST_NOW) == 0;
    return !can_wait || transport->ops->reads(transport, (int32_t)rts->source, request);
}

int proto_answer_rts(struct proto_group *group, tutti_request *request, const struct transport_header *rts, bool now)
{
    struct proto *proto = group->proto;
    int32_t peer = (int32_t)rts->source;
    if (!proto_settle(request, rts)) {
        proto_send_nack(proto, peer, KIND_NACK_SEND, rts->id, request);
        return proto_fail_mismatch(proto, request, rts);
    }
    bool is_read = reads(proto, request, rts);
    if (is_read && now && rts->bytes <= PROTO_READ_TURN && TAILQ_EMPTY(&proto->reading))
        return proto_read_now(proto, request, peer, rts);
    int status = is_read ? proto_start_read(group, request, rts) : expose_receive(group, request, peer, rts->id);
    if (status != TUTTI_REQUEST_PENDING) proto_reject(proto, rts);
    return status;
}

/* ---- messages that arrived early ------------------------------------------------------------------------------ */

static int receive_arrived(struct proto_group *group, tutti_request *request, struct proto_arrival *arrival)
{
    struct proto *proto = group->proto;
    struct transport_header header = arrival->header;
    request->source = proto_source(group, request, arrival->match.key.source);
    tutti_match_take(&proto->messages, &arrival->match);
    if (header.kind != KIND_EAGER) {
        proto_free_arrival(proto, arrival);
        return proto_answer_rts(group, request, &header, (request->flags & TUTTI_REQUEST_AWAITED) != 0);
    }
    int status = proto_take_eager(proto, request, &header, arrival->payload);
    proto_free_arrival(proto, arrival);
    return status == TUTTI_OK ? TUTTI_REQUEST_DONE : status;
}

/* Does find_arrived's work if there are any messages. */
__attribute__((noinline)) static struct proto_arrival *search_arrived(const struct proto_group *group,
                                                                      const tutti_request *request, int32_t peer)
{
    tutti_matcher *messages = &group->proto->messages;
    tutti_match_key key = tutti_match_receive_key(request, group->id, peer);
    tutti_match_message *message;
    while ((message = tutti_match_find_message(messages, &key)) != NULL && peer == TUTTI_ANY_SOURCE &&
           proto_group_rank(group, message->key.source) < 0) {
        tutti_match_take(messages, message);
        proto_free_arrival(group->proto, (struct proto_arrival *)(void *)message); /* its first member */
    }
    return (struct proto_arrival *)(void *)message;
}

/* Returns the oldest message that the receive takes, or NULL.  Discards messages from ranks outside the group, because
 * no receive will ever take them. */
static struct proto_arrival *find_arrived(const struct proto_group *group, const tutti_request *request, int32_t peer)
{
    return group->proto->messages.n_messages > 0 ? search_arrived(group, request, peer) : NULL;
}

/* ---- posting ------------------------------------------------------------------------------------------------- */

/* Returns the transport that can be polled for messages of the peer, or NULL. */
static struct transport *find_polled(const struct proto *proto, int32_t peer)
{
    struct transport *transport = peer == TUTTI_ANY_SOURCE ? proto->transport[0] : proto->peer[peer].transport;
    return transport->ops->poll != NULL ? transport : NULL;
}

/* Polls for the message.  Returns PENDING if it does not arrive, and then has changed nothing. */
static int poll_message(struct proto_group *group, tutti_request *request, int32_t peer)
{
    struct proto *proto = group->proto;
    struct transport *transport = find_polled(proto, peer);
    proto->polled = (struct proto_polled){.request = request, .group = group, .peer = peer};
    bool waits = (request->flags & TUTTI_REQUEST_AT_ONCE) == 0;
    int most = waits ? PROTO_POLLS : 1;
    for (int i = 0; i < most && proto->polled.request != NULL && !proto->polled.has_rts; i++)
        if (!transport->ops->poll(transport, peer, waits)) break;
    bool came = proto->polled.request == NULL;
    proto->polled.request = NULL;
    if (!came) return TUTTI_REQUEST_PENDING;
    return proto->polled.status == TUTTI_OK ? TUTTI_REQUEST_DONE : proto->polled.status;
}

/* True if a receive exposes its memory before its RTS has arrived. */
static bool exposes_early(const struct proto *proto, const tutti_request *request, int32_t peer)
{
    return (request->flags & TUTTI_REQUEST_EXPECTED) && request->bytes > TRANSPORT_PAYLOAD_MAX &&
           peer != TUTTI_ANY_SOURCE && proto->peer[peer].transport->early_cts;
}

/* Posts a receive or probe in the matcher. */
static void post(struct proto_group *group, tutti_request *request, int32_t peer)
{
    tutti_match_key key = tutti_match_receive_key(request, group->id, peer);
    proto_post(group, &group->proto->messages, request, key);
}

/* Connects first, so that the peer's loss is noticed. */
static int connect_source(struct proto *proto, int32_t peer)
{
    return peer == TUTTI_ANY_SOURCE ? TUTTI_OK : proto_connect(proto, peer);
}

static int post_receive(struct proto_group *group, tutti_request *request, int32_t peer)
{
    int status = connect_source(group->proto, peer);
    if (status != TUTTI_OK) return status;
    post(group, request, peer);
    return exposes_early(group->proto, request, peer) ? expose_receive(group, request, peer, 0) : TUTTI_REQUEST_PENDING;
}

/* Describes a message that has arrived, or posts a probe that waits for one. */
static int probe(struct proto_group *group, tutti_request *request, int32_t peer, const struct proto_arrival *arrival)
{
    if (arrival != NULL) {
        const struct transport_header *header = &arrival->header;
        request->source = proto_source(group, request, arrival->match.key.source);
        tutti_request_settle(request, header->tag, header->bytes, header->fingerprint);
        return TUTTI_REQUEST_DONE;
    }
    int status = connect_source(group->proto, peer);
    if (status != TUTTI_OK) return status;
    post(group, request, peer);
    return TUTTI_REQUEST_PENDING;
}

/* True if the receive may poll.  An earlier posted receive may take the same message, so there must be none.  Messages
 * of other transports come only with progress, for which a receive from any source must be left pending. */
static bool may_poll(struct proto *proto, const tutti_request *request, int32_t peer)
{
    if ((request->flags & (TUTTI_REQUEST_AWAITED | TUTTI_REQUEST_AT_ONCE)) == 0) return false;
    if ((request->flags & TUTTI_REQUEST_ANY_TAG) != 0 || proto->messages.n_receives > 0) return false;
    if (peer == TUTTI_ANY_SOURCE && ++proto->polls_for_any % PROTO_ANY_TURN == 0) return false;
    return find_polled(proto, peer) != NULL;
}

/* Does proto_recv's work for all receives and probes. */
static __attribute__((noinline)) int receive(struct proto_group *group, tutti_request *request)
{
    int32_t peer = request->peer == TUTTI_ANY_SOURCE ? TUTTI_ANY_SOURCE : group->global_ranks[request->peer];
    struct proto_arrival *arrival = find_arrived(group, request, peer);
    if (request->flags & TUTTI_REQUEST_PEEK) return probe(group, request, peer, arrival);
    if (arrival == NULL && may_poll(group->proto, request, peer)) {
        int status = poll_message(group, request, peer);
        if (status != TUTTI_REQUEST_PENDING) return status;
        arrival = find_arrived(group, request, peer);
    }
    bool at_once = (request->flags & TUTTI_REQUEST_AT_ONCE) != 0;
    if (at_once && (arrival == NULL || arrival->header.kind != KIND_EAGER)) return TUTTI_REQUEST_ABSENT;
    return arrival != NULL ? receive_arrived(group, request, arrival) : post_receive(group, request, peer);
}

/* Posts a plain receive from a connected peer at once if no messages have arrived, because nearly all asynchronous
 * receives are of this kind. */
int proto_recv(struct proto_group *group, tutti_request *request)
{
    enum {
        SPECIAL = TUTTI_REQUEST_EXPECTED | TUTTI_REQUEST_AWAITED | TUTTI_REQUEST_ANY_TAG | TUTTI_REQUEST_PEEK |
                  TUTTI_REQUEST_AT_ONCE
    };
    struct proto *proto = group->proto;
    if (proto->messages.n_messages > 0 || (request->flags & SPECIAL) != 0 || request->peer == TUTTI_ANY_SOURCE)
        return receive(group, request);
    int32_t peer = group->global_ranks[request->peer];
    if (!proto->peer[peer].is_connected) return receive(group, request);
    proto_post(group, &proto->messages, request, tutti_match_message_key(group->id, peer, request->tag));
    return TUTTI_REQUEST_PENDING;
}
