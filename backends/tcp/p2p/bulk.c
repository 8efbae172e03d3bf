/* Large messages between ranks that share memory.
 *
 * If process_vm_readv is permitted, or the memory is tutti_alloc's, which the receiver maps, the sender exposes its
 * memory and the receiver reads it: one copy, in pieces, so that other messages are not delayed.  The data is valid
 * only if the sender is alive and the link open after all of it was read (shm_is_open).
 *
 * Otherwise the sender copies it into the ring's FIFO while the receiver copies it out (fifo.c): two copies that
 * overlap.  This path is also used if the sender has a core, is blocked on this message, and the cost model favors it
 * (cost_model.h).  The FIFO stays cached, two cores share the work, and large messages are stored non-temporally, which
 * the kernel does not do.  If both ends send at once it would be slower.  See docs/benchmarks/shared-memory.md.
 */
#include <stdlib.h>
#include <string.h>

#include "tcp/p2p/proto.h"

enum {
    PUSH_LEAST = 12 << 10,  /* bytes from which on the sender first waits for the receiver */
    STREAM_LEAST = 16 << 20 /* from this size on, the caches do not hold the data until it is used */
};

enum { PUSH = COST_FIRST, PULL = COST_SECOND };

static void append_to(struct proto_due *list, struct proto_op *op)
{
    op->bulk_list = list;
    op->at = 0;
    TAILQ_INSERT_TAIL(list, op, bulk);
}

/* ---- reading the sender's memory --------------------------------------------------------------------------- */

size_t bulk_unasked(const struct shm *shm)
{
    return shm->ring_bytes / 2 < WIRE_EAGER ? shm->ring_bytes / 2 : WIRE_EAGER;
}

size_t bulk_eager(const struct shm *shm)
{
    return bulk_unasked(shm) < BULK_LEAST ? bulk_unasked(shm) : BULK_LEAST;
}

/* True if both paths are possible, so that the cost model decides. */
static bool is_timed(const struct shm *shm)
{
    return shm->can_read_memory && !shm->shares_cores;
}

/* Chooses the path: copy into the ring at once (EAGER), through the FIFO once the receiver is ready (ASK), or
 * single-copy read (OFFER). */
enum proto_way bulk_way(struct proto *proto, const tutti_request *request, int32_t peer, bool unasked)
{
    struct shm *shm = proto->shm;
    int seat = shm_local_rank(shm, peer);
    size_t bytes = request->bytes;
    /* True if the sender is blocked on this message alone. */
    bool pushes = bytes > PUSH_LEAST && (request->flags & TUTTI_REQUEST_AWAITED) && proto->messages.n_receives == 0;
    bool streams = pushes && !shm->shares_cores;
    if (unasked && bytes <= bulk_eager(shm)) return streams ? PROTO_ASK : PROTO_EAGER;
    if (bytes > 0 && shm_is_shared(shm, request->data, bytes)) return PROTO_OFFER;
    bool copies = unasked && bytes <= bulk_unasked(shm), reads = shm->can_read_memory && bytes > 0;
    if (reads && copies) copies = shm_fits(shm, seat, bytes); /* otherwise the message would be copied once more */
    enum proto_way copy_in = copies && !streams ? PROTO_EAGER : PROTO_ASK;
    if (!reads) return copy_in;
    if (!copies && !pushes) return PROTO_OFFER;
    if (!shm->shares_cores && cost_choose(&shm->peer[seat].cost, bytes) == PULL) return PROTO_OFFER;
    return copy_in;
}

/* Updates the cost model with an end-to-end duration. */
static void update_cost(struct proto *proto, int32_t peer, int way, size_t bytes, uint64_t ns)
{
    cost_learn(&proto->shm->peer[shm_local_rank(proto->shm, peer)].cost, way, bytes, ns);
}

int bulk_copy(struct proto *proto, const tutti_request *request, int32_t peer, struct wire_header *header)
{
    if (!is_timed(proto->shm)) return proto_say(proto, peer, header, request->data, request->bytes);
    int64_t begin = proto->host->now_ns();
    int status = proto_say(proto, peer, header, request->data, request->bytes);
    update_cost(proto, peer, PUSH, request->bytes,
                2 * shm_ns_since(proto->host, begin)); /* the receiver copies it again */
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
    append_to(&proto->pulls, op);
}

/* Reads bytes of the exposed message from `at` on. */
static bool read_offered(struct proto *proto, int seat, const tutti_request *request, size_t at, uint64_t from,
                         size_t bytes)
{
    char *data = (char *)request->data + at;
    if (request->addend == NULL) return shm_read_memory(proto->shm, seat, data, from, bytes);
    const void *came = shm_arena_at(proto->shm, seat, from, bytes);
    if (came == NULL) {
        void *to = request->addend != request->data ? data : proto->block;
        if (!shm_read_memory(proto->shm, seat, to, from, bytes)) return false;
        came = to;
    }
    tutti_request_take(proto->host, request, at, came, bytes);
    return true;
}

static void send_fin(struct proto *proto, int32_t peer, uint64_t offer, uint64_t ns)
{
    struct wire_header fin = {.kind = WIRE_FIN, .ref = offer, .bytes = ns};
    proto_say(proto, peer, &fin, NULL, 0);
}

int bulk_pull_now(struct proto *proto, tutti_request *request, int32_t peer, const struct wire_header *offer)
{
    int seat = shm_local_rank(proto->shm, peer);
    int64_t begin = proto->host->now_ns();
    if (!read_offered(proto, seat, request, 0, offer->ref, request->bytes) || !shm_is_open(proto->shm, seat)) {
        shm_unreadable(proto->shm, seat);
        return proto_lost(proto, peer);
    }
    send_fin(proto, peer, offer->id, shm_ns_since(proto->host, begin));
    return TUTTI_REQUEST_DONE;
}

static void pull(struct proto *proto, struct proto_op *op)
{
    tutti_request *request = op->request;
    int32_t peer = op->peer;
    int seat = shm_local_rank(proto->shm, peer);
    size_t left = request->bytes - op->at, bytes = left < BULK_TURN ? left : BULK_TURN;
    int64_t begin = proto->host->now_ns();
    if (!read_offered(proto, seat, request, op->at, op->from + op->at, bytes)) {
        shm_unreadable(proto->shm, seat);
        return;
    }
    op->at += bytes;
    op->took_ns += shm_ns_since(proto->host, begin);
    if (op->at < request->bytes) return;
    if (!shm_is_open(proto->shm, seat)) {
        shm_unreadable(proto->shm, seat);
        return;
    }
    send_fin(proto, peer, op->offer, op->took_ns);
    proto_finish_recv(proto, op, peer, TUTTI_OK);
}

/* If the read has completed, the operation is no longer found here, and the sender already gets the FIN. */
void bulk_unoffer(struct proto *proto, const struct wire_header *header)
{
    int32_t peer = (int32_t)header->source;
    struct proto_op *op = TAILQ_FIRST(&proto->pulls);
    while (op != NULL && (op->peer != peer || op->offer != header->ref)) op = TAILQ_NEXT(op, bulk);
    if (!proto_forget_announced(proto, peer, header->ref)) {
        if (op == NULL) return;
        proto_finish_recv(proto, op, peer, proto->host->error(TUTTI_ERR_ABORTED, "rank %d withdrew its message", peer));
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
        status = proto->host->error(TUTTI_ERR_ABORTED, "rank %d withdrew its receive", op->peer);
    else if (!shm_is_shared(proto->shm, op->request->data, op->request->bytes))
        update_cost(proto, op->peer, PULL, op->request->bytes, header->bytes);
    proto_finish(proto, op, status);
}

/* ---- through the window ------------------------------------------------------------------------------------ */

/* Returns the first operation of the list with this peer.  Of sends, only that one uses the FIFO. */
static struct proto_op *first_with(const struct proto_due *list, int32_t peer)
{
    struct proto_op *op = TAILQ_FIRST(list);
    while (op != NULL && op->peer != peer) op = TAILQ_NEXT(op, bulk);
    return op;
}

static void send_rts(struct proto *proto, struct proto_op *op)
{
    uint64_t start = shm_fifo_begin(proto->shm, shm_local_rank(proto->shm, op->peer), op->request->bytes);
    struct wire_header header = {
        .kind = WIRE_STREAM, .ref = op->write.key, .bytes = op->request->bytes, .id = start + 1};
    op->since_ns = proto->host->now_ns();
    proto_say(proto, op->peer, &header, NULL, 0);
}

void bulk_push(struct proto *proto, struct proto_op *op)
{
    append_to(&proto->pushes, op);
    if (first_with(&proto->pushes, op->peer) == op) send_rts(proto, op);
}

void bulk_forget(struct proto *proto, struct proto_op *op)
{
    struct proto_due *list = op->bulk_list;
    if (list == NULL) return;
    int seat = shm_local_rank(proto->shm, op->peer);
    bool had_fifo = first_with(list, op->peer) == op;
    TAILQ_REMOVE(list, op, bulk);
    op->bulk_list = NULL;
    if (list == &proto->streams) shm_fifo_close(proto->shm, seat);
    if (list != &proto->pushes || !had_fifo) return;
    shm_fifo_abandon(proto->shm, seat);
    struct proto_op *next = first_with(list, op->peer);
    if (next != NULL) send_rts(proto, next);
}

/* Copies in as much as fits.  Returns true if anything moved. */
static bool copy_in(struct proto *proto, struct proto_op *op)
{
    const tutti_request *request = op->request;
    int seat = shm_local_rank(proto->shm, op->peer);
    if (first_with(&proto->pushes, op->peer) != op) return false;
    size_t bytes = shm_fifo_copy_in(proto->shm, seat, (const char *)request->data + op->at);
    op->at += bytes;
    if (op->at < request->bytes) return bytes > 0;
    if (is_timed(proto->shm) && request->bytes > 0)
        update_cost(proto, op->peer, PUSH, request->bytes, shm_ns_since(proto->host, op->since_ns));
    proto_finish(proto, op, TUTTI_OK);
    return true;
}

/* Copies out what has arrived, up to a limit.  Returns true if anything moved. */
static bool copy_out(struct proto *proto, struct proto_op *op)
{
    tutti_request *request = op->request;
    int seat = shm_local_rank(proto->shm, op->peer);
    size_t bytes, turn = op->at;
    const void *piece;
    while (op->at - turn < BULK_TURN && (piece = shm_fifo_peek(proto->shm, seat, &bytes)) != NULL) {
        if (request->bytes >= STREAM_LEAST)
            shm_copy_non_temporal((char *)request->data + op->at, piece, bytes);
        else
            tutti_request_take(proto->host, request, op->at, piece, bytes);
        op->at += bytes;
        shm_fifo_release(proto->shm, seat, bytes);
    }
    bool moved = op->at > turn;
    if (op->at == request->bytes) proto_finish_recv(proto, op, op->peer, TUTTI_OK);
    return moved;
}

void bulk_drain(struct proto *proto, int32_t peer)
{
    struct proto_op *op = first_with(&proto->streams, peer);
    if (op != NULL) copy_out(proto, op);
}

/* An empty message is complete with its RTS, which the peer may have received before it exited. */
void bulk_lost(struct proto *proto, int32_t peer)
{
    bulk_drain(proto, peer);
    struct proto_op *op = first_with(&proto->pushes, peer);
    if (op != NULL && op->request->bytes == 0) copy_in(proto, op);
}

void bulk_stream(struct proto *proto, const struct wire_header *header)
{
    int32_t peer = (int32_t)header->source;
    bulk_drain(proto, peer); /* the previous message has been copied in completely, or was withdrawn */
    struct proto_op *op = proto_op_find(proto, header->ref);
    if (op == NULL || op->state != PROTO_RECV_OPEN || op->peer != peer) return; /* withdrawn meanwhile */
    if (first_with(&proto->streams, peer) != NULL || header->bytes != op->request->bytes ||
        !shm_fifo_open(proto->shm, shm_local_rank(proto->shm, peer), header->id - 1, header->bytes)) {
        link_drop(proto, peer, "it sent other bytes than announced", true);
        return;
    }
    append_to(&proto->streams, op);
    copy_out(proto, op);
}

/* ---- turns ------------------------------------------------------------------------------------------------- */

static int stream(struct proto *proto)
{
    struct proto_op *op, *next;
    int moved = 0;
    for (op = TAILQ_FIRST(&proto->pushes); op != NULL; op = next) {
        next = TAILQ_NEXT(op, bulk);
        moved += copy_in(proto, op);
    }
    for (op = TAILQ_FIRST(&proto->streams); op != NULL; op = next) {
        next = TAILQ_NEXT(op, bulk);
        moved += copy_out(proto, op);
    }
    return moved;
}

static bool is_streaming(const struct proto *proto)
{
    return !TAILQ_EMPTY(&proto->pushes) || !TAILQ_EMPTY(&proto->streams);
}

/* Keeps polling as long as the other end keeps up, if this rank has a core. */
static int keep_streaming(struct proto *proto)
{
    enum { TURN = 64 };
    struct shm *shm = proto->shm;
    int moved = 0, in_vain = 0;
    for (int i = 0; i < TURN && in_vain < shm->polls && is_streaming(proto); i++) {
        int now = stream(proto);
        in_vain = now > 0 ? 0 : in_vain + 1;
        moved += now;
        if (now == 0) shm_relax();
    }
    shm_polled(shm, moved > 0);
    return moved;
}

int bulk_progress(struct proto *proto)
{
    int moved = 0;
    struct proto_op *op = TAILQ_FIRST(&proto->pulls);
    if (op != NULL) {
        pull(proto, op); /* only the oldest, to its end, so that it is cached when it is used */
        moved++;
    }
    moved += stream(proto);
    return proto->shm->shares_cores || !is_streaming(proto) ? moved : moved + keep_streaming(proto);
}
