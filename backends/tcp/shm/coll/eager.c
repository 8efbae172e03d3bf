/* Eager operations: data go through the control slots and eager buffers in one step. */
#include "tcp/shm/coll/parts.h"
#include "tcp/shm/own_line.h"

static char *eager_data(const struct coll_segment *segment, int rank, uint64_t step, size_t bytes)
{
    if (bytes <= COLL_INLINE) return coll_slot_of(segment, rank, step)->small;
    if (bytes <= COLL_TINY) return coll_tiny_of(segment, rank, step);
    return bytes <= COLL_SMALL ? coll_small_of(segment, rank, step) : coll_eager_of(segment, rank, step);
}

/* True if the data are short enough to ask for their lines ahead, and longer than what the control slot's first line
 * has: that one is asked for in any case. */
static bool has_lines(size_t bytes)
{
    return bytes > OWN_LINE - offsetof(struct coll_slot, small) && bytes <= COLL_ASKED;
}

void coll_eager_own(const struct coll_segment *segment, const struct coll_op *op, uint64_t step)
{
    if (op->has_input && has_lines(op->in_bytes))
        own_lines(eager_data(segment, segment->rank, step, op->in_bytes), op->in_bytes);
}

void coll_eager_fetch(const struct coll_segment *segment, const struct coll_op *op, int rank, uint64_t step)
{
    if (!has_lines(op->in_bytes)) return;
    size_t at = op->kind == TUTTI_SCATTER ? (size_t)segment->rank * op->bytes : 0;
    fetch_lines(eager_data(segment, rank, step, op->in_bytes) + at, op->bytes);
}

void coll_eager_post(struct coll_segment *segment, struct coll_op *op)
{
    if (!op->has_input) return;
    char *to = eager_data(segment, segment->rank, op->first, op->in_bytes);
    if (op->list == NULL && tutti_kind_in_blocks(op->kind)) {
        struct slice own = {(size_t)segment->rank * op->bytes, op->bytes}; /* see block_of */
        coll_copy_in_around(op, to, op->in, own, op->in_bytes);
    } else if (op->list == NULL) {
        coll_copy_in(op, to, op->in, op->in_bytes);
    } else if (op->kind == TUTTI_ALL_GATHER) {
        coll_copy_in(op, to, op->in, coll_block_bytes(op, segment->rank));
    } else {
        for (int i = 0; i < segment->n; i++)
            if (i != segment->rank)
                coll_copy_in(op, to + (size_t)i * op->bytes, op->list[i].data, coll_block_bytes(op, i));
    }
}

/* Returns a block of a rank's data.  This rank's own comes from its tensor: the buffer lacks it where there is a block
 * for each rank, and other lines that the rank has just written are on their way to the others. */
static const char *block_of(const struct coll_segment *segment, const struct coll_op *op, int rank, int block)
{
    if (rank == segment->rank) return coll_in_block(op, block);
    return eager_data(segment, rank, op->first, op->in_bytes) + (size_t)block * op->bytes;
}

/* Reduces all ranks' data, or a block of them. */
static void reduce_eager(struct coll_segment *segment, struct coll_op *op, int block, size_t bytes)
{
    const void *from[SHM_RANKS_MAX];
    for (int i = 0; i < segment->n; i++) from[i] = block_of(segment, op, i, block);
    coll_reduce(segment, op, op->out, from, bytes);
}

/* Copies a rank's data, or a block of them, which may be in place. */
static inline __attribute__((always_inline)) void copy_block(const struct coll_segment *segment,
                                                             const struct coll_op *op, char *to, int rank, int block)
{
    const char *from = block_of(segment, op, rank, block);
    if (from != to) tutti_copy(to, from, coll_block_bytes(op, rank));
}

void coll_eager_run(struct coll_segment *segment, struct coll_op *op)
{
    bool root = op->root == segment->rank;
    int own = segment->rank;
    switch (op->kind) {
    case TUTTI_ALL_REDUCE:
        reduce_eager(segment, op, 0, op->bytes);
        break;
    case TUTTI_REDUCE:
        if (root) reduce_eager(segment, op, 0, op->bytes);
        break;
    case TUTTI_REDUCE_SCATTER:
        reduce_eager(segment, op, own, coll_block_bytes(op, own));
        break;
    case TUTTI_BROADCAST:
        if (!root) copy_block(segment, op, op->out, op->root, 0);
        break;
    case TUTTI_SCATTER:
        copy_block(segment, op, op->out, op->root, own);
        break;
    case TUTTI_ALL_GATHER:
    case TUTTI_GATHER:
        for (int i = 0; i < segment->n && (root || op->kind == TUTTI_ALL_GATHER); i++)
            copy_block(segment, op, coll_out_block(op, i), i, 0);
        break;
    case TUTTI_ALL_TO_ALL:
        for (int i = 0; i < segment->n; i++) copy_block(segment, op, coll_out_block(op, i), i, own);
        break;
    default:
        break;
    }
}
