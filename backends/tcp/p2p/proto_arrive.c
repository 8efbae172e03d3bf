/* What comes from the peers. */
#include <stdlib.h>
#include <string.h>

#include "tcp/p2p/proto.h"

static struct proto_op *op_of(tutti_match_receive *receive)
{
    return (struct proto_op *)(void *)receive; /* the first member */
}

static struct proto_arrival *arrival_of(tutti_match_message *message)
{
    return (struct proto_arrival *)(void *)message; /* the first member */
}

static tutti_match_key key_of(const struct wire_header *header)
{
    return tutti_match_message_key(header->group, (int32_t)header->source, header->tag);
}

/* True if the receive takes messages of this rank: one from any source takes those of its group's members. */
static bool takes_from(const struct proto_op *op, int32_t peer)
{
    return op->peer != TUTTI_ANY_SOURCE || proto_group_rank(op->group, peer) >= 0;
}

/* Returns the posted receive that takes a message, or NULL. */
static struct proto_op *find_posted(const struct proto *proto, const struct wire_header *header)
{
    tutti_match_key key = key_of(header);
    tutti_match_receive *receive = tutti_match_find_receive(&proto->messages, &key);
    return receive != NULL && takes_from(op_of(receive), key.source) ? op_of(receive) : NULL;
}

/* Completes the probes that match a message just kept. */
static void complete_probes(struct proto *proto, const struct wire_header *header)
{
    tutti_match_key key = key_of(header);
    tutti_match_receive *probe;
    while ((probe = tutti_match_find_probe(&proto->messages, &key)) != NULL && takes_from(op_of(probe), key.source)) {
        struct proto_op *op = op_of(probe);
        tutti_request_settle(op->request, header->tag, header->bytes, header->fingerprint);
        proto_finish_recv(proto, op, (int32_t)header->source, TUTTI_OK);
    }
}

/* Keeps a message until its counterpart is posted. */
static void keep(struct proto *proto, tutti_matcher *matcher, const struct wire_header *header, const void *payload)
{
    size_t bytes = header->kind == WIRE_EAGER_DATA ? header->bytes : 0;
    if (proto_is_past(proto, header->group)) {
        proto_disown(proto, header);
        return;
    }
    const struct proto_peer *peer = &proto->peer[header->source];
    if (header->kind == WIRE_EAGER_DATA && peer->came - peer->done > PROTO_WINDOW) {
        link_drop(proto, (int32_t)header->source, "it sends more unasked than it may", true);
        return;
    }
    struct proto_arrival *arrival = malloc(sizeof *arrival + bytes);
    if (arrival == NULL) { /* a lost message would be a hang */
        link_drop(proto, (int32_t)header->source, "no memory for its messages", true);
        return;
    }
    arrival->match = (tutti_match_message){.key = key_of(header)};
    arrival->header = *header;
    if (bytes > 0) memcpy(arrival->payload, payload, bytes);
    tutti_match_reserve(matcher, malloc, free);
    tutti_match_keep(matcher, &arrival->match);
    if (matcher == &proto->messages && matcher->n_probes > 0) complete_probes(proto, header);
}

void proto_finish_recv(struct proto *proto, struct proto_op *op, int32_t peer, int status)
{
    op->request->source = proto_group_rank(op->group, peer);
    proto_finish(proto, op, status);
}

static bool is_awaited(const struct proto *proto, const struct wire_header *header)
{
    const struct proto_awaited *awaited = &proto->awaited;
    return awaited->request != NULL && !awaited->announced && awaited->request->tag == header->tag &&
           awaited->peer == (int32_t)header->source && awaited->group->id == header->group;
}

/* The message itself, or what is wrong with it. */
static int take_eager(struct proto *proto, tutti_request *request, const struct wire_header *header,
                      const void *payload)
{
    int32_t peer = (int32_t)header->source;
    proto_consumed(proto, peer, header->bytes);
    if (!proto_agrees(request, header->bytes, header->fingerprint))
        return proto_mismatch(proto, request, peer, header->bytes, header->fingerprint);
    tutti_request_settle(request, header->tag, header->bytes, header->fingerprint);
    tutti_request_take(proto->host, request, 0, payload, header->bytes);
    return TUTTI_OK;
}

/* The receive that has answered this question, or NULL. */
static struct proto_op *find_open(const struct proto *proto, int32_t peer, uint64_t question)
{
    for (size_t i = 0; i < proto->n_slots; i++) {
        struct proto_op *op = proto->slot[i];
        if (op->request != NULL && op->state == PROTO_RECV_OPEN && op->peer == peer && op->offer == question) return op;
    }
    return NULL;
}

/* Its sender has asked first, and did not wait for the answer: if that was another one than the receiver's memory, the
 * message has met its receive, and nobody takes it any more. */
static void arrive_after_all(struct proto *proto, const struct wire_header *header, const void *payload)
{
    int32_t peer = (int32_t)header->source;
    struct proto_op *op = find_open(proto, peer, header->ref);
    if (op != NULL)
        proto_finish_recv(proto, op, peer, take_eager(proto, op->request, header, payload));
    else if (proto_forget_announced(proto, peer, header->ref))
        keep(proto, &proto->messages, header, payload);
    else
        proto_consumed(proto, peer, header->bytes);
}

static void arrive_eager(struct proto *proto, const struct wire_header *header, const void *payload)
{
    int32_t peer = (int32_t)header->source;
    proto->peer[peer].came += header->bytes + PROTO_EAGER_COST;
    if (header->ref != 0) {
        arrive_after_all(proto, header, payload);
        return;
    }
    if (is_awaited(proto, header)) {
        proto->awaited.status = take_eager(proto, proto->awaited.request, header, payload);
        proto->awaited.request = NULL;
        return;
    }
    struct proto_op *op = find_posted(proto, header);
    if (op == NULL) {
        keep(proto, &proto->messages, header, payload);
        return;
    }
    proto_finish_recv(proto, op, peer, take_eager(proto, op->request, header, payload));
}

/* Who has a message for us asks where to put it, or offers it to be read. */
static void arrive_rts(struct proto *proto, const struct wire_header *header)
{
    int32_t peer = (int32_t)header->source;
    struct proto_op *op = find_posted(proto, header);
    if (op == NULL) {
        if (is_awaited(proto, header)) proto->awaited.announced = true;
        keep(proto, &proto->messages, header, NULL);
        return;
    }
    if (!proto_agrees(op->request, header->bytes, header->fingerprint)) {
        proto_refuse(proto, peer, WIRE_NACK_SEND, header->id, op->request, false);
        proto_finish_recv(proto, op, peer,
                          proto_mismatch(proto, op->request, peer, header->bytes, header->fingerprint));
        return;
    }
    if (op->state == PROTO_RECV_OPEN) return; /* opened unasked: the question crossed the answer */
    tutti_request_settle(op->request, header->tag, header->bytes, header->fingerprint);
    proto_withdraw(proto, op);
    op->peer = peer;
    if (header->kind == WIRE_OFFER) {
        bulk_pull(proto, op, header);
        return;
    }
    int status = proto_open_memory(proto, op, header->id);
    if (status != TUTTI_OK) proto_finish_recv(proto, op, peer, status);
}

static void arrive_cts(struct proto *proto, const struct wire_header *header)
{
    int32_t peer = (int32_t)header->source;
    struct proto_op *op = NULL;
    if (header->ref != 0) {
        op = proto_op_find(proto, header->ref);
        /* What was offered is not asked about. */
        if (op == NULL || op->state != PROTO_SEND_WAITING || op->offered || op->peer != peer) {
            proto_refuse(proto, peer, WIRE_NACK_RECV, header->id, NULL, true);
            return;
        }
    } else {
        tutti_match_key key = key_of(header);
        tutti_match_receive *send = tutti_match_find_receive(&proto->grants, &key);
        if (send == NULL) {
            keep(proto, &proto->grants, header, NULL);
            return;
        }
        op = op_of(send);
    }
    if (proto_agrees(op->request, header->bytes, header->fingerprint)) {
        proto_start_write(proto, op, header->id);
        return;
    }
    proto_refuse(proto, peer, WIRE_NACK_RECV, header->id, op->request, false);
    proto_finish(proto, op, proto_mismatch(proto, op->request, peer, header->bytes, header->fingerprint));
}

static int taken_back(struct proto *proto, int32_t peer)
{
    return proto->host->error(TUTTI_ERR_ABORTED, "rank %d took its receive back", peer);
}

static void arrive_nack_send(struct proto *proto, const struct wire_header *header)
{
    int32_t peer = (int32_t)header->source;
    struct proto_op *op = proto_op_find(proto, header->ref);
    if (op == NULL || op->state != PROTO_SEND_WAITING || op->peer != peer) return;
    int status = header->flags & WIRE_TAKEN_BACK
                     ? taken_back(proto, peer)
                     : proto_mismatch(proto, op->request, peer, header->bytes, header->fingerprint);
    proto_finish(proto, op, status);
}

/* Forgets what a peer said under this id: an RTS, an offer or a CTS.  Returns false if there is none. */
static bool forget_question(tutti_matcher *matcher, int32_t peer, uint64_t id)
{
    tutti_match_message *message = tutti_match_next_message(matcher, NULL);
    for (; message != NULL; message = tutti_match_next_message(matcher, message)) {
        const struct wire_header *header = &arrival_of(message)->header;
        if (message->key.source != peer || header->kind == WIRE_EAGER_DATA || header->id != id) continue;
        tutti_match_take(matcher, message);
        free(arrival_of(message));
        return true;
    }
    return false;
}

bool proto_forget_announced(struct proto *proto, int32_t peer, uint64_t id)
{
    return forget_question(&proto->messages, peer, id);
}

static void arrive_nack_recv(struct proto *proto, const struct wire_header *header)
{
    int32_t peer = (int32_t)header->source;
    struct proto_op *op = proto_op_find(proto, header->ref);
    if (op == NULL || op->state != PROTO_RECV_OPEN || op->peer != peer) return;
    int status = header->flags & WIRE_TAKEN_BACK
                     ? proto->host->error(TUTTI_ERR_ABORTED, "rank %d took its message back", peer)
                     : proto_mismatch(proto, op->request, peer, header->bytes, header->fingerprint);
    proto_finish_recv(proto, op, peer, status);
}

/* A note is read by a parser, so it is copied first: the peer may change what lies in the ring. */
static void arrive_note(struct proto *proto, const struct wire_header *header, const void *payload)
{
    struct proto_group *group;
    uint8_t note[WIRE_NOTE];
    if (header->bytes > 0) memcpy(note, payload, header->bytes); /* wire_parse has seen that they fit */
    LIST_FOREACH(group, &proto->groups, link)
    {
        if (group->id != header->group || group->closing || proto->closing) continue;
        int32_t rank = proto_group_rank(group, (int32_t)header->source);
        if (rank >= 0) proto->host->notified(group->core, rank, note, header->bytes);
        return;
    }
    struct wire_header answer = {.kind = WIRE_NOTE_DATA, .group = header->group};
    if (header->bytes > 0 && proto_is_past(proto, header->group))
        proto_say(proto, (int32_t)header->source, &answer, NULL, 0);
}

/* A write ends with the pieces that are on their way, and the answer follows them.  Only of one whose last piece is
 * among them the peer hears anyway. */
static void arrive_revoke(struct proto *proto, const struct wire_header *header)
{
    int32_t peer = (int32_t)header->source;
    forget_question(&proto->grants, peer, header->ref);
    for (size_t i = 0; i < proto->n_slots; i++) {
        struct proto_op *op = proto->slot[i];
        if (op->request == NULL || op->state != PROTO_SEND_WRITING || op->peer != peer || op->write.key != header->ref)
            continue;
        if (link_unwrite(proto, op))
            proto_finish(proto, op, taken_back(proto, peer));
        else if (link_cut(proto, op))
            op->cut = true;
        else
            return;
        break;
    }
    struct wire_header answer = {.kind = WIRE_REVOKED, .ref = header->ref};
    proto_say(proto, peer, &answer, NULL, 0);
}

static void arrive_revoked(struct proto *proto, const struct wire_header *header)
{
    struct proto_op *op = proto_op_find(proto, header->ref);
    if (op == NULL || op->state != PROTO_RECV_OPEN || !op->cancelled || op->peer != (int32_t)header->source) return;
    proto_finish(proto, op, proto->host->error(TUTTI_ERR_ABORTED, "the receive was taken back"));
}

static void arrive_bye(struct proto *proto, const struct wire_header *header)
{
    int32_t peer = (int32_t)header->source;
    proto->peer[peer].left = true;
    if (proto->closing) return; /* it waits for ours, which is out */
    struct wire_header answer = {.kind = WIRE_BYE};
    proto_say(proto, peer, &answer, NULL, 0);
    link_drop(proto, peer, "it left the group", true);
}

static void handle_other(struct proto *proto, const struct wire_header *header, const void *payload)
{
    switch (header->kind) {
    case WIRE_RTS:
    case WIRE_OFFER:
        arrive_rts(proto, header);
        break;
    case WIRE_CTS:
        arrive_cts(proto, header);
        break;
    case WIRE_NACK_SEND:
        arrive_nack_send(proto, header);
        break;
    case WIRE_NACK_RECV:
        arrive_nack_recv(proto, header);
        break;
    case WIRE_NOTE_DATA:
        arrive_note(proto, header, payload);
        break;
    case WIRE_REVOKE:
        arrive_revoke(proto, header);
        break;
    case WIRE_REVOKED:
        arrive_revoked(proto, header);
        break;
    case WIRE_UNASK:
        /* A receive that has answered the question already is told when its answer arrives. */
        proto_forget_announced(proto, (int32_t)header->source, header->ref);
        break;
    case WIRE_BYE:
        arrive_bye(proto, header);
        break;
    case WIRE_UNOFFER:
        bulk_unoffer(proto, header);
        break;
    case WIRE_FIN:
        bulk_fin(proto, header);
        break;
    case WIRE_STREAM:
        bulk_stream(proto, header);
        break;
    }
}

static void handle(struct proto *proto, const struct wire_header *header, const void *payload)
{
    struct proto_peer *peer = &proto->peer[header->source];
    peer->owes_ns = 0;
    if (header->credit - peer->sent_gone <= peer->sent - peer->sent_gone) peer->sent_gone = header->credit;
    if (header->kind == WIRE_EAGER_DATA)
        arrive_eager(proto, header, payload);
    else
        handle_other(proto, header, payload);
}

static void on_message(void *user, const void *message, size_t bytes)
{
    struct proto *proto = user;
    struct wire_header header;
    if (!wire_parse(message, bytes, (uint32_t)proto->world_size, &header) || header.kind >= WIRE_OFFER ||
        (int32_t)header.source == proto->rank) {
        proto->host->log(1, "tcp: ignored a malformed message of %zu bytes", bytes);
        return;
    }
    handle(proto, &header, (const uint8_t *)message + WIRE_HEADER);
}

static void on_local_message(void *user, const struct wire_header *header, const void *payload, size_t bytes)
{
    struct proto *proto = user;
    if (wire_is_valid(header, bytes, (uint32_t)proto->world_size))
        handle(proto, header, payload);
    else
        link_drop(proto, (int32_t)header->source, "it wrote nonsense into shared memory", true);
}

static void on_written(void *user, uint64_t key)
{
    struct proto *proto = user;
    struct proto_op *op = proto_op_find(proto, key);
    if (op == NULL || op->state != PROTO_RECV_OPEN) return;
    if (op->stage != NULL) tutti_request_take(proto->host, op->request, 0, op->stage, op->request->bytes);
    proto_finish_recv(proto, op, op->peer, TUTTI_OK);
}

static void on_write_done(void *user, struct fabric_write *write)
{
    struct proto_op *op = write->owner;
    if (op->request == NULL) return; /* its group was closed meanwhile */
    proto_finish(user, op, op->cut ? taken_back(user, op->peer) : TUTTI_OK);
}

static void forget_questions(tutti_matcher *matcher, int32_t peer)
{
    tutti_match_message *message = tutti_match_next_message(matcher, NULL), *next;
    for (; message != NULL; message = next) {
        next = tutti_match_next_message(matcher, message);
        if (message->key.source != peer || arrival_of(message)->header.kind == WIRE_EAGER_DATA) continue;
        tutti_match_take(matcher, message);
        free(arrival_of(message));
    }
}

/* What came whole before the end may still be received. */
static void on_lost(void *user, int32_t peer, const char *why)
{
    struct proto *proto = user;
    forget_questions(&proto->messages, peer);
    forget_questions(&proto->grants, peer);
    if (link_is_local(proto, peer)) bulk_lost(proto, peer);
    proto->moved++;
    if (proto->closing) return;
    for (size_t i = 0; i < proto->n_slots; i++) {
        struct proto_op *op = proto->slot[i];
        if (op->request == NULL || op->peer != peer) continue;
        op->request->source = op->request->peer;
        proto_finish(proto, op, proto_lost(proto, peer));
    }
    proto->host->peer_lost(proto->core, peer, proto->peer[peer].left, why);
}

const struct fabric_events proto_events = {
    .message = on_message, .written = on_written, .write_done = on_write_done, .lost = on_lost};

const struct shm_events proto_local_events = {.message = on_local_message, .lost = on_lost};
