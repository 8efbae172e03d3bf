/* Stores data for other ranks: eager buffers, fragments, and reduced results.  copy_in.c chooses the kind of store. */
#include "tcp/shm/coll/parts.h"

enum { BLOCK = 2 << 10 }; /* bytes reduced in the first-level cache before they are stored non-temporally */

/* Returns the bytes that this rank copies into its fragment in the step being posted. */
static size_t fill_bytes(const struct coll_segment *segment, const struct coll_op *op)
{
    size_t bytes = coll_chunk_of(op, op->posted).bytes;
    bool root = op->root == segment->rank;
    if (op->sliced) return bytes - coll_part_of(segment, op, bytes, segment->rank).bytes;
    if (tutti_kind_has_root(op->kind) && root != coll_is_from_root(op->kind)) return 0;
    return tutti_kind_in_blocks(op->kind) ? bytes * (size_t)(segment->n - 1) : bytes;
}

static enum shm_cost reader_cost(const struct coll_segment *segment, const struct coll_op *op)
{
    if (segment->n == 2 || coll_is_from_root(op->kind)) return SHM_COST_AWAY;
    return op->sliced || tutti_kind_in_blocks(op->kind) ? SHM_COST_PARTS : SHM_COST_HERE;
}

void coll_store_chunk(struct coll_segment *segment, struct coll_op *op)
{
    size_t bytes = op->path == COLL_LOCKSTEP ? 0 : fill_bytes(segment, op);
    shm_copy_in_begin(segment->shm, &segment->copy, &segment->fragment_costs[op->kind], bytes);
    if (op->separate != COLL_NO_PATH && !op->is_separate && segment->rank == 0)
        segment->copy.non_temporal = false; /* rank 0 measures plain stores to detect the topology */
    coll_pipelined_post(segment, op);
    uint64_t ns = shm_copy_in_end(segment->shm, &segment->copy, reader_cost(segment, op));
    if (ns > 0 && !segment->copy.non_temporal) coll_cache_stored(segment, op, bytes, ns);
}

void coll_store_eager(struct coll_segment *segment, const struct coll_op *op, void *to, const void *from, size_t bytes)
{
    shm_copy_in_begin(segment->shm, &segment->copy, &segment->fragment_costs[op->kind], bytes);
    shm_copy_in_part(&segment->copy, to, from, bytes);
    shm_copy_in_end(segment->shm, &segment->copy, reader_cost(segment, op));
}

void coll_result_begin(struct coll_segment *segment, const struct coll_op *op, size_t bytes)
{
    shm_copy_in_begin(segment->shm, &segment->copy, &segment->result_costs[op->path == COLL_DIRECT], bytes);
}

void coll_result_reduce(struct coll_segment *segment, const struct coll_op *op, char *to, const void *const *from,
                        size_t bytes)
{
    _Alignas(SHM_LINE) char block[BLOCK];
    const void *here[SHM_RANKS_MAX];
    size_t most = segment->copy.non_temporal ? BLOCK : bytes;
    for (size_t at = 0; at < bytes; at += most) {
        size_t now = bytes - at < most ? bytes - at : most;
        for (int i = 0; i < segment->n; i++) here[i] = (const char *)from[i] + at;
        coll_reduce(segment, op, segment->copy.non_temporal ? block : to, here, now);
        if (segment->copy.non_temporal) shm_copy_non_temporal(to + at, block, now);
    }
    shm_copy_in_end(segment->shm, &segment->copy, SHM_COST_HERE);
}
