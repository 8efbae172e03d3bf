/* Large blocks of a gather of lists, which go through their ranks' fragment buffers in chunks while the root empties
 * these (uneven.c).  So both copy, instead of the root alone.
 *
 * A rank uses the buffer of the operation's only step.  Two counts behind its table say how many bytes it has copied in
 * and how many the root has copied out.  The latter is all that another rank ever writes into a rank's buffers.  The
 * rank is finished once its last bytes are in the buffer.  The root takes one chunk of each rank in turn, so that all
 * have space and the cores stay busy.
 */
#include "tcp/shm/coll/parts.h"

enum { CHUNKS = 4 }; /* in a buffer */

struct counts {
    _Alignas(SHM_LINE) _Atomic uint64_t filled;
    _Alignas(SHM_LINE) _Atomic uint64_t taken;
};

_Static_assert(SHM_LINE + sizeof(struct counts) <= COLL_SMALL, "the counts follow a table of one block");

static struct counts *counts_of(const struct coll_segment *segment, const struct coll_op *op, int rank)
{
    return (struct counts *)(void *)(coll_small_of(segment, rank, op->first) + SHM_LINE);
}

static size_t chunk_bytes(const struct coll_segment *segment)
{
    return segment->fragment_bytes / CHUNKS;
}

/* Returns the place in a buffer of the chunk behind the bytes moved. */
static struct slice next_chunk(const struct coll_segment *segment, const struct coll_op *op, size_t bytes)
{
    size_t chunk = chunk_bytes(segment), moved = op->uneven.moved;
    return (struct slice){moved % segment->fragment_bytes, chunk < bytes - moved ? chunk : bytes - moved};
}

void coll_chunks_post(struct coll_segment *segment, struct coll_op *op)
{
    struct counts *counts = counts_of(segment, op, segment->rank);
    /* relaxed: published with the step */
    atomic_store_explicit(&counts->filled, 0, memory_order_relaxed);
    atomic_store_explicit(&counts->taken, 0, memory_order_relaxed);
}

bool coll_chunks_have_space(const struct coll_segment *segment, const struct coll_op *op)
{
    /* acquire: the root has read what is overwritten next */
    uint64_t taken = atomic_load_explicit(&counts_of(segment, op, segment->rank)->taken, memory_order_acquire);
    /* A faulty root may have stored any count.  Then the root alone gets wrong data. */
    return op->uneven.moved - taken < segment->fragment_bytes;
}

int coll_chunks_fill(struct coll_segment *segment, struct coll_op *op)
{
    struct counts *counts = counts_of(segment, op, segment->rank);
    const char *from = op->uneven.in[0].data;
    int status = COLL_WAITS;
    for (int i = 0; op->uneven.moved < op->in_bytes; i++) {
        if (i == CHUNKS) return 1;
        if (!coll_chunks_have_space(segment, op)) return status;
        struct slice chunk = next_chunk(segment, op, op->in_bytes);
        char *to = coll_fragment_of(segment, segment->rank, op->first) + chunk.at;
        tutti_copy(to, from + op->uneven.moved, chunk.bytes);
        op->uneven.moved += chunk.bytes;
        /* release: publishes the chunk */
        atomic_store_explicit(&counts->filled, op->uneven.moved, memory_order_release);
        shm_wake(segment->shm, segment->local_rank[op->root]);
        status = 1;
    }
    return TUTTI_OK;
}

bool coll_chunks_have_data(const struct coll_segment *segment, const struct coll_op *op, int rank, size_t bytes)
{
    size_t moved = op->uneven.moved;
    if (bytes <= moved) return true;
    /* acquire: makes the chunks visible with their count */
    uint64_t filled = atomic_load_explicit(&counts_of(segment, op, rank)->filled, memory_order_acquire);
    return filled >= moved + next_chunk(segment, op, bytes).bytes;
}

int coll_chunks_take(struct coll_segment *segment, struct coll_op *op, int rank, char *to, size_t bytes)
{
    if (!coll_chunks_have_data(segment, op, rank, bytes)) return COLL_WAITS;
    if (bytes <= op->uneven.moved) return TUTTI_OK;
    struct slice chunk = next_chunk(segment, op, bytes);
    const char *from = coll_fragment_of(segment, rank, op->first) + chunk.at;
    coll_copy_out(op, to + op->uneven.moved, from, chunk.bytes);
    /* release: the rank overwrites the chunk after this rank has read it */
    atomic_store_explicit(&counts_of(segment, op, rank)->taken, op->uneven.moved + chunk.bytes, memory_order_release);
    shm_wake(segment->shm, segment->local_rank[rank]);
    return TUTTI_OK;
}

bool coll_chunks_advance(const struct coll_segment *segment, struct coll_op *op)
{
    size_t left = op->uneven.most - op->uneven.moved, chunk = chunk_bytes(segment);
    if (left <= chunk) return false;
    op->uneven.moved += chunk;
    return true;
}
