/* The descriptor of an operation, kept beyond the call that made it. */
#ifndef OP_H
#define OP_H

#include <tutti/backend.h>

#include "base/dtype.h"

struct op_span {
    uintptr_t begin, end; /* addresses */
};

static inline struct op_span op_span_of(const tutti_tensor *tensor)
{
    uintptr_t begin = (uintptr_t)tensor->data;
    return (struct op_span){begin, begin + (uintptr_t)(tensor->numel * tutti_dtype_bytes(tensor->dtype))};
}

/* From the one's begin to the other's end; an empty one adds nothing. */
static inline struct op_span op_span_join(struct op_span a, struct op_span b)
{
    if (a.begin >= a.end) return b;
    if (b.begin >= b.end) return a;
    return (struct op_span){a.begin < b.begin ? a.begin : b.begin, a.end > b.end ? a.end : b.end};
}

static inline struct op_span op_span_of_all(const tutti_tensor *tensors, int n)
{
    struct op_span all = {0, 0};
    for (int i = 0; i < n; i++) all = op_span_join(all, op_span_of(&tensors[i]));
    return all;
}

/* An empty one overlaps nothing. */
static inline bool op_overlap(struct op_span a, struct op_span b)
{
    return a.begin < a.end && b.begin < b.end && a.begin < b.end && b.begin < a.end;
}

static inline bool op_is_message(const tutti_op *op)
{
    return tutti_kind_is_message(op->kind);
}

/* True if op does not know all of the message that it asks for: its size or its tag. */
static inline bool op_is_open(const tutti_op *op)
{
    return op->kind == TUTTI_PROBE || (op->kind == TUTTI_RECV && (op->up_to || op->tag == TUTTI_ANY_TAG));
}

/* Whether the rank of the group only gives what the others get: it writes nothing, though its tensor is an output. */
static inline bool op_is_source(const tutti_op *op, int rank)
{
    return op->kind == TUTTI_BROADCAST && op->root == rank;
}

/* Copies what the caller's lists hold, tensors and splits (size entries a side, where there are any), so that op no
 * longer needs them.  Up to `room` tensors without splits go to tensors; else *memory receives an allocation to be
 * freed (it is NULL otherwise).  NO_MEMORY. */
int op_keep_lists(tutti_op *op, int size, tutti_tensor *tensors, size_t room, void **memory);

#endif
