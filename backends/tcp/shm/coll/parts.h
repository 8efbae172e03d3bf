/* Position of an operation's blocks, slices and chunks. */
#ifndef BOARD_PARTS_H
#define BOARD_PARTS_H

#include <string.h>

#include "tcp/shm/coll/coll.h"

enum { BOARD_ALIGN = 64 };

/* True if only the root's data is read. */
static inline bool board_is_from_root(tutti_kind kind)
{
    return kind == TUTTI_BROADCAST || kind == TUTTI_SCATTER;
}

/* True if a rank's tensor has a block for each other rank: it copies in, or exposes, all of them. */
static inline bool board_puts_all(tutti_kind kind)
{
    return kind == TUTTI_REDUCE_SCATTER || kind == TUTTI_ALL_TO_ALL || kind == TUTTI_SCATTER;
}

static inline char *board_out_block(const struct board_op *op, int i)
{
    if (op->list != NULL && op->kind == TUTTI_ALL_GATHER) return op->list[i].data;
    return op->out + (size_t)i * op->bytes;
}

static inline const char *board_in_block(const struct board_op *op, int i)
{
    if (op->list != NULL && op->kind == TUTTI_REDUCE_SCATTER) return op->list[i].data;
    return op->in + (size_t)i * op->bytes;
}

/* Copies out to the result. */
static inline void board_take(const struct board_op *op, void *to, const void *from, size_t bytes)
{
    if (op->streams)
        shm_stream(to, from, bytes);
    else
        tutti_copy(to, from, bytes);
}

/* The slice of an all_reduce that `rank` reduces for all, in whole lines: no two ranks write to one. */
struct slice {
    size_t at, bytes;
};

static inline struct slice board_part_of(const struct board *board, const struct board_op *op, size_t bytes, int rank)
{
    size_t n = (size_t)board->n, line = op->element > BOARD_ALIGN ? op->element : BOARD_ALIGN;
    size_t each = ((bytes + n - 1) / n + line - 1) / line * line, at = each * (size_t)rank;
    if (at >= bytes) return (struct slice){bytes, 0};
    return (struct slice){at, bytes - at < each ? bytes - at : each};
}

static inline struct slice board_slice_of(const struct board *board, const struct board_op *op, int rank)
{
    return board_part_of(board, op, op->bytes, rank);
}

/* The part of each block that chunk `step` of a piped operation carries. */
static inline struct slice board_chunk_of(const struct board_op *op, int64_t step)
{
    size_t at = (size_t)step * op->chunk;
    if (at >= op->bytes) return (struct slice){op->bytes, 0};
    return (struct slice){at, op->bytes - at < op->chunk ? op->bytes - at : op->chunk};
}

static inline void board_reduce_to(const struct board *board, const struct board_op *op, void *to,
                                   const void *const *from, size_t bytes)
{
    int64_t n = (int64_t)(bytes / op->element);
    if (n == 0) return;
    board->host->reduce_many(op->dtype, op->reduce, to, from, board->n, n);
    if (op->reduce == TUTTI_AVG) board->host->average(op->dtype, to, n, board->n);
}

#endif
