/* Small operations: the data go through the cells. */
#include "board_parts.h"

static char *data_of(const struct board *board, int rank, uint64_t step, size_t bytes)
{
    if (bytes <= BOARD_INLINE) return board_cell_of(board, rank, step)->small;
    return bytes <= BOARD_SLOT ? board_slot_of(board, rank, step) : board_room_of(board, rank, step);
}

static bool puts_something(const struct board *board, const struct board_op *op)
{
    return !board_is_from_root(op->kind) || op->root == board->rank;
}

uint64_t board_depth_small(const struct board *board, const struct board_op *op)
{
    size_t bytes = puts_something(board, op) ? board_put_bytes(board, op) : 0;
    if (bytes <= BOARD_INLINE) return BOARD_DEPTH;
    return bytes <= BOARD_SLOT ? BOARD_SLOTS : BOARD_ROOMS;
}

void board_put_small(struct board *board, struct board_op *op)
{
    if (!puts_something(board, op)) return;
    char *to = data_of(board, board->rank, op->first, board_put_bytes(board, op));
    if (op->kind != TUTTI_REDUCE_SCATTER || op->list == NULL) {
        board_copy(to, op->in, board_put_bytes(board, op));
        return;
    }
    for (int i = 0; i < board->n; i++) board_copy(to + (size_t)i * op->bytes, op->list[i].data, op->bytes);
}

static void reduce_cells(struct board *board, struct board_op *op, size_t at, void *to, size_t bytes)
{
    const void *from[SHM_SEATS];
    for (int i = 0; i < board->n; i++) from[i] = data_of(board, i, op->first, board_put_bytes(board, op)) + at;
    board_reduce_to(board, op, to, from, bytes);
}

void board_work_small(struct board *board, struct board_op *op)
{
    bool root = op->root == board->rank;
    size_t put = board_put_bytes(board, op), own = (size_t)board->rank * op->bytes;
    switch (op->kind) {
    case TUTTI_ALL_REDUCE:
        reduce_cells(board, op, 0, op->out, op->bytes);
        break;
    case TUTTI_REDUCE:
        if (root) reduce_cells(board, op, 0, op->out, op->bytes);
        break;
    case TUTTI_REDUCE_SCATTER:
        reduce_cells(board, op, own, op->out, op->bytes);
        break;
    case TUTTI_BROADCAST:
        if (!root) board_copy(op->out, data_of(board, op->root, op->first, put), put);
        break;
    case TUTTI_SCATTER:
        board_copy(op->out, data_of(board, op->root, op->first, put) + own, op->bytes);
        break;
    case TUTTI_ALL_GATHER:
    case TUTTI_GATHER:
        for (int i = 0; i < board->n && (root || op->kind == TUTTI_ALL_GATHER); i++)
            board_copy(board_out_block(op, i), data_of(board, i, op->first, put), op->bytes);
        break;
    case TUTTI_ALL_TO_ALL:
        for (int i = 0; i < board->n; i++)
            board_copy(board_out_block(op, i), data_of(board, i, op->first, put) + own, op->bytes);
        break;
    default:
        break;
    }
}
