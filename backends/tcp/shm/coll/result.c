/* Reduces results that other ranks read. */
#include "tcp/shm/coll/parts.h"

enum { BLOCK = 2 << 10 }; /* bytes reduced in the first-level cache before they are stored non-temporally */

void coll_result_reduce(const struct coll_segment *segment, const struct coll_op *op, char *to, const void *const *from,
                        size_t bytes)
{
    _Alignas(SHM_LINE) char block[BLOCK];
    const void *here[SHM_RANKS_MAX];
    if (!op->bypasses) {
        coll_reduce(segment, op, to, from, bytes);
        return;
    }
    for (size_t at = 0; at < bytes; at += BLOCK) {
        size_t now = bytes - at < BLOCK ? bytes - at : BLOCK;
        for (int i = 0; i < segment->n; i++) here[i] = (const char *)from[i] + at;
        coll_reduce(segment, op, block, here, now);
        shm_copy_non_temporal(to + at, block, now);
    }
}
