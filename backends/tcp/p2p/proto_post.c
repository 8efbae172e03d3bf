/* What the core asks for: sends, receives, and to have them back. */
#include <stdlib.h>
#include <string.h>

#include "tcp/p2p/proto.h"

/* ---- words ------------------------------------------------------------------------------------------------- */

int proto_say(struct proto *proto, int32_t peer, struct wire_header *header, const void *payload, size_t bytes)
{
    struct proto_peer *state = &proto->peer[peer];
    header->source = (uint32_t)proto->rank;
    header->credit = state->done;
    state->done_told = state->done;
    return link_send(proto, peer, header, payload, bytes);
}

/* The message of a request, as a question or with its data. */
static struct wire_header describe(const struct proto_group *group, const tutti_request *request, enum wire_kind kind,
                                   uint64_t id)
{
    return (struct wire_header){.kind = (uint8_t)kind,
                                .group = group->id,
                                .tag = request->tag,
                                .bytes = request->bytes,
                                .fingerprint = request->fingerprint,
                                .id = id};
}

void proto_ask(struct proto *proto, struct proto_op *op)
{
    struct wire_header header = describe(op->group, op->request, WIRE_RTS, op->id);
    proto_say(proto, op->peer, &header, NULL, 0);
}

void proto_refuse(struct proto *proto, int32_t peer, enum wire_kind kind, uint64_t ref, const tutti_request *request,
                  bool taken_back)
{
    struct wire_header header = {.kind = (uint8_t)kind, .ref = ref, .flags = taken_back ? WIRE_TAKEN_BACK : 0};
    if (request != NULL) {
        header.bytes = request->bytes;
        header.fingerprint = request->fingerprint;
    }
    proto_say(proto, peer, &header, NULL, 0);
}

/* ---- agreement --------------------------------------------------------------------------------------------- */

bool proto_agrees(const tutti_request *request, uint64_t bytes, uint64_t fingerprint)
{
    if (request->flags & TUTTI_REQUEST_OPEN) return tutti_request_fits(request, bytes, fingerprint);
    if (request->bytes != bytes) return false;
    return request->fingerprint == fingerprint || request->fingerprint == 0 || fingerprint == 0;
}

int proto_mismatch(struct proto *proto, tutti_request *request, int32_t peer, uint64_t bytes, uint64_t fingerprint)
{
    request->found_bytes = bytes;
    request->found_fingerprint = fingerprint;
    if (request->bytes != bytes)
        return proto->host->error(TUTTI_ERR_MISMATCH, "rank %d has a message of %llu bytes where this rank has %zu",
                                  peer, (unsigned long long)bytes, request->bytes);
    return proto->host->error(TUTTI_ERR_MISMATCH, "rank %d is in another operation, or with other arguments", peer);
}

int proto_lost(struct proto *proto, int32_t peer)
{
    const char *why = link_lost(proto, peer);
    return proto->host->error(TUTTI_ERR_PEER_LOST, "rank %d is lost: %s", peer, why != NULL ? why : "closed");
}

/* Reads what a local peer sends as soon as it comes, for a moment. */
static void look(struct proto *proto, int32_t peer)
{
    struct shm *shm = proto->shm;
    int seat = shm_local_rank(shm, peer), found = shm_read(shm, seat);
    if (found != 0) return;
    for (int i = 0; i < shm->polls && found == 0; i++) {
        shm_pause(shm);
        found = shm_read(shm, seat);
    }
    shm_polled(shm, found != 0);
}

/* ---- sending ----------------------------------------------------------------------------------------------- */

void proto_start_write(struct proto *proto, struct proto_op *op, uint64_t key)
{
    proto_withdraw(proto, op);
    if (op->is_due) TAILQ_REMOVE(&proto->patient, op, due);
    op->is_due = false;
    op->state = PROTO_SEND_WRITING;
    op->write = (struct fabric_write){.data = op->request->data, .bytes = op->request->bytes, .key = key, .owner = op};
    proto->peer[op->peer].written = true;
    link_write(proto, op);
}

static bool has_room(const struct proto_peer *peer, size_t bytes)
{
    return peer->sent - peer->sent_gone + bytes + PROTO_EAGER_COST <= PROTO_WINDOW;
}

static enum proto_way way_of(struct proto *proto, const tutti_request *request, int32_t peer)
{
    bool room = has_room(&proto->peer[peer], request->bytes);
    if (link_is_local(proto, peer)) return bulk_way(proto, request, peer, room);
    return room && request->bytes <= WIRE_EAGER ? PROTO_EAGER : PROTO_ASK;
}

/* `asked`: the name under which it was asked for before; 0: it was not.  In line, for nearly all messages go this way.
 */
static inline __attribute__((always_inline)) int send_eager(struct proto_group *group, tutti_request *request,
                                                            int32_t peer, uint64_t asked)
{
    struct proto *proto = group->proto;
    struct wire_header header = describe(group, request, WIRE_EAGER_DATA, 0);
    header.ref = asked;
    bool is_bulk = request->bytes > BULK_LEAST && link_is_local(proto, peer);
    int status = is_bulk ? bulk_copy(proto, request, peer, &header)
                         : proto_say(proto, peer, &header, request->data, request->bytes);
    if (status != TUTTI_OK) return status;
    proto->peer[peer].sent += request->bytes + PROTO_EAGER_COST;
    return TUTTI_REQUEST_DONE;
}

/* Looks whether the receiver waits for it.  If not, and if it is small enough, it is not waited for either: ranks that
 * all begin with a send must not wait for each other. */
__attribute__((noinline)) static int await_receiver(struct proto_group *group, tutti_request *request,
                                                    struct proto_op *op)
{
    struct proto *proto = group->proto;
    int32_t peer = op->peer;
    uint64_t asked = op->id;
    if (!link_is_local(proto, peer) || !(request->flags & TUTTI_REQUEST_AWAITED)) return TUTTI_REQUEST_PENDING;
    look(proto, peer);
    if (request->priv[0] != op || op->state != PROTO_SEND_WAITING || op->offered) return TUTTI_REQUEST_PENDING;
    if (request->bytes > bulk_unasked(proto->shm) || !has_room(&proto->peer[peer], request->bytes))
        return TUTTI_REQUEST_PENDING;
    proto_op_free(proto, op);
    return send_eager(group, request, peer, asked);
}

/* The receiver has opened its memory already. */
static int send_to_opened(struct proto_group *group, tutti_request *request, struct proto_arrival *cts)
{
    struct proto *proto = group->proto;
    struct wire_header header = cts->header;
    int32_t peer = cts->match.key.source;
    tutti_match_take(&proto->grants, &cts->match);
    free(cts);
    if (!proto_agrees(request, header.bytes, header.fingerprint)) {
        proto_refuse(proto, peer, WIRE_NACK_RECV, header.id, request, false);
        return proto_mismatch(proto, request, peer, header.bytes, header.fingerprint);
    }
    struct proto_op *op = proto_op_new(group, request, peer, PROTO_SEND_WAITING);
    if (op == NULL) return TUTTI_ERR_NO_MEMORY;
    proto_start_write(proto, op, header.id);
    return TUTTI_REQUEST_PENDING;
}

int proto_send(struct proto_group *group, tutti_request *request)
{
    struct proto *proto = group->proto;
    int32_t peer = group->global_ranks[request->peer];
    int status = link_connect(proto, peer);
    if (status != TUTTI_OK) return status;
    enum proto_way way = way_of(proto, request, peer);
    if (way == PROTO_EAGER) return send_eager(group, request, peer, 0);
    tutti_match_key key = tutti_match_message_key(group->id, peer, request->tag);
    tutti_match_message *cts = tutti_match_find_message(&proto->grants, &key);
    if (cts != NULL) return send_to_opened(group, request, (struct proto_arrival *)(void *)cts);
    struct proto_op *op = proto_op_new(group, request, peer, PROTO_SEND_WAITING);
    if (op == NULL) return TUTTI_ERR_NO_MEMORY;
    if (way == PROTO_OFFER) {
        bulk_offer(proto, op);
        return await_receiver(group, request, op);
    }
    proto_post(proto, op);
    if ((request->flags & TUTTI_REQUEST_EXPECTED) && request->bytes > WIRE_EAGER && !link_is_local(proto, peer)) {
        op->since_ns = proto->host->now_ns();
        op->is_due = true;
        TAILQ_INSERT_TAIL(&proto->patient, op, due);
        return TUTTI_REQUEST_PENDING;
    }
    proto_ask(proto, op);
    return await_receiver(group, request, op);
}

/* ---- receiving --------------------------------------------------------------------------------------------- */

int proto_open_memory(struct proto *proto, struct proto_op *op, uint64_t ref)
{
    tutti_request *request = op->request;
    int status = link_expose(proto, op);
    if (status != TUTTI_OK) return status;
    op->state = PROTO_RECV_OPEN;
    op->offer = ref;
    struct wire_header header = describe(op->group, request, WIRE_CTS, op->id);
    header.ref = ref;
    return proto_say(proto, op->peer, &header, NULL, 0);
}

void proto_consumed(struct proto *proto, int32_t peer, uint64_t bytes)
{
    struct proto_peer *state = &proto->peer[peer];
    state->done += bytes + PROTO_EAGER_COST;
    if (state->done - state->done_told < PROTO_WINDOW / 4) return;
    struct wire_header header = {.kind = WIRE_CREDIT};
    proto_say(proto, peer, &header, NULL, 0);
}

/* What is to be received has come, or has been announced, before. */
static int recv_arrived(struct proto_group *group, tutti_request *request, struct proto_arrival *arrival)
{
    struct proto *proto = group->proto;
    struct wire_header header = arrival->header;
    int32_t peer = arrival->match.key.source;
    bool agrees = proto_agrees(request, header.bytes, header.fingerprint);
    request->source = proto_group_rank(group, peer);
    tutti_match_take(&proto->messages, &arrival->match);
    if (agrees) tutti_request_settle(request, header.tag, header.bytes, header.fingerprint);
    if (header.kind == WIRE_EAGER_DATA) {
        if (agrees) tutti_request_take(proto->host, request, 0, arrival->payload, header.bytes);
        proto_consumed(proto, peer, header.bytes);
    }
    free(arrival);
    if (!agrees) {
        if (header.kind != WIRE_EAGER_DATA) proto_refuse(proto, peer, WIRE_NACK_SEND, header.id, request, false);
        return proto_mismatch(proto, request, peer, header.bytes, header.fingerprint);
    }
    if (header.kind == WIRE_EAGER_DATA) return TUTTI_REQUEST_DONE;
    bool now = (request->flags & TUTTI_REQUEST_AWAITED) && header.bytes <= BULK_TURN && TAILQ_EMPTY(&proto->pulls);
    if (header.kind == WIRE_OFFER && now) return bulk_pull_now(proto, request, peer, &header);
    struct proto_op *op = proto_op_new(group, request, peer, PROTO_RECV_POSTED);
    if (op == NULL) return TUTTI_ERR_NO_MEMORY;
    if (header.kind == WIRE_OFFER) {
        bulk_pull(proto, op, &header);
        return TUTTI_REQUEST_PENDING;
    }
    int status = proto_open_memory(proto, op, header.id);
    if (status == TUTTI_OK) return TUTTI_REQUEST_PENDING;
    proto_op_free(proto, op);
    return status;
}

/* Looks whether the message is about to come.  PENDING: it is not, and nothing was done. */
static int await(struct proto_group *group, tutti_request *request, int32_t peer)
{
    struct proto *proto = group->proto;
    proto->awaited = (struct proto_awaited){.request = request, .group = group, .peer = peer};
    look(proto, peer);
    bool came = proto->awaited.request == NULL;
    proto->awaited.request = NULL;
    if (!came) return TUTTI_REQUEST_PENDING;
    request->source = request->peer;
    return proto->awaited.status == TUTTI_OK ? TUTTI_REQUEST_DONE : proto->awaited.status;
}

/* Returns the oldest message that the receive takes, or NULL.  Discards messages for the group from ranks that are not
 * in it: no receive will ever take them. */
static struct proto_arrival *find_arrived(const struct proto_group *group, const tutti_request *request, int32_t peer)
{
    tutti_matcher *messages = &group->proto->messages;
    tutti_match_key key = tutti_match_receive_key(request, group->id, peer);
    tutti_match_message *message;
    while ((message = tutti_match_find_message(messages, &key)) != NULL && peer == TUTTI_ANY_SOURCE &&
           proto_group_rank(group, message->key.source) < 0) {
        tutti_match_take(messages, message);
        free(message); /* the first member of its arrival */
    }
    return (struct proto_arrival *)(void *)message;
}

/* Describes what has come, or waits for it. */
static int peek(struct proto_group *group, tutti_request *request, int32_t peer, const struct proto_arrival *arrival)
{
    struct proto *proto = group->proto;
    if (arrival != NULL) {
        const struct wire_header *header = &arrival->header;
        request->source = proto_group_rank(group, arrival->match.key.source);
        tutti_request_settle(request, header->tag, header->bytes, header->fingerprint);
        return TUTTI_REQUEST_DONE;
    }
    int status = peer == TUTTI_ANY_SOURCE ? TUTTI_OK : link_connect(proto, peer);
    if (status != TUTTI_OK) return status;
    struct proto_op *op = proto_op_new(group, request, peer, PROTO_RECV_PEEKING);
    if (op == NULL) return TUTTI_ERR_NO_MEMORY;
    proto_post(proto, op);
    return TUTTI_REQUEST_PENDING;
}

int proto_recv(struct proto_group *group, tutti_request *request)
{
    struct proto *proto = group->proto;
    bool any = request->peer == TUTTI_ANY_SOURCE;
    int32_t peer = any ? TUTTI_ANY_SOURCE : group->global_ranks[request->peer];
    bool local = !any && link_is_local(proto, peer);
    struct proto_arrival *arrived = find_arrived(group, request, peer);
    if (request->flags & TUTTI_REQUEST_PEEK) return peek(group, request, peer, arrived);
    /* A receive that was posted before may be meant for the same message. */
    bool awaits = (request->flags & TUTTI_REQUEST_AWAITED) && (request->flags & TUTTI_REQUEST_ANY_TAG) == 0;
    if (arrived == NULL && local && awaits && proto->messages.n_receives == 0) {
        int status = await(group, request, peer);
        if (status != TUTTI_REQUEST_PENDING) return status;
        arrived = find_arrived(group, request, peer);
    }
    if (arrived != NULL) return recv_arrived(group, request, arrived);
    int status = any ? TUTTI_OK : link_connect(proto, peer); /* so that its end is noticed, too */
    if (status != TUTTI_OK) return status;
    struct proto_op *op = proto_op_new(group, request, peer, PROTO_RECV_POSTED);
    if (op == NULL) return TUTTI_ERR_NO_MEMORY;
    proto_post(proto, op);
    if (any || local || !(request->flags & TUTTI_REQUEST_EXPECTED) || request->bytes <= WIRE_EAGER)
        return TUTTI_REQUEST_PENDING;
    status = proto_open_memory(proto, op, 0);
    if (status == TUTTI_OK) return TUTTI_REQUEST_PENDING;
    proto_op_free(proto, op);
    return status;
}

/* ---- taking back ------------------------------------------------------------------------------------------- */

/* Whatever is said may end the link, and with it the operation, where there is no memory for it. */
static bool has_ended(const struct proto_op *op, const tutti_request *request)
{
    return request->priv[0] != op;
}

static void free_and_say(struct proto *proto, struct proto_op *op, struct wire_header header)
{
    int32_t peer = op->peer;
    proto_op_free(proto, op);
    proto_say(proto, peer, &header, NULL, 0);
}

/* What is received from a local peer is written by this rank alone, so it can stop at once. */
static bool give_up_local(struct proto *proto, struct proto_op *op)
{
    struct wire_header header = {.kind = WIRE_REVOKE, .ref = op->id};
    if (op->state != PROTO_RECV_PULLING && op->state != PROTO_RECV_OPEN) return false;
    if (op->state == PROTO_RECV_PULLING)
        header = (struct wire_header){.kind = WIRE_FIN, .ref = op->offer, .flags = WIRE_TAKEN_BACK};
    free_and_say(proto, op, header);
    return true;
}

static int gone(const struct proto *proto)
{
    return proto->host->error(TUTTI_ERR_NOT_FOUND, "this message is not pending");
}

/* The peer may be writing: it is asked to say when it is not, and the link is ended if it does not in time. */
static int revoke(struct proto *proto, struct proto_op *op)
{
    const tutti_request *request = op->request;
    struct wire_header header = {.kind = WIRE_REVOKE, .ref = op->id};
    if (op->offered) header.kind = WIRE_UNOFFER;
    if (op->offered || op->state == PROTO_RECV_OPEN) {
        proto_expects(proto, op->peer);
        proto_say(proto, op->peer, &header, NULL, 0);
        if (has_ended(op, request)) return gone(proto);
    }
    op->cancelled = true;
    op->is_due = true;
    op->since_ns = proto->host->now_ns();
    TAILQ_INSERT_TAIL(&proto->revoked, op, due);
    return proto->host->error(TUTTI_ERR_ABORTED, "rank %d is being asked to give memory back", op->peer);
}

int proto_cancel(struct proto_group *group, tutti_request *request)
{
    struct proto *proto = group->proto;
    struct proto_op *op = request->priv[0];
    if (op == NULL || op->request != request) return gone(proto);
    if (op->cancelled) return proto->host->error(TUTTI_ERR_ABORTED, "rank %d is being asked already", op->peer);
    if (op->offered && !link_unsend(proto, op->peer, WIRE_OFFER, op->id)) return revoke(proto, op);
    if (link_is_local(proto, op->peer) && give_up_local(proto, op)) return TUTTI_OK;
    if (op->state == PROTO_RECV_OPEN && !link_unsend(proto, op->peer, WIRE_CTS, op->id)) return revoke(proto, op);
    if (op->state == PROTO_SEND_WAITING && !op->offered && !op->is_due) { /* it has been asked for */
        free_and_say(proto, op, (struct wire_header){.kind = WIRE_UNASK, .ref = op->id});
        return TUTTI_OK;
    }
    if (op->state == PROTO_SEND_WRITING) {
        bool begun = !link_unwrite(proto, op);
        if (begun) op->cut = link_cut(proto, op);
        if (!begun || op->cut) proto_refuse(proto, op->peer, WIRE_NACK_RECV, op->write.key, NULL, true);
        if (has_ended(op, request)) return gone(proto);
        if (begun) return revoke(proto, op);
    }
    proto_op_free(proto, op);
    return TUTTI_OK;
}
