/* Posts receives and probes. */
#include <stdlib.h>

#include "tcp/p2p/proto.h"

int proto_send_cts(struct proto *proto, struct proto_op *op, uint64_t ref)
{
    struct transport *transport = proto->peer[op->peer].transport;
    op->memory = (struct transport_memory){.request = op->request, .key = op->id, .parts = 1};
    int status = transport->ops->expose(transport, op->peer, &op->memory);
    if (status != TUTTI_OK) return status;
    op->state = PROTO_RECV_EXPOSED;
    op->peer_id = ref;
    struct transport_header header = proto_header(op, KIND_CTS);
    header.ref = ref;
    header.flags = (uint8_t)(op->memory.parts - 1);
    return proto_transmit(proto, op->peer, &header, NULL, 0);
}

void proto_return_credit(struct proto *proto, int32_t peer, uint64_t bytes)
{
    struct proto_peer *state = &proto->peer[peer];
    state->eager_matched += bytes + PROTO_EAGER_COST;
    if (state->eager_matched - state->credit_sent < PROTO_CREDIT / 4) return;
    struct transport_header header = {.kind = KIND_CREDIT};
    proto_transmit(proto, peer, &header, NULL, 0);
}

/* ---- messages that arrived early ------------------------------------------------------------------------------ */

static int take_eager(struct proto *proto, tutti_request *request, const struct proto_arrival *arrival)
{
    const struct transport_header *header = &arrival->header;
    int32_t peer = (int32_t)header->source;
    bool agrees = proto_agrees(request, header);
    if (agrees) {
        tutti_request_settle(request, header->tag, header->bytes, header->fingerprint);
        tutti_request_take(proto->host, request, 0, arrival->payload, header->bytes);
    }
    proto_return_credit(proto, peer, header->bytes);
    return agrees ? TUTTI_REQUEST_DONE : proto_fail_mismatch(proto, request, header);
}

/* Answers an RTS that arrived before its receive was posted. */
static int answer_rts(struct proto_group *group, tutti_request *request, const struct transport_header *rts)
{
    struct proto *proto = group->proto;
    int32_t peer = (int32_t)rts->source;
    if (!proto_agrees(request, rts)) {
        proto_send_nack(proto, peer, KIND_NACK_SEND, rts->id, request);
        return proto_fail_mismatch(proto, request, rts);
    }
    tutti_request_settle(request, rts->tag, rts->bytes, rts->fingerprint);
    bool now =
        (request->flags & TUTTI_REQUEST_AWAITED) && rts->bytes <= PROTO_READ_TURN && TAILQ_EMPTY(&proto->reading);
    if (rts->kind == KIND_RTS_READ && now) return proto_read_now(proto, request, peer, rts);
    struct proto_op *op = proto_op_new(group, request, peer, PROTO_RECV_POSTED);
    if (op == NULL) return TUTTI_ERR_NO_MEMORY;
    if (rts->kind == KIND_RTS_READ) {
        proto_start_read(proto, op, rts);
        return TUTTI_REQUEST_PENDING;
    }
    int status = proto_send_cts(proto, op, rts->id);
    if (status == TUTTI_OK) return TUTTI_REQUEST_PENDING;
    proto_op_free(proto, op);
    return status;
}

static int receive_arrived(struct proto_group *group, tutti_request *request, struct proto_arrival *arrival)
{
    struct proto *proto = group->proto;
    struct transport_header header = arrival->header;
    request->source = proto_source(group, request, arrival->match.key.source);
    tutti_match_take(&proto->messages, &arrival->match);
    int status = header.kind == KIND_EAGER ? take_eager(proto, request, arrival) : TUTTI_OK;
    free(arrival);
    return header.kind == KIND_EAGER ? status : answer_rts(group, request, &header);
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
        free(message); /* the first member of its struct proto_arrival */
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

/* Polls for the message.  Returns PENDING if it does not arrive, and then has changed nothing. */
static int poll_message(struct proto_group *group, tutti_request *request, int32_t peer)
{
    struct proto *proto = group->proto;
    struct transport *transport = proto->peer[peer].transport;
    proto->polled = (struct proto_polled){.request = request, .group = group, .peer = peer};
    bool waits = (request->flags & TUTTI_REQUEST_LATE) == 0;
    int most = waits ? PROTO_POLLS : 1;
    for (int i = 0; i < most && proto->polled.request != NULL && !proto->polled.has_rts; i++)
        if (!transport->ops->poll(transport, peer, waits)) break;
    bool came = proto->polled.request == NULL;
    proto->polled.request = NULL;
    if (!came) return TUTTI_REQUEST_PENDING;
    request->source = request->peer;
    return proto->polled.status == TUTTI_OK ? TUTTI_REQUEST_DONE : proto->polled.status;
}

/* Describes a message that has arrived, or posts a probe that waits for one. */
static int probe(struct proto_group *group, tutti_request *request, int32_t peer, const struct proto_arrival *arrival)
{
    struct proto *proto = group->proto;
    if (arrival != NULL) {
        const struct transport_header *header = &arrival->header;
        request->source = proto_source(group, request, arrival->match.key.source);
        tutti_request_settle(request, header->tag, header->bytes, header->fingerprint);
        return TUTTI_REQUEST_DONE;
    }
    int status = peer == TUTTI_ANY_SOURCE ? TUTTI_OK : proto_connect(proto, peer);
    if (status != TUTTI_OK) return status;
    struct proto_op *op = proto_op_new(group, request, peer, PROTO_RECV_PROBING);
    if (op == NULL) return TUTTI_ERR_NO_MEMORY;
    proto_post(proto, op);
    return TUTTI_REQUEST_PENDING;
}

/* True if a receive exposes its memory before its RTS has arrived. */
static bool exposes_early(const struct proto *proto, const tutti_request *request, int32_t peer)
{
    return (request->flags & TUTTI_REQUEST_EXPECTED) && request->bytes > TRANSPORT_PAYLOAD_MAX &&
           peer != TUTTI_ANY_SOURCE && proto->peer[peer].transport->early_cts;
}

static int post_receive(struct proto_group *group, tutti_request *request, int32_t peer)
{
    struct proto *proto = group->proto;
    int status =
        peer == TUTTI_ANY_SOURCE ? TUTTI_OK : proto_connect(proto, peer); /* so that the peer's loss is noticed */
    if (status != TUTTI_OK) return status;
    struct proto_op *op = proto_op_new(group, request, peer, PROTO_RECV_POSTED);
    if (op == NULL) return TUTTI_ERR_NO_MEMORY;
    proto_post(proto, op);
    if (!exposes_early(proto, request, peer)) return TUTTI_REQUEST_PENDING;
    status = proto_send_cts(proto, op, 0);
    if (status == TUTTI_OK) return TUTTI_REQUEST_PENDING;
    proto_op_free(proto, op);
    return status;
}

/* True if the receive may poll.  An earlier posted receive may take the same message, so there must be none. */
static bool may_poll(const struct proto *proto, const tutti_request *request, int32_t peer)
{
    return (request->flags & (TUTTI_REQUEST_AWAITED | TUTTI_REQUEST_LATE)) &&
           (request->flags & TUTTI_REQUEST_ANY_TAG) == 0 && peer != TUTTI_ANY_SOURCE &&
           proto->messages.n_receives == 0 && proto->peer[peer].transport->ops->poll != NULL;
}

/* Receives a message that may have arrived, or may be polled for, and handles probes. */
__attribute__((noinline)) static int receive(struct proto_group *group, tutti_request *request, int32_t peer)
{
    struct proto_arrival *arrival = find_arrived(group, request, peer);
    if (request->flags & TUTTI_REQUEST_PEEK) return probe(group, request, peer, arrival);
    if (arrival == NULL && may_poll(group->proto, request, peer)) {
        int status = poll_message(group, request, peer);
        if (status != TUTTI_REQUEST_PENDING) return status;
        arrival = find_arrived(group, request, peer);
    }
    return arrival != NULL ? receive_arrived(group, request, arrival) : post_receive(group, request, peer);
}

int proto_recv(struct proto_group *group, tutti_request *request)
{
    int32_t peer = request->peer == TUTTI_ANY_SOURCE ? TUTTI_ANY_SOURCE : group->global_ranks[request->peer];
    bool may_have_come = group->proto->messages.n_messages > 0;
    if (may_have_come || (request->flags & (TUTTI_REQUEST_PEEK | TUTTI_REQUEST_AWAITED | TUTTI_REQUEST_LATE)) != 0)
        return receive(group, request, peer);
    return post_receive(group, request, peer);
}
