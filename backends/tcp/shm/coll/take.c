/* Selects the path of an operation and the ranks that each step waits for. */
#include "tcp/shm/coll/parts.h"

enum {
    FLAT_MOST = 64 << 10,    /* bytes of all ranks' data that one rank reduces alone; more is reduced in slices, */
    PAIR_MOST = 128 << 10,   /* except with two ranks below this size */
    SPLIT_LEAST = 4 << 10,   /* bytes from which on an operation of two ranks is split */
    SLICE_LEAST = 1 << 19,   /* bytes of a reduce from which on it is sliced, because the root alone would be slower */
    STREAM_LEAST = 32 << 20, /* bytes written per rank, times ranks: the size of a last-level cache */
    PULL_LEAST = 16 << 10,   /* bytes read from one rank; less is not worth a system call */
    CROWD_LEAST = 64 << 10   /* bytes of a scatter that each of more than two ranks reads; other operations use trays */
};

/* A single-copy read avoids one copy, but the kernel checks each page, readers of the same memory contend, and its
 * stores are never non-temporal.  For two ranks: `most`, the largest tensor for which it is faster; `near`, the size up
 * to which trays are faster if the cores share a cache; `split`, the size up to which operations are split there. */
static const struct {
    size_t near, most, split;
} pairs[TUTTI_SEND] = {
    [TUTTI_BROADCAST] = {8 << 20, 8 << 20, 2 << 20},    [TUTTI_ALL_REDUCE] = {2 << 20, 8 << 20, 512 << 10},
    [TUTTI_REDUCE] = {16 << 20, 16 << 20, 512 << 10},   [TUTTI_REDUCE_SCATTER] = {8 << 20, 24 << 20, 64 << 10},
    [TUTTI_ALL_GATHER] = {1 << 20, 16 << 20, 64 << 10}, [TUTTI_ALL_TO_ALL] = {1 << 20, 16 << 20, 64 << 10},
    [TUTTI_GATHER] = {4 << 20, 4 << 20, 4 << 20},       [TUTTI_SCATTER] = {256 << 10, SIZE_MAX, 128 << 10},
};

static bool is_even(const tutti_tensor *list, int n)
{
    for (int i = 1; i < n; i++)
        if (list[i].numel != list[0].numel) return false;
    return true;
}

/* Lists whose blocks are known to all ranks to be equal look like one tensor to the others.  The choice may depend only
 * on what the fingerprint covers. */
static bool accept_list(const struct board *board, const tutti_op *op, struct board_op *made)
{
    bool gather = op->kind == TUTTI_ALL_GATHER;
    const tutti_tensor *list = gather ? op->out : op->in;
    if (!op->list) return op->in_splits == NULL;
    if (!gather && op->kind != TUTTI_REDUCE_SCATTER) return false;
    made->list = list;
    return is_even(list, board->n);
}

static int64_t block_numel(const struct board *board, const tutti_op *op)
{
    switch (op->kind) {
    case TUTTI_BARRIER:
    case TUTTI_MONITORED_BARRIER:
        return 0;
    case TUTTI_BROADCAST:
    case TUTTI_SCATTER:
    case TUTTI_REDUCE_SCATTER:
        return op->out[0].numel;
    case TUTTI_ALL_TO_ALL:
        return op->in[0].numel / board->n;
    default:
        return op->in[0].numel;
    }
}

/* True if op->bytes is a block for, or from, each rank. */
static bool has_blocks(tutti_kind kind)
{
    return kind == TUTTI_ALL_GATHER || kind == TUTTI_GATHER || board_puts_all(kind);
}

/* Returns the bytes of the larger tensor. */
static size_t total_bytes(const struct board *board, const struct board_op *op)
{
    return has_blocks(op->kind) ? op->bytes * (size_t)board->n : op->bytes;
}

/* True for an all_reduce of two ranks that each reduce all of it. */
static bool is_pair(const struct board *board, const struct board_op *op)
{
    return op->kind == TUTTI_ALL_REDUCE && board->n == 2 && op->bytes <= PAIR_MOST;
}

static bool may_read_directly(const struct board *board, const struct board_op *op)
{
    if (!board->shm->can_pull || op->bytes < PULL_LEAST) return false;
    if (board->n > 2) return op->kind == TUTTI_SCATTER && op->bytes >= CROWD_LEAST;
    if (op->kind == TUTTI_REDUCE && !op->sliced) return false; /* only the root would read, which is slower */
    if (is_pair(board, op)) return false;
    return total_bytes(board, op) <= pairs[op->kind].most;
}

/* Returns the bytes that a rank, or the root, writes. */
static size_t bytes_written(const struct board *board, const struct board_op *op)
{
    bool all = op->kind == TUTTI_ALL_GATHER || op->kind == TUTTI_ALL_TO_ALL || op->kind == TUTTI_GATHER;
    return all ? op->bytes * (size_t)board->n : op->bytes;
}

/* True if the output was just read and is cached. */
static bool is_in_place(const tutti_op *op)
{
    bool both = op->n_in > 0 && op->n_out > 0 && !op->list;
    return both && op->in[0].data == op->out[0].data && op->in[0].numel == op->out[0].numel;
}

void board_set_steps(const struct board *board, struct board_op *op)
{
    op->depth = op->piped && !op->split ? BOARD_TRAYS : BOARD_ROOMS - BOARD_AHEAD;
    op->steps = op->kind == TUTTI_ALL_REDUCE || op->kind == TUTTI_REDUCE ? 3 : 2;
    if (op->piped) board_cut_pipe(board, op);
}

void board_split(const struct board *board, struct board_op *op)
{
    op->split = op->piped = true;
    op->sliced = false;
    op->ahead = op->shows ? 0 : BOARD_AHEAD;
    board_set_steps(board, op);
}

/* Two ranks with a core each. */
static bool can_split(const struct board *board, const struct board_op *op)
{
    if (board->n > 2 || board->shm->shares_cores || op->put < SPLIT_LEAST) return false;
    return total_bytes(board, op) <= pairs[op->kind].split;
}

/* One step, with the data in the control slots or eager buffers. */
static void set_small(const struct board *board, struct board_op *op)
{
    op->steps = 1;
    op->depth = !op->puts || op->put <= BOARD_INLINE ? BOARD_DEPTH : op->put <= BOARD_SLOT ? BOARD_SLOTS : BOARD_ROOMS;
    op->depth -= BOARD_AHEAD;
    op->may_split = can_split(board, op);
    if (op->may_split) op->depth = BOARD_TRAYS; /* the decision uses the step before */
}

static void set_chunked_or_direct(const struct board *board, struct board_op *op, bool in_place)
{
    bool pair = is_pair(board, op), beyond = op->put > board->room;
    op->sliced = (op->kind == TUTTI_ALL_REDUCE && !pair) || (op->kind == TUTTI_REDUCE && op->bytes > SLICE_LEAST);
    bool read = beyond && may_read_directly(board, op);
    bool own_cores = board->n == 2 && !board->shm->shares_cores;
    op->either = beyond && own_cores && total_bytes(board, op) <= pairs[op->kind].near;
    op->reads = read && (!tutti_kind_has_root(op->kind) || op->sliced); /* otherwise a single rank would read */
    op->large = read && !op->either;
    op->piped = !op->large;
    op->may_split = op->piped && can_split(board, op);
    op->shows = op->piped && beyond && !pair;
    op->streams = !in_place && bytes_written(board, op) * (size_t)board->n >= STREAM_LEAST;
    board_set_steps(board, op);
}

bool board_takes(const struct board *board, const tutti_op *op, struct board_op *made)
{
    if (op->kind >= TUTTI_SEND) return false;
    if (tutti_kind_reduces(op->kind) && op->reduce_op == TUTTI_PREMUL_SUM) return false;
    made->kind = op->kind;
    made->numel = block_numel(board, op);
    made->element = (size_t)tutti_dtype_bytes(op->dtype);
    made->bytes = (size_t)made->numel * made->element;
    made->reduce = op->reduce_op;
    made->dtype = op->dtype;
    made->root = op->root;
    made->put = board_puts_all(op->kind) ? made->bytes * (size_t)board->n : made->bytes;
    made->puts = !board_is_from_root(op->kind) || op->root == board->rank;
    bool many = op->kind == TUTTI_ALL_REDUCE && made->bytes * (size_t)board->n > FLAT_MOST;
    if (made->put > board->room || many)
        set_chunked_or_direct(board, made, is_in_place(op));
    else
        set_small(board, made);
    made->in = op->n_in > 0    ? op->in[0].data
               : op->n_out > 0 ? op->out[0].data
                               : NULL; /* broadcast may have only an output */
    made->out = op->n_out > 0 ? op->out[0].data : NULL;
    return accept_list(board, op, made);
}

/* True if a step waits for all ranks: rooted operations do so only if all reduce, or if they may not go on before
 * others have read their memory. */
static bool meets_all(const struct board_op *op)
{
    bool reduces = op->kind == TUTTI_REDUCE && op->at < op->steps - 1;
    if (op->kind == TUTTI_GATHER && op->shows && op->at == 0) return true; /* all learn whose memory is shared */
    return !tutti_kind_has_root(op->kind) || (op->large && (op->at > 0 || reduces)) ||
           (op->piped && op->sliced && reduces);
}

void board_set_meets(const struct board *board, struct board_op *op)
{
    bool is_root = op->root == board->rank, from_root = board_is_from_root(op->kind), all = meets_all(op);
    op->meets_from = !all && from_root ? op->root : 0;
    op->meets_to = all || (is_root && !from_root) ? board->n : from_root ? op->root + 1 : 0;
}
