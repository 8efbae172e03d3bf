/* Single-copy reads: the receiver reads the sender's memory, in turns, so that other messages are not delayed.  The
 * sender's memory stays readable until the receiver reports that it has finished (FIN). */
#include "tcp/p2p/proto.h"

void proto_send_rts_read(struct proto *proto, struct proto_op *op, bool offers)
{
    struct transport_header header = proto_header(op, KIND_RTS_READ);
    header.ref = (uint64_t)(uintptr_t)op->request->data;
    header.flags = offers ? KIND_OFFER : 0;
    op->is_readable = true;
    op->is_offered = offers;
    transport_count_sent(proto->peer[op->peer].transport, op->request->bytes);
    proto_transmit(proto, op->peer, &header, NULL, 0);
}

static void send_fin(struct proto *proto, int32_t peer, uint64_t ref)
{
    struct transport_header fin = {.kind = KIND_FIN, .ref = ref};
    proto_transmit(proto, peer, &fin, NULL, 0);
}

static bool read_part(struct proto *proto, int32_t peer, tutti_request *request, size_t at, uint64_t address)
{
    size_t left = request->bytes - at, bytes = left < PROTO_READ_TURN ? left : PROTO_READ_TURN;
    transport_count_received(proto->peer[peer].transport, bytes);
    return proto_ops(proto, peer)->read(proto->peer[peer].transport, peer, request, at, address, bytes);
}

int proto_read_now(struct proto *proto, tutti_request *request, int32_t peer, const struct transport_header *rts)
{
    if (!read_part(proto, peer, request, 0, rts->ref)) return proto_fail_lost(proto, peer);
    send_fin(proto, peer, rts->id);
    return TUTTI_REQUEST_DONE;
}

int proto_start_read(struct proto_group *group, tutti_request *request, const struct transport_header *rts)
{
    struct proto_op *op = proto_op_new(group, request, (int32_t)rts->source, PROTO_RECV_READING);
    if (op == NULL) return TUTTI_ERR_NO_MEMORY;
    op->peer_id = rts->id;
    op->address = rts->ref;
    op->bytes_read = 0;
    TAILQ_INSERT_TAIL(&group->proto->reading, op, reading);
    return TUTTI_REQUEST_PENDING;
}

/* Reads the oldest message only, to its end, so that it is still cached when the caller uses it. */
int proto_continue_reads(struct proto *proto)
{
    struct proto_op *op = TAILQ_FIRST(&proto->reading);
    if (op == NULL) return 0;
    tutti_request *request = op->request;
    if (!read_part(proto, op->peer, request, op->bytes_read, op->address)) return 1; /* the loss has ended it */
    size_t left = request->bytes - op->bytes_read;
    op->bytes_read += left < PROTO_READ_TURN ? left : PROTO_READ_TURN;
    if (op->bytes_read < request->bytes) return 1;
    int32_t peer = op->peer;
    uint64_t rts = op->peer_id;
    proto_finish_recv(proto, request, peer, TUTTI_OK);
    send_fin(proto, peer, rts); /* last, because it may drop the link, which ends every operation of the peer */
    return 1;
}

/* Ends a read that the sender cancels, or a receive that has asked for a write instead.  A completed read is not found
 * here, and its FIN is already on the way. */
void proto_handle_cancel_read(struct proto *proto, const struct transport_header *header)
{
    int32_t peer = (int32_t)header->source;
    struct proto_op *op = TAILQ_FIRST(&proto->reading);
    while (op != NULL && (op->peer != peer || op->peer_id != header->ref)) op = TAILQ_NEXT(op, reading);
    if (op == NULL) op = proto_find_exposed(proto, peer, header->ref);
    if (!proto_forget_rts(proto, peer, header->ref)) {
        if (op == NULL) return;
        proto_finish_recv(proto, op->request, peer,
                          proto->host->error(TUTTI_ERR_ABORTED, "rank %d withdrew its message", peer));
    }
    struct transport_header answer = {.kind = KIND_FIN, .ref = header->ref, .flags = KIND_WITHDRAWN};
    proto_transmit(proto, peer, &answer, NULL, 0);
}

void proto_handle_fin(struct proto *proto, const struct transport_header *header)
{
    struct proto_op *op = proto_op_find(proto, header->ref);
    if (op == NULL || !op->is_readable || op->peer != (int32_t)header->source) return;
    int status = TUTTI_OK;
    if (header->flags & KIND_WITHDRAWN)
        status = proto->host->error(TUTTI_ERR_ABORTED, "rank %d withdrew its receive", op->peer);
    proto_finish(proto, op->request, status);
}
