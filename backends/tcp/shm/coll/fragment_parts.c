/* Parts of fragment buffers.  Pipelined operations with a root whose data fit half a buffer use them, so that a rank
 * that waits for no other can run further ahead.  Where ranks share cores, it then does more in each time slice.  Where
 * each has a core, the data have left the first-level caches before their lines are filled again, and on some
 * processors both ranks then fetch them sooner.  Lists of blocks use parts where ranks share cores.
 *
 * An operation takes the parts behind those that were used last in its step's buffer.  These have not been used for the
 * longest time, whatever the sizes of the operations.  A rank fills them once all ranks are finished with the last step
 * that used any of them.  All ranks assign the same parts, because they run the same operations in the same order.
 * Only for blocks of differing sizes each rank assigns its own parts, and its table tells the others.
 */
#include "tcp/shm/coll/parts.h"

static size_t part_bytes(const struct coll_segment *segment)
{
    return segment->layout.fragment_bytes / COLL_PARTS;
}

int coll_parts_needed(const struct coll_segment *segment, const struct coll_op *op)
{
    size_t blocks = op->kind == TUTTI_SCATTER ? (size_t)segment->n : 1; /* in the buffer, each in lines of its own */
    size_t bytes = (op->bytes + COLL_ALIGN - 1) / COLL_ALIGN * COLL_ALIGN * blocks;
    if (op->path == COLL_UNEVEN) bytes = op->in_bytes;
    size_t parts = bytes / part_bytes(segment) + (bytes % part_bytes(segment) != 0);
    return parts <= COLL_PARTS / 2 ? (int)parts : 0;
}

/* Returns the steps until a control slot is reused, or a small buffer, where tables are, or an eager buffer, which the
 * operation may use if it continues as a direct one. */
static uint64_t depth_of_slot(const struct coll_op *op)
{
    if (op->probes) return COLL_EAGER_BUFFERS - COLL_AHEAD;
    return (op->path == COLL_UNEVEN ? COLL_SMALL_BUFFERS : COLL_SLOTS) - COLL_RUN_AHEAD;
}

void coll_take_parts(struct coll_segment *segment, struct coll_op *op)
{
    size_t fragment = op->first % COLL_FRAGMENTS;
    uint64_t *used = segment->used[fragment], last = segment->whole, most = depth_of_slot(op);
    int *next = op->path == COLL_UNEVEN ? &segment->own_part[fragment] : &segment->next_part[fragment];
    op->part = *next;
    if (op->part + op->parts > COLL_PARTS) op->part = 0;
    *next = op->part + op->parts;
    for (int i = op->part; i < op->part + op->parts; i++) {
        if (used[i] > last) last = used[i];
        used[i] = op->first;
    }
    op->depth = last > 0 && op->first - last < most ? op->first - last : most;
    if (op->depth < COLL_FRAGMENTS) op->depth = COLL_FRAGMENTS; /* the step before used the other buffer */
}

char *coll_parts_at(const struct coll_segment *segment, const struct coll_op *op, int rank)
{
    return coll_fragment_of(segment, rank, op->first) + (size_t)op->part * part_bytes(segment);
}
