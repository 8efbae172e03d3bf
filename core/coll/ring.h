/* Index arithmetic of rings, and of cutting: a tensor into chunks, one a rank; a chunk into segments. */
#ifndef COLL_RING_H
#define COLL_RING_H

#include <stdint.h>

/* The rank `by` places further round the ring; by may be negative, down to -size. */
static inline int ring_rank(int rank, int by, int size)
{
    return (rank + by + size) % size;
}

static inline int64_t ring_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Where chunk i of n begins when numel elements are cut into n chunks that differ by one element at most; the first
 * ones are the larger.  ring_chunk_at(numel, n, n) is numel. */
static inline int64_t ring_chunk_at(int64_t numel, int n, int i)
{
    return numel / n * i + ring_min(numel % n, i);
}

static inline int64_t ring_chunk_numel(int64_t numel, int n, int i)
{
    return numel / n + (i < numel % n);
}

/* How many segments a message of numel elements is cut into.  An empty message is one empty segment: it is sent, for
 * its receiver waits for it. */
static inline int64_t ring_segments(int64_t numel, int64_t segment)
{
    return numel == 0 ? 1 : (numel - 1) / segment + 1;
}

/* The elements of segment j; j counts from 0 and is less than ring_segments(). */
static inline int64_t ring_segment_numel(int64_t numel, int64_t segment, int64_t j)
{
    return ring_min(numel - j * segment, segment);
}

/* n * segment, or the most there is. */
static inline int64_t ring_times(int64_t segment, int n)
{
    return segment > INT64_MAX / n ? INT64_MAX : segment * n;
}

#endif
