/* The link to a peer: a ring in shared memory, or the fabric's. */
#include <stdio.h>
#include <stdlib.h>

#include "tcp/p2p/proto.h"

enum { COLL_TURNS = 16 };

static int seat_of(const struct proto *proto, int32_t rank)
{
    return rank >= 0 ? shm_local_rank(proto->shm, rank) : -1;
}

bool link_is_local(const struct proto *proto, int32_t rank)
{
    return seat_of(proto, rank) >= 0;
}

int link_connect(struct proto *proto, int32_t rank)
{
    int seat = seat_of(proto, rank);
    if (seat < 0) return fabric_connect(proto->fabric, rank);
    return proto->shm->peer[seat].lost ? proto_lost(proto, rank) : TUTTI_OK;
}

bool link_is_up(const struct proto *proto, int32_t rank)
{
    int seat = seat_of(proto, rank);
    if (seat < 0) return proto->fabric != NULL && fabric_is_up(proto->fabric, rank); /* it may not have opened */
    return !proto->shm->peer[seat].lost;
}

const char *link_lost(const struct proto *proto, int32_t rank)
{
    int seat = seat_of(proto, rank);
    if (seat < 0) return fabric_lost(proto->fabric, rank);
    return proto->shm->peer[seat].lost ? proto->shm->peer[seat].why : NULL;
}

int link_send(struct proto *proto, int32_t rank, const struct wire_header *header, const void *payload, size_t bytes)
{
    uint8_t encoded[WIRE_HEADER];
    int seat = seat_of(proto, rank);
    if (seat >= 0) return shm_send(proto->shm, seat, header, payload, bytes);
    wire_encode(encoded, header);
    return fabric_send(proto->fabric, rank, encoded, WIRE_HEADER, payload, bytes);
}

struct unsent {
    enum wire_kind kind;
    uint64_t id;
};

static bool is_unsent(const void *message, size_t bytes, const void *argument)
{
    const struct unsent *wanted = argument;
    struct wire_header header;
    return wire_parse(message, bytes, UINT32_MAX, &header) && header.kind == wanted->kind && header.id == wanted->id;
}

bool link_unsend(struct proto *proto, int32_t rank, enum wire_kind kind, uint64_t id)
{
    int seat = seat_of(proto, rank);
    if (seat >= 0) return shm_unsend(proto->shm, seat, kind, id);
    return fabric_unsend(proto->fabric, rank, is_unsent, &(struct unsent){kind, id});
}

void link_write(struct proto *proto, struct proto_op *op)
{
    if (link_is_local(proto, op->peer))
        bulk_push(proto, op);
    else
        fabric_write(proto->fabric, op->peer, &op->write);
}

bool link_unwrite(struct proto *proto, struct proto_op *op)
{
    if (!link_is_local(proto, op->peer)) return fabric_unwrite(proto->fabric, op->peer, &op->write);
    return true; /* what is in the window is a copy; the next message gets that when this one is forgotten */
}

bool link_cut(struct proto *proto, struct proto_op *op)
{
    return !link_is_local(proto, op->peer) && fabric_cut(proto->fabric, op->peer, &op->write);
}

int link_expose(struct proto *proto, struct proto_op *op)
{
    if (link_is_local(proto, op->peer)) return TUTTI_OK; /* this rank itself will write it */
    tutti_request *request = op->request;
    if (request->addend != NULL) op->stage = malloc(request->bytes);
    if (request->addend != NULL && op->stage == NULL)
        return proto->host->error(TUTTI_ERR_NO_MEMORY, "no memory for a message of %zu bytes", request->bytes);
    void *data = op->stage != NULL ? op->stage : request->data;
    return fabric_expose(proto->fabric, data, request->bytes, op->id, &op->memory);
}

void link_drop(struct proto *proto, int32_t rank, const char *why, bool notify)
{
    int seat = seat_of(proto, rank);
    if (seat >= 0)
        shm_drop(proto->shm, seat, why, notify);
    else if (proto->fabric != NULL)
        fabric_drop(proto->fabric, rank, why, notify);
}

bool link_is_flushed(const struct proto *proto, int32_t rank)
{
    int seat = seat_of(proto, rank);
    if (seat < 0) return proto->fabric == NULL || fabric_is_flushed(proto->fabric, rank);
    return STAILQ_EMPTY(&proto->shm->peer[seat].waiting);
}

int link_progress(struct proto *proto)
{
    int moved = 0;
    if (proto->shm != NULL) {
        moved = coll_progress(&proto->colls);
        /* Somebody has most likely what he waits for: messages have their turn when nothing moves there, or soon. */
        if (moved > 0 && ++proto->turns % COLL_TURNS != 0) return moved;
        moved += shm_progress(proto->shm) + bulk_progress(proto);
    }
    if (proto->fabric != NULL) moved += fabric_progress(proto->fabric);
    return moved;
}

int link_arm(struct proto *proto, int *descriptors)
{
    int local = 0, remote = 0;
    if (!TAILQ_EMPTY(&proto->pulls)) return 0;
    if (proto->shm != NULL && (local = shm_arm(proto->shm, descriptors)) == 0) return 0;
    if (coll_is_ready(&proto->colls)) return 0;
    if (proto->fabric != NULL && (remote = fabric_arm(proto->fabric, descriptors + local)) <= 0) return remote;
    return local + remote;
}

int link_hosts(struct proto *proto, int32_t *host)
{
    if (proto->fabric != NULL) return fabric_hosts(proto->fabric, host);
    for (int32_t rank = 0; rank < proto->world_size; rank++) host[rank] = 0; /* all share memory */
    return TUTTI_OK;
}

int link_describe(const struct proto *proto, char *text, size_t capacity)
{
    const struct shm *shm = proto->shm;
    int n = 0, here = 0;
    for (int seat = 0; shm != NULL && seat < shm->n; seat++)
        here += seat != shm->local_rank && link_is_local(proto, shm->peer[seat].rank); /* some may have been left out */
    if (shm != NULL)
        n = snprintf(text, capacity,
                     "tcp: rank %d shares memory with %d of %d ranks, messages above %zu bytes are %s\n", proto->rank,
                     here, proto->world_size - 1, bulk_eager(shm),
                     shm->can_read_memory ? "read from the sender's memory, or copied through it where that is faster"
                                          : "copied through it");
    if (proto->fabric == NULL || n < 0 || (size_t)n >= capacity) return TUTTI_OK;
    return fabric_describe(proto->fabric, text + n, capacity - (size_t)n);
}
