/* Operations on memory of tutti_alloc, which the peers map.
 *
 * An operation need not go through the trays if all data to be read can be read in place.  Only a rank itself knows
 * whether its tensors are shared, so each declares it in its first control slot.  All ranks decide by the same slots,
 * those of the ranks whose memory is read, and then continue as in a large operation.
 */
#include "tcp/shm/coll/parts.h"

static bool shares_blocks(const struct board *board, const struct board_op *op)
{
    if (op->list == NULL) return shm_is_shared(board->shm, op->in, op->bytes * (size_t)board->n);
    for (int i = 0; i < board->n; i++)
        if (!shm_is_shared(board->shm, op->list[i].data, op->bytes)) return false;
    return true;
}

/* True if the data that peers would read from this rank is shared. */
static bool shares(const struct board *board, const struct board_op *op)
{
    bool root = op->root == board->rank, in = shm_is_shared(board->shm, op->in, op->bytes);
    switch (op->kind) {
    case TUTTI_ALL_REDUCE:
        return op->sliced && in && shm_is_shared(board->shm, op->out, op->bytes); /* otherwise it would be slower */
    case TUTTI_ALL_TO_ALL:
        return op->in != op->out && shares_blocks(board, op); /* in place, it is overwritten while others read */
    case TUTTI_REDUCE_SCATTER:
        return shares_blocks(board, op);
    case TUTTI_SCATTER:
        return !root || shares_blocks(board, op);
    case TUTTI_BROADCAST:
        return !root || in;
    case TUTTI_GATHER:
        return root || in;
    case TUTTI_REDUCE:
        return op->sliced && in; /* otherwise the others do not wait for the declaration */
    default:
        return in;
    }
}

bool board_show(struct board *board, struct board_op *op)
{
    struct board_cell *cell = board_cell_of(board, board->rank, op->first);
    bool alone =
        board_is_from_root(op->kind) || (op->kind == TUTTI_GATHER && board->n == 2); /* only this rank is read */
    cell->shared = shares(board, op);
    if (cell->shared) board_put_large(board, op);
    return cell->shared && alone;
}

bool board_is_shared(const struct board *board, const struct board_op *op)
{
    if (board_is_from_root(op->kind)) return board_cell_of(board, op->root, op->first)->shared;
    /* This rank's own slot first: if it says no, the others may not have arrived. */
    if (!board_cell_of(board, board->rank, op->first)->shared) return false;
    for (int i = 0; i < board->n; i++)
        if (!board_cell_of(board, i, op->first)->shared) return false;
    return true;
}
