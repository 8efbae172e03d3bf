/* Large blocks of differing sizes where ranks share cores (uneven.c).  They go through fragment buffers in chunks: one
 * rank fills a lane while the other empties it.  So both copy, and no memory is read through the kernel.
 *
 * An operation uses the buffers of its only step.  With a root, the lane between it and another rank is that rank's
 * buffer.  Else each rank's buffer is divided into its lanes to the others.  Two counts say how many bytes were copied
 * in and out.  A rank fills and empties all lanes that it can, in any order.  It is finished with a block once the last
 * bytes are in the lane.
 *
 * In a scatter the root fills the buffers of others.  A rank that has called something else may use its buffer for
 * that, so each rank says beside the counts that it has begun this operation, and the root waits for that.
 */
#include "tcp/shm/coll/parts.h"
#include "tcp/shm/stores.h"

enum {
    CHUNKS = 4,               /* in a lane */
    LANE_MIN = 4 << 10,       /* bytes of a lane that pays */
    BUFFER_LARGE = 256 << 10, /* bytes of a buffer with which blocks of any size pay */
    LANES_FEW = 2,            /* times that a block may fill its lane if buffers are smaller */
    COUNTS = 2 * SHM_LINE     /* bytes */
};

struct counts {
    _Alignas(SHM_LINE) _Atomic uint64_t filled;
    _Alignas(SHM_LINE) _Atomic uint64_t taken;
    _Atomic uint64_t begun; /* key_of the operation */
};

_Static_assert(sizeof(struct counts) == COUNTS, "the data follow the counts");
_Static_assert(SHM_LINE + COUNTS <= COLL_SMALL, "the counts follow a table of one block");

struct lane {
    struct counts *counts;
    char *data;
};

static size_t lane_bytes(const struct coll_segment *segment, const struct coll_op *op)
{
    size_t lanes = tutti_kind_has_root(op->kind) ? 1 : (size_t)segment->n;
    return segment->layout.fragment_bytes / lanes / SHM_LINE * SHM_LINE;
}

/* Returns the lane from one rank to another.  With a root, the counts are in the other rank's small buffer. */
static struct lane lane_of(const struct coll_segment *segment, const struct coll_op *op, int from, int to)
{
    int owner = op->kind == TUTTI_SCATTER ? to : from;
    char *data = coll_fragment_of(segment, owner, op->first), *counts;
    if (tutti_kind_has_root(op->kind)) {
        counts = coll_small_of(segment, owner, op->first) + SHM_LINE;
    } else {
        counts = data + (size_t)to * lane_bytes(segment, op);
        data = counts + COUNTS;
    }
    return (struct lane){(struct counts *)(void *)counts, data};
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
    return segment->layout.fragment_bytes >= BUFFER_LARGE || bytes <= LANES_FEW * lane;
}

/* Returns a number that no other operation has but by an unlikely chance.  Earlier groups may have used the buffer. */
static uint64_t key_of(const struct coll_op *op)
{
    return op->request->fingerprint + op->first * UINT64_C(0x9E3779B97F4A7C15);
}

/* relaxed, both: published with the step, or by coll_chunks_begin */
static void clear(struct counts *counts)
{
    atomic_store_explicit(&counts->filled, 0, memory_order_relaxed);
    atomic_store_explicit(&counts->taken, 0, memory_order_relaxed);
}

void coll_chunks_post(struct coll_segment *segment, struct coll_op *op, int rank)
{
    segment->moved[rank].in = 0;
    if (op->kind != TUTTI_SCATTER) clear(lane_of(segment, op, segment->rank, rank).counts);
}

void coll_chunks_begin(struct coll_segment *segment, struct coll_op *op)
{
    struct counts *counts = lane_of(segment, op, op->root, segment->rank).counts;
    clear(counts);
    /* release: publishes the counts */
    atomic_store_explicit(&counts->begun, key_of(op), memory_order_release);
    shm_wake(segment->shm, segment->local_rank[op->root]);
}

bool coll_chunks_have_space(const struct coll_segment *segment, const struct coll_op *op, int rank, size_t bytes)
{
    size_t moved = segment->moved[rank].in;
    if (moved >= bytes) return false;
    struct counts *counts = lane_of(segment, op, segment->rank, rank).counts;
    bool asks = op->kind == TUTTI_SCATTER && moved == 0;
    /* acquire: the counts were cleared before */
    if (asks && atomic_load_explicit(&counts->begun, memory_order_acquire) != key_of(op)) return false;
    /* acquire: the other rank has read what is overwritten next */
    uint64_t taken = atomic_load_explicit(&counts->taken, memory_order_acquire);
    /* A faulty rank may have stored any count.  Then it alone gets wrong data. */
    return moved - taken < CHUNKS * chunk_bytes(segment, op);
}

bool coll_chunks_fill(struct coll_segment *segment, struct coll_op *op, int rank, const char *from, size_t bytes)
{
    struct lane lane = lane_of(segment, op, segment->rank, rank);
    size_t *moved = &segment->moved[rank].in;
    int n = 0;
    for (; n < CHUNKS && coll_chunks_have_space(segment, op, rank, bytes); n++) {
        struct slice chunk = next_chunk(segment, op, *moved, bytes);
        shm_store(segment->shm, segment->local_rank[rank], lane.data + chunk.at, from + *moved, chunk.bytes);
        *moved += chunk.bytes;
        /* release: publishes the chunk */
        atomic_store_explicit(&lane.counts->filled, *moved, memory_order_release);
    }
    if (n > 0) shm_wake(segment->shm, segment->local_rank[rank]);
    return n > 0;
}

bool coll_chunks_have_data(const struct coll_segment *segment, const struct coll_op *op, int rank, size_t bytes)
{
    size_t moved = segment->moved[rank].out;
    if (moved >= bytes) return false;
    struct counts *counts = lane_of(segment, op, rank, segment->rank).counts;
    /* acquire: makes the chunks visible with their count */
    uint64_t filled = atomic_load_explicit(&counts->filled, memory_order_acquire);
    return filled >= moved + next_chunk(segment, op, moved, bytes).bytes;
}

bool coll_chunks_take(struct coll_segment *segment, struct coll_op *op, int rank, char *to, size_t bytes)
{
    struct lane lane = lane_of(segment, op, rank, segment->rank);
    size_t *moved = &segment->moved[rank].out;
    int n = 0;
    for (; n < CHUNKS && coll_chunks_have_data(segment, op, rank, bytes); n++) {
        struct slice chunk = next_chunk(segment, op, *moved, bytes);
        coll_copy_out(op, to + *moved, lane.data + chunk.at, chunk.bytes);
        *moved += chunk.bytes;
        /* release: the rank overwrites the chunk after this rank has read it */
        atomic_store_explicit(&lane.counts->taken, *moved, memory_order_release);
    }
    if (n > 0) shm_wake(segment->shm, segment->local_rank[rank]);
    return n > 0;
}
