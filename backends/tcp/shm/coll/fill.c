/* What a rank writes for the others: eager buffers, trays, and reduced results.  shm_put.c chooses the kind of store.
 */
#include "tcp/shm/coll/parts.h"

enum { BLOCK = 2 << 10 }; /* reduced in the first-level cache before it is stored non-temporally */

/* Returns the bytes that this rank copies into its tray in the step being posted. */
static size_t fill_bytes(const struct board *board, const struct board_op *op)
{
    size_t bytes = board_chunk_of(op, op->entered).bytes;
    bool root = op->root == board->rank;
    if (op->sliced) return bytes - board_part_of(board, op, bytes, board->rank).bytes;
    if (tutti_kind_has_root(op->kind) && root != board_is_from_root(op->kind)) return 0;
    return board_puts_all(op->kind) ? bytes * (size_t)(board->n - 1) : bytes;
}

static enum shm_cost reader_cost(const struct board *board, const struct board_op *op)
{
    if (board->n == 2 || board_is_from_root(op->kind)) return SHM_COST_AWAY;
    return op->sliced || board_puts_all(op->kind) ? SHM_COST_PARTS : SHM_COST_HERE;
}

void board_fill(struct board *board, struct board_op *op)
{
    size_t bytes = op->split ? 0 : fill_bytes(board, op);
    shm_put_begin(board->shm, &board->put, &board->fills[op->kind], bytes);
    if (op->either && !op->far && board->rank == 0)
        board->put.past = false; /* rank 0 measures plain stores to detect the topology */
    board_put_pipe(board, op);
    uint64_t ns = shm_put_end(board->shm, &board->put, reader_cost(board, op));
    if (ns > 0 && !board->put.past) board_has_filled(board, op, bytes, ns);
}

void board_put(struct board *board, const struct board_op *op, void *to, const void *from, size_t bytes)
{
    shm_put_begin(board->shm, &board->put, &board->fills[op->kind], bytes);
    shm_put_copy(&board->put, to, from, bytes);
    shm_put_end(board->shm, &board->put, reader_cost(board, op));
}

void board_begin_result(struct board *board, const struct board_op *op, size_t bytes)
{
    shm_put_begin(board->shm, &board->put, &board->results[op->large], bytes);
}

void board_reduce_result(struct board *board, const struct board_op *op, char *to, const void *const *from,
                         size_t bytes)
{
    _Alignas(SHM_LINE) char block[BLOCK];
    const void *here[SHM_SEATS];
    size_t most = board->put.past ? BLOCK : bytes;
    for (size_t at = 0; at < bytes; at += most) {
        size_t now = bytes - at < most ? bytes - at : most;
        for (int i = 0; i < board->n; i++) here[i] = (const char *)from[i] + at;
        board_reduce_to(board, op, board->put.past ? block : to, here, now);
        if (board->put.past) shm_stream(to + at, block, now);
    }
    shm_put_end(board->shm, &board->put, SHM_COST_HERE);
}
