/* Cancels requests. */
#include "tcp/p2p/proto.h"

/* True if a send has ended the operation: without memory for the message it drops the link. */
static bool has_ended(const struct proto_op *op, const tutti_request *request)
{
    return proto_pending(request)->op != op;
}

static void free_and_send(struct proto *proto, struct proto_op *op, struct transport_header header)
{
    int32_t peer = op->peer;
    proto_withdraw(proto, op->request);
    proto_transmit(proto, peer, &header, NULL, 0);
}

/* Withdraws a receive if only this rank itself writes to its memory.  Returns false if the peer does. */
static bool withdraw_receive(struct proto *proto, struct proto_op *op)
{
    struct transport_header header = {.kind = KIND_REVOKE, .ref = op->id};
    if (op->state == PROTO_RECV_READING)
        header = (struct transport_header){.kind = KIND_FIN, .ref = op->peer_id, .flags = KIND_WITHDRAWN};
    else if (op->state != PROTO_RECV_EXPOSED || !proto->peer[op->peer].transport->copies_out)
        return false;
    free_and_send(proto, op, header);
    return true;
}

static int fail_not_found(const struct proto *proto)
{
    return proto->host->error(TUTTI_ERR_NOT_FOUND, "this message is not pending");
}

/* Asks the peer to stop using the memory.  If the peer does not answer in time, the link is dropped. */
static int revoke_memory(struct proto *proto, struct proto_op *op)
{
    const tutti_request *request = op->request;
    struct transport_header header = {.kind = KIND_REVOKE, .ref = op->id};
    if (op->is_readable) header.kind = KIND_CANCEL_READ;
    if (op->is_readable || op->state == PROTO_RECV_EXPOSED) {
        proto_expect_answer(proto, op->peer);
        proto_transmit(proto, op->peer, &header, NULL, 0);
        if (has_ended(op, request)) return fail_not_found(proto);
    }
    op->cancelled = true;
    op->is_timed = true;
    op->start_ns = proto->host->now_ns();
    TAILQ_INSERT_TAIL(&proto->revoked, op, timed);
    return proto->host->error(TUTTI_ERR_ABORTED, "rank %d was asked to return the memory; waiting for its answer",
                              op->peer);
}

/* Ends a write early.  Returns OK if the caller may free the operation. */
static int stop_write(struct proto *proto, struct proto_op *op)
{
    const tutti_request *request = op->request;
    struct transport *transport = proto->peer[op->peer].transport;
    bool begun = !transport->ops->unwrite(transport, op->peer, &op->write);
    if (begun) op->cut = transport->ops->cut(transport, op->peer, &op->write);
    if (!begun || op->cut) proto_send_nack(proto, op->peer, KIND_NACK_RECV, op->write.key, NULL);
    if (has_ended(op, request)) return fail_not_found(proto);
    return begun ? revoke_memory(proto, op) : TUTTI_OK;
}

int proto_cancel(struct proto_group *group, tutti_request *request)
{
    struct proto *proto = group->proto;
    const struct proto_pending *pending = proto_pending(request);
    struct proto_op *op = pending->op;
    if (op == NULL && !tutti_match_is_posted(&pending->match)) return fail_not_found(proto);
    if (op == NULL) {
        proto_withdraw(proto, request);
        return TUTTI_OK;
    }
    if (op->cancelled)
        return proto->host->error(TUTTI_ERR_ABORTED,
                                  "rank %d was already asked to return the memory; waiting for its answer", op->peer);
    if (op->is_readable && !proto_unsend(proto, op, KIND_RTS_READ)) return revoke_memory(proto, op);
    if (withdraw_receive(proto, op)) return TUTTI_OK;
    if (op->state == PROTO_RECV_EXPOSED && !proto_unsend(proto, op, KIND_CTS)) return revoke_memory(proto, op);
    if (op->state == PROTO_SEND_WAITING && !op->is_readable && !op->is_timed) { /* its RTS has been sent */
        free_and_send(proto, op, (struct transport_header){.kind = KIND_CANCEL_RTS, .ref = op->id});
        return TUTTI_OK;
    }
    int status = op->state == PROTO_SEND_WRITING ? stop_write(proto, op) : TUTTI_OK;
    if (status == TUTTI_OK) proto_withdraw(proto, request);
    return status;
}
