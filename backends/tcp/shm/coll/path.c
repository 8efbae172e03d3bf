/* Selects the path of an operation, and the ranks that each step waits for.
 *
 * A row that the core has passed (tutti_backend.choose) decides if its path is possible.  Otherwise the first row of
 * the table decides that is for the operation and whose path pays.  All ranks must choose alike, so the choice depends
 * only on the fields that the fingerprint covers, on the core's rows, and on the ranks' agreement while attaching.
 */
#include "tcp/shm/coll/parts.h"

enum {
    FLAT_MAX = 64 << 10,         /* maximum bytes of all ranks' data that one rank reduces alone in one step */
    FLAT_CHUNKS_MAX = 128 << 10, /* maximum bytes that each of two ranks reduces alone in chunks; more go in slices */
    FLAT_REDUCE_MAX = 512 << 10, /* maximum bytes that the root of a reduce reduces alone; more would be slower */
    LOCKSTEP_MIN = 4 << 10,      /* minimum bytes for two ranks in lockstep */
    READ_MIN = 16 << 10,         /* minimum bytes read from one rank; fewer do not pay for a system call */
    READ_MANY_MIN = 64 << 10,    /* the same minimum if more than two ranks read the same memory */
    CACHE_BYTES = 32 << 20       /* bytes that all ranks together write before they exceed a last-level cache */
};

#define KIB(n) ((size_t)(n) << 10)
#define MIB(n) ((size_t)(n) << 20)

/* The sizes follow from measurements.  A single-copy read avoids one copy, but the kernel checks each page, readers of
 * the same memory contend, and its stores are never non-temporal.  Between cores that share a cache, fragment buffers
 * are faster up to some size.  Beyond a larger size they are faster again.  A read by the root alone does not pay.  See
 * docs/benchmarks/shared-memory.md. */
enum { EVERY_KIND = TUTTI_KIND_COUNT };
enum who { ANY, TWO, TWO_CORES /* two ranks with a core each */ };

static const struct row {
    int kind;
    enum who who;
    size_t max_bytes;                       /* limit for the whole operation, as for the algorithms of plans */
    enum coll_path path, separate, waiting; /* see struct coll_op */
} rows[] = {
    {EVERY_KIND, TWO_CORES, SIZE_MAX, COLL_EAGER, COLL_NO_PATH, COLL_LOCKSTEP},
    {EVERY_KIND, ANY, SIZE_MAX, COLL_EAGER, COLL_NO_PATH, COLL_NO_PATH},

    {TUTTI_BROADCAST, TWO_CORES, MIB(2), COLL_PIPELINED, COLL_PIPELINED, COLL_LOCKSTEP},
    {TUTTI_BROADCAST, TWO_CORES, MIB(8), COLL_PIPELINED, COLL_PIPELINED, COLL_NO_PATH},
    {TUTTI_BROADCAST, TWO, MIB(8), COLL_DIRECT, COLL_NO_PATH, COLL_NO_PATH},

    {TUTTI_ALL_REDUCE, TWO_CORES, FLAT_CHUNKS_MAX, COLL_PIPELINED, COLL_PIPELINED, COLL_LOCKSTEP},
    {TUTTI_ALL_REDUCE, TWO_CORES, KIB(512), COLL_PIPELINED, COLL_DIRECT, COLL_LOCKSTEP},
    {TUTTI_ALL_REDUCE, TWO_CORES, MIB(2), COLL_PIPELINED, COLL_DIRECT, COLL_NO_PATH},
    {TUTTI_ALL_REDUCE, TWO, FLAT_CHUNKS_MAX, COLL_PIPELINED, COLL_NO_PATH, COLL_NO_PATH},
    {TUTTI_ALL_REDUCE, TWO, MIB(8), COLL_DIRECT, COLL_NO_PATH, COLL_NO_PATH},

    {TUTTI_REDUCE, TWO_CORES, FLAT_REDUCE_MAX, COLL_PIPELINED, COLL_PIPELINED, COLL_LOCKSTEP},
    {TUTTI_REDUCE, TWO_CORES, MIB(16), COLL_PIPELINED, COLL_DIRECT, COLL_NO_PATH},
    {TUTTI_REDUCE, TWO, FLAT_REDUCE_MAX, COLL_PIPELINED, COLL_NO_PATH, COLL_NO_PATH},
    {TUTTI_REDUCE, TWO, MIB(16), COLL_DIRECT, COLL_NO_PATH, COLL_NO_PATH},

    {TUTTI_ALL_GATHER, TWO_CORES, KIB(64), COLL_PIPELINED, COLL_DIRECT, COLL_LOCKSTEP},
    {TUTTI_ALL_GATHER, TWO_CORES, MIB(1), COLL_PIPELINED, COLL_DIRECT, COLL_NO_PATH},
    {TUTTI_ALL_GATHER, TWO, MIB(16), COLL_DIRECT, COLL_NO_PATH, COLL_NO_PATH},

    {TUTTI_GATHER, TWO_CORES, MIB(4), COLL_PIPELINED, COLL_PIPELINED, COLL_LOCKSTEP},
    {TUTTI_GATHER, TWO, MIB(4), COLL_DIRECT, COLL_NO_PATH, COLL_NO_PATH},

    {TUTTI_SCATTER, TWO_CORES, KIB(128), COLL_PIPELINED, COLL_PIPELINED, COLL_LOCKSTEP},
    {TUTTI_SCATTER, TWO_CORES, KIB(256), COLL_PIPELINED, COLL_PIPELINED, COLL_NO_PATH},
    {TUTTI_SCATTER, ANY, SIZE_MAX, COLL_DIRECT, COLL_NO_PATH, COLL_NO_PATH},

    {TUTTI_REDUCE_SCATTER, TWO_CORES, KIB(64), COLL_PIPELINED, COLL_DIRECT, COLL_LOCKSTEP},
    {TUTTI_REDUCE_SCATTER, TWO_CORES, MIB(8), COLL_PIPELINED, COLL_DIRECT, COLL_NO_PATH},
    {TUTTI_REDUCE_SCATTER, TWO, MIB(24), COLL_DIRECT, COLL_NO_PATH, COLL_NO_PATH},

    {TUTTI_ALL_TO_ALL, TWO_CORES, KIB(64), COLL_PIPELINED, COLL_DIRECT, COLL_LOCKSTEP},
    {TUTTI_ALL_TO_ALL, TWO_CORES, MIB(1), COLL_PIPELINED, COLL_DIRECT, COLL_NO_PATH},
    {TUTTI_ALL_TO_ALL, TWO, MIB(16), COLL_DIRECT, COLL_NO_PATH, COLL_NO_PATH},

    {EVERY_KIND, ANY, SIZE_MAX, COLL_PIPELINED, COLL_NO_PATH, COLL_NO_PATH},
};

/* ---- the operation ------------------------------------------------------------------------------------------ */

static bool is_even(const tutti_tensor *list, int n)
{
    for (int i = 1; i < n; i++)
        if (list[i].numel != list[0].numel) return false;
    return true;
}

/* Takes a list if all ranks know that its blocks are equal.  To the others it looks like one tensor: the choice may
 * depend only on the fields that the fingerprint covers. */
static bool accept_list(const struct coll_segment *segment, const tutti_op *op, struct coll_op *made)
{
    bool gather = op->kind == TUTTI_ALL_GATHER;
    const tutti_tensor *list = gather ? op->out : op->in;
    if (!op->list) return op->in_splits == NULL;
    if (!gather && op->kind != TUTTI_REDUCE_SCATTER) return false;
    made->list = list;
    return is_even(list, segment->n);
}

/* Returns the bytes of the larger tensor. */
static size_t total_bytes(const struct coll_segment *segment, const struct coll_op *op)
{
    return tutti_kind_has_blocks(op->kind) ? op->bytes * (size_t)segment->n : op->bytes;
}

/* Returns the bytes that a rank, or only the root, writes. */
static size_t bytes_written(const struct coll_segment *segment, const struct coll_op *op)
{
    return tutti_kind_out_blocks(op->kind) ? op->bytes * (size_t)segment->n : op->bytes;
}

/* True if the operation reads the whole output before it writes it, so that the output is cached. */
static bool output_is_read(const struct coll_segment *segment, const tutti_op *op)
{
    bool whole = tutti_kind_in_blocks(op->kind) == tutti_kind_out_blocks(op->kind);
    return whole && !op->list && tutti_op_is_in_place(op, segment->rank);
}

/* True for an all_reduce in which each of two ranks reduces the whole tensor. */
static bool is_flat_pair(const struct coll_segment *segment, const struct coll_op *op)
{
    return op->kind == TUTTI_ALL_REDUCE && segment->n == 2 && op->bytes <= FLAT_CHUNKS_MAX;
}

/* ---- the path ---------------------------------------------------------------------------------------------- */

static bool has_two_cores(const struct coll_segment *segment)
{
    return segment->n == 2 && !segment->shm->shares_cores;
}

/* True if the operation can take the path and gains from it. */
static bool pays(const struct coll_segment *segment, const struct coll_op *op, enum coll_path path)
{
    switch (path) {
    case COLL_EAGER:
        if (op->kind == TUTTI_ALL_REDUCE && op->bytes * (size_t)segment->n > FLAT_MAX) return false;
        return op->in_bytes <= segment->eager_bytes;
    case COLL_LOCKSTEP:
        return has_two_cores(segment) && op->in_bytes >= LOCKSTEP_MIN;
    case COLL_DIRECT:
        return segment->shm->can_read_memory && op->bytes >= (segment->n > 2 ? READ_MANY_MIN : READ_MIN);
    default:
        return true;
    }
}

/* True if the operation can take the path, even if it does not gain from it. */
static bool is_possible(const struct coll_segment *segment, const struct coll_op *op, int path)
{
    switch (path) {
    case COLL_EAGER:
        return op->in_bytes <= segment->eager_bytes;
    case COLL_LOCKSTEP:
        return segment->n == 2 && op->bytes > 0;
    case COLL_DIRECT:
        return segment->shm->can_read_memory && op->bytes > 0;
    default:
        return op->bytes > 0;
    }
}

static bool is_for(const struct row *row, const struct coll_segment *segment, const struct coll_op *op)
{
    if (row->kind != EVERY_KIND && row->kind != (int)op->kind) return false;
    if (row->who != ANY && segment->n != 2) return false;
    return row->who != TWO_CORES || !segment->shm->shares_cores;
}

static const struct row *find_row(const struct coll_segment *segment, const struct coll_op *op)
{
    size_t bytes = total_bytes(segment, op);
    const struct row *row = rows;
    while (!is_for(row, segment, op) || bytes > row->max_bytes || !pays(segment, op, row->path)) row++;
    return row;
}

static bool is_sliced(const struct coll_segment *segment, const struct coll_op *op)
{
    if (op->path == COLL_EAGER || op->path == COLL_LOCKSTEP) return false;
    if (op->kind == TUTTI_ALL_REDUCE) return !is_flat_pair(segment, op);
    return op->kind == TUTTI_REDUCE && op->bytes > FLAT_REDUCE_MAX;
}

/* Returns the depth of an eager operation.  A choice between paths needs the step before the first one: see
 * choose_path. */
static uint64_t eager_depth(const struct coll_op *op)
{
    if (op->waiting != COLL_NO_PATH) return COLL_FRAGMENTS;
    if (!op->has_input || op->in_bytes <= COLL_INLINE) return COLL_SLOTS - COLL_RUN_AHEAD;
    return op->in_bytes <= COLL_SMALL ? COLL_SMALL_BUFFERS - COLL_RUN_AHEAD : COLL_EAGER_BUFFERS - COLL_AHEAD;
}

/* Sets the fields that follow from the path. */
static void set_steps(const struct coll_segment *segment, struct coll_op *op)
{
    op->sliced = is_sliced(segment, op);
    op->ahead = 0;
    switch (op->path) {
    case COLL_EAGER:
        op->depth = eager_depth(op);
        op->steps = 1;
        break;
    case COLL_DIRECT:
        op->depth = COLL_EAGER_BUFFERS - COLL_AHEAD;
        op->steps = op->kind == TUTTI_ALL_REDUCE || op->kind == TUTTI_REDUCE ? 3 : 2;
        break;
    case COLL_LOCKSTEP:
        op->depth = COLL_EAGER_BUFFERS - COLL_AHEAD;
        op->ahead = op->probes ? 0 : COLL_AHEAD;
        coll_pipelined_cut(segment, op);
        break;
    default:
        op->depth = COLL_FRAGMENTS;
        coll_pipelined_cut(segment, op);
    }
}

void coll_use_path(const struct coll_segment *segment, struct coll_op *op, enum coll_path path)
{
    op->call = 0; /* the description must not be reused: coll_describe did not choose this path */
    op->path = path;
    if (path == COLL_DIRECT) {
        op->probes = false;
        op->separate = op->waiting = COLL_NO_PATH;
    }
    set_steps(segment, op);
}

static bool probes(const struct coll_segment *segment, const struct coll_op *op)
{
    return op->path == COLL_PIPELINED && op->in_bytes > segment->eager_bytes && !is_flat_pair(segment, op);
}

static void choose_by_table(const struct coll_segment *segment, struct coll_op *op)
{
    const struct row *row = find_row(segment, op);
    op->path = row->path;
    op->separate = row->separate == COLL_DIRECT && !pays(segment, op, COLL_DIRECT) ? row->path : row->separate;
    op->waiting = row->waiting != COLL_NO_PATH && pays(segment, op, row->waiting) ? row->waiting : COLL_NO_PATH;
}

/* Chooses the path.  Returns false if the core's row names a plan. */
static bool choose(const struct coll_segment *segment, struct coll_op *op)
{
    tutti_kind kind = op->kind == TUTTI_MONITORED_BARRIER ? TUTTI_BARRIER : op->kind;
    const tutti_path_row *row =
        tutti_path_find(segment->choices, segment->n_choices, kind, (int64_t)total_bytes(segment, op));
    if (row != NULL && row->path == TUTTI_PATH_PLAN) return false;
    if (row != NULL && is_possible(segment, op, row->path))
        op->path = (enum coll_path)row->path;
    else
        choose_by_table(segment, op);
    op->probes = probes(segment, op);
    return true;
}

bool coll_describe(const struct coll_segment *segment, const tutti_op *op, struct coll_op *made)
{
    if (op->kind >= TUTTI_SEND) return false;
    if (tutti_kind_reduces(op->kind) && op->reduce_op == TUTTI_PREMUL_SUM) return false;
    made->kind = op->kind;
    made->numel = tutti_op_block_numel(op, segment->n);
    made->element = (size_t)tutti_dtype_bytes(op->dtype);
    made->bytes = (size_t)made->numel * made->element;
    made->reduce = op->reduce_op;
    made->dtype = op->dtype;
    made->root = op->root;
    made->in_bytes = tutti_kind_in_blocks(op->kind) ? made->bytes * (size_t)segment->n : made->bytes;
    made->has_input = !coll_is_from_root(op->kind) || op->root == segment->rank;
    /* A broadcast may have only an output. */
    made->in = op->n_in > 0 ? op->in[0].data : op->n_out > 0 ? op->out[0].data : NULL;
    made->out = op->n_out > 0 ? op->out[0].data : NULL;
    if (!accept_list(segment, op, made) || !choose(segment, made)) return false;
    made->non_temporal =
        !output_is_read(segment, op) && bytes_written(segment, made) * (size_t)segment->n >= CACHE_BYTES;
    set_steps(segment, made);
    return true;
}

const char *coll_explain(const struct coll_segment *segment, const tutti_op *op)
{
    struct coll_op made = {0};
    if (segment->state != COLL_READY || !coll_describe(segment, op, &made)) return NULL;
    if (made.path == COLL_DIRECT) return "direct: each rank reads the other ranks' memory";
    if (made.path == COLL_LOCKSTEP) return "lockstep: through shared memory, in small chunks of both ranks at once";
    if (made.path == COLL_EAGER && made.waiting != COLL_NO_PATH)
        return "eager: through shared memory, in chunks if both ranks wait, otherwise in one step";
    if (made.path == COLL_EAGER) return "eager: through shared memory, in one step";
    if (made.separate == COLL_DIRECT)
        return "pipelined: in chunks through shared memory, or by reading the other rank's memory if that is "
               "faster";
    if (made.probes) return "pipelined: through shared memory, in chunks, or in place if allocated by tutti_alloc";
    return "pipelined: through shared memory, in chunks";
}

/* ---- the ranks of a step ----------------------------------------------------------------------------------- */

/* True if a step waits for all ranks.  A rooted operation does so only if all ranks reduce, or if it must not go on
 * before others have read its memory. */
static bool awaits_all(const struct coll_op *op)
{
    bool reduces = op->kind == TUTTI_REDUCE && op->at < op->steps - 1;
    if (op->kind == TUTTI_GATHER && op->probes && op->at == 0)
        return true; /* all ranks must find out whose memory is shared */
    if (!tutti_kind_has_root(op->kind)) return true;
    if (op->path == COLL_DIRECT) return op->at > 0 || reduces;
    return op->path == COLL_PIPELINED && op->sliced && reduces;
}

void coll_set_awaited(const struct coll_segment *segment, struct coll_op *op)
{
    bool is_root = op->root == segment->rank, from_root = coll_is_from_root(op->kind), all = awaits_all(op);
    op->awaits_from = !all && from_root ? op->root : 0;
    op->awaits_to = all || (is_root && !from_root) ? segment->n : from_root ? op->root + 1 : 0;
}
