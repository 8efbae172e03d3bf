/* Large messages between ranks that share memory.
 *
 * Where process_vm_readv is allowed, or the memory is tutti_alloc's, which the receiver maps, the sender offers its
 * memory and the receiver reads it, one copy, a piece at a time so that other messages are not kept waiting.  The data
 * are the message only if the sender is still alive and has not ended the link once all of it was read (shm_is_open).
 *
 * Elsewhere the sender writes parts into the ring as the receiver makes room: two copies, which overlap.  So it does,
 * too, if it has a core and nothing else to do (its caller waits), where that is the faster way (pace.h): the ring
 * stays in the caches, two cores do the work of one, and what is received of a message larger than they are goes past
 * them, as the kernel's copy does not.  Where both ends send at once it would be the slower way (8 MiB 2.0 ms for
 * 0.85).
 */
#include <stdlib.h>
#include <string.h>

#include "proto.h"

enum {
    PART_MOST = 32 << 10,   /* a multiple of any element's size, at most a quarter of the ring */
    STREAM_LEAST = 16 << 20 /* measured: of this, nothing is in the cache any more when it is used */
};

static void put_on(struct proto_due *list, struct proto_op *op)
{
    op->is_bulk = true;
    op->at = 0;
    TAILQ_INSERT_TAIL(list, op, bulk);
}

void bulk_forget(struct proto *proto, struct proto_op *op)
{
    if (op->is_bulk) TAILQ_REMOVE(op->state == PROTO_RECV_PULLING ? &proto->pulls : &proto->pushes, op, bulk);
    op->is_bulk = false;
}

/* ---- reading the sender's memory --------------------------------------------------------------------------- */

static size_t most_unasked(const struct shm *shm)
{
    return shm->ring_bytes / 2 < WIRE_EAGER ? shm->ring_bytes / 2 : WIRE_EAGER;
}

size_t bulk_eager(const struct shm *shm)
{
    return most_unasked(shm) < BULK_LEAST ? most_unasked(shm) : BULK_LEAST;
}

/* Whether there is a choice, which the times of both ways decide. */
static bool is_timed(const struct shm *shm)
{
    return shm->can_pull && !shm->shares_cores;
}

enum proto_way bulk_way(struct proto *proto, const tutti_request *request, int32_t peer, bool unasked)
{
    struct shm *shm = proto->shm;
    int seat = shm_seat_of(shm, peer);
    size_t bytes = request->bytes;
    if (unasked && bytes <= bulk_eager(shm)) return PROTO_EAGER;
    if (bytes > 0 && shm_is_shared(shm, request->data, bytes)) return PROTO_OFFER;
    if (!shm->can_pull || bytes == 0) return unasked && bytes <= most_unasked(shm) ? PROTO_EAGER : PROTO_ASK;
    /* What finds no room in the ring would be copied once more. */
    bool copies = unasked && bytes <= most_unasked(shm) && shm_fits(shm, seat, bytes);
    if (shm->shares_cores) return copies ? PROTO_EAGER : PROTO_OFFER;
    bool pushes = (request->flags & TUTTI_REQUEST_AWAITED) && bytes > BULK_LEAST && shm->ring_bytes >= 4 * PART_MOST;
    if ((!copies && !pushes) || pace_choose(&shm->peer[seat].pace, bytes) == PACE_PULL) return PROTO_OFFER;
    return copies ? PROTO_EAGER : PROTO_ASK;
}

static uint64_t ns_since(const struct proto *proto, int64_t begin_ns)
{
    int64_t ns = proto->host->now_ns() - begin_ns;
    return ns > 0 ? (uint64_t)ns : 1;
}

/* What pushing n parts took from end to end: the receiver takes the last one when all are written. */
static void learn_push(struct proto *proto, int32_t peer, size_t bytes, uint64_t ns, size_t parts)
{
    pace_learn(&proto->shm->peer[shm_seat_of(proto->shm, peer)].pace, PACE_PUSH, bytes, ns + ns / parts);
}

int bulk_copy(struct proto *proto, const tutti_request *request, int32_t peer, struct wire_header *header)
{
    if (!is_timed(proto->shm)) return proto_say(proto, peer, header, request->data, request->bytes);
    int64_t begin = proto->host->now_ns();
    int status = proto_say(proto, peer, header, request->data, request->bytes);
    learn_push(proto, peer, request->bytes, ns_since(proto, begin), 1);
    return status;
}

int bulk_offer(struct proto *proto, struct proto_op *op)
{
    const tutti_request *request = op->request;
    op->offered = true;
    struct wire_header header = {.kind = WIRE_OFFER,
                                 .group = op->group->id,
                                 .tag = request->tag,
                                 .bytes = request->bytes,
                                 .fingerprint = request->fingerprint,
                                 .id = op->id,
                                 .ref = (uint64_t)(uintptr_t)request->data};
    proto_say(proto, op->peer, &header, NULL, 0);
    return TUTTI_REQUEST_PENDING;
}

void bulk_pull(struct proto *proto, struct proto_op *op, const struct wire_header *offer)
{
    op->state = PROTO_RECV_PULLING;
    op->offer = offer->id;
    op->from = offer->ref;
    put_on(&proto->pulls, op);
}

/* Bytes of the offered message from `at` on. */
static bool read_offered(struct proto *proto, int seat, const tutti_request *request, size_t at, uint64_t from,
                         size_t bytes)
{
    char *data = (char *)request->data + at;
    if (request->addend == NULL) return shm_pull(proto->shm, seat, data, from, bytes);
    const void *came = shm_reach(proto->shm, seat, from, bytes);
    if (came == NULL) {
        void *to = request->addend != request->data ? data : proto->block;
        if (!shm_pull(proto->shm, seat, to, from, bytes)) return false;
        came = to;
    }
    tutti_request_take(proto->host, request, at, came, bytes);
    return true;
}

static void say_fin(struct proto *proto, int32_t peer, uint64_t offer, uint64_t ns)
{
    struct wire_header fin = {.kind = WIRE_FIN, .ref = offer, .bytes = ns};
    proto_say(proto, peer, &fin, NULL, 0);
}

int bulk_pull_now(struct proto *proto, tutti_request *request, int32_t peer, const struct wire_header *offer)
{
    int seat = shm_seat_of(proto->shm, peer);
    int64_t begin = proto->host->now_ns();
    if (!read_offered(proto, seat, request, 0, offer->ref, request->bytes) || !shm_is_open(proto->shm, seat)) {
        shm_unreadable(proto->shm, seat);
        return proto_lost(proto, peer);
    }
    say_fin(proto, peer, offer->id, ns_since(proto, begin));
    return TUTTI_REQUEST_DONE;
}

static void pull(struct proto *proto, struct proto_op *op)
{
    tutti_request *request = op->request;
    int32_t peer = op->peer;
    int seat = shm_seat_of(proto->shm, peer);
    size_t left = request->bytes - op->at, bytes = left < BULK_TURN ? left : BULK_TURN;
    int64_t begin = proto->host->now_ns();
    if (!read_offered(proto, seat, request, op->at, op->from + op->at, bytes)) {
        shm_unreadable(proto->shm, seat);
        return;
    }
    op->at += bytes;
    op->took_ns += ns_since(proto, begin);
    if (op->at < request->bytes) return;
    if (!shm_is_open(proto->shm, seat)) {
        shm_unreadable(proto->shm, seat);
        return;
    }
    say_fin(proto, peer, op->offer, op->took_ns);
    proto_finish_recv(proto, op, peer, TUTTI_OK);
}

/* What was read to its end is not found here any more: the sender has our word on its way. */
void bulk_unoffer(struct proto *proto, const struct wire_header *header)
{
    int32_t peer = (int32_t)header->source;
    struct proto_op *op = TAILQ_FIRST(&proto->pulls);
    while (op != NULL && (op->peer != peer || op->offer != header->ref)) op = TAILQ_NEXT(op, bulk);
    if (!proto_forget_announced(proto, peer, header->ref)) {
        if (op == NULL) return;
        proto_finish_recv(proto, op, peer,
                          proto->host->error(TUTTI_ERR_ABORTED, "rank %d took its message back", peer));
    }
    struct wire_header answer = {.kind = WIRE_FIN, .ref = header->ref, .flags = WIRE_TAKEN_BACK};
    proto_say(proto, peer, &answer, NULL, 0);
}

void bulk_fin(struct proto *proto, const struct wire_header *header)
{
    struct proto_op *op = proto_op_find(proto, header->ref);
    if (op == NULL || !op->offered || op->peer != (int32_t)header->source) return;
    int status = TUTTI_OK;
    if (header->flags & WIRE_TAKEN_BACK)
        status = proto->host->error(TUTTI_ERR_ABORTED, "rank %d took its receive back", op->peer);
    else if (!shm_is_shared(proto->shm, op->request->data, op->request->bytes))
        pace_learn(&proto->shm->peer[shm_seat_of(proto->shm, op->peer)].pace, PACE_PULL, op->request->bytes,
                   header->bytes);
    proto_finish(proto, op, status);
}

/* ---- parts through the ring -------------------------------------------------------------------------------- */

void bulk_push(struct proto *proto, struct proto_op *op)
{
    op->since_ns = proto->host->now_ns();
    put_on(&proto->pushes, op);
}

/* As much as there is room for; whether anything moved. */
static bool push(struct proto *proto, struct proto_op *op)
{
    const tutti_request *request = op->request;
    int seat = shm_seat_of(proto->shm, op->peer);
    size_t most = proto->shm->ring_bytes / 4 < PART_MOST ? proto->shm->ring_bytes / 4 : PART_MOST;
    bool moved = false;
    do { /* an empty message is one empty part */
        size_t left = request->bytes - op->at, bytes = left < most ? left : most;
        if (!shm_has_room(proto->shm, seat, bytes)) return moved;
        struct wire_header header = {.kind = WIRE_PART, .ref = op->write.key, .bytes = bytes};
        proto_say(proto, op->peer, &header, (const char *)request->data + op->at, bytes);
        op->at += bytes;
        moved = true;
    } while (op->at < request->bytes);
    if (is_timed(proto->shm) && request->bytes > 0)
        learn_push(proto, op->peer, request->bytes, ns_since(proto, op->since_ns), (request->bytes + most - 1) / most);
    proto_finish(proto, op, TUTTI_OK);
    return true;
}

void bulk_part(struct proto *proto, const struct wire_header *header, const void *payload)
{
    int32_t peer = (int32_t)header->source;
    struct proto_op *op = proto_op_find(proto, header->ref);
    if (op == NULL || op->state != PROTO_RECV_OPEN || op->peer != peer) return; /* taken back meanwhile */
    tutti_request *request = op->request;
    if (header->bytes > request->bytes - op->at) {
        link_drop(proto, peer, "it sends more than it said", true);
        return;
    }
    if (request->bytes >= STREAM_LEAST)
        shm_stream((char *)request->data + op->at, payload, header->bytes);
    else
        tutti_request_take(proto->host, request, op->at, payload, header->bytes);
    op->at += header->bytes;
    if (op->at == request->bytes) proto_finish_recv(proto, op, peer, TUTTI_OK);
}

/* ---- turns ------------------------------------------------------------------------------------------------- */

int bulk_progress(struct proto *proto)
{
    int moved = 0;
    struct proto_op *op = TAILQ_FIRST(&proto->pulls), *next;
    if (op != NULL) {
        pull(proto, op); /* the oldest alone, to its end: so it is whole in the cache when it is used */
        moved++;
    }
    for (op = TAILQ_FIRST(&proto->pushes); op != NULL; op = next) {
        next = TAILQ_NEXT(op, bulk);
        moved += push(proto, op);
    }
    return moved;
}
