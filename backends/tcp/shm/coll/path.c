/* Selects the path of an operation and the ranks that each step waits for. */
#include "tcp/shm/coll/parts.h"

enum {
    FLAT_MOST = 64 << 10,    /* bytes of all ranks' data that one rank reduces alone; more is reduced in slices, */
    PAIR_MOST = 128 << 10,   /* except with two ranks below this size */
    SPLIT_LEAST = 4 << 10,   /* bytes from which on an operation of two ranks is split */
    SLICE_LEAST = 1 << 19,   /* bytes of a reduce from which on it is sliced, because the root alone would be slower */
    STREAM_LEAST = 32 << 20, /* bytes written per rank, times ranks: the size of a last-level cache */
    PULL_LEAST = 16 << 10,   /* bytes read from one rank; less is not worth a system call */
    CROWD_LEAST =
        64 << 10 /* bytes of a scatter that each of more than two ranks reads; other operations use fragments */
};

/* A single-copy read avoids one copy, but the kernel checks each page, readers of the same memory contend, and its
 * stores are never non-temporal.  For two ranks: `most`, the largest tensor for which it is faster; `near`, the size up
 * to which fragments are faster if the cores share a cache; `split`, the size up to which operations are split there.
 */
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
static bool accept_list(const struct coll_segment *segment, const tutti_op *op, struct coll_op *made)
{
    bool gather = op->kind == TUTTI_ALL_GATHER;
    const tutti_tensor *list = gather ? op->out : op->in;
    if (!op->list) return op->in_splits == NULL;
    if (!gather && op->kind != TUTTI_REDUCE_SCATTER) return false;
    made->list = list;
    return is_even(list, segment->n);
}

static int64_t block_numel(const struct coll_segment *segment, const tutti_op *op)
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
        return op->in[0].numel / segment->n;
    default:
        return op->in[0].numel;
    }
}

/* True if op->bytes is a block for, or from, each rank. */
static bool has_blocks(tutti_kind kind)
{
    return kind == TUTTI_ALL_GATHER || kind == TUTTI_GATHER || coll_has_in_blocks(kind);
}

/* Returns the bytes of the larger tensor. */
static size_t total_bytes(const struct coll_segment *segment, const struct coll_op *op)
{
    return has_blocks(op->kind) ? op->bytes * (size_t)segment->n : op->bytes;
}

/* True for an all_reduce of two ranks that each reduce all of it. */
static bool is_pair(const struct coll_segment *segment, const struct coll_op *op)
{
    return op->kind == TUTTI_ALL_REDUCE && segment->n == 2 && op->bytes <= PAIR_MOST;
}

static bool may_read_directly(const struct coll_segment *segment, const struct coll_op *op)
{
    if (!segment->shm->can_read_memory || op->bytes < PULL_LEAST) return false;
    if (segment->n > 2) return op->kind == TUTTI_SCATTER && op->bytes >= CROWD_LEAST;
    if (op->kind == TUTTI_REDUCE && !op->sliced) return false; /* only the root would read, which is slower */
    if (is_pair(segment, op)) return false;
    return total_bytes(segment, op) <= pairs[op->kind].most;
}

/* Returns the bytes that a rank, or the root, writes. */
static size_t bytes_written(const struct coll_segment *segment, const struct coll_op *op)
{
    bool all = op->kind == TUTTI_ALL_GATHER || op->kind == TUTTI_ALL_TO_ALL || op->kind == TUTTI_GATHER;
    return all ? op->bytes * (size_t)segment->n : op->bytes;
}

/* True if the output was just read and is cached. */
static bool is_in_place(const tutti_op *op)
{
    bool both = op->n_in > 0 && op->n_out > 0 && !op->list;
    return both && op->in[0].data == op->out[0].data && op->in[0].numel == op->out[0].numel;
}

void coll_set_steps(const struct coll_segment *segment, struct coll_op *op)
{
    op->depth = op->piped && !op->split ? COLL_FRAGMENTS : COLL_EAGER_BUFFERS - COLL_AHEAD;
    op->steps = op->kind == TUTTI_ALL_REDUCE || op->kind == TUTTI_REDUCE ? 3 : 2;
    if (op->piped) coll_pipelined_cut(segment, op);
}

void coll_use_lockstep(const struct coll_segment *segment, struct coll_op *op)
{
    op->split = op->piped = true;
    op->sliced = false;
    op->ahead = op->shows ? 0 : COLL_AHEAD;
    coll_set_steps(segment, op);
}

/* Two ranks with a core each. */
static bool can_split(const struct coll_segment *segment, const struct coll_op *op)
{
    if (segment->n > 2 || segment->shm->shares_cores || op->in_bytes < SPLIT_LEAST) return false;
    return total_bytes(segment, op) <= pairs[op->kind].split;
}

/* One step, with the data in the control slots or eager buffers. */
static void set_small(const struct coll_segment *segment, struct coll_op *op)
{
    op->steps = 1;
    op->depth = !op->has_input || op->in_bytes <= COLL_INLINE ? COLL_SLOTS
                : op->in_bytes <= COLL_SMALL                  ? COLL_SMALL_BUFFERS
                                                              : COLL_EAGER_BUFFERS;
    op->depth -= COLL_AHEAD;
    op->may_split = can_split(segment, op);
    if (op->may_split) op->depth = COLL_FRAGMENTS; /* the decision uses the step before */
}

static void set_chunked_or_direct(const struct coll_segment *segment, struct coll_op *op, bool in_place)
{
    bool pair = is_pair(segment, op), beyond = op->in_bytes > segment->eager_bytes;
    op->sliced = (op->kind == TUTTI_ALL_REDUCE && !pair) || (op->kind == TUTTI_REDUCE && op->bytes > SLICE_LEAST);
    bool read = beyond && may_read_directly(segment, op);
    bool own_cores = segment->n == 2 && !segment->shm->shares_cores;
    op->either = beyond && own_cores && total_bytes(segment, op) <= pairs[op->kind].near;
    op->reads = read && (!tutti_kind_has_root(op->kind) || op->sliced); /* otherwise a single rank would read */
    op->large = read && !op->either;
    op->piped = !op->large;
    op->may_split = op->piped && can_split(segment, op);
    op->shows = op->piped && beyond && !pair;
    op->streams = !in_place && bytes_written(segment, op) * (size_t)segment->n >= STREAM_LEAST;
    coll_set_steps(segment, op);
}

bool coll_describe(const struct coll_segment *segment, const tutti_op *op, struct coll_op *made)
{
    if (op->kind >= TUTTI_SEND) return false;
    if (tutti_kind_reduces(op->kind) && op->reduce_op == TUTTI_PREMUL_SUM) return false;
    made->kind = op->kind;
    made->numel = block_numel(segment, op);
    made->element = (size_t)tutti_dtype_bytes(op->dtype);
    made->bytes = (size_t)made->numel * made->element;
    made->reduce = op->reduce_op;
    made->dtype = op->dtype;
    made->root = op->root;
    made->in_bytes = coll_has_in_blocks(op->kind) ? made->bytes * (size_t)segment->n : made->bytes;
    made->has_input = !coll_is_from_root(op->kind) || op->root == segment->rank;
    bool many = op->kind == TUTTI_ALL_REDUCE && made->bytes * (size_t)segment->n > FLAT_MOST;
    if (made->in_bytes > segment->eager_bytes || many)
        set_chunked_or_direct(segment, made, is_in_place(op));
    else
        set_small(segment, made);
    made->in = op->n_in > 0    ? op->in[0].data
               : op->n_out > 0 ? op->out[0].data
                               : NULL; /* broadcast may have only an output */
    made->out = op->n_out > 0 ? op->out[0].data : NULL;
    return accept_list(segment, op, made);
}

/* True if a step waits for all ranks: rooted operations do so only if all reduce, or if they may not go on before
 * others have read their memory. */
static bool meets_all(const struct coll_op *op)
{
    bool reduces = op->kind == TUTTI_REDUCE && op->at < op->steps - 1;
    if (op->kind == TUTTI_GATHER && op->shows && op->at == 0) return true; /* all learn whose memory is shared */
    return !tutti_kind_has_root(op->kind) || (op->large && (op->at > 0 || reduces)) ||
           (op->piped && op->sliced && reduces);
}

void coll_set_awaited(const struct coll_segment *segment, struct coll_op *op)
{
    bool is_root = op->root == segment->rank, from_root = coll_is_from_root(op->kind), all = meets_all(op);
    op->awaits_from = !all && from_root ? op->root : 0;
    op->awaits_to = all || (is_root && !from_root) ? segment->n : from_root ? op->root + 1 : 0;
}
