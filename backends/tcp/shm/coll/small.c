/* Small operations: data goes through the control slots and eager buffers. */
#include "tcp/shm/coll/parts.h"

static char *eager_data(const struct board *board, int rank, uint64_t step, size_t bytes)
{
    if (bytes <= BOARD_INLINE) return board_cell_of(board, rank, step)->small;
    return bytes <= BOARD_SLOT ? board_slot_of(board, rank, step) : board_room_of(board, rank, step);
}

void board_put_small(struct board *board, struct board_op *op)
{
    if (!op->puts) return;
    char *to = eager_data(board, board->rank, op->first, op->put);
    if (op->kind != TUTTI_REDUCE_SCATTER || op->list == NULL) {
        if (op->put <= BOARD_SLOT)
            tutti_copy(to, op->in, op->put);
        else
            board_put(board, op, to, op->in, op->put);
        return;
    }
    for (int i = 0; i < board->n; i++) tutti_copy(to + (size_t)i * op->bytes, op->list[i].data, op->bytes);
}

static void reduce_eager(struct board *board, struct board_op *op, size_t at, void *to, size_t bytes)
{
    const void *from[SHM_SEATS];
    for (int i = 0; i < board->n; i++) from[i] = eager_data(board, i, op->first, op->put) + at;
    board_reduce_to(board, op, to, from, bytes);
}

void board_work_small(struct board *board, struct board_op *op)
{
    bool root = op->root == board->rank;
    size_t put = op->put, own = (size_t)board->rank * op->bytes;
    switch (op->kind) {
    case TUTTI_ALL_REDUCE:
        reduce_eager(board, op, 0, op->out, op->bytes);
        break;
    case TUTTI_REDUCE:
        if (root) reduce_eager(board, op, 0, op->out, op->bytes);
        break;
    case TUTTI_REDUCE_SCATTER:
        reduce_eager(board, op, own, op->out, op->bytes);
        break;
    case TUTTI_BROADCAST:
        if (!root) tutti_copy(op->out, eager_data(board, op->root, op->first, put), put);
        break;
    case TUTTI_SCATTER:
        tutti_copy(op->out, eager_data(board, op->root, op->first, put) + own, op->bytes);
        break;
    case TUTTI_ALL_GATHER:
    case TUTTI_GATHER:
        for (int i = 0; i < board->n && (root || op->kind == TUTTI_ALL_GATHER); i++)
            tutti_copy(board_out_block(op, i), eager_data(board, i, op->first, put), op->bytes);
        break;
    case TUTTI_ALL_TO_ALL:
        for (int i = 0; i < board->n; i++)
            tutti_copy(board_out_block(op, i), eager_data(board, i, op->first, put) + own, op->bytes);
        break;
    default:
        break;
    }
}
