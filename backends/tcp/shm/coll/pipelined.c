/* Pipelined operations: data go through the ranks' fragment buffers, one chunk per step.
 *
 * In step s each rank copies its chunk s into its fragment.  Once the others have arrived there, it copies out the
 * parts that it needs.
 *
 * An all_reduce and a reduce of more than little data (path.c; with two ranks of very large data) are sliced, to share
 * the work of reducing.  Each rank then reduces one slice of the chunk into its fragment.  Ranks that need the
 * result copy out the slices of chunk s - 1, which were complete when the others arrived.  Sliced operations take one
 * step more than they have chunks.
 *
 * A rank has two fragments, and posts step s only when all are finished with step s - 2.  Both fragments stay in the
 * cache, so a byte passes through memory only when it is read from a tensor and when it is written to one.  If memory
 * is faster than another core's cache, the way with non-temporal stores uses memory instead (agree.c).
 *
 * The chunks of an operation in lockstep go through the eager buffers instead: see coll.h.
 */
#include "tcp/shm/coll/parts.h"

/* Chunk in lockstep: the chunks in all eager buffers of two ranks are 32 KiB, which stay in a second-level cache. */
enum { LOCKSTEP_CHUNK = 2 << 10 };

static char *buffer_of(const struct coll_segment *segment, const struct coll_op *op, int rank, int64_t step)
{
    uint64_t at = op->first + (uint64_t)step;
    if (op->path == COLL_LOCKSTEP) return coll_eager_of(segment, rank, at);
    return op->parts > 0 ? coll_parts_at(segment, op, rank) : coll_fragment_of(segment, rank, at);
}

/* Returns the rank's reduced results, which follow its data in the buffer. */
static char *result_of(const struct coll_segment *segment, const struct coll_op *op, int rank, int64_t step)
{
    return buffer_of(segment, op, rank, step) + segment->layout.fragment_bytes;
}

/* ---- copy in ------------------------------------------------------------------------------------------------- */

/* Copies in all slices except this rank's own, which it reduces itself. */
static void copy_in_slices(const struct coll_segment *segment, const struct coll_op *op, struct slice chunk,
                           char *fragment)
{
    struct slice own = coll_part_of(segment, op, chunk.bytes, segment->rank);
    coll_copy_in_around(op, fragment, op->in + chunk.at, own, chunk.bytes);
}

void coll_pipelined_post(struct coll_segment *segment, struct coll_op *op)
{
    struct slice chunk = coll_chunk_of(op, op->posted);
    char *fragment = buffer_of(segment, op, segment->rank, op->posted);
    bool root = op->root == segment->rank;
    if (op->sliced) {
        copy_in_slices(segment, op, chunk, fragment);
        return;
    }
    switch (op->kind) {
    case TUTTI_BROADCAST:
        if (root) coll_copy_in(op, fragment, op->in + chunk.at, chunk.bytes);
        break;
    case TUTTI_GATHER:
    case TUTTI_REDUCE:
        if (!root) coll_copy_in(op, fragment, op->in + chunk.at, chunk.bytes);
        break;
    case TUTTI_ALL_GATHER:
        chunk = coll_block_chunk(op, op->posted, segment->rank);
        coll_copy_in(op, fragment, op->in + chunk.at, chunk.bytes);
        break;
    case TUTTI_ALL_REDUCE:
        coll_copy_in(op, fragment, op->in + chunk.at, chunk.bytes);
        break;
    default: /* a block for each rank */
        for (int i = 0; i < segment->n; i++) {
            if (i == segment->rank || (op->kind == TUTTI_SCATTER && !root)) continue;
            chunk = coll_block_chunk(op, op->posted, i);
            coll_copy_in(op, fragment + (size_t)i * op->chunk, coll_in_block(op, i) + chunk.at, chunk.bytes);
        }
    }
}

/* ---- copy out ------------------------------------------------------------------------------------------------ */

/* Reduces this rank's slice of the current chunk. */
static void reduce_slice(struct coll_segment *segment, const struct coll_op *op)
{
    struct slice chunk = coll_chunk_of(op, op->at), own = coll_part_of(segment, op, chunk.bytes, segment->rank);
    const void *from[SHM_RANKS_MAX];
    for (int i = 0; i < segment->n; i++)
        from[i] = i == segment->rank ? op->in + chunk.at + own.at : buffer_of(segment, op, i, op->at) + own.at;
    coll_result_reduce(segment, op, result_of(segment, op, segment->rank, op->at), from, own.bytes);
}

/* Copies out all slices of the previous chunk. */
static void copy_out_slices(const struct coll_segment *segment, const struct coll_op *op)
{
    struct slice chunk = coll_chunk_of(op, op->at - 1);
    for (int k = 0; k < segment->n; k++) {
        int rank = (segment->rank + k) % segment->n; /* each rank begins at another slice */
        struct slice slice = coll_part_of(segment, op, chunk.bytes, rank);
        coll_copy_out(op, op->out + chunk.at + slice.at, result_of(segment, op, rank, op->at - 1), slice.bytes);
    }
}

/* Reduces the whole chunk, for operations that are not sliced. */
static void reduce_chunk(const struct coll_segment *segment, const struct coll_op *op)
{
    struct slice chunk = coll_chunk_of(op, op->at);
    const void *from[SHM_RANKS_MAX];
    for (int i = 0; i < segment->n; i++)
        from[i] = i == segment->rank ? op->in + chunk.at : buffer_of(segment, op, i, op->at);
    coll_reduce(segment, op, op->out + chunk.at, from, chunk.bytes);
}

static void reduce_own_block(const struct coll_segment *segment, const struct coll_op *op)
{
    struct slice chunk = coll_block_chunk(op, op->at, segment->rank);
    size_t own = (size_t)segment->rank * op->chunk;
    const void *from[SHM_RANKS_MAX];
    for (int i = 0; i < segment->n; i++)
        from[i] = i == segment->rank ? coll_in_block(op, i) + chunk.at : buffer_of(segment, op, i, op->at) + own;
    coll_reduce(segment, op, op->out + chunk.at, from, chunk.bytes);
}

/* Copies out each rank's chunk: of its tensor, or of its block for this rank. */
static void copy_out_blocks(const struct coll_segment *segment, const struct coll_op *op)
{
    bool own_block = op->kind == TUTTI_ALL_TO_ALL;
    for (int k = 0; k < segment->n; k++) {
        int rank = (segment->rank + k) % segment->n;
        struct slice chunk = coll_block_chunk(op, op->at, rank);
        const char *from = buffer_of(segment, op, rank, op->at) + (own_block ? (size_t)segment->rank * op->chunk : 0);
        if (k == 0) from = (own_block ? coll_in_block(op, rank) : op->in) + chunk.at;
        char *to = coll_out_block(op, rank) + chunk.at;
        if (from != to) coll_copy_out(op, to, from, chunk.bytes);
    }
}

static void copy_out_from_root(const struct coll_segment *segment, const struct coll_op *op)
{
    struct slice chunk = coll_chunk_of(op, op->at);
    bool root = op->root == segment->rank, scatter = op->kind == TUTTI_SCATTER;
    const char *from = buffer_of(segment, op, op->root, op->at) + (scatter ? (size_t)segment->rank * op->chunk : 0);
    if (root) from = (scatter ? coll_in_block(op, segment->rank) : op->in) + chunk.at;
    if (from != op->out + chunk.at) coll_copy_out(op, op->out + chunk.at, from, chunk.bytes);
}

void coll_pipelined_run(struct coll_segment *segment, struct coll_op *op)
{
    bool root = op->root == segment->rank;
    if (op->sliced) {
        if (op->at < op->steps - 1) reduce_slice(segment, op);
        if (op->at > 0 && (root || op->kind == TUTTI_ALL_REDUCE)) copy_out_slices(segment, op);
        return;
    }
    switch (op->kind) {
    case TUTTI_REDUCE:
        if (root) reduce_chunk(segment, op);
        break;
    case TUTTI_ALL_REDUCE:
        reduce_chunk(segment, op);
        break;
    case TUTTI_REDUCE_SCATTER:
        reduce_own_block(segment, op);
        break;
    case TUTTI_GATHER:
        if (root) copy_out_blocks(segment, op);
        break;
    case TUTTI_ALL_GATHER:
    case TUTTI_ALL_TO_ALL:
        copy_out_blocks(segment, op);
        break;
    default:
        copy_out_from_root(segment, op);
    }
}

/* ---- chunks and steps -------------------------------------------------------------------------------------- */

/* Cuts blocks into chunks of similar size, in whole lines. */
void coll_pipelined_cut(const struct coll_segment *segment, struct coll_op *op)
{
    size_t line = COLL_ALIGN, most = segment->layout.fragment_bytes;
    if (op->path == COLL_LOCKSTEP) most = LOCKSTEP_CHUNK;
    if (tutti_kind_in_blocks(op->kind)) most = most / (size_t)segment->n / line * line;
    size_t chunks = (op->bytes + most - 1) / most;
    op->chunk = ((op->bytes + chunks - 1) / chunks + line - 1) / line * line;
    op->steps = (int64_t)((op->bytes + op->chunk - 1) / op->chunk);
    if (op->sliced) op->steps++;
    if (op->path == COLL_PIPELINED && op->steps == 1 && tutti_kind_has_root(op->kind))
        op->parts = coll_parts_needed(segment, op);
}
