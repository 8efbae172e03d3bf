/* Blocks of differing sizes, where a rank knows its own alone: all_to_all with splits or lists, all_gather of lists.
 *
 * Each rank puts a table into the step's eager buffer: where its block for each rank is, and how large.  Blocks follow
 * the table if they fit, or go to the step's fragment buffer.  Larger ones stay where they are, and the others read
 * them from there.  If any rank's do, which all see, a second step says that a rank has read all it needs.
 */
#include <string.h>

#include "tcp/shm/coll/parts.h"

enum place { IN_EAGER = 1, IN_FRAGMENT, IN_MEMORY };

enum {
    READ_MIN = 16 << 10, /* mean bytes of a block from which ranks with a core each prefer to read memory */
    MEMORY_STEPS = 2
};

/* A block in a rank's table. */
struct entry {
    uint64_t at, bytes; /* the offset in the buffer, or the address */
};

struct block {
    char *data;
    size_t bytes;
};

/* ---- blocks ------------------------------------------------------------------------------------------------- */

static struct block block_of(const tutti_tensor *tensors, const int64_t *splits, size_t element, int i)
{
    if (splits == NULL) return (struct block){tensors[i].data, (size_t)tensors[i].numel * element};
    int64_t at = 0;
    for (int k = 0; k < i; k++) at += splits[k];
    char *data = at > 0 || splits[i] > 0 ? (char *)tensors[0].data + (size_t)at * element : NULL;
    return (struct block){data, (size_t)splits[i] * element};
}

/* Returns the block for a rank, and the place for the block of one. */
static struct block in_block(const struct coll_op *op, int rank)
{
    bool same = op->kind == TUTTI_ALL_GATHER; /* for all ranks */
    return block_of(op->uneven.in, op->uneven.in_splits, op->element, same ? 0 : rank);
}

static struct block out_block(const struct coll_op *op, int rank)
{
    return block_of(op->uneven.out, op->uneven.out_splits, op->element, rank);
}

static int count_in(const struct coll_segment *segment, const struct coll_op *op)
{
    return op->kind == TUTTI_ALL_GATHER ? 1 : segment->n;
}

static size_t table_bytes(const struct coll_segment *segment, const struct coll_op *op)
{
    return (size_t)count_in(segment, op) * sizeof(struct entry);
}

static enum place place_of(const struct coll_segment *segment, const struct coll_op *op)
{
    if (op->in_bytes <= segment->eager_bytes - table_bytes(segment, op)) return IN_EAGER;
    bool is_large = op->in_bytes / (size_t)count_in(segment, op) >= READ_MIN && !segment->shm->shares_cores;
    return op->in_bytes <= segment->fragment_bytes && !is_large ? IN_FRAGMENT : IN_MEMORY;
}

/* Blocks of a list may be the same memory, so that together they exceed a size_t of 32 bits. */
static size_t add(size_t a, size_t b)
{
    return b > SIZE_MAX - a ? SIZE_MAX : a + b;
}

void coll_uneven_describe(const struct coll_segment *segment, const tutti_op *op, struct coll_op *made)
{
    made->path = COLL_UNEVEN;
    made->uneven =
        (struct coll_uneven){.in = op->in,
                             .out = op->out,
                             .in_splits = op->in_splits,
                             .out_splits = op->out_splits,
                             .in_place = op->kind == TUTTI_ALL_TO_ALL && tutti_op_is_in_place(op, segment->rank)};
    made->element = (size_t)tutti_dtype_bytes(op->dtype);
    made->dtype = op->dtype;
    made->root = op->root;
    made->has_input = true;
    for (int i = 0; i < count_in(segment, made); i++) made->in_bytes = add(made->in_bytes, in_block(made, i).bytes);
    for (int i = 0; i < segment->n; i++) made->uneven.out_bytes = add(made->uneven.out_bytes, out_block(made, i).bytes);
    made->uneven.place = place_of(segment, made);
    made->depth = made->uneven.place == IN_FRAGMENT ? COLL_FRAGMENTS : COLL_EAGER_BUFFERS - COLL_AHEAD;
    made->steps = 1;
}

bool coll_uneven_exposes(const struct coll_op *op)
{
    return op->uneven.place == IN_MEMORY;
}

/* ---- posting -------------------------------------------------------------------------------------------------- */

/* Returns where blocks are copied to, or NULL if they stay in memory.  Blocks in place are overwritten while others
 * still read, so these get a copy. */
static char *copies_of(const struct coll_segment *segment, const struct coll_op *op)
{
    if (op->uneven.place == IN_EAGER)
        return coll_eager_of(segment, segment->rank, op->first) + table_bytes(segment, op);
    if (op->uneven.place == IN_FRAGMENT) return coll_fragment_of(segment, segment->rank, op->first);
    return op->uneven.in_place ? segment->result : NULL;
}

/* True for this rank's block for itself, which no other rank reads. */
static bool stays(const struct coll_segment *segment, const struct coll_op *op, int i)
{
    return op->kind == TUTTI_ALL_TO_ALL && i == segment->rank;
}

void coll_uneven_post(struct coll_segment *segment, struct coll_op *op)
{
    if (op->at > 0) return; /* all has been read */
    struct entry *table = (struct entry *)(void *)coll_eager_of(segment, segment->rank, op->first);
    char *to = copies_of(segment, op);
    uint64_t at = op->uneven.place == IN_EAGER ? table_bytes(segment, op) : 0;
    if (op->uneven.place == IN_MEMORY) at = (uint64_t)(uintptr_t)to;
    for (int i = 0; i < count_in(segment, op); i++) {
        struct block block = in_block(op, i);
        table[i] = (struct entry){to != NULL ? at : (uint64_t)(uintptr_t)block.data, block.bytes};
        if (to == NULL || block.bytes == 0 || stays(segment, op, i)) continue;
        tutti_copy(to, block.data, block.bytes);
        to += block.bytes;
        at += block.bytes;
    }
    coll_slot_of(segment, segment->rank, op->first)->in = (uint64_t)op->uneven.place;
}

/* ---- reading -------------------------------------------------------------------------------------------------- */

static uint64_t place_at(const struct coll_segment *segment, const struct coll_op *op, int rank)
{
    return coll_slot_of(segment, rank, op->first)->in;
}

/* Returns a rank's block for this one.  Its fields are the peer's. */
static struct entry entry_of(const struct coll_segment *segment, const struct coll_op *op, int rank)
{
    /* volatile: each field is read once, because the peer may change it */
    const volatile struct entry *table = (const void *)coll_eager_of(segment, rank, op->first);
    int i = op->kind == TUTTI_ALL_GATHER ? 0 : segment->rank;
    return (struct entry){table[i].at, table[i].bytes};
}

static int refuse_size(const struct coll_segment *segment, struct coll_op *op, int rank, uint64_t found)
{
    op->request->source = rank;
    op->request->found_bytes = found;
    op->request->bytes = out_block(op, rank).bytes; /* for the message of the error */
    op->uneven.refused = true;
    return segment->host->error(TUTTI_ERR_MISMATCH, "rank %d has a block of another size",
                                segment->shm->peer[segment->local_rank[rank]].rank);
}

/* If a rank fails here, no other one that reads memory completes, because this one never takes the second step. */
int coll_uneven_arrived(struct coll_segment *segment, struct coll_op *op)
{
    op->steps = 1;
    for (int i = 0; i < segment->n; i++)
        if (place_at(segment, op, i) == IN_MEMORY) op->steps = MEMORY_STEPS;
    for (int i = 0; i < segment->n; i++) {
        uint64_t bytes = i == segment->rank ? out_block(op, i).bytes : entry_of(segment, op, i).bytes;
        if (bytes == out_block(op, i).bytes) continue;
        return refuse_size(segment, op, i, bytes);
    }
    return TUTTI_OK;
}

/* Returns the block in a rank's buffer, or NULL if it is not inside. */
static const char *find_in_buffer(const struct coll_segment *segment, const struct coll_op *op, int rank, uint64_t at,
                                  size_t bytes)
{
    bool eager = place_at(segment, op, rank) == IN_EAGER;
    size_t capacity = eager ? segment->eager_bytes : segment->fragment_bytes;
    if (at > capacity || bytes > capacity - at) return NULL;
    return (eager ? coll_eager_of(segment, rank, op->first) : coll_fragment_of(segment, rank, op->first)) + at;
}

/* Takes a part of a rank's block. */
static int take(struct coll_segment *segment, struct coll_op *op, int rank, struct block block)
{
    uint64_t at = entry_of(segment, op, rank).at;
    size_t left = block.bytes - op->done, bytes = left < COLL_READ_MOST ? left : COLL_READ_MOST;
    if (place_at(segment, op, rank) == IN_MEMORY) {
        int status = coll_read_peer(segment, op, rank, block.data + op->done, at + op->done, bytes);
        if (status == TUTTI_OK) op->done += bytes;
        return status;
    }
    const char *from = find_in_buffer(segment, op, rank, at, block.bytes);
    if (from == NULL) {
        shm_unreadable(segment->shm, segment->local_rank[rank]);
        return coll_lost(segment, rank);
    }
    tutti_copy(block.data, from, block.bytes);
    op->done = block.bytes;
    return TUTTI_OK;
}

int coll_uneven_run(struct coll_segment *segment, struct coll_op *op)
{
    for (; op->peer < segment->n - 1; op->peer++, op->done = 0) {
        int rank = (segment->rank + 1 + op->peer) % segment->n;
        struct block block = out_block(op, rank);
        if (block.bytes == 0) continue;
        int status = take(segment, op, rank, block);
        if (status != TUTTI_OK) return status;
        if (op->done < block.bytes) return 1;
    }
    struct block from = in_block(op, segment->rank), to = out_block(op, segment->rank);
    if (to.bytes > 0 && from.data != to.data) tutti_copy(to.data, from.data, to.bytes);
    return TUTTI_OK;
}
