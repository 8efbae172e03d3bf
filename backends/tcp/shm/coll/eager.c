/* Eager operations: data go through the control slots and eager buffers in one step. */
#include "tcp/shm/coll/parts.h"

static char *eager_data(const struct coll_segment *segment, int rank, uint64_t step, size_t bytes)
{
    if (bytes <= COLL_INLINE) return coll_slot_of(segment, rank, step)->small;
    return bytes <= COLL_SMALL ? coll_small_of(segment, rank, step) : coll_eager_of(segment, rank, step);
}

void coll_eager_post(struct coll_segment *segment, struct coll_op *op)
{
    if (!op->has_input) return;
    char *to = eager_data(segment, segment->rank, op->first, op->in_bytes);
    if (op->kind != TUTTI_REDUCE_SCATTER || op->list == NULL) {
        tutti_copy(to, op->in, op->in_bytes);
        return;
    }
    for (int i = 0; i < segment->n; i++) tutti_copy(to + (size_t)i * op->bytes, op->list[i].data, op->bytes);
}

static void reduce_eager(struct coll_segment *segment, struct coll_op *op, size_t at, void *to, size_t bytes)
{
    const void *from[SHM_RANKS_MAX];
    for (int i = 0; i < segment->n; i++) from[i] = eager_data(segment, i, op->first, op->in_bytes) + at;
    coll_reduce(segment, op, to, from, bytes);
}

void coll_eager_run(struct coll_segment *segment, struct coll_op *op)
{
    bool root = op->root == segment->rank;
    size_t put = op->in_bytes, own = (size_t)segment->rank * op->bytes;
    switch (op->kind) {
    case TUTTI_ALL_REDUCE:
        reduce_eager(segment, op, 0, op->out, op->bytes);
        break;
    case TUTTI_REDUCE:
        if (root) reduce_eager(segment, op, 0, op->out, op->bytes);
        break;
    case TUTTI_REDUCE_SCATTER:
        reduce_eager(segment, op, own, op->out, op->bytes);
        break;
    case TUTTI_BROADCAST:
        if (!root) tutti_copy(op->out, eager_data(segment, op->root, op->first, put), put);
        break;
    case TUTTI_SCATTER:
        tutti_copy(op->out, eager_data(segment, op->root, op->first, put) + own, op->bytes);
        break;
    case TUTTI_ALL_GATHER:
    case TUTTI_GATHER:
        for (int i = 0; i < segment->n && (root || op->kind == TUTTI_ALL_GATHER); i++)
            tutti_copy(coll_out_block(op, i), eager_data(segment, i, op->first, put), op->bytes);
        break;
    case TUTTI_ALL_TO_ALL:
        for (int i = 0; i < segment->n; i++)
            tutti_copy(coll_out_block(op, i), eager_data(segment, i, op->first, put) + own, op->bytes);
        break;
    default:
        break;
    }
}
