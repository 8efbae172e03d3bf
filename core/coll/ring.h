/* Index arithmetic of rings, of chunks (a tensor cut into one per rank) and of segments (a chunk cut for
 * pipelining). */
#ifndef COLL_RING_H
#define COLL_RING_H

#include <stdint.h>

/* Returns the rank `by` positions further in the ring; by may be negative, down to -size. */
static inline int ring_rank(int rank, int by, int size)
{
    return (rank + by + size) % size;
}

static inline int64_t ring_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Returns the offset of chunk i if numel elements are cut into n chunks that differ by at most one element, larger ones
 * first.  ring_chunk_at(numel, n, n) is numel. */
static inline int64_t ring_chunk_at(int64_t numel, int n, int i)
{
    return numel / n * i + ring_min(numel % n, i);
}

static inline int64_t ring_chunk_numel(int64_t numel, int n, int i)
{
    return numel / n + (i < numel % n);
}

/* Returns the number of segments of a message.  An empty message is one empty segment: it is sent, because its receiver
 * waits for it. */
static inline int64_t ring_segments(int64_t numel, int64_t segment)
{
    return numel == 0 ? 1 : (numel - 1) / segment + 1;
}

/* Returns the elements of segment j, from 0 and less than ring_segments(). */
static inline int64_t ring_segment_numel(int64_t numel, int64_t segment, int64_t j)
{
    return ring_min(numel - j * segment, segment);
}

/* Returns n * segment, or INT64_MAX on overflow. */
static inline int64_t ring_times(int64_t segment, int n)
{
    return segment > INT64_MAX / n ? INT64_MAX : segment * n;
}

/* Returns the sum of the first n counts of a list indexed by rank: where block n begins if blocks are consecutive. */
static inline int64_t ring_sum(const int64_t *count, int n)
{
    int64_t sum = 0;
    for (int i = 0; i < n; i++) sum += count[i];
    return sum;
}

#endif
