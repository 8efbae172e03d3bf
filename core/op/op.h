/* Helpers for the descriptor of an operation: address ranges, properties, and a copy that outlives the call. */
#ifndef OP_H
#define OP_H

#include <stddef.h>
#include <string.h>
#include <tutti/backend.h>

#include "base/dtype.h"

struct op_span {
    uintptr_t begin, end; /* addresses */
};

static inline size_t op_tensor_bytes(const tutti_tensor *tensor)
{
    return (size_t)(tensor->numel * tutti_dtype_bytes(tensor->dtype));
}

static inline struct op_span op_span_of(const tutti_tensor *tensor)
{
    uintptr_t begin = (uintptr_t)tensor->data;
    return (struct op_span){begin, begin + op_tensor_bytes(tensor)};
}

/* Returns the range from the lower begin to the higher end.  Empty ranges are ignored. */
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

/* True if the ranges share a byte.  An empty range overlaps nothing. */
static inline bool op_overlap(struct op_span a, struct op_span b)
{
    return a.begin < a.end && b.begin < b.end && a.begin < b.end && b.begin < a.end;
}

static inline bool op_is_message(const tutti_op *op)
{
    return tutti_kind_is_message(op->kind);
}

/* True if op leaves open the size or the tag of the message that it receives. */
static inline bool op_is_open(const tutti_op *op)
{
    return op->kind == TUTTI_PROBE || (op->kind == TUTTI_RECV && (op->up_to || op->tag == TUTTI_ANY_TAG));
}

/* True if two tensors differ in their memory at most. */
static inline bool op_is_same_shape(const tutti_tensor *a, const tutti_tensor *b)
{
    enum { BEGIN = offsetof(tutti_tensor, numel), END = offsetof(tutti_tensor, device) + sizeof(tutti_device) };
    return memcmp((const char *)a + BEGIN, (const char *)b + BEGIN, END - BEGIN) == 0; /* no padding in between */
}

/* True if the rank only sends in this op: a broadcast's root writes nothing, though its tensor is an output. */
static inline bool op_is_source(const tutti_op *op, int rank)
{
    return op->kind == TUTTI_BROADCAST && op->root == rank;
}

/* Replaces the caller's lists of tensors and splits, which have `size` entries on each side, by copies.  Up to
 * `capacity` tensors without splits are copied to `tensors`.  Otherwise *memory is a new allocation that the caller
 * frees, else NULL.  Returns NO_MEMORY if that fails. */
int op_keep_lists(tutti_op *op, int size, tutti_tensor *tensors, size_t capacity, void **memory);

/* The same for a message, which has at most one tensor. */
static inline void op_keep_message(tutti_op *op, tutti_tensor *tensor)
{
    if (op->n_in > 0) *tensor = op->in[0];
    if (op->n_out > 0) *tensor = op->out[0];
    op->in = op->out = tensor;
}

#endif
