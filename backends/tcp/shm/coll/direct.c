/* Direct operations: the ranks read each other's memory. */
#include <stdlib.h>

#include "tcp/shm/coll/parts.h"

enum {
    SCRATCH_BYTES = 1 << 20,     /* for blocks read from peers; stays in the cache */
    BLOCK_BYTES_MAX = 512 << 10, /* reduced at once */
};

/* Returns the addresses of a list's blocks, which are at the end of the step's eager buffer.  Its beginning may hold
 * the first chunk of an operation in lockstep that has become a direct one. */
static uint64_t *addresses_of(const struct coll_segment *segment, int rank, uint64_t step)
{
    size_t at = segment->layout.eager_bytes - (size_t)segment->n * sizeof(uint64_t);
    return (uint64_t *)(void *)(coll_eager_of(segment, rank, step) + at);
}

/* Publishes the addresses from which the others read. */
void coll_direct_post(struct coll_segment *segment, struct coll_op *op)
{
    struct coll_slot *slot = coll_slot_of(segment, segment->rank, op->first + (uint64_t)op->at);
    const char *in = op->in, *out = op->out;
    if (op->kind == TUTTI_REDUCE && op->root != segment->rank) out = segment->result;
    if (op->kind == TUTTI_ALL_TO_ALL && op->in == op->out) { /* others still read the input while it is overwritten */
        in = segment->result;
        if (op->at == 0) tutti_copy(segment->result, op->in, op->in_bytes);
    }
    slot->in = (uint64_t)(uintptr_t)in;
    slot->out = (uint64_t)(uintptr_t)out;
    uint64_t *block = addresses_of(segment, segment->rank, op->first + (uint64_t)op->at);
    for (int i = 0; op->kind == TUTTI_REDUCE_SCATTER && i < segment->n; i++)
        block[i] = (uint64_t)(uintptr_t)coll_in_block(op, i);
}

int coll_read_peer(struct coll_segment *segment, struct coll_op *op, int rank, void *to, uint64_t from, size_t bytes)
{
    int local_rank = segment->local_rank[rank];
    const void *mapped = shm_arena_at(segment->shm, local_rank, from, bytes);
    if (mapped != NULL) {
        coll_copy_out(op, to, mapped, bytes);
        return TUTTI_OK;
    }
    if (shm_read_memory(segment->shm, local_rank, to, from, bytes)) return TUTTI_OK;
    if (shm_is_open(segment->shm, local_rank) && !coll_has_posted(segment, rank, op->first + (uint64_t)op->at)) {
        op->arrived = false; /* wait for the rank again */
        op->peer = rank;
        return 1;
    }
    shm_unreadable(segment->shm, local_rank);
    return coll_lost(segment, rank);
}

/* Reduces one block of all ranks' data at `at` into `to`.  With two ranks the peer's block is read straight into `to`
 * unless this rank's own data are there, which saves a pass through the cache. */
static int reduce_block(struct coll_segment *segment, struct coll_op *op, size_t at, size_t bytes, char *to)
{
    size_t most = SCRATCH_BYTES / (size_t)segment->n / COLL_ALIGN * COLL_ALIGN;
    const void *from[SHM_RANKS_MAX];
    bool scatter = op->kind == TUTTI_REDUCE_SCATTER;
    const char *own = (scatter ? coll_in_block(op, segment->rank) : op->in) + at;
    if (most > BLOCK_BYTES_MAX) most = BLOCK_BYTES_MAX;
    if (bytes > most) bytes = most;
    for (int i = 0; i < segment->n; i++) {
        const struct coll_slot *slot = coll_slot_of(segment, i, op->first);
        char *into = segment->n == 2 && own != to && !op->bypasses ? to : segment->scratch + (size_t)i * most;
        uint64_t theirs = scatter ? addresses_of(segment, i, op->first)[segment->rank] : slot->in;
        from[i] = i == segment->rank ? own : shm_arena_at(segment->shm, segment->local_rank[i], theirs + at, bytes);
        if (from[i] != NULL) continue;
        from[i] = into;
        int status = coll_read_peer(segment, op, i, into, theirs + at, bytes);
        if (status != TUTTI_OK) return status;
    }
    if (scatter)
        coll_reduce(segment, op, to, from, bytes);
    else
        coll_result_reduce(segment, op, to, from, bytes);
    op->done += bytes;
    return TUTTI_OK;
}

/* Reduces this rank's slice or block. */
static int reduce_own(struct coll_segment *segment, struct coll_op *op)
{
    struct slice own = {0, coll_block_bytes(op, segment->rank)};
    char *to = op->out;
    int status = TUTTI_OK;
    if (op->kind != TUTTI_REDUCE_SCATTER) {
        own = coll_slice_of(segment, op, segment->rank);
        to = op->kind == TUTTI_REDUCE && op->root != segment->rank ? segment->result : op->out + own.at;
    }
    if (op->done < own.bytes)
        status = reduce_block(segment, op, own.at + op->done, own.bytes - op->done, to + op->done);
    return status == TUTTI_OK && op->done < own.bytes ? 1 : status;
}

/* A part that this rank reads from a peer in a copying step. */
struct part {
    uint64_t from;
    char *to;
    size_t bytes;
};

static struct part peer_part(const struct coll_segment *segment, const struct coll_op *op, int rank)
{
    const struct coll_slot *slot = coll_slot_of(segment, rank, op->first + (uint64_t)op->at);
    struct slice slice = coll_slice_of(segment, op, rank);
    size_t own = (size_t)segment->rank * op->bytes;
    bool root = op->root == segment->rank, of_root = op->root == rank;
    switch (op->kind) {
    case TUTTI_REDUCE:
        return (struct part){slot->out, root ? op->out + slice.at : NULL, root ? slice.bytes : 0};
    case TUTTI_ALL_REDUCE:
        return (struct part){slot->out + slice.at, op->out + slice.at, slice.bytes};
    case TUTTI_ALL_GATHER:
        return (struct part){slot->in, coll_out_block(op, rank), coll_block_bytes(op, rank)};
    case TUTTI_GATHER:
        return (struct part){slot->in, root ? coll_out_block(op, rank) : NULL, root ? op->bytes : 0};
    case TUTTI_ALL_TO_ALL:
        return (struct part){slot->in + own, coll_out_block(op, rank), op->bytes};
    case TUTTI_SCATTER:
        return (struct part){slot->in + own, op->out, of_root ? op->bytes : 0};
    default:
        return (struct part){slot->in, op->out, of_root ? op->bytes : 0}; /* broadcast */
    }
}

/* Copies this rank's own block of an operation that copies blocks. */
static void copy_own(const struct coll_segment *segment, const struct coll_op *op)
{
    bool root = op->root == segment->rank;
    const char *from =
        op->kind == TUTTI_ALL_TO_ALL || op->kind == TUTTI_SCATTER ? coll_in_block(op, segment->rank) : op->in;
    if (op->kind == TUTTI_ALL_GATHER || op->kind == TUTTI_ALL_TO_ALL || (op->kind == TUTTI_GATHER && root))
        tutti_copy(coll_out_block(op, segment->rank), from, coll_block_bytes(op, segment->rank));
    if (op->kind == TUTTI_SCATTER && root) tutti_copy(op->out, from, op->bytes);
}

/* Reads the others' parts.  Each rank begins with its neighbor's. */
static int read_parts(struct coll_segment *segment, struct coll_op *op)
{
    for (; op->peer < segment->n - 1; op->peer++, op->done = 0) {
        int rank = (segment->rank + 1 + op->peer) % segment->n;
        if (!coll_awaits_rank(op, rank)) continue; /* that rank may be writing its control slot */
        struct part part = peer_part(segment, op, rank);
        size_t left = part.bytes - op->done, bytes = left < COLL_READ_MOST ? left : COLL_READ_MOST;
        if (bytes == 0) continue;
        int status = coll_read_peer(segment, op, rank, part.to + op->done, part.from + op->done, bytes);
        if (status != TUTTI_OK) return status;
        op->done += bytes;
        if (op->done < part.bytes) return 1;
    }
    if (op->at == 0) copy_own(segment, op);
    return TUTTI_OK;
}

int coll_direct_run(struct coll_segment *segment, struct coll_op *op)
{
    return op->at == 0 && tutti_kind_reduces(op->kind) ? reduce_own(segment, op) : read_parts(segment, op);
}

void coll_direct_free(struct coll_segment *segment)
{
    if (segment->result_is_shared)
        shm_free(segment->shm, segment->result);
    else
        free(segment->result);
    segment->result = NULL;
    segment->result_bytes = 0;
    segment->result_is_shared = false;
}

/* Allocates the result buffer: shared memory if all ranks can map it and read it in place, else private memory if CMA
 * is available. */
static void make_result(struct coll_segment *segment, size_t bytes)
{
    void *memory = NULL;
    coll_direct_free(segment);
    segment->result_is_shared = segment->shm->can_share && shm_alloc(segment->shm, bytes, &memory) == TUTTI_OK;
    if (!segment->result_is_shared && (!segment->shm->can_read_memory || posix_memalign(&memory, SHM_LINE, bytes) != 0))
        return;
    segment->result = memory;
    segment->result_bytes = bytes;
}

int coll_direct_prepare(struct coll_segment *segment, const struct coll_op *op)
{
    size_t need = 0;
    void *memory = NULL;
    if (op->kind == TUTTI_REDUCE && op->root != segment->rank) need = coll_slice_of(segment, op, segment->rank).bytes;
    bool in_place = op->path == COLL_UNEVEN ? op->uneven.in_place : op->in == op->out;
    if (op->kind == TUTTI_ALL_TO_ALL && in_place) need = op->in_bytes;
    if (segment->scratch == NULL && tutti_kind_reduces(op->kind) &&
        posix_memalign(&memory, SHM_LINE, SCRATCH_BYTES) == 0)
        segment->scratch = memory;
    if (need > segment->result_bytes) make_result(segment, need);
    if ((segment->scratch != NULL || !tutti_kind_reduces(op->kind)) && segment->result_bytes >= need) return TUTTI_OK;
    return segment->host->error(TUTTI_ERR_NO_MEMORY, "no memory for an operation that needs %zu bytes", need);
}
