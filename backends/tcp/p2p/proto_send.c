/* Posts sends. */
#include <stdlib.h>

#include "tcp/p2p/proto.h"

void proto_send_rts(struct proto *proto, struct proto_op *op)
{
    struct transport_header header = proto_header(op, KIND_RTS);
    proto_transmit(proto, op->peer, &header, NULL, 0);
}

void proto_start_write(struct proto *proto, struct proto_op *op, const struct transport_header *cts)
{
    tutti_match_withdraw(&proto->grants, &proto_pending(op->request)->match);
    if (op->is_timed) TAILQ_REMOVE(&proto->delayed, op, timed);
    op->is_timed = false;
    op->state = PROTO_SEND_WRITING;
    bool is_counted = op->is_readable;
    op->is_readable = false;
    const struct proto_group *group = proto_group_of(op);
    size_t bytes = op->request->bytes;
    op->write =
        (struct transport_write){.data = op->request->data,
                                 .bytes = bytes,
                                 .key = cts->id,
                                 .parts = (uint8_t)(cts->flags + 1),
                                 .owner = op,
                                 .row = tutti_path_find(group->choices, group->n_choices, TUTTI_SEND, (int64_t)bytes)};
    proto->peer[op->peer].was_written = true;
    if (!is_counted) transport_count_sent(proto->peer[op->peer].transport, bytes);
    proto_ops(proto, op->peer)->write(proto->peer[op->peer].transport, op->peer, &op->write);
}

static bool has_credit(const struct proto_peer *peer, size_t bytes)
{
    return peer->eager_sent - peer->eager_credited + bytes + PROTO_EAGER_COST <= PROTO_CREDIT;
}

/* True for a message that leaves at once, which nearly all do. */
static bool is_certain(const struct proto_peer *peer, size_t bytes)
{
    return has_credit(peer, bytes) && bytes <= peer->transport->eager_certain;
}

static enum transport_path choose_path(struct proto_group *group, const tutti_request *request, int32_t peer)
{
    struct proto *proto = group->proto;
    struct proto_peer *state = &proto->peer[peer];
    bool credit = has_credit(state, request->bytes);
    bool blocked = (request->flags & TUTTI_REQUEST_AWAITED) && proto->messages.n_receives == 0;
    const tutti_path_row *row = tutti_path_find(group->choices, group->n_choices, TUTTI_SEND, (int64_t)request->bytes);
    return state->transport->ops->choose(state->transport, peer, request, credit, blocked, row);
}

/* Sends a message eagerly.  rts: the id of its RTS, or 0.  Inline because nearly all messages take this path. */
static inline __attribute__((always_inline)) int send_eager(struct proto_group *group, tutti_request *request,
                                                            int32_t peer, uint64_t rts)
{
    struct proto *proto = group->proto;
    struct transport_header header = {.kind = KIND_EAGER,
                                      .group = group->id,
                                      .tag = request->tag,
                                      .bytes = request->bytes,
                                      .fingerprint = request->fingerprint,
                                      .ref = rts};
    int status = proto_transmit(proto, peer, &header, request->data, request->bytes);
    if (status != TUTTI_OK) return status;
    proto->peer[peer].eager_sent += request->bytes + PROTO_EAGER_COST;
    return TUTTI_REQUEST_DONE;
}

/* Polls for the receiver's answer to an RTS.  If none arrives and the message is small enough, sends it eagerly.
 * Otherwise ranks that all begin with a blocking send would wait for each other. */
__attribute__((noinline)) static int poll_receiver(struct proto_group *group, tutti_request *request,
                                                   struct proto_op *op)
{
    struct proto *proto = group->proto;
    int32_t peer = op->peer;
    uint64_t rts = op->id;
    struct transport *transport = proto->peer[peer].transport;
    if (transport->ops->poll == NULL || !(request->flags & TUTTI_REQUEST_AWAITED)) return TUTTI_REQUEST_PENDING;
    for (int i = 0; i < PROTO_POLLS && proto_pending(request)->op == op && op->state == PROTO_SEND_WAITING; i++)
        if (!transport->ops->poll(transport, peer, true)) break;
    if (proto_pending(request)->op != op || op->state != PROTO_SEND_WAITING || op->is_readable)
        return TUTTI_REQUEST_PENDING;
    if (request->bytes > transport->eager_max || !has_credit(&proto->peer[peer], request->bytes))
        return TUTTI_REQUEST_PENDING;
    proto_withdraw(proto, request);
    return send_eager(group, request, peer, rts);
}

/* Sends to memory that the receiver has exposed already. */
static int send_to_exposed(struct proto_group *group, tutti_request *request, struct proto_arrival *cts)
{
    struct proto *proto = group->proto;
    struct transport_header header = cts->header;
    int32_t peer = cts->match.key.source;
    tutti_match_take(&proto->grants, &cts->match);
    proto_free_arrival(proto, cts);
    if (!proto_agrees(request, &header)) {
        proto_send_nack(proto, peer, KIND_NACK_RECV, header.id, request);
        return proto_fail_mismatch(proto, request, &header);
    }
    struct proto_op *op = proto_op_new(group, request, peer, PROTO_SEND_WAITING);
    if (op == NULL) return TUTTI_ERR_NO_MEMORY;
    proto_start_write(proto, op, &header);
    return TUTTI_REQUEST_PENDING;
}

/* True if the receiver is likely to expose its memory unasked. */
static bool may_delay_rts(const struct proto *proto, const tutti_request *request, int32_t peer)
{
    return (request->flags & TUTTI_REQUEST_EXPECTED) && request->bytes > TRANSPORT_PAYLOAD_MAX &&
           proto->peer[peer].transport->early_cts;
}

/* Sends a message once the receiver is known to be there. */
static int send_rendezvous(struct proto_group *group, tutti_request *request, int32_t peer, enum transport_path path)
{
    struct proto *proto = group->proto;
    tutti_match_key key = tutti_match_message_key(group->id, peer, request->tag);
    tutti_match_message *cts = tutti_match_find_message(&proto->grants, &key);
    if (cts != NULL) return send_to_exposed(group, request, (struct proto_arrival *)(void *)cts);
    struct proto_op *op = proto_op_new(group, request, peer, PROTO_SEND_WAITING);
    if (op == NULL) return TUTTI_ERR_NO_MEMORY;
    if (path == TRANSPORT_READ || path == TRANSPORT_OFFER) {
        proto_send_rts_read(proto, op, path == TRANSPORT_OFFER);
        return poll_receiver(group, request, op);
    }
    proto_post(group, &proto->grants, request, key);
    if (may_delay_rts(proto, request, peer)) {
        op->start_ns = proto->host->now_ns();
        op->is_timed = true;
        TAILQ_INSERT_TAIL(&proto->delayed, op, timed);
        return TUTTI_REQUEST_PENDING;
    }
    proto_send_rts(proto, op);
    return poll_receiver(group, request, op);
}

/* Not inline, so that proto_send saves fewer registers. */
static __attribute__((noinline)) int send_chosen(struct proto_group *group, tutti_request *request, int32_t peer)
{
    enum transport_path path = choose_path(group, request, peer);
    return path == TRANSPORT_EAGER ? send_eager(group, request, peer, 0) : send_rendezvous(group, request, peer, path);
}

int proto_send(struct proto_group *group, tutti_request *request)
{
    struct proto *proto = group->proto;
    int32_t peer = group->global_ranks[request->peer];
    int status = proto_connect(proto, peer);
    if (status != TUTTI_OK) return status;
    if (is_certain(&proto->peer[peer], request->bytes)) return send_eager(group, request, peer, 0);
    return request->flags & TUTTI_REQUEST_AT_ONCE ? TUTTI_REQUEST_ABSENT : send_chosen(group, request, peer);
}
