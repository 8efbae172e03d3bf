/* Finds the ways that an operation can take, and the ranks that each step waits for.
 *
 * A row that the core has passed (tutti_backend.choose) names a path.  Otherwise the choice is measured (agree.c).  All
 * ranks must find the same ways, so these depend only on the fields that the fingerprint covers, on the core's rows,
 * and on the ranks' agreement while attaching.
 */
#include <stdio.h>

#include "tcp/shm/coll/parts.h"

enum {
    FLAT_MAX = 64 << 10,         /* maximum bytes of all ranks' data that one rank reduces alone in one step */
    FLAT_PAIR_MAX = 8 << 20,     /* maximum bytes that one of two ranks, or each, reduces whole; more go in slices */
    FLAT_REDUCE_MAX = 512 << 10, /* maximum bytes that the root of more ranks that share cores reduces alone */
    LOCKSTEP_MAX = 64 << 10,     /* maximum bytes for two ranks in lockstep; more are slower */
    READ_MIN = 4 << 10,          /* minimum bytes read from one rank; fewer do not pay for a system call */
    READ_USUAL = 16 << 10,       /* the same without a measurement */
    COPY_MAX = 256 << 10,        /* maximum bytes of arenas that ranks that share cores copy */
    BYPASS_MIN = 4 << 10,        /* minimum bytes stored non-temporally */
    BYPASS_CHUNKS = 16 << 10,    /* the same of a path that competes with eager ones */
    CACHE_BYTES = 32 << 20       /* bytes that all ranks together write before they exceed a last-level cache */
};

/* ---- the operation ------------------------------------------------------------------------------------------ */

/* Returns the elements of a block, or of the largest one of a list.  All blocks of a list take as much space as that
 * one, so they are found like those of one tensor. */
static int64_t block_numel(const tutti_op *op, const tutti_tensor *list, int n)
{
    if (list == NULL) return tutti_op_block_numel(op, n);
    int64_t most = 0;
    for (int i = 0; i < n; i++)
        if (list[i].numel > most) most = list[i].numel;
    return most;
}

const tutti_tensor *coll_list_of(const tutti_op *op)
{
    if (!op->list) return NULL;
    return op->kind == TUTTI_ALL_GATHER ? op->out : op->in;
}

/* True if a rank may know the sizes of its own blocks alone, so that the operation takes COLL_UNEVEN or runs as a
 * plan. */
static bool is_uneven(const tutti_op *op)
{
    return (op->list || op->in_splits != NULL) && !tutti_kind_knows_blocks(op->kind);
}

/* True if the output would not stay in the cache if all ranks wrote as much. */
static bool exceeds_cache(const struct coll_segment *segment, size_t written)
{
    return written >= CACHE_BYTES / (size_t)segment->n;
}

/* Takes blocks of differing sizes if all ranks may read each other's memory: no rank knows whether those of the others
 * fit their buffers.  Two ranks with a core each exchange messages, which they copy in and out at once, unless only one
 * of them has blocks. */
static bool accept_uneven(const struct coll_segment *segment, const tutti_op *op, struct coll_op *made)
{
    const tutti_path_row *row = tutti_path_find(segment->choices, segment->n_choices, op->kind, 0);
    bool is_pair = segment->n == 2 && !segment->shm->shares_cores && !tutti_kind_has_root(op->kind);
    if (is_pair || !segment->shm->can_read_memory || (row != NULL && row->path == TUTTI_PATH_PLAN)) return false;
    coll_uneven_describe(segment, op, made);
    made->non_temporal = !made->uneven.in_place && exceeds_cache(segment, made->uneven.out_bytes);
    return true;
}

/* Blocks of a list may be the same memory, so that together they exceed a size_t of 32 bits. */
static size_t times(size_t bytes, int n)
{
    return bytes > SIZE_MAX / (size_t)n ? SIZE_MAX : bytes * (size_t)n;
}

/* Returns the bytes of the larger tensor. */
static size_t total_bytes(const struct coll_segment *segment, const struct coll_op *op)
{
    return tutti_kind_has_blocks(op->kind) ? times(op->bytes, segment->n) : op->bytes;
}

/* Returns the bytes that a rank, or only the root, writes. */
static size_t bytes_written(const struct coll_segment *segment, const struct coll_op *op)
{
    return tutti_kind_out_blocks(op->kind) ? times(op->bytes, segment->n) : op->bytes;
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
    return op->kind == TUTTI_ALL_REDUCE && segment->n == 2 && op->bytes <= FLAT_PAIR_MAX;
}

/* True for a reduce whose root reduces everything alone.  More than two ranks with a core each share the work of all
 * but little data, because the others would only watch. */
static bool is_flat_reduce(const struct coll_segment *segment, const struct coll_op *op)
{
    if (op->kind != TUTTI_REDUCE) return false;
    if (segment->n == 2) return op->bytes <= FLAT_PAIR_MAX;
    return op->bytes <= (segment->shm->shares_cores ? FLAT_REDUCE_MAX : FLAT_MAX / (size_t)segment->n);
}

/* ---- the ways ---------------------------------------------------------------------------------------------- */

static bool is_possible(const struct coll_segment *segment, const struct coll_op *op, int path)
{
    switch (path) {
    case COLL_EAGER:
        return op->in_bytes <= segment->layout.eager_bytes;
    case COLL_LOCKSTEP:
        return segment->n == 2 && op->bytes > 0;
    case COLL_DIRECT:
        return segment->shm->can_read_memory && op->bytes > 0;
    default:
        return op->bytes > 0;
    }
}

/* True if a path that is possible may be the fastest one. */
static bool may_pay(const struct coll_segment *segment, const struct coll_op *op, int path)
{
    switch (path) {
    case COLL_EAGER:
        if (op->kind == TUTTI_REDUCE) return is_flat_reduce(segment, op);
        return op->kind != TUTTI_ALL_REDUCE || op->bytes * (size_t)segment->n <= FLAT_MAX;
    case COLL_LOCKSTEP:
        return !segment->shm->shares_cores && op->in_bytes <= LOCKSTEP_MAX;
    case COLL_DIRECT:
        return op->bytes >= READ_MIN;
    default:
        return true;
    }
}

/* True if each byte has one reader, so that a read replaces two copies.  A rank that reduces all data uses the other's
 * copy in place, so there a read saves none. */
static bool has_one_reader(const struct coll_segment *segment, const struct coll_op *op)
{
    if (segment->n > 2) return op->kind == TUTTI_SCATTER || op->kind == TUTTI_GATHER || op->kind == TUTTI_ALL_TO_ALL;
    return !is_flat_pair(segment, op) && !is_flat_reduce(segment, op);
}

/* True if ranks read each other's memory unless a measurement says otherwise.  Ranks that share cores prefer chunks. */
static bool usually_reads(const struct coll_segment *segment, const struct coll_op *op)
{
    if (!is_possible(segment, op, COLL_DIRECT) || op->bytes < READ_USUAL || !has_one_reader(segment, op)) return false;
    return !segment->shm->shares_cores;
}

/* True for a scatter that does not fit the root's fragment buffers, where ranks share cores.  For each chunk the root
 * would wait until all have taken an earlier one.  Messages let it serve those that have a core. */
static bool prefers_messages(const struct coll_segment *segment, const struct coll_op *op)
{
    bool fits = op->in_bytes <= COLL_FRAGMENTS * segment->layout.fragment_bytes;
    return segment->shm->shares_cores && op->kind == TUTTI_SCATTER && !fits;
}

/* True if ranks can run further ahead in parts of their fragment buffers than in eager buffers.  Those with a core each
 * measure that from CHOICE_MIN on. */
static bool prefers_parts(const struct coll_segment *segment, const struct coll_op *op)
{
    bool is_measured = !segment->shm->shares_cores && op->in_bytes >= CHOICE_MIN;
    if (is_measured || !tutti_kind_has_root(op->kind)) return false;
    if (op->in_bytes <= COLL_SMALL || op->in_bytes > segment->layout.eager_bytes) return false;
    int parts = coll_parts_needed(segment, op);
    return parts > 0 && COLL_PARTS / parts * COLL_FRAGMENTS > COLL_EAGER_BUFFERS - COLL_AHEAD;
}

/* True if two ranks with a core each take lockstep without a measurement.  They do so between COLL_ASKED, up to which
 * they ask for lines ahead, and CHOICE_MIN, from which on they measure.  Lockstep goes through 8 buffers, eager through
 * 128, in which ranks run ahead if there is a root. */
static bool prefers_lockstep(const struct coll_segment *segment, const struct coll_op *op)
{
    bool in_range = op->in_bytes > COLL_ASKED && op->in_bytes < CHOICE_MIN && !tutti_kind_has_root(op->kind);
    return in_range && is_possible(segment, op, COLL_LOCKSTEP) && may_pay(segment, op, COLL_LOCKSTEP);
}

/* Returns the path that is taken without a measurement.  Two copies at once can be faster than a single copy, but where
 * data move slowly between cores, they take several times as long. */
static enum coll_path usual_path(const struct coll_segment *segment, const struct coll_op *op)
{
    if (prefers_parts(segment, op)) return COLL_PIPELINED;
    if (prefers_lockstep(segment, op)) return COLL_LOCKSTEP;
    if (is_possible(segment, op, COLL_EAGER) && may_pay(segment, op, COLL_EAGER)) return COLL_EAGER;
    return usually_reads(segment, op) ? COLL_DIRECT : COLL_PIPELINED;
}

/* Returns the ways of a path.  Direct operations store only results. */
static unsigned ways_of(const struct coll_segment *segment, const struct coll_op *op, int path)
{
    bool has_results = op->kind <= TUTTI_REDUCE && tutti_kind_reduces(op->kind);
    bool stores = path == COLL_EAGER || path == COLL_PIPELINED || (path == COLL_DIRECT && has_results);
    size_t least = path == COLL_EAGER || segment->shm->shares_cores ? BYPASS_MIN : BYPASS_CHUNKS;
    unsigned ways = 1u << COLL_WAY(path, 0);
    if (stores && op->in_bytes >= least) ways |= 1u << COLL_WAY(path, 1);
    return ways;
}

/* Returns the ways to choose from.  Little data has one.  Where ranks share cores, the ways of the usual path alone are
 * compared: what a path makes the ranks wait is no work, and is not measured there (agree.c). */
static unsigned find_ways(const struct coll_segment *segment, const struct coll_op *op)
{
    enum coll_path usual = usual_path(segment, op);
    unsigned ways = 1u << COLL_WAY(usual, 0);
    if (op->in_bytes < CHOICE_MIN) return ways;
    if (segment->shm->shares_cores) return ways_of(segment, op, usual);
    for (int path = COLL_EAGER; path <= COLL_DIRECT; path++)
        if (is_possible(segment, op, path) && may_pay(segment, op, path)) ways |= ways_of(segment, op, path);
    return ways;
}

static bool is_sliced(const struct coll_segment *segment, const struct coll_op *op)
{
    if (op->path == COLL_EAGER || op->path == COLL_LOCKSTEP) return false;
    if (op->kind == TUTTI_ALL_REDUCE) return !is_flat_pair(segment, op);
    return op->kind == TUTTI_REDUCE && !is_flat_reduce(segment, op);
}

static uint64_t eager_depth(const struct coll_op *op)
{
    if (!op->has_input || op->in_bytes <= COLL_TINY) return COLL_SLOTS - COLL_RUN_AHEAD;
    return op->in_bytes <= COLL_SMALL ? COLL_SMALL_BUFFERS - COLL_RUN_AHEAD : COLL_EAGER_BUFFERS - COLL_AHEAD;
}

/* True if data in arenas are read in place.  Then ranks wait for each other.  Where they share cores, a copy of little
 * data takes less time. */
static bool may_read_in_place(const struct coll_segment *segment, const struct coll_op *op)
{
    size_t bytes = op->kind == TUTTI_GATHER ? op->in_bytes : total_bytes(segment, op);
    return !segment->shm->shares_cores || bytes > COPY_MAX;
}

static bool probes(const struct coll_segment *segment, const struct coll_op *op)
{
    if (op->path != COLL_PIPELINED && op->path != COLL_LOCKSTEP) return false;
    if (!may_read_in_place(segment, op)) return false;
    return op->in_bytes > segment->layout.eager_bytes && !is_flat_pair(segment, op);
}

/* Sets the fields that follow from the path. */
static void set_steps(const struct coll_segment *segment, struct coll_op *op)
{
    op->sliced = is_sliced(segment, op);
    op->parts = 0;
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

void coll_use_way(const struct coll_segment *segment, struct coll_op *op, int way)
{
    op->way = way;
    op->path = (enum coll_path)COLL_WAY_PATH(way);
    op->bypasses = COLL_BYPASSES(way);
    op->probes = probes(segment, op);
    set_steps(segment, op);
}

void coll_use_direct(const struct coll_segment *segment, struct coll_op *op)
{
    op->call = 0; /* the description must not be reused: the next call probes again */
    coll_use_way(segment, op, COLL_WAY(COLL_DIRECT, 0));
}

/* Finds the ways.  Returns false if the core's row names a plan, or if there is none and messages are better. */
static bool choose(const struct coll_segment *segment, struct coll_op *op)
{
    tutti_kind kind = op->kind == TUTTI_MONITORED_BARRIER ? TUTTI_BARRIER : op->kind;
    const tutti_path_row *row =
        tutti_path_find(segment->choices, segment->n_choices, kind, (int64_t)total_bytes(segment, op));
    if (row != NULL ? row->path == TUTTI_PATH_PLAN : prefers_messages(segment, op)) return false;
    bool named = row != NULL && is_possible(segment, op, row->path);
    op->ways = named ? ways_of(segment, op, row->path) : find_ways(segment, op);
    bool has_choice = op->in_bytes >= CHOICE_MIN && (op->ways & (op->ways - 1)) != 0;
    op->class = has_choice ? coll_class_of(segment, op) : NULL;
    op->usual = (uint8_t)(named ? COLL_WAY(row->path, 0) : COLL_WAY(usual_path(segment, op), 0));
    coll_use_way(segment, op, op->usual);
    return true;
}

void coll_use_memory(const tutti_op *op, struct coll_op *made)
{
    /* A broadcast may have only an output. */
    made->in = op->n_in > 0 ? op->in[0].data : op->n_out > 0 ? op->out[0].data : NULL;
    made->out = op->n_out > 0 ? op->out[0].data : NULL;
}

bool coll_describe(const struct coll_segment *segment, const tutti_op *op, struct coll_op *made)
{
    if (op->kind >= TUTTI_SEND) return false;
    if (tutti_kind_reduces(op->kind) && op->reduce_op == TUTTI_PREMUL_SUM) return false;
    made->kind = op->kind;
    if (is_uneven(op)) return accept_uneven(segment, op, made);
    made->list = coll_list_of(op);
    made->element = (size_t)tutti_dtype_bytes(op->dtype);
    made->bytes = (size_t)block_numel(op, made->list, segment->n) * made->element;
    made->reduce = op->reduce_op;
    made->dtype = op->dtype;
    made->root = op->root;
    made->in_bytes = tutti_kind_in_blocks(op->kind) ? times(made->bytes, segment->n) : made->bytes;
    made->has_input = made->in_bytes > 0 && (!coll_is_from_root(op->kind) || op->root == segment->rank);
    coll_use_memory(op, made);
    if (!choose(segment, made)) return false;
    made->non_temporal = !output_is_read(segment, op) && exceeds_cache(segment, bytes_written(segment, made));
    return true;
}

static const char *const way_names[CHOICE_WAYS] = {
    [COLL_WAY(COLL_EAGER, 0)] = "eager",
    [COLL_WAY(COLL_EAGER, 1)] = "eager with non-temporal stores",
    [COLL_WAY(COLL_LOCKSTEP, 0)] = "lockstep",
    [COLL_WAY(COLL_PIPELINED, 0)] = "pipelined",
    [COLL_WAY(COLL_PIPELINED, 1)] = "pipelined with non-temporal stores",
    [COLL_WAY(COLL_DIRECT, 0)] = "direct",
    [COLL_WAY(COLL_DIRECT, 1)] = "direct with non-temporal stores",
};

static const char *describe_path(const struct coll_op *op)
{
    switch (op->path) {
    case COLL_EAGER:
        return "eager: through shared memory, in one step";
    case COLL_LOCKSTEP:
        return "lockstep: through shared memory, in small chunks of both ranks at once";
    case COLL_DIRECT:
        return "direct: each rank reads the other ranks' memory";
    default:
        return op->probes ? "pipelined: through shared memory, in chunks, or in place if allocated by tutti_alloc"
                          : "pipelined: through shared memory, in chunks";
    }
}

const char *coll_explain(const struct coll_segment *segment, const tutti_op *op)
{
    static _Thread_local char text[CHOICE_TEXT];
    struct coll_op made = {0};
    if (segment->state != COLL_READY || !coll_describe(segment, op, &made)) return NULL;
    const struct coll_class *class = made.class;
    if (class == NULL) return describe_path(&made);
    coll_use_way(segment, &made, coll_next_way(segment, &made));
    int length = snprintf(text, sizeof text, "%s; call %llu", describe_path(&made), (unsigned long long)class->calls);
    if (segment->rank == 0)
        choice_print(&class->measured, "measured", way_names, text + length, sizeof text - (size_t)length);
    else
        snprintf(text + length, sizeof text - (size_t)length, "; rank 0 measures");
    return text;
}

/* ---- the ranks of a step ----------------------------------------------------------------------------------- */

/* True if a step waits for all ranks.  A rooted operation does so only if all ranks reduce. */
static bool awaits_all(const struct coll_op *op)
{
    bool reduces = op->kind == TUTTI_REDUCE && op->at < op->steps - 1;
    if (op->kind == TUTTI_GATHER && op->probes && op->at == 0)
        return true; /* all ranks must find out whose memory is shared */
    if (!tutti_kind_has_root(op->kind)) return true;
    return reduces && (op->path == COLL_DIRECT || (op->path == COLL_PIPELINED && op->sliced));
}

/* At the end of a rooted direct operation the root waits until all have read, and the others wait for the root alone.
 * They need not meet each other. */
void coll_set_awaited(const struct coll_segment *segment, struct coll_op *op)
{
    bool is_root = op->root == segment->rank, from_root = coll_is_from_root(op->kind), is_last = coll_is_last(op);
    bool is_list = op->path == COLL_UNEVEN && tutti_kind_has_root(op->kind), waits = is_list && coll_uneven_waits(op);
    bool all = is_list ? waits && is_root : awaits_all(op) || (is_root && (is_last || !from_root));
    bool only_root = is_list ? waits && !is_root : !all && (is_last || from_root);
    op->awaits_from = only_root ? op->root : 0;
    op->awaits_to = all ? segment->n : only_root ? op->root + 1 : 0;
}
