/* Operations on memory of tutti_alloc, which the peers map.
 *
 * An operation need not go through the fragments if all its data can be read in place.  Only a rank itself knows
 * whether its tensors are shared, so each rank declares that in its first control slot.  All ranks decide by the same
 * slots, those of the ranks whose memory is read.  Then they continue with a direct operation.
 */
#include "tcp/shm/coll/parts.h"

/* True if the peers can read the data in place, or there are none. */
static bool is_shared(const struct coll_segment *segment, const void *data, size_t bytes)
{
    return bytes == 0 || shm_is_shared(segment->shm, data, bytes);
}

static bool shares_blocks(const struct coll_segment *segment, const struct coll_op *op)
{
    if (op->list == NULL) return is_shared(segment, op->in, op->bytes * (size_t)segment->n);
    for (int i = 0; i < segment->n; i++)
        if (!is_shared(segment, op->list[i].data, coll_block_bytes(op, i))) return false;
    return true;
}

/* True if all data that peers would read from this rank are shared. */
static bool shares(const struct coll_segment *segment, const struct coll_op *op)
{
    bool root = op->root == segment->rank, in = is_shared(segment, op->in, coll_block_bytes(op, segment->rank));
    switch (op->kind) {
    case TUTTI_ALL_REDUCE:
        return op->sliced && in && is_shared(segment, op->out, op->bytes); /* without slices sharing is slower */
    case TUTTI_ALL_TO_ALL:
        return op->in != op->out && shares_blocks(segment, op); /* in place, others would read while this rank writes */
    case TUTTI_REDUCE_SCATTER:
        return shares_blocks(segment, op);
    case TUTTI_SCATTER:
        return !root || shares_blocks(segment, op);
    case TUTTI_BROADCAST:
        return !root || in;
    case TUTTI_GATHER:
        return root || in;
    case TUTTI_REDUCE:
        return op->sliced && in; /* if not sliced, the others do not wait for the declaration */
    default:
        return in;
    }
}

bool coll_shared_declare(struct coll_segment *segment, struct coll_op *op)
{
    struct coll_slot *slot = coll_slot_of(segment, segment->rank, op->first);
    /* Only this rank's memory is read. */
    bool alone = coll_is_from_root(op->kind) || (op->kind == TUTTI_GATHER && segment->n == 2);
    slot->shared = shares(segment, op);
    if (slot->shared) coll_direct_post(segment, op);
    return slot->shared && alone;
}

bool coll_shared_by_all(const struct coll_segment *segment, const struct coll_op *op)
{
    if (coll_is_from_root(op->kind)) return coll_slot_of(segment, op->root, op->first)->shared;
    /* Check this rank's own slot first: if its memory is not shared, the others may not have arrived. */
    if (!coll_slot_of(segment, segment->rank, op->first)->shared) return false;
    for (int i = 0; i < segment->n; i++)
        if (!coll_slot_of(segment, i, op->first)->shared) return false;
    return true;
}
