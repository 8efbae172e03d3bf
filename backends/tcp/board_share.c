/* Memory that the others map: tutti_alloc's.
 *
 * An operation that would go through the trays need not where all that is to be read can be read in place.  Only a
 * rank itself knows what its tensors are, so each says it in the cell of the first step, and all decide by the same
 * cells, of the ranks whose memory is read: then they go on as in a large operation.
 */
#include "board_parts.h"

static bool shares_blocks(const struct board *board, const struct board_op *op)
{
    if (op->list == NULL) return shm_is_shared(board->shm, op->in, op->bytes * (size_t)board->n);
    for (int i = 0; i < board->n; i++)
        if (!shm_is_shared(board->shm, op->list[i].data, op->bytes)) return false;
    return true;
}

/* Whether what the others would read of this rank is shared. */
static bool shares(const struct board *board, const struct board_op *op)
{
    bool root = op->root == board->rank, in = shm_is_shared(board->shm, op->in, op->bytes);
    switch (op->kind) {
    case TUTTI_ALL_REDUCE:
        return op->sliced && in && shm_is_shared(board->shm, op->out, op->bytes); /* else it would take longer */
    case TUTTI_ALL_TO_ALL:
        return op->in != op->out && shares_blocks(board, op); /* in place it is written over while others read */
    case TUTTI_REDUCE_SCATTER:
        return shares_blocks(board, op);
    case TUTTI_SCATTER:
        return !root || shares_blocks(board, op);
    case TUTTI_BROADCAST:
        return !root || in;
    case TUTTI_GATHER:
        return root || in;
    case TUTTI_REDUCE:
        return op->sliced && in; /* else the others do not wait to hear of it */
    default:
        return in;
    }
}

bool board_show(struct board *board, struct board_op *op)
{
    struct board_cell *cell = board_cell_of(board, board->rank, op->first);
    bool alone = board_is_from_root(op->kind) || (op->kind == TUTTI_GATHER && board->n == 2); /* is read */
    cell->shared = shares(board, op);
    if (cell->shared) board_put_large(board, op);
    return cell->shared && alone;
}

bool board_is_shared(const struct board *board, const struct board_op *op)
{
    if (board_is_from_root(op->kind)) return board_cell_of(board, op->root, op->first)->shared;
    /* The own one first: where it says no, the others may not have been met. */
    if (!board_cell_of(board, board->rank, op->first)->shared) return false;
    for (int i = 0; i < board->n; i++)
        if (!board_cell_of(board, i, op->first)->shared) return false;
    return true;
}
