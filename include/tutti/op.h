/* Tutti: the descriptor of an operation that the core passes to backends, and properties that follow from its kind. */
#ifndef TUTTI_OP_H
#define TUTTI_OP_H

#include <tutti/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One operation.  The tensors have been checked: they are on the backend's device, their dtypes agree, and their sizes
 * fit the kind.  Valid only during the call. */
typedef struct tutti_op {
    uint32_t size; /* sizeof(tutti_op) of the core */
    tutti_kind kind;
    tutti_reduce_op reduce_op;
    tutti_dtype dtype;
    int32_t root; /* root or peer: rank in the group; TUTTI_ANY_SOURCE; -1 if there is none */
    int32_t tag;
    uint64_t sequence;   /* number among the group's collectives, from 1; 0 for point to point */
    int32_t n_in, n_out; /* number of tensors: 0, 1 (flat), or the group's size (a list) */
    const tutti_tensor *in;
    const tutti_tensor *out;
    const int64_t *in_splits; /* all_to_all_single: elements per rank; NULL: equal parts */
    const int64_t *out_splits;
    double factor;      /* PREMUL_SUM */
    void *stream;       /* as tutti_opts */
    int64_t timeout_ms; /* timeout of this operation */
    bool async;         /* the call has async_op set */
    bool list;          /* the caller used the list form, even if this rank passes no list */
    uint64_t call;      /* calls of a group with the same number, other than 0, have the same kind, reduce_op, dtype,
                           root, tensors and form: a property of one of them holds for all */
    bool up_to;         /* a receive of up to its tensor's size; never native, nor is one of TUTTI_ANY_TAG */
    void *tool;         /* for the core */
    uint64_t form;      /* calls of a group with the same number, other than 0, differ in their tensors' memory at most;
                           if a tensor is on both sides of one of them, it is so in all */
} tutti_op;

/* Returns the elements of the block that this rank sends to, or receives from, each rank.  Without blocks, returns
 * those of the whole tensor.  Returns 0 if blocks differ and the ranks do not know each other's sizes. */
static inline int64_t tutti_op_block_numel(const tutti_op *op, int size)
{
    const tutti_kind_row *row = tutti_kind_find(op->kind);
    if (row->in == TUTTI_SIDE_ONE) return op->in[0].numel;
    if (row->out == TUTTI_SIDE_ONE) return op->out[0].numel;
    if (row->in == TUTTI_SIDE_NONE || op->list || op->in_splits != NULL) return 0;
    return op->in[0].numel / size;
}

/* True if the blocks of two lists are the same memory, each of one size on both sides. */
static inline bool tutti_op_lists_coincide(const tutti_op *op)
{
    for (int i = 0; i < op->n_in; i++)
        if (op->in[i].numel != op->out[i].numel || (op->in[i].numel > 0 && op->in[i].data != op->out[i].data))
            return false;
    return true;
}

/* True if in[i] and out[k] share memory in the way that the kind allows: the whole of both, or the block of `rank` on
 * the side that has blocks. */
static inline bool tutti_op_may_share(const tutti_op *op, int rank, int i, int k)
{
    const char *in = (const char *)op->in[i].data, *out = (const char *)op->out[k].data;
    bool in_blocks = tutti_kind_in_blocks(op->kind), out_blocks = tutti_kind_out_blocks(op->kind);
    if (in_blocks && out_blocks) return op->list ? i == k && tutti_op_lists_coincide(op) : in == out;
    if (op->list && (in_blocks || out_blocks)) return (in_blocks ? i : k) == rank && in == out;
    int64_t own = rank * tutti_dtype_bytes(op->dtype); /* bytes before this rank's block, per element of one */
    if (out_blocks) return in == out + own * op->in[i].numel;
    return in_blocks ? out == in + own * op->out[k].numel : in == out;
}

/* True if a checked op is in place: its output is its input or this rank's block of it, or the reverse.  False for an
 * operation on nothing, and for lists in which only this rank's own block has elements. */
static inline bool tutti_op_is_in_place(const tutti_op *op, int rank)
{
    if (op->n_in == 0 || op->n_out == 0) return false;
    bool in_blocks = tutti_kind_in_blocks(op->kind), out_blocks = tutti_kind_out_blocks(op->kind);
    if (in_blocks && out_blocks && op->list) {
        bool any = false;
        for (int i = 0; i < op->n_in; i++) any |= i != rank && op->in[i].numel > 0;
        return any && tutti_op_lists_coincide(op);
    }
    int i = op->list && in_blocks ? rank : 0, k = op->list && out_blocks ? rank : 0;
    return (in_blocks && !out_blocks ? op->out[k].numel : op->in[i].numel) > 0 && tutti_op_may_share(op, rank, i, k);
}

#ifdef __cplusplus
}
#endif
#endif
