/* The public operations.  Each function fills a descriptor and submits it, and does nothing else. */
#include <stdlib.h>

#include "base/error.h"
#include "base/sized.h"
#include "dispatch/batch.h"
#include "dispatch/message.h"
#include "dispatch/submit.h"

/* Submits an operation with at most one tensor per side.  Inline, because the sides are constants. */
static inline __attribute__((always_inline)) int submit_flat(tutti_kind kind, const tutti_tensor *out,
                                                             const tutti_tensor *in, int root,
                                                             tutti_reduce_op reduce_op, const tutti_opts *opts,
                                                             size_t opts_bytes)
{
    tutti_op op = {.kind = kind,
                   .root = root,
                   .reduce_op = reduce_op,
                   .n_in = in != NULL,
                   .in = in,
                   .n_out = out != NULL,
                   .out = out};
    return submit(&op, opts, opts_bytes);
}

int tutti_broadcast_sized(tutti_tensor tensor, int root, const tutti_opts *opts, size_t opts_bytes)
{
    return submit_flat(TUTTI_BROADCAST, &tensor, NULL, root, TUTTI_SUM, opts, opts_bytes);
}

int tutti_all_reduce_sized(tutti_tensor tensor, tutti_reduce_op op, const tutti_opts *opts, size_t opts_bytes)
{
    return submit_flat(TUTTI_ALL_REDUCE, &tensor, &tensor, -1, op, opts, opts_bytes);
}

int tutti_all_reduce_into_sized(tutti_tensor out, tutti_tensor in, tutti_reduce_op op, const tutti_opts *opts,
                                size_t opts_bytes)
{
    return submit_flat(TUTTI_ALL_REDUCE, &out, &in, -1, op, opts, opts_bytes);
}

static int submit_prefix(tutti_kind kind, const tutti_tensor *out, const tutti_tensor *in, tutti_reduce_op op,
                         const tutti_opts *opts, size_t opts_bytes)
{
    if (op == TUTTI_AVG)
        return error_set(TUTTI_ERR_UNSUPPORTED,
                         "%s does not support AVG, because each rank reduces over another number of ranks; use SUM",
                         tutti_kind_find(kind)->name);
    return submit_flat(kind, out, in, -1, op, opts, opts_bytes);
}

int tutti_scan_sized(tutti_tensor tensor, tutti_reduce_op op, const tutti_opts *opts, size_t opts_bytes)
{
    return submit_prefix(TUTTI_SCAN, &tensor, &tensor, op, opts, opts_bytes);
}

int tutti_scan_into_sized(tutti_tensor out, tutti_tensor in, tutti_reduce_op op, const tutti_opts *opts,
                          size_t opts_bytes)
{
    return submit_prefix(TUTTI_SCAN, &out, &in, op, opts, opts_bytes);
}

int tutti_exscan_sized(tutti_tensor tensor, tutti_reduce_op op, const tutti_opts *opts, size_t opts_bytes)
{
    return submit_prefix(TUTTI_EXSCAN, &tensor, &tensor, op, opts, opts_bytes);
}

int tutti_exscan_into_sized(tutti_tensor out, tutti_tensor in, tutti_reduce_op op, const tutti_opts *opts,
                            size_t opts_bytes)
{
    return submit_prefix(TUTTI_EXSCAN, &out, &in, op, opts, opts_bytes);
}

int tutti_reduce_sized(tutti_tensor tensor, int root, tutti_reduce_op op, const tutti_opts *opts, size_t opts_bytes)
{
    return submit_flat(TUTTI_REDUCE, &tensor, &tensor, root, op, opts, opts_bytes);
}

int tutti_reduce_into_sized(tutti_tensor out, tutti_tensor in, int root, tutti_reduce_op op, const tutti_opts *opts,
                            size_t opts_bytes)
{
    return submit_flat(TUTTI_REDUCE, &out, &in, root, op, opts, opts_bytes);
}

int tutti_all_gather_sized(const tutti_tensor *out, int n, tutti_tensor in, const tutti_opts *opts, size_t opts_bytes)
{
    tutti_op op = {.kind = TUTTI_ALL_GATHER, .list = true, .n_in = 1, .in = &in, .n_out = n, .out = out};
    if (n <= 0)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "all_gather: the out list has %d tensors; pass one per rank", n);
    return submit(&op, opts, opts_bytes);
}

int tutti_all_gather_into_tensor_sized(tutti_tensor out, tutti_tensor in, const tutti_opts *opts, size_t opts_bytes)
{
    return submit_flat(TUTTI_ALL_GATHER, &out, &in, -1, TUTTI_SUM, opts, opts_bytes);
}

int tutti_gather_sized(tutti_tensor in, const tutti_tensor *out, int n, int root, const tutti_opts *opts,
                       size_t opts_bytes)
{
    tutti_op op = {.kind = TUTTI_GATHER, .list = true, .root = root, .n_in = 1, .in = &in, .n_out = n, .out = out};
    if (n < 0)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "gather: the out list has %d tensors; pass one per rank", n);
    return submit(&op, opts, opts_bytes);
}

int tutti_gather_into_tensor_sized(tutti_tensor out, tutti_tensor in, int root, const tutti_opts *opts,
                                   size_t opts_bytes)
{
    return submit_flat(TUTTI_GATHER, &out, &in, root, TUTTI_SUM, opts, opts_bytes);
}

int tutti_scatter_sized(tutti_tensor out, const tutti_tensor *in, int n, int root, const tutti_opts *opts,
                        size_t opts_bytes)
{
    tutti_op op = {.kind = TUTTI_SCATTER, .list = true, .root = root, .n_in = n, .in = in, .n_out = 1, .out = &out};
    if (n < 0)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "scatter: the in list has %d tensors; pass one per rank", n);
    return submit(&op, opts, opts_bytes);
}

int tutti_scatter_tensor_sized(tutti_tensor out, tutti_tensor in, int root, const tutti_opts *opts, size_t opts_bytes)
{
    return submit_flat(TUTTI_SCATTER, &out, &in, root, TUTTI_SUM, opts, opts_bytes);
}

int tutti_reduce_scatter_sized(tutti_tensor out, const tutti_tensor *in, int n, tutti_reduce_op reduce_op,
                               const tutti_opts *opts, size_t opts_bytes)
{
    tutti_op op = {.kind = TUTTI_REDUCE_SCATTER,
                   .list = true,
                   .reduce_op = reduce_op,
                   .n_in = n,
                   .in = in,
                   .n_out = 1,
                   .out = &out};
    if (n <= 0)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "reduce_scatter: the in list has %d tensors; pass one per rank",
                         n);
    return submit(&op, opts, opts_bytes);
}

int tutti_reduce_scatter_tensor_sized(tutti_tensor out, tutti_tensor in, tutti_reduce_op op, const tutti_opts *opts,
                                      size_t opts_bytes)
{
    return submit_flat(TUTTI_REDUCE_SCATTER, &out, &in, -1, op, opts, opts_bytes);
}

int tutti_all_to_all_sized(const tutti_tensor *out, const tutti_tensor *in, int n, const tutti_opts *opts,
                           size_t opts_bytes)
{
    tutti_op op = {.kind = TUTTI_ALL_TO_ALL, .list = true, .n_in = n, .in = in, .n_out = n, .out = out};
    if (n <= 0)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "all_to_all: the lists have %d tensors; pass one per rank", n);
    return submit(&op, opts, opts_bytes);
}

int tutti_all_to_all_single_sized(tutti_tensor out, tutti_tensor in, const int64_t *out_splits,
                                  const int64_t *in_splits, const tutti_opts *opts, size_t opts_bytes)
{
    tutti_op op = {.kind = TUTTI_ALL_TO_ALL,
                   .n_in = 1,
                   .in = &in,
                   .n_out = 1,
                   .out = &out,
                   .in_splits = in_splits,
                   .out_splits = out_splits};
    return submit(&op, opts, opts_bytes);
}

int tutti_barrier_sized(const tutti_opts *opts, size_t opts_bytes)
{
    return submit_flat(TUTTI_BARRIER, NULL, NULL, -1, TUTTI_SUM, opts, opts_bytes);
}

int tutti_monitored_barrier_sized(const tutti_opts *opts, size_t opts_bytes)
{
    return submit_flat(TUTTI_MONITORED_BARRIER, NULL, NULL, -1, TUTTI_SUM, opts, opts_bytes);
}

int tutti_send_sized(tutti_tensor tensor, int dst, const tutti_opts *opts, size_t opts_bytes)
{
    return message_send(&tensor, dst, opts, opts_bytes, NULL);
}

int tutti_recv_sized(tutti_tensor tensor, int src, const tutti_opts *opts, size_t opts_bytes)
{
    return message_receive(&tensor, src, opts, opts_bytes, NULL);
}

int tutti_isend_sized(tutti_tensor tensor, int dst, const tutti_opts *opts, size_t opts_bytes, tutti_work **work)
{
    if (work == NULL) return error_set(TUTTI_ERR_INVALID_ARGUMENT, "isend: work is NULL; pass an address for the Work");
    return message_send(&tensor, dst, opts, opts_bytes, work);
}

int tutti_irecv_sized(tutti_tensor tensor, int src, const tutti_opts *opts, size_t opts_bytes, tutti_work **work)
{
    if (work == NULL) return error_set(TUTTI_ERR_INVALID_ARGUMENT, "irecv: work is NULL; pass an address for the Work");
    return message_receive(&tensor, src, opts, opts_bytes, work);
}

/* Copies ops, of op_bytes each in the program, to this library's size. */
static int read_ops(const tutti_p2p_op *ops, size_t op_bytes, int n, tutti_p2p_op *known)
{
    int status = TUTTI_OK;
    for (int i = 0; status == TUTTI_OK && i < n; i++) {
        const tutti_p2p_op *op = (const void *)((const char *)ops + (size_t)i * op_bytes);
        status = SIZED_READ(tutti_p2p_op, op, op_bytes, &known[i]);
    }
    return status;
}

/* Submits a batch whose ops have another size in the program than in this library. */
static int submit_converted(const tutti_p2p_op *ops, size_t op_bytes, int n, const tutti_opts *opts, tutti_work **works)
{
    tutti_p2p_op *known = calloc((size_t)n, sizeof *known);
    if (known == NULL) return error_set(TUTTI_ERR_NO_MEMORY, "out of memory for a batch of %d messages", n);
    int status = read_ops(ops, op_bytes, n, known);
    if (status == TUTTI_OK) status = batch_submit(known, n, opts, works);
    free(known);
    return status;
}

/* Checks all messages before it launches the first one. */
int tutti_batch_isend_irecv_sized(const tutti_p2p_op *ops, size_t op_bytes, int n, const tutti_opts *opts,
                                  size_t opts_bytes, tutti_work **works)
{
    tutti_opts copy;
    if (n < 0 || (n > 0 && (ops == NULL || works == NULL)))
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "batch_isend_irecv: ops or works is NULL, or n (%d) is negative",
                         n);
    int status = SIZED_READ(tutti_opts, opts, opts_bytes, &copy);
    if (status != TUTTI_OK) return status;
    if (n > 0 && op_bytes != sizeof *ops) return submit_converted(ops, op_bytes, n, opts, works);
    return batch_submit(ops, n, opts, works);
}
