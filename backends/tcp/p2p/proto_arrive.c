/* Handles the events of transports: messages from peers, completed writes, and lost links. */
#include <stdlib.h>
#include <string.h>

#include "tcp/p2p/proto.h"

static struct proto_arrival *arrival_of(tutti_match_message *message)
{
    return (struct proto_arrival *)(void *)message; /* the message is its first member */
}

static int32_t peer_of(const struct transport_header *header)
{
    return (int32_t)header->source;
}

static tutti_match_key key_of(const struct transport_header *header)
{
    return tutti_match_message_key(header->group, peer_of(header), header->tag);
}

/* Returns the request of a receive or probe that was found for a message of this peer, or NULL if it does not take it:
 * from any source a receive takes messages of its group's members. */
static tutti_request *check_source(tutti_match_receive *found, int32_t peer)
{
    if (found == NULL) return NULL;
    tutti_request *request = tutti_match_request(found);
    bool takes = found->key.source != TUTTI_ANY_SOURCE || proto_group_rank(proto_pending(request)->group, peer) >= 0;
    return takes ? request : NULL;
}

/* Returns the posted receive that takes a message, or NULL. */
static tutti_request *find_posted(const struct proto *proto, const struct transport_header *header)
{
    tutti_match_key key = key_of(header);
    return check_source(tutti_match_find_receive(&proto->messages, &key), key.source);
}

/* ---- messages without a counterpart -------------------------------------------------------------------------- */

/* Completes the probes that match a message that was just kept. */
static void complete_probes(struct proto *proto, const struct transport_header *header)
{
    tutti_match_key key = key_of(header);
    tutti_request *probe;
    while ((probe = check_source(tutti_match_find_probe(&proto->messages, &key), key.source)) != NULL) {
        tutti_request_settle(probe, header->tag, header->bytes, header->fingerprint);
        proto_finish_recv(proto, probe, key.source, TUTTI_OK);
    }
}

static size_t bytes_of(const struct transport_header *header)
{
    return sizeof(struct proto_arrival) + (header->kind == KIND_EAGER ? header->bytes : 0);
}

void proto_free_arrival(struct proto *proto, struct proto_arrival *arrival)
{
    spares_give(&proto->arrivals, arrival, bytes_of(&arrival->header));
}

/* Keeps a message until its counterpart is posted. */
static __attribute__((noinline)) void keep(struct proto *proto, tutti_matcher *matcher,
                                           const struct transport_header *header, const void *payload)
{
    int32_t rank = peer_of(header);
    const struct proto_peer *peer = &proto->peer[rank];
    if (proto_is_closed(proto, header->group)) {
        proto_reject(proto, header);
        return;
    }
    if (header->kind == KIND_EAGER && peer->eager_received - peer->eager_matched > PROTO_CREDIT) {
        proto_drop(proto, rank, "it sent more than its credit allows");
        return;
    }
    size_t bytes = bytes_of(header);
    struct proto_arrival *arrival = spares_take(&proto->arrivals, bytes);
    if (arrival == NULL) { /* dropping the message would hang the group */
        proto_drop(proto, rank, "no memory for its messages");
        return;
    }
    arrival->match = (tutti_match_message){.key = key_of(header)};
    arrival->header = *header;
    tutti_copy(arrival->payload, payload, bytes - sizeof *arrival);
    tutti_match_reserve(matcher, malloc, free);
    tutti_match_keep(matcher, &arrival->match);
    if (matcher == &proto->messages && matcher->n_probes > 0) complete_probes(proto, header);
}

/* Forgets an RTS or CTS of this id that has no counterpart.  Returns false if there is none. */
static bool forget_arrival(struct proto *proto, tutti_matcher *matcher, int32_t peer, uint64_t id)
{
    tutti_match_message *message = tutti_match_next_message(matcher, NULL);
    for (; message != NULL; message = tutti_match_next_message(matcher, message)) {
        const struct transport_header *header = &arrival_of(message)->header;
        if (message->key.source != peer || header->kind == KIND_EAGER || header->id != id) continue;
        tutti_match_take(matcher, message);
        proto_free_arrival(proto, arrival_of(message));
        return true;
    }
    return false;
}

bool proto_forget_rts(struct proto *proto, int32_t peer, uint64_t id)
{
    return forget_arrival(proto, &proto->messages, peer, id);
}

/* ---- eager messages ------------------------------------------------------------------------------------------ */

/* Inline, so that messages of a named peer, which are nearly all, need no call. */
static inline bool is_polled_for(const struct proto *proto, const struct transport_header *header)
{
    const struct proto_polled *polled = &proto->polled;
    if (polled->request == NULL || polled->has_rts || polled->request->tag != header->tag ||
        polled->group->id != header->group)
        return false;
    if (polled->peer != TUTTI_ANY_SOURCE) return polled->peer == peer_of(header);
    return proto_group_rank(polled->group, peer_of(header)) >= 0;
}

/* Withdraws the receive first, because a message with credit may find that the link is lost. */
static inline __attribute__((always_inline)) void
finish_eager(struct proto *proto, tutti_request *request, const struct transport_header *header, const void *payload)
{
    proto_withdraw(proto, request);
    request->source = proto_source(proto_pending(request)->group, request, peer_of(header));
    proto_complete(proto, request, proto_take_eager(proto, request, header, payload));
}

static void take_polled(struct proto *proto, const struct transport_header *header, const void *payload)
{
    tutti_request *request = proto->polled.request;
    request->source = proto_source(proto->polled.group, request, peer_of(header));
    proto->polled.status = proto_take_eager(proto, request, header, payload);
    proto->polled.request = NULL;
}

/* Handles a message whose sender sent an RTS and then did not wait for the answer.  An RTS that is neither answered
 * with a CTS nor kept was refused, and no receive takes its message. */
static __attribute__((noinline)) void handle_eager_after_rts(struct proto *proto, const struct transport_header *header,
                                                             const void *payload)
{
    int32_t peer = peer_of(header);
    struct proto_op *op = proto_find_exposed(proto, peer, header->ref);
    if (op != NULL)
        finish_eager(proto, op->request, header, payload);
    else if (proto_forget_rts(proto, peer, header->ref))
        keep(proto, &proto->messages, header, payload);
    else
        proto_return_credit(proto, peer, header->bytes);
}

/* Inline, like finish_eager, because nearly all messages take this path. */
static inline __attribute__((always_inline)) void
handle_eager(struct proto *proto, const struct transport_header *header, const void *payload)
{
    int32_t peer = peer_of(header);
    proto->peer[peer].eager_received += header->bytes + PROTO_EAGER_COST;
    if (header->ref != 0) {
        handle_eager_after_rts(proto, header, payload);
        return;
    }
    if (is_polled_for(proto, header)) {
        take_polled(proto, header, payload);
        return;
    }
    tutti_request *request = find_posted(proto, header);
    if (request == NULL)
        keep(proto, &proto->messages, header, payload);
    else
        finish_eager(proto, request, header, payload);
}

/* ---- rendezvous ---------------------------------------------------------------------------------------------- */

static void handle_rts(struct proto *proto, const struct transport_header *header)
{
    tutti_request *request = find_posted(proto, header);
    if (request == NULL) {
        if (is_polled_for(proto, header)) proto->polled.has_rts = true;
        keep(proto, &proto->messages, header, NULL);
        return;
    }
    const struct proto_pending *pending = proto_pending(request);
    if (pending->op != NULL && proto_agrees(request, header)) return; /* its early CTS crossed this RTS */
    proto_withdraw(proto, request);
    int status = proto_answer_rts(pending->group, request, header, false);
    if (status != TUTTI_REQUEST_PENDING) proto_finish_recv(proto, request, peer_of(header), status);
}

/* Returns the send that a CTS is for, or NULL after the CTS has been kept or refused. */
static struct proto_op *find_send(struct proto *proto, const struct transport_header *header)
{
    int32_t peer = peer_of(header);
    if (header->ref == 0) {
        tutti_match_key key = key_of(header);
        tutti_match_receive *send = tutti_match_find_receive(&proto->grants, &key);
        if (send != NULL) return proto_pending(tutti_match_request(send))->op;
        keep(proto, &proto->grants, header, NULL);
        return NULL;
    }
    struct proto_op *op = proto_op_find(proto, header->ref);
    bool may_write = op != NULL && op->state == PROTO_SEND_WAITING && (!op->is_readable || op->is_offered);
    if (may_write && op->peer == peer && !op->cancelled) return op;
    proto_send_nack(proto, peer, KIND_NACK_RECV, header->id, NULL);
    return NULL;
}

static void handle_cts(struct proto *proto, const struct transport_header *header)
{
    struct proto_op *op = find_send(proto, header);
    if (op == NULL) return;
    if (proto_agrees(op->request, header)) {
        proto_start_write(proto, op, header);
        return;
    }
    uint64_t id = op->id;
    proto_send_nack(proto, peer_of(header), KIND_NACK_RECV, header->id, op->request);
    if (proto_op_find(proto, id) != op) return; /* the link was dropped, for lack of memory */
    proto_finish(proto, op->request, proto_fail_mismatch(proto, op->request, header));
}

static int fail_receive_withdrawn(struct proto *proto, int32_t peer)
{
    return proto->host->error(TUTTI_ERR_ABORTED, "rank %d withdrew its receive", peer);
}

static void handle_nack_send(struct proto *proto, const struct transport_header *header)
{
    struct proto_op *op = proto_op_find(proto, header->ref);
    if (op == NULL || op->state != PROTO_SEND_WAITING || op->peer != peer_of(header)) return;
    int status = header->flags & KIND_WITHDRAWN ? fail_receive_withdrawn(proto, op->peer)
                                                : proto_fail_mismatch(proto, op->request, header);
    proto_finish(proto, op->request, status);
}

static void handle_nack_recv(struct proto *proto, const struct transport_header *header)
{
    int32_t peer = peer_of(header);
    struct proto_op *op = proto_op_find(proto, header->ref);
    if (op == NULL || op->state != PROTO_RECV_EXPOSED || op->peer != peer) return;
    int status = header->flags & KIND_WITHDRAWN
                     ? proto->host->error(TUTTI_ERR_ABORTED, "rank %d withdrew its message", peer)
                     : proto_fail_mismatch(proto, op->request, header);
    proto_finish_recv(proto, op->request, peer, status);
}

/* ---- revocation ---------------------------------------------------------------------------------------------- */

/* Returns the send that writes to the memory that the peer has exposed under `id`, or NULL. */
static struct proto_op *find_write(const struct proto *proto, int32_t peer, uint64_t id)
{
    for (size_t i = 0; i < proto->n_slots; i++) {
        struct proto_op *op = proto->slot[i];
        if (op->request != NULL && op->state == PROTO_SEND_WRITING && op->peer == peer && op->write.key == id)
            return op;
    }
    return NULL;
}

/* Ends the write after the pieces that are under way; the answer follows them.  If the last piece is among them, the
 * peer gets the whole message and no answer. */
static void handle_revoke(struct proto *proto, const struct transport_header *header)
{
    int32_t peer = peer_of(header);
    struct transport *transport = proto->peer[peer].transport;
    forget_arrival(proto, &proto->grants, peer, header->ref);
    struct proto_op *op = find_write(proto, peer, header->ref);
    if (op != NULL) {
        uint64_t id = op->id;
        if (transport->ops->unwrite(transport, peer, &op->write)) {
            if (proto_op_find(proto, id) != op) return; /* the next write has dropped the link, for lack of memory */
            proto_finish(proto, op->request, fail_receive_withdrawn(proto, peer));
        } else if (transport->ops->cut(transport, peer, &op->write)) {
            op->cut = true;
        } else {
            return;
        }
    }
    struct transport_header answer = {.kind = KIND_REVOKED, .ref = header->ref, .after_writes = true};
    proto_transmit(proto, peer, &answer, NULL, 0);
}

static void handle_revoked(struct proto *proto, const struct transport_header *header)
{
    struct proto_op *op = proto_op_find(proto, header->ref);
    if (op == NULL || op->state != PROTO_RECV_EXPOSED || !op->cancelled || op->peer != peer_of(header)) return;
    proto_finish(proto, op->request, proto->host->error(TUTTI_ERR_ABORTED, "the receive was withdrawn"));
}

/* ---- other messages ------------------------------------------------------------------------------------------ */

/* Copies the control message before it is parsed, because a faulty peer may change the bytes in the ring. */
static void handle_control(struct proto *proto, const struct transport_header *header, const void *payload)
{
    struct proto_group *group;
    uint8_t message[KIND_CONTROL_MAX];
    if (header->bytes > 0) memcpy(message, payload, header->bytes); /* kind_is_valid has checked the size */
    LIST_FOREACH(group, &proto->groups, link)
    {
        if (group->id != header->group || group->closing || proto->closing) continue;
        int32_t rank = proto_group_rank(group, peer_of(header));
        if (rank >= 0) proto->host->notified(group->core, rank, message, header->bytes);
        return;
    }
    struct transport_header answer = {.kind = KIND_CONTROL, .group = header->group};
    if (header->bytes > 0 && proto_is_closed(proto, header->group))
        proto_transmit(proto, peer_of(header), &answer, NULL, 0);
}

static void handle_bye(struct proto *proto, const struct transport_header *header)
{
    int32_t peer = peer_of(header);
    proto->peer[peer].left = true;
    if (proto->closing) return; /* this rank has said goodbye already */
    struct transport_header answer = {.kind = KIND_BYE};
    proto_transmit(proto, peer, &answer, NULL, 0);
    proto_drop(proto, peer, "it left the group");
}

/* Not inline, so that on_message saves fewer registers. */
static __attribute__((noinline)) void handle_other(struct proto *proto, const struct transport_header *header,
                                                   const void *payload)
{
    switch (header->kind) {
    case KIND_RTS:
    case KIND_RTS_READ:
        handle_rts(proto, header);
        break;
    case KIND_CTS:
        handle_cts(proto, header);
        break;
    case KIND_NACK_SEND:
        handle_nack_send(proto, header);
        break;
    case KIND_NACK_RECV:
        handle_nack_recv(proto, header);
        break;
    case KIND_CONTROL:
        handle_control(proto, header, payload);
        break;
    case KIND_REVOKE:
        handle_revoke(proto, header);
        break;
    case KIND_REVOKED:
        handle_revoked(proto, header);
        break;
    case KIND_CANCEL_RTS:
        /* A receive that has sent its CTS gets a NACK when the CTS arrives. */
        proto_forget_rts(proto, peer_of(header), header->ref);
        break;
    case KIND_BYE:
        handle_bye(proto, header);
        break;
    case KIND_CANCEL_READ:
        proto_handle_cancel_read(proto, header);
        break;
    case KIND_FIN:
        proto_handle_fin(proto, header);
        break;
    }
}

/* ---- events -------------------------------------------------------------------------------------------------- */

/* Ignores a value that the peer cannot owe. */
static void update_credit(struct proto_peer *peer, uint64_t credit)
{
    if (credit - peer->eager_credited <= peer->eager_sent - peer->eager_credited) peer->eager_credited = credit;
}

/* Tells the transport which path the sender has chosen. */
static void tell_path(struct transport *transport, const struct transport_header *header)
{
    enum transport_path path = TRANSPORT_EAGER;
    if (transport->ops->hear == NULL) return;
    switch (header->kind) {
    case KIND_EAGER:
        if (header->ref != 0) return; /* its RTS had another one */
        break;
    case KIND_RTS:
        path = TRANSPORT_WRITE;
        break;
    case KIND_RTS_READ:
        path = header->flags & KIND_OFFER ? TRANSPORT_OFFER : TRANSPORT_READ;
        break;
    default:
        return;
    }
    transport->ops->hear(transport, peer_of(header), header->bytes, path);
}

/* Not inline, for the same reason as handle_other. */
static __attribute__((noinline)) void handle_large(struct proto *proto, const struct transport_header *header,
                                                   const void *payload)
{
    tell_path(proto->peer[peer_of(header)].transport, header);
    if (header->kind == KIND_EAGER)
        handle_eager(proto, header, payload);
    else
        handle_other(proto, header, payload);
}

static bool on_message(void *user, const struct transport *from, const struct transport_header *header,
                       const void *payload, size_t bytes)
{
    struct proto *proto = user;
    if (!kind_is_valid(header, bytes, (uint32_t)proto->world_size)) return false;
    struct proto_peer *peer = &proto->peer[peer_of(header)];
    if (header->kind >= KIND_RTS_READ && from->ops->read == NULL) return false;
    peer->silent_ns = 0;
    transport_count_received(from, bytes);
    if (header->credit != peer->eager_credited) update_credit(peer, header->credit);
    if (header->bytes > from->eager_certain)
        handle_large(proto, header, payload);
    else if (header->kind == KIND_EAGER)
        handle_eager(proto, header, payload);
    else
        handle_other(proto, header, payload);
    return true;
}

static void on_written(void *user, uint64_t key)
{
    struct proto *proto = user;
    struct proto_op *op = proto_op_find(proto, key);
    if (op == NULL || op->state != PROTO_RECV_EXPOSED || --op->memory.parts > 0) return;
    transport_count_received(proto->peer[op->peer].transport, op->request->bytes);
    if (op->memory.staging != NULL)
        tutti_request_take(proto->host, op->request, 0, op->memory.staging, op->request->bytes);
    proto_finish_recv(proto, op->request, op->peer, TUTTI_OK);
}

static void on_write_done(void *user, struct transport_write *write)
{
    struct proto_op *op = write->owner;
    if (op->request == NULL) return; /* its group has been closed */
    bool is_short = write->bytes < op->request->bytes;
    proto_finish(user, op->request, is_short ? fail_receive_withdrawn(user, op->peer) : TUTTI_OK);
}

static void forget_rendezvous(struct proto *proto, tutti_matcher *matcher, int32_t peer)
{
    tutti_match_message *message = tutti_match_next_message(matcher, NULL), *next;
    for (; message != NULL; message = next) {
        next = tutti_match_next_message(matcher, message);
        if (message->key.source != peer || arrival_of(message)->header.kind == KIND_EAGER) continue;
        tutti_match_take(matcher, message);
        proto_free_arrival(proto, arrival_of(message));
    }
}

/* Fails a request because of the loss of its peer. */
static void fail_lost(struct proto *proto, tutti_request *request, int32_t peer)
{
    request->source = request->peer;
    proto_finish(proto, request, proto_fail_lost(proto, peer));
}

/* Fails the receives and probes that wait for a message from this peer. */
static void fail_posted(struct proto *proto, int32_t peer)
{
    tutti_match_receive *receive = tutti_match_next_receive(&proto->messages, NULL), *next;
    for (; receive != NULL; receive = next) {
        next = tutti_match_next_receive(&proto->messages, receive);
        if (receive->key.source == peer) fail_lost(proto, tutti_match_request(receive), peer);
    }
}

/* Keeps eager messages that arrived before the loss: they may still be received. */
static void on_lost(void *user, int32_t peer, const char *why)
{
    struct proto *proto = user;
    proto->peer[peer].is_connected = false;
    forget_rendezvous(proto, &proto->messages, peer);
    forget_rendezvous(proto, &proto->grants, peer);
    proto->moved++;
    if (proto->closing) return;
    for (size_t i = 0; i < proto->n_slots; i++) {
        struct proto_op *op = proto->slot[i];
        if (op->request != NULL && op->peer == peer) fail_lost(proto, op->request, peer);
    }
    fail_posted(proto, peer);
    proto->host->peer_lost(proto->core, peer, proto->peer[peer].left, why);
}

const struct transport_events proto_events = {
    .message = on_message, .written = on_written, .write_done = on_write_done, .lost = on_lost};
