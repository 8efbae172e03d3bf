/* Operations: allocated in blocks, identified on the wire by slot and generation. */
#include <stdlib.h>

#include "tcp/p2p/proto.h"

enum { SLOTS = 64, GENERATION_AT = 32 };

/* Adds one block.  Operations never move, and all blocks live as long as the protocol. */
static bool add_slots(struct proto *proto)
{
    size_t n = proto->n_slots == 0 ? SLOTS : proto->n_slots * 2;
    struct proto_op **slot = realloc(proto->slot, n * sizeof *slot);
    if (slot == NULL) return false;
    proto->slot = slot;
    struct proto_op *block = calloc(n - proto->n_slots, sizeof *block);
    if (block == NULL) return false;
    for (size_t i = n; i-- > proto->n_slots;) {
        struct proto_op *op = &block[i - proto->n_slots];
        slot[i] = op;
        op->id = i + 1;
        op->next_free = proto->free_ops;
        proto->free_ops = op;
    }
    proto->n_slots = n;
    return true;
}

/* Not inline, so that proto_op_new saves no registers for it. */
__attribute__((noinline)) static struct proto_op *new_after_adding(struct proto_group *group, tutti_request *request,
                                                                   int32_t peer, enum proto_state state)
{
    struct proto *proto = group->proto;
    if (add_slots(proto)) return proto_op_new(group, request, peer, state);
    proto->host->error(TUTTI_ERR_NO_MEMORY, "no memory for another pending message; %zu are pending", proto->n_slots);
    return NULL;
}

struct proto_op *proto_op_new(struct proto_group *group, tutti_request *request, int32_t peer, enum proto_state state)
{
    struct proto *proto = group->proto;
    struct proto_op *op = proto->free_ops;
    if (op == NULL) return new_after_adding(group, request, peer, state);
    proto->free_ops = op->next_free;
    op->id += UINT64_C(1) << GENERATION_AT;
    op->request = request;
    op->peer = peer;
    op->state = (uint8_t)state;
    op->cancelled = op->cut = op->is_timed = op->is_readable = op->is_offered = false;
    op->memory.transport = NULL;
    op->write.queued = false;
    proto_pending(request)->group = group;
    proto_pending(request)->op = op;
    return op;
}

struct proto_op *proto_op_find(const struct proto *proto, uint64_t id)
{
    uint64_t at = (id & UINT32_MAX) - 1;
    if (at >= proto->n_slots) return NULL;
    struct proto_op *op = proto->slot[at];
    return op->request != NULL && op->id == id ? op : NULL;
}

/* Frees an operation whose request is not posted. */
static void free_op(struct proto *proto, struct proto_op *op)
{
    if (op->memory.transport != NULL) op->memory.transport->ops->conceal(&op->memory);
    if (op->is_timed) TAILQ_REMOVE(op->cancelled ? &proto->revoked : &proto->delayed, op, timed);
    if (op->state == PROTO_RECV_READING) TAILQ_REMOVE(&proto->reading, op, reading);
    proto_pending(op->request)->op = NULL;
    op->is_timed = false;
    op->request = NULL;
    if (op->write.queued) /* may drop the link, which ends every operation that still has a request */
        proto_ops(proto, op->peer)->unwrite(proto->peer[op->peer].transport, op->peer, &op->write);
    op->next_free = proto->free_ops;
    proto->free_ops = op;
}

void proto_op_free(struct proto *proto, struct proto_op *op)
{
    bool is_send = op->state == PROTO_SEND_WAITING;
    tutti_match_withdraw(is_send ? &proto->grants : &proto->messages, &proto_pending(op->request)->match);
    free_op(proto, op);
}

void proto_free_ops(struct proto *proto)
{
    for (size_t i = 0; i < proto->n_slots; i++)
        if (proto->slot[i]->request != NULL) free_op(proto, proto->slot[i]);
    /* Slots 0, SLOTS, 2 * SLOTS, 4 * SLOTS .. are the first of their block, and hold its address. */
    for (size_t i = 0; i < proto->n_slots; i = i == 0 ? SLOTS : i * 2) free(proto->slot[i]);
    free(proto->slot);
}

struct proto_op *proto_find_exposed(const struct proto *proto, int32_t peer, uint64_t rts)
{
    for (size_t i = 0; i < proto->n_slots; i++) {
        struct proto_op *op = proto->slot[i];
        if (op->request != NULL && op->state == PROTO_RECV_EXPOSED && op->peer == peer && op->peer_id == rts) return op;
    }
    return NULL;
}
