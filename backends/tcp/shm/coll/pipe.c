/* Medium and large operations through the ranks' trays, one chunk per step.
 *
 * In step s each rank copies its chunk s into its tray.  Once the others have arrived there, it copies out what
 * concerns it.  An all_reduce, except a small one of two ranks, and a reduce that would keep its root busy for long are
 * sliced.  Each rank then reduces one slice of the chunk into its tray, and ranks that need the result copy out the
 * slices of chunk s - 1, which were complete when the others arrived.  Sliced operations take one step more than they
 * have chunks.
 *
 * A rank has two trays, and posts step s only when all are finished with step s - 2.  Both trays stay in the cache, so
 * a byte passes through memory only when it is read from a tensor and when it is written to one.  The exception are
 * cores so far apart that memory is faster than each other's caches: fill.c.
 *
 * The chunks of a split operation go through the rooms instead, see coll.h.
 */
#include "tcp/shm/coll/parts.h"

/* Chunk for two ranks that could read each other's memory instead: such trays stay in the cache beside the tensors, and
 * both cores start working sooner. */
enum { PAIR_CHUNK = 64 << 10 };

/* Chunk of a split operation: four of them, for each of two ranks, stay in the first-level cache. */
enum { SPLIT_CHUNK = 2 << 10 };

static char *tray_of(const struct board *board, const struct board_op *op, int rank, int64_t step)
{
    uint64_t at = op->first + (uint64_t)step;
    return op->split ? board_room_of(board, rank, at) : board_tray_of(board, rank, at);
}

/* Returns the rank's reduced results, which follow its data. */
static char *result_of(const struct board *board, const struct board_op *op, int rank, int64_t step)
{
    return tray_of(board, op, rank, step) + board->tray;
}

/* ---- copy in ------------------------------------------------------------------------------------------------- */

/* Copies in all but this rank's own slice, which it reduces itself. */
static void copy_in_slices(const struct board *board, const struct board_op *op, struct slice chunk, char *tray)
{
    struct slice own = board_part_of(board, op, chunk.bytes, board->rank);
    const char *in = op->in + chunk.at;
    size_t end = own.at + own.bytes;
    shm_put_copy(&board->put, tray, in, own.at);
    shm_put_copy(&board->put, tray + end, in + end, chunk.bytes - end);
}

void board_put_pipe(struct board *board, struct board_op *op)
{
    struct slice chunk = board_chunk_of(op, op->entered);
    char *tray = tray_of(board, op, board->rank, op->entered);
    bool root = op->root == board->rank;
    if (op->sliced) {
        copy_in_slices(board, op, chunk, tray);
        return;
    }
    switch (op->kind) {
    case TUTTI_BROADCAST:
        if (root) shm_put_copy(&board->put, tray, op->in + chunk.at, chunk.bytes);
        break;
    case TUTTI_GATHER:
    case TUTTI_REDUCE:
        if (!root) shm_put_copy(&board->put, tray, op->in + chunk.at, chunk.bytes);
        break;
    case TUTTI_ALL_GATHER:
    case TUTTI_ALL_REDUCE:
        shm_put_copy(&board->put, tray, op->in + chunk.at, chunk.bytes);
        break;
    default: /* a block for each rank */
        for (int i = 0; i < board->n; i++)
            if (i != board->rank && (op->kind != TUTTI_SCATTER || root))
                shm_put_copy(&board->put, tray + (size_t)i * op->chunk, board_in_block(op, i) + chunk.at, chunk.bytes);
    }
}

/* ---- copy out ------------------------------------------------------------------------------------------------ */

/* Reduces this rank's slice of the current chunk. */
static void reduce_slice(struct board *board, const struct board_op *op)
{
    struct slice chunk = board_chunk_of(op, op->at), own = board_part_of(board, op, chunk.bytes, board->rank);
    const void *from[SHM_SEATS];
    board_begin_result(board, op, own.bytes);
    for (int i = 0; i < board->n; i++)
        from[i] = i == board->rank ? op->in + chunk.at + own.at : tray_of(board, op, i, op->at) + own.at;
    board_reduce_result(board, op, result_of(board, op, board->rank, op->at), from, own.bytes);
}

/* Copies out all slices of the previous chunk. */
static void copy_out_slices(const struct board *board, const struct board_op *op)
{
    struct slice chunk = board_chunk_of(op, op->at - 1);
    for (int k = 0; k < board->n; k++) {
        int rank = (board->rank + k) % board->n; /* each rank begins at another slice */
        struct slice slice = board_part_of(board, op, chunk.bytes, rank);
        board_take(op, op->out + chunk.at + slice.at, result_of(board, op, rank, op->at - 1), slice.bytes);
    }
}

/* Reduces a chunk at the root, for operations that are not sliced. */
static void reduce_chunk(const struct board *board, const struct board_op *op)
{
    struct slice chunk = board_chunk_of(op, op->at);
    const void *from[SHM_SEATS];
    for (int i = 0; i < board->n; i++) from[i] = i == board->rank ? op->in + chunk.at : tray_of(board, op, i, op->at);
    board_reduce_to(board, op, op->out + chunk.at, from, chunk.bytes);
}

static void reduce_own_block(const struct board *board, const struct board_op *op)
{
    struct slice chunk = board_chunk_of(op, op->at);
    size_t own = (size_t)board->rank * op->chunk;
    const void *from[SHM_SEATS];
    for (int i = 0; i < board->n; i++)
        from[i] = i == board->rank ? board_in_block(op, i) + chunk.at : tray_of(board, op, i, op->at) + own;
    board_reduce_to(board, op, op->out + chunk.at, from, chunk.bytes);
}

/* Copies out a chunk from each rank, or of each rank's block for this one. */
static void copy_out_blocks(const struct board *board, const struct board_op *op)
{
    struct slice chunk = board_chunk_of(op, op->at);
    bool own_block = op->kind == TUTTI_ALL_TO_ALL;
    for (int k = 0; k < board->n; k++) {
        int rank = (board->rank + k) % board->n;
        const char *from = tray_of(board, op, rank, op->at) + (own_block ? (size_t)board->rank * op->chunk : 0);
        if (k == 0) from = (own_block ? board_in_block(op, rank) : op->in) + chunk.at;
        char *to = board_out_block(op, rank) + chunk.at;
        if (from != to) board_take(op, to, from, chunk.bytes);
    }
}

static void copy_out_from_root(const struct board *board, const struct board_op *op)
{
    struct slice chunk = board_chunk_of(op, op->at);
    bool root = op->root == board->rank, scatter = op->kind == TUTTI_SCATTER;
    const char *from = tray_of(board, op, op->root, op->at) + (scatter ? (size_t)board->rank * op->chunk : 0);
    if (root) from = (scatter ? board_in_block(op, board->rank) : op->in) + chunk.at;
    if (from != op->out + chunk.at) board_take(op, op->out + chunk.at, from, chunk.bytes);
}

void board_work_pipe(struct board *board, struct board_op *op)
{
    bool root = op->root == board->rank;
    if (op->sliced) {
        if (op->at < op->steps - 1) reduce_slice(board, op);
        if (op->at > 0 && (root || op->kind == TUTTI_ALL_REDUCE)) copy_out_slices(board, op);
        return;
    }
    switch (op->kind) {
    case TUTTI_REDUCE:
        if (root) reduce_chunk(board, op);
        break;
    case TUTTI_ALL_REDUCE:
        reduce_chunk(board, op);
        break;
    case TUTTI_REDUCE_SCATTER:
        reduce_own_block(board, op);
        break;
    case TUTTI_GATHER:
        if (root) copy_out_blocks(board, op);
        break;
    case TUTTI_ALL_GATHER:
    case TUTTI_ALL_TO_ALL:
        copy_out_blocks(board, op);
        break;
    default:
        copy_out_from_root(board, op);
    }
}

/* ---- how many steps ---------------------------------------------------------------------------------------- */

/* Cuts blocks into chunks of similar size, in whole lines. */
void board_cut_pipe(const struct board *board, struct board_op *op)
{
    size_t line = BOARD_ALIGN, most = op->either && board->tray > PAIR_CHUNK ? PAIR_CHUNK : board->tray;
    if (op->split) most = SPLIT_CHUNK;
    if (board_puts_all(op->kind)) most = most / (size_t)board->n / line * line;
    size_t chunks = (op->bytes + most - 1) / most;
    op->chunk = ((op->bytes + chunks - 1) / chunks + line - 1) / line * line;
    op->steps = (int64_t)((op->bytes + op->chunk - 1) / op->chunk);
    if (op->sliced) op->steps++;
}
