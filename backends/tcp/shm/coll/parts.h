/* Positions of an operation's blocks, slices and chunks. */
#ifndef COLL_PARTS_H
#define COLL_PARTS_H

#include <string.h>

#include "tcp/shm/coll/coll.h"

enum { COLL_ALIGN = 64 };

/* True if only the root's data are read. */
static inline bool coll_is_from_root(tutti_kind kind)
{
    return tutti_kind_has_root(kind) && tutti_kind_has_out(kind, 1, 0);
}

static inline char *coll_out_block(const struct coll_op *op, int i)
{
    if (op->list != NULL && op->kind == TUTTI_ALL_GATHER) return op->list[i].data;
    return op->out + (size_t)i * op->bytes;
}

static inline const char *coll_in_block(const struct coll_op *op, int i)
{
    if (op->list != NULL && op->kind == TUTTI_REDUCE_SCATTER) return op->list[i].data;
    return op->in + (size_t)i * op->bytes;
}

/* Returns the bytes of block i.  Those of a list may differ, if all ranks know them. */
static inline size_t coll_block_bytes(const struct coll_op *op, int i)
{
    return op->list != NULL ? (size_t)op->list[i].numel * op->element : op->bytes;
}

/* Copies data to the output. */
static inline void coll_copy_out(const struct coll_op *op, void *to, const void *from, size_t bytes)
{
    if (op->non_temporal)
        shm_copy_non_temporal(to, from, bytes);
    else
        tutti_copy(to, from, bytes);
}

/* Copies data that other ranks will read. */
static inline void coll_copy_in(const struct coll_op *op, void *to, const void *from, size_t bytes)
{
    if (op->bypasses)
        shm_copy_non_temporal(to, from, bytes);
    else
        tutti_copy(to, from, bytes);
}

/* A slice of a reduction, which one rank reduces for all.  It has whole lines, so no two ranks write to one line. */
struct slice {
    size_t at, bytes;
};

/* Copies in all but the own slice, which no other rank reads. */
static inline void coll_copy_in_around(const struct coll_op *op, char *to, const char *from, struct slice own,
                                       size_t bytes)
{
    size_t end = own.at + own.bytes;
    coll_copy_in(op, to, from, own.at);
    coll_copy_in(op, to + end, from + end, bytes - end);
}

static inline struct slice coll_part_of(const struct coll_segment *segment, const struct coll_op *op, size_t bytes,
                                        int rank)
{
    size_t n = (size_t)segment->n, line = op->element > COLL_ALIGN ? op->element : COLL_ALIGN;
    size_t each = ((bytes + n - 1) / n + line - 1) / line * line, at = each * (size_t)rank;
    if (at >= bytes) return (struct slice){bytes, 0};
    return (struct slice){at, bytes - at < each ? bytes - at : each};
}

static inline struct slice coll_slice_of(const struct coll_segment *segment, const struct coll_op *op, int rank)
{
    return coll_part_of(segment, op, op->bytes, rank);
}

/* Returns the part of a tensor that chunk `step` of an operation in chunks carries. */
static inline struct slice coll_chunk_within(const struct coll_op *op, int64_t step, size_t bytes)
{
    size_t at = (size_t)step * op->chunk;
    if (at >= bytes) return (struct slice){bytes, 0};
    return (struct slice){at, bytes - at < op->chunk ? bytes - at : op->chunk};
}

static inline struct slice coll_chunk_of(const struct coll_op *op, int64_t step)
{
    return coll_chunk_within(op, step, op->bytes);
}

/* The same of block i. */
static inline struct slice coll_block_chunk(const struct coll_op *op, int64_t step, int i)
{
    return coll_chunk_within(op, step, coll_block_bytes(op, i));
}

static inline void coll_reduce(const struct coll_segment *segment, const struct coll_op *op, void *to,
                               const void *const *from, size_t bytes)
{
    int64_t n = (int64_t)(bytes / op->element);
    if (n == 0) return;
    segment->host->reduce_many(op->dtype, op->reduce, to, from, segment->n, n);
    if (op->reduce == TUTTI_AVG) segment->host->average(op->dtype, to, n, segment->n);
}

#endif
