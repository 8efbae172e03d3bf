/* Large blocks of differing sizes where ranks share cores (uneven.c).  They go through fragment buffers in chunks: one
 * rank fills a lane while the other empties it.  So both copy, and no memory is read through the kernel.
 *
 * An operation uses the buffers of its only step.  With a root, the lane between it and another rank is that rank's
 * buffer.  Else each rank's buffer is divided into its lanes to the others.  A lane begins with two counts, of the
 * bytes that were copied in and out.  A rank fills and empties all lanes that it can, in any order, so no rank waits
 * for one that has nothing to do with it.  It is finished with a block once the last bytes are in the lane.
 */
#include "tcp/shm/coll/parts.h"

enum {
    CHUNKS = 4,               /* in a lane */
    LANE_MIN = 4 << 10,       /* bytes of a lane that pays */
    BUFFER_LARGE = 256 << 10, /* bytes of a buffer with which blocks of any size pay */
    LANES_FEW = 2,            /* times that a block may fill its lane if buffers are smaller */
    COUNTS = 2 * SHM_LINE     /* bytes */
};

struct lane {
    _Alignas(SHM_LINE) _Atomic uint64_t filled;
    _Alignas(SHM_LINE) _Atomic uint64_t taken;
    _Alignas(SHM_LINE) char data[];
};

_Static_assert(sizeof(struct lane) == COUNTS, "the data follow the counts");

static size_t lane_bytes(const struct coll_segment *segment, const struct coll_op *op)
{
    size_t lanes = tutti_kind_has_root(op->kind) ? 1 : (size_t)segment->n;
    return segment->fragment_bytes / lanes / SHM_LINE * SHM_LINE;
}

/* Returns the lane from one rank to another. */
static struct lane *lane_of(const struct coll_segment *segment, const struct coll_op *op, int from, int to)
{
    bool rooted = tutti_kind_has_root(op->kind);
    char *buffer = coll_fragment_of(segment, rooted && from == op->root ? to : from, op->first);
    return (struct lane *)(void *)(buffer + (rooted ? 0 : (size_t)to * lane_bytes(segment, op)));
}

static size_t chunk_bytes(const struct coll_segment *segment, const struct coll_op *op)
{
    return (lane_bytes(segment, op) - COUNTS) / CHUNKS / SHM_LINE * SHM_LINE;
}

/* Returns the place in a lane of the chunk behind the bytes moved of a block. */
static struct slice next_chunk(const struct coll_segment *segment, const struct coll_op *op, size_t moved, size_t bytes)
{
    size_t chunk = chunk_bytes(segment, op);
    return (struct slice){moved % (CHUNKS * chunk), chunk < bytes - moved ? chunk : bytes - moved};
}

bool coll_chunks_pay(const struct coll_segment *segment, const struct coll_op *op, size_t bytes)
{
    size_t lane = lane_bytes(segment, op);
    bool reads_alone = op->kind == TUTTI_GATHER; /* the root, if blocks were in memory */
    if (reads_alone || lane < LANE_MIN) return lane >= LANE_MIN;
    return segment->fragment_bytes >= BUFFER_LARGE || bytes <= LANES_FEW * lane;
}

void coll_chunks_post(struct coll_segment *segment, struct coll_op *op, int rank)
{
    struct lane *lane = lane_of(segment, op, segment->rank, rank);
    /* relaxed: published with the step */
    atomic_store_explicit(&lane->filled, 0, memory_order_relaxed);
    atomic_store_explicit(&lane->taken, 0, memory_order_relaxed);
    segment->moved[rank].in = 0;
}

bool coll_chunks_have_space(const struct coll_segment *segment, const struct coll_op *op, int rank, size_t bytes)
{
    size_t moved = segment->moved[rank].in;
    if (moved >= bytes) return false;
    struct lane *lane = lane_of(segment, op, segment->rank, rank);
    /* acquire: the other rank has read what is overwritten next */
    uint64_t taken = atomic_load_explicit(&lane->taken, memory_order_acquire);
    /* A faulty rank may have stored any count.  Then it alone gets wrong data. */
    return moved - taken < CHUNKS * chunk_bytes(segment, op);
}

bool coll_chunks_fill(struct coll_segment *segment, struct coll_op *op, int rank, const char *from, size_t bytes)
{
    struct lane *lane = lane_of(segment, op, segment->rank, rank);
    size_t *moved = &segment->moved[rank].in;
    int n = 0;
    for (; n < CHUNKS && coll_chunks_have_space(segment, op, rank, bytes); n++) {
        struct slice chunk = next_chunk(segment, op, *moved, bytes);
        tutti_copy(lane->data + chunk.at, from + *moved, chunk.bytes);
        *moved += chunk.bytes;
        /* release: publishes the chunk */
        atomic_store_explicit(&lane->filled, *moved, memory_order_release);
    }
    if (n > 0) shm_wake(segment->shm, segment->local_rank[rank]);
    return n > 0;
}

bool coll_chunks_have_data(const struct coll_segment *segment, const struct coll_op *op, int rank, size_t bytes)
{
    size_t moved = segment->moved[rank].out;
    if (moved >= bytes) return false;
    struct lane *lane = lane_of(segment, op, rank, segment->rank);
    /* acquire: makes the chunks visible with their count */
    uint64_t filled = atomic_load_explicit(&lane->filled, memory_order_acquire);
    return filled >= moved + next_chunk(segment, op, moved, bytes).bytes;
}

bool coll_chunks_take(struct coll_segment *segment, struct coll_op *op, int rank, char *to, size_t bytes)
{
    struct lane *lane = lane_of(segment, op, rank, segment->rank);
    size_t *moved = &segment->moved[rank].out;
    int n = 0;
    for (; n < CHUNKS && coll_chunks_have_data(segment, op, rank, bytes); n++) {
        struct slice chunk = next_chunk(segment, op, *moved, bytes);
        coll_copy_out(op, to + *moved, lane->data + chunk.at, chunk.bytes);
        *moved += chunk.bytes;
        /* release: the rank overwrites the chunk after this rank has read it */
        atomic_store_explicit(&lane->taken, *moved, memory_order_release);
    }
    if (n > 0) shm_wake(segment->shm, segment->local_rank[rank]);
    return n > 0;
}
