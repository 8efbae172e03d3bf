/* Blocks of differing sizes, where a rank knows its own alone: all_to_all with splits or lists, gather and scatter of
 * lists.
 *
 * Each rank that has blocks for others puts a table into the step's small or eager buffer: where its block for each
 * rank is, and how large.  Blocks follow the table if they fit, or go to the step's fragment buffer.  Larger ones stay
 * where they are, and the others read them from there.  If any rank's do, which all see, a second step says that a rank
 * has read all it needs.  Where ranks share cores, they go in chunks instead, which both ends copy (chunks.c).
 *
 * In a gather and a scatter there is one step.  A rank either has blocks for others, or reads some.  If it reads, it
 * posts the step once it has read.  The others wait for that only if their blocks are read from memory.
 */
#include <string.h>

#include "tcp/shm/coll/parts.h"
#include "tcp/shm/own_line.h"

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
    return block_of(op->uneven.in, op->uneven.in_splits, op->element, op->kind == TUTTI_GATHER ? 0 : rank);
}

static struct block out_block(const struct coll_op *op, int rank)
{
    return block_of(op->uneven.out, op->uneven.out_splits, op->element, op->kind == TUTTI_SCATTER ? 0 : rank);
}

/* Returns how many blocks this rank has for others, with one for itself that it has in the same list. */
static int count_in(const struct coll_segment *segment, const struct coll_op *op)
{
    if (op->uneven.reads_first) return 0;
    return op->kind == TUTTI_GATHER ? 1 : segment->n;
}

static int count_out(const struct coll_segment *segment, const struct coll_op *op)
{
    if (op->kind == TUTTI_SCATTER) return 1;
    return op->kind == TUTTI_GATHER && op->root != segment->rank ? 0 : segment->n;
}

/* Returns the bytes of a rank's table. */
static size_t table_bytes(const struct coll_segment *segment, const struct coll_op *op)
{
    return (op->kind == TUTTI_GATHER ? 1 : (size_t)segment->n) * sizeof(struct entry);
}

/* True if tables are in small buffers, not in eager ones. */
static bool has_small_table(const struct coll_segment *segment, const struct coll_op *op)
{
    return table_bytes(segment, op) <= COLL_SMALL;
}

/* Returns the part of a buffer that a table leaves. */
static size_t left_by_table(const struct coll_segment *segment, const struct coll_op *op, size_t capacity)
{
    size_t table = table_bytes(segment, op);
    return table < capacity ? capacity - table : 0;
}

static enum coll_place place_of(const struct coll_segment *segment, const struct coll_op *op)
{
    bool small_table = has_small_table(segment, op);
    if (op->uneven.reads_first) return COLL_NOWHERE;
    if (op->in_bytes <= left_by_table(segment, op, COLL_SMALL)) return COLL_IN_SMALL;
    if (op->parts > 0) return COLL_IN_FRAGMENT;
    if (op->in_bytes <=
        (small_table ? segment->layout.eager_bytes : left_by_table(segment, op, segment->layout.eager_bytes)))
        return COLL_IN_EAGER;
    size_t mean = op->in_bytes / (size_t)count_in(segment, op);
    bool shares_cores = segment->shm->shares_cores;
    if (op->in_bytes <= segment->layout.fragment_bytes && (shares_cores || mean < READ_MIN)) return COLL_IN_FRAGMENT;
    bool in_chunks = shares_cores && !op->uneven.in_place && coll_chunks_pay(segment, op, mean);
    return in_chunks ? COLL_IN_CHUNKS : COLL_IN_MEMORY;
}

/* Returns the parts of a fragment buffer with which the rank can run ahead, or 0. */
static int parts_of(const struct coll_segment *segment, const struct coll_op *op)
{
    if (!segment->shm->shares_cores || !tutti_kind_has_root(op->kind) || !op->has_input) return 0;
    return has_small_table(segment, op) ? coll_parts_needed(segment, op) : 0;
}

/* Returns the steps until the buffers are reused. */
static uint64_t depth_of(const struct coll_segment *segment, const struct coll_op *op)
{
    if (coll_is_in_fragment(op->uneven.place)) return COLL_FRAGMENTS;
    bool eager = op->uneven.place == COLL_IN_EAGER || !has_small_table(segment, op);
    return eager ? COLL_EAGER_BUFFERS - COLL_AHEAD : COLL_SMALL_BUFFERS - COLL_RUN_AHEAD;
}

/* Blocks of a list may be the same memory, so that together they exceed a size_t of 32 bits. */
static size_t add(size_t a, size_t b)
{
    return b > SIZE_MAX - a ? SIZE_MAX : a + b;
}

/* True if the rank only reads: the root of a gather, and the others in a scatter. */
static bool is_rooted_reader(const tutti_op *op, int rank)
{
    if (!tutti_kind_has_root(op->kind)) return false;
    return (op->root == rank) == (op->kind == TUTTI_GATHER);
}

void coll_uneven_describe(const struct coll_segment *segment, const tutti_op *op, struct coll_op *made)
{
    made->path = COLL_UNEVEN;
    made->uneven =
        (struct coll_uneven){.in = op->in,
                             .out = op->out,
                             .in_splits = op->in_splits,
                             .out_splits = op->out_splits,
                             .in_place = op->kind == TUTTI_ALL_TO_ALL && tutti_op_is_in_place(op, segment->rank),
                             .reads_first = is_rooted_reader(op, segment->rank)};
    made->element = (size_t)tutti_dtype_bytes(op->dtype);
    made->dtype = op->dtype;
    made->root = op->root;
    made->has_input = !made->uneven.reads_first;
    for (int i = 0; i < count_in(segment, made); i++) made->in_bytes = add(made->in_bytes, in_block(made, i).bytes);
    for (int i = 0; i < count_out(segment, made); i++)
        made->uneven.out_bytes = add(made->uneven.out_bytes, out_block(made, i).bytes);
    made->parts = parts_of(segment, made);
    made->uneven.place = place_of(segment, made);
    if (made->uneven.place != COLL_IN_FRAGMENT) made->parts = 0;
    made->depth = depth_of(segment, made);
    made->steps = 1;
}

bool coll_uneven_may_repeat(const struct coll_op *op)
{
    return tutti_kind_has_root(op->kind) && (op->uneven.reads_first || op->uneven.place == COLL_IN_SMALL);
}

void coll_uneven_repeat(const tutti_op *op, struct coll_op *made)
{
    made->uneven.in = op->in;
    made->uneven.out = op->out;
    made->uneven.in_chunks = made->uneven.reads_memory = made->uneven.refused = false;
    made->steps = 1;
}

bool coll_uneven_waits(const struct coll_op *op)
{
    return op->uneven.reads_first || op->uneven.place == COLL_IN_MEMORY;
}

/* ---- buffers ------------------------------------------------------------------------------------------------ */

struct buffer {
    char *data;
    size_t capacity;
};

/* Returns the buffer of a step that a place other than memory stands for. */
static struct buffer buffer_of(const struct coll_segment *segment, int rank, uint64_t step, enum coll_place place)
{
    if (place == COLL_IN_FRAGMENT)
        return (struct buffer){coll_fragment_of(segment, rank, step), segment->layout.fragment_bytes};
    if (place == COLL_IN_SMALL) return (struct buffer){coll_small_of(segment, rank, step), COLL_SMALL};
    return (struct buffer){coll_eager_of(segment, rank, step), segment->layout.eager_bytes};
}

static struct entry *table_of(const struct coll_segment *segment, const struct coll_op *op, int rank)
{
    enum coll_place place = has_small_table(segment, op) ? COLL_IN_SMALL : COLL_IN_EAGER;
    return (struct entry *)(void *)buffer_of(segment, rank, op->first, place).data;
}

/* Returns where in its buffer this rank puts its blocks. */
static size_t offset_of(const struct coll_segment *segment, const struct coll_op *op)
{
    if (op->parts > 0) return (size_t)(coll_parts_at(segment, op, 0) - coll_fragment_of(segment, 0, op->first));
    bool behind_table = op->uneven.place == (has_small_table(segment, op) ? COLL_IN_SMALL : COLL_IN_EAGER);
    return behind_table ? table_bytes(segment, op) : 0;
}

/* ---- lines ahead ----------------------------------------------------------------------------------------------- */

void coll_uneven_own(const struct coll_segment *segment, const struct coll_op *op, uint64_t step)
{
    size_t bytes = add(table_bytes(segment, op), op->in_bytes);
    if (op->has_input && op->uneven.place == COLL_IN_SMALL && bytes <= COLL_ASKED)
        own_lines(coll_small_of(segment, segment->rank, step), bytes);
}

void coll_uneven_fetch(const struct coll_segment *segment, const struct coll_op *op, int rank, uint64_t step)
{
    if (!op->uneven.reads_first) return;
    size_t table = table_bytes(segment, op), bytes = out_block(op, rank).bytes;
    if (table > COLL_ASKED || bytes > COLL_ASKED) return;
    /* Of a scatter's blocks, those before this rank's, without the root's own, are assumed to have its size. */
    size_t i = op->kind == TUTTI_GATHER ? 0 : (size_t)segment->rank, before = i - (i > (size_t)rank);
    const char *small = coll_small_of(segment, rank, step);
    fetch_lines(small + i * sizeof(struct entry), sizeof(struct entry));
    if (table + (before + 1) * bytes <= COLL_SMALL) fetch_lines(small + table + before * bytes, bytes);
}

/* ---- posting -------------------------------------------------------------------------------------------------- */

/* True for this rank's block for itself, which no other rank reads. */
static bool stays(const struct coll_segment *segment, const struct coll_op *op, int i)
{
    return op->kind != TUTTI_GATHER && i == segment->rank;
}

/* Returns where the blocks are copied to now, or NULL if they stay in memory.  Blocks in place are overwritten while
 * others still read, so these get a copy.  Sets *at to what a table says of it. */
static char *copies_of(const struct coll_segment *segment, const struct coll_op *op, uint64_t *at)
{
    if (op->uneven.place == COLL_IN_MEMORY || op->uneven.place == COLL_IN_CHUNKS) {
        char *copies = op->uneven.in_place ? segment->result : NULL;
        *at = (uint64_t)(uintptr_t)copies;
        return copies;
    }
    *at = offset_of(segment, op);
    return buffer_of(segment, segment->rank, op->first, op->uneven.place).data + *at;
}

/* True if this rank has a block for a rank, other than itself, in chunks. */
static bool gives_to(const struct coll_segment *segment, const struct coll_op *op, int rank)
{
    if (op->uneven.place != COLL_IN_CHUNKS || rank == segment->rank) return false;
    return op->kind != TUTTI_GATHER || rank == op->root;
}

/* Empties the lanes, and puts the first chunks there. */
static void begin_chunks(struct coll_segment *segment, struct coll_op *op)
{
    for (int i = 1; i < segment->n; i++) {
        int rank = (segment->rank + i) % segment->n;
        if (!gives_to(segment, op, rank)) continue;
        struct block block = in_block(op, rank);
        coll_chunks_post(segment, op, rank);
        coll_chunks_fill(segment, op, rank, block.data, block.bytes);
    }
}

void coll_uneven_post(struct coll_segment *segment, struct coll_op *op)
{
    if (op->uneven.reads_first && op->kind == TUTTI_SCATTER) coll_chunks_begin(segment, op);
    if (op->uneven.reads_first || op->at > 0) return; /* it has no blocks for others, or all has been read */
    uint64_t at;
    char *to = copies_of(segment, op, &at);
    struct entry *table = table_of(segment, op, segment->rank);
    for (int i = 0; i < count_in(segment, op); i++) {
        struct block block = in_block(op, i);
        table[i] = (struct entry){to != NULL ? at : (uint64_t)(uintptr_t)block.data, block.bytes};
        if (to == NULL || block.bytes == 0 || stays(segment, op, i)) continue;
        tutti_copy(to, block.data, block.bytes);
        to += block.bytes;
        at += block.bytes;
    }
    if (op->uneven.place == COLL_IN_CHUNKS) begin_chunks(segment, op);
    coll_slot_of(segment, segment->rank, op->first)->in = (uint64_t)op->uneven.place;
}

void coll_uneven_copy_own(const struct coll_segment *segment, const struct coll_op *op)
{
    if (tutti_kind_has_root(op->kind) && op->root != segment->rank) return;
    struct block from = in_block(op, segment->rank), to = out_block(op, segment->rank);
    if (to.bytes > 0 && from.data != to.data) tutti_copy(to.data, from.data, to.bytes);
}

/* ---- reading -------------------------------------------------------------------------------------------------- */

/* Returns where a rank's blocks are.  Any value but COLL_IN_MEMORY names a buffer, as the peer may write what it likes.
 */
static enum coll_place place_at(const struct coll_segment *segment, const struct coll_op *op, int rank)
{
    return (enum coll_place)coll_slot_of(segment, rank, op->first)->in;
}

bool coll_uneven_is_in_memory(const struct coll_segment *segment, const struct coll_op *op, int rank)
{
    return place_at(segment, op, rank) == COLL_IN_MEMORY;
}

/* Returns a rank's block for this one.  Its fields are the peer's. */
static struct entry entry_of(const struct coll_segment *segment, const struct coll_op *op, int rank)
{
    /* volatile: each field is read once, because the peer may change it */
    const volatile struct entry *table = table_of(segment, op, rank);
    int i = op->kind == TUTTI_GATHER ? 0 : segment->rank;
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
    bool rooted = tutti_kind_has_root(op->kind), in_memory = op->uneven.place == COLL_IN_MEMORY;
    op->uneven.in_chunks = op->uneven.place == COLL_IN_CHUNKS;
    if (rooted && !op->uneven.reads_first) return TUTTI_OK; /* the others have read */
    for (int i = op->awaits_from; i < op->awaits_to; i++) {
        if (i == segment->rank) continue;
        uint64_t bytes = entry_of(segment, op, i).bytes;
        if (bytes != out_block(op, i).bytes) return refuse_size(segment, op, i, bytes);
        enum coll_place place = place_at(segment, op, i);
        in_memory |= place == COLL_IN_MEMORY;
        op->uneven.in_chunks |= place == COLL_IN_CHUNKS;
        segment->moved[i].out = 0;
        segment->moved[i].takes = place == COLL_IN_CHUNKS;
    }
    op->steps = in_memory && !rooted ? MEMORY_STEPS : 1;
    op->uneven.reads_memory = in_memory;
    return TUTTI_OK;
}

/* Returns the block in a rank's buffer, or NULL if it is not inside. */
static const char *find_in_buffer(const struct coll_segment *segment, const struct coll_op *op, int rank, uint64_t at,
                                  size_t bytes)
{
    struct buffer buffer = buffer_of(segment, rank, op->first, place_at(segment, op, rank));
    return at > buffer.capacity || bytes > buffer.capacity - at ? NULL : buffer.data + at;
}

/* Takes a rank's block, or a part of it.  Returns TUTTI_OK, 1 if more is left, or an error. */
static int take(struct coll_segment *segment, struct coll_op *op, int rank, struct block block)
{
    uint64_t at = entry_of(segment, op, rank).at;
    if (place_at(segment, op, rank) == COLL_IN_MEMORY) {
        size_t left = block.bytes - op->done, bytes = left < COLL_READ_MOST ? left : COLL_READ_MOST;
        int status = coll_read_peer(segment, op, rank, block.data + op->done, at + op->done, bytes);
        if (status == TUTTI_OK) op->done += bytes;
        return status == TUTTI_OK && op->done < block.bytes ? 1 : status;
    }
    const char *from = find_in_buffer(segment, op, rank, at, block.bytes);
    if (from == NULL) {
        shm_unreadable(segment->shm, segment->local_rank[rank]);
        return coll_lost(segment, rank);
    }
    tutti_copy(block.data, from, block.bytes);
    return TUTTI_OK;
}

static bool reads_from(const struct coll_op *op, int rank)
{
    return coll_awaits_rank(op, rank) && (op->uneven.reads_first || !tutti_kind_has_root(op->kind));
}

/* Takes the blocks that are not in chunks. */
static int take_all(struct coll_segment *segment, struct coll_op *op)
{
    for (; op->peer < segment->n - 1; op->peer++, op->done = 0) {
        int rank = (segment->rank + 1 + op->peer) % segment->n;
        if (!reads_from(op, rank) || segment->moved[rank].takes) continue;
        struct block block = out_block(op, rank);
        if (block.bytes == 0) continue;
        int status = take(segment, op, rank, block);
        if (status != TUTTI_OK) return status;
    }
    return TUTTI_OK;
}

/* ---- chunks --------------------------------------------------------------------------------------------------- */

/* Returns the bytes of the block that goes to a rank in chunks, or comes from it. */
static size_t bytes_to(const struct coll_segment *segment, const struct coll_op *op, int rank)
{
    return gives_to(segment, op, rank) ? in_block(op, rank).bytes : 0;
}

static size_t bytes_from(const struct coll_segment *segment, const struct coll_op *op, int rank)
{
    bool takes = rank != segment->rank && reads_from(op, rank) && segment->moved[rank].takes;
    return takes ? out_block(op, rank).bytes : 0;
}

/* True if a rank of an exchange in chunks has withdrawn its step.  It has given up, so no other one may complete. */
static bool has_withdrawn(const struct coll_segment *segment, const struct coll_op *op, int rank)
{
    bool met = op->uneven.in_chunks && !tutti_kind_has_root(op->kind) && rank != segment->rank;
    return met && !coll_has_posted(segment, rank, op->first);
}

/* True if chunks to or from the rank are left. */
static bool is_left(const struct coll_segment *segment, const struct coll_op *op, int rank)
{
    const struct coll_moved *moved = &segment->moved[rank];
    if (has_withdrawn(segment, op, rank)) return true;
    return moved->in < bytes_to(segment, op, rank) || moved->out < bytes_from(segment, op, rank);
}

static bool can_move(const struct coll_segment *segment, const struct coll_op *op, int rank)
{
    return coll_chunks_have_space(segment, op, rank, bytes_to(segment, op, rank)) ||
           coll_chunks_have_data(segment, op, rank, bytes_from(segment, op, rank));
}

bool coll_uneven_awaits(const struct coll_segment *segment, const struct coll_op *op, int rank)
{
    return is_left(segment, op, rank) && !can_move(segment, op, rank);
}

bool coll_uneven_differs(const struct coll_segment *segment, const struct coll_op *op, int rank)
{
    bool meets = !tutti_kind_has_root(op->kind) || op->uneven.reads_first;
    return !meets && coll_uneven_awaits(segment, op, rank) && coll_has_posted(segment, rank, op->first);
}

bool coll_uneven_is_ready(const struct coll_segment *segment, const struct coll_op *op)
{
    bool has_taken = op->peer == segment->n - 1, waits = false;
    for (int i = 0; op->uneven.in_chunks && has_taken && i < segment->n; i++) {
        if (can_move(segment, op, i) || coll_uneven_differs(segment, op, i)) return true;
        waits |= is_left(segment, op, i);
    }
    return !waits;
}

/* Moves the chunks that can be moved.  Returns TUTTI_OK if those were the last, 1 if they were not, or COLL_WAITS. */
static int move_chunks(struct coll_segment *segment, struct coll_op *op)
{
    bool moves = false, waits = false;
    for (int i = 1; i < segment->n; i++) {
        int rank = (segment->rank + i) % segment->n;
        size_t to = bytes_to(segment, op, rank), from = bytes_from(segment, op, rank);
        if (to > 0) moves |= coll_chunks_fill(segment, op, rank, in_block(op, rank).data, to);
        if (from > 0) moves |= coll_chunks_take(segment, op, rank, out_block(op, rank).data, from);
        waits |= is_left(segment, op, rank);
    }
    return !waits ? TUTTI_OK : moves ? 1 : COLL_WAITS;
}

int coll_uneven_run(struct coll_segment *segment, struct coll_op *op)
{
    int chunks = op->uneven.in_chunks ? move_chunks(segment, op) : TUTTI_OK;
    int status = take_all(segment, op);
    if (status == TUTTI_OK) status = chunks;
    if (status == TUTTI_OK && !tutti_kind_has_root(op->kind)) coll_uneven_copy_own(segment, op);
    return status;
}
