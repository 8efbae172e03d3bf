/* Sends the protocol's messages and sets errors. */
#include "tcp/p2p/proto.h"

int proto_connect(struct proto *proto, int32_t peer)
{
    struct proto_peer *state = &proto->peer[peer];
    if (state->is_connected) return TUTTI_OK;
    int status = state->transport->ops->connect(state->transport, peer);
    state->is_connected = status == TUTTI_OK;
    return status;
}

void proto_drop(struct proto *proto, int32_t peer, const char *why)
{
    proto_ops(proto, peer)->drop(proto->peer[peer].transport, peer, why, true);
}

/* The only indirect call between a small message and the ring.  A branch on the transport would be no faster, and it
 * would need the transports' headers here. */
int proto_transmit(struct proto *proto, int32_t peer, struct transport_header *header, const void *payload,
                   size_t bytes)
{
    struct proto_peer *state = &proto->peer[peer];
    header->source = (uint32_t)proto->rank;
    header->credit = state->eager_matched;
    state->credit_sent = state->eager_matched;
    transport_count_sent(state->transport, bytes);
    return state->transport->ops->send(state->transport, peer, header, payload, bytes);
}

bool proto_unsend(struct proto *proto, const struct proto_op *op, enum kind kind)
{
    return proto_ops(proto, op->peer)->unsend(proto->peer[op->peer].transport, op->peer, (uint8_t)kind, op->id);
}

void proto_expect_answer(struct proto *proto, int32_t peer)
{
    if (proto->peer[peer].silent_ns == 0) proto->peer[peer].silent_ns = proto->host->now_ns();
}

void proto_send_nack(struct proto *proto, int32_t peer, enum kind kind, uint64_t ref, const tutti_request *request)
{
    struct transport_header header = {.kind = (uint8_t)kind, .ref = ref, .flags = request == NULL ? KIND_WITHDRAWN : 0};
    if (request != NULL) {
        header.bytes = request->bytes;
        header.fingerprint = request->fingerprint;
    }
    proto_transmit(proto, peer, &header, NULL, 0);
}

struct transport_header proto_header(const struct proto_op *op, enum kind kind)
{
    return (struct transport_header){.kind = (uint8_t)kind,
                                     .group = proto_group_of(op)->id,
                                     .tag = op->request->tag,
                                     .bytes = op->request->bytes,
                                     .fingerprint = op->request->fingerprint,
                                     .id = op->id};
}

void proto_send_credit(struct proto *proto, int32_t peer)
{
    struct transport_header header = {.kind = KIND_CREDIT};
    proto_transmit(proto, peer, &header, NULL, 0);
}

/* ---- errors -------------------------------------------------------------------------------------------------- */

int proto_fail_mismatch(struct proto *proto, tutti_request *request, const struct transport_header *header)
{
    int32_t peer = (int32_t)header->source;
    request->found_bytes = header->bytes;
    request->found_fingerprint = header->fingerprint;
    if (request->bytes != header->bytes)
        return proto->host->error(TUTTI_ERR_MISMATCH, "rank %d has a message of %llu bytes where this rank has %zu",
                                  peer, (unsigned long long)header->bytes, request->bytes);
    return proto->host->error(TUTTI_ERR_MISMATCH, "rank %d called another operation or passed other arguments", peer);
}

int proto_fail_lost(struct proto *proto, int32_t peer)
{
    const char *why = proto_ops(proto, peer)->lost(proto->peer[peer].transport, peer);
    return proto->host->error(TUTTI_ERR_PEER_LOST, "rank %d is lost: %s", peer, why != NULL ? why : "closed");
}
