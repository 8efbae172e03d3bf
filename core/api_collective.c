/* One short function per public operation: fill the descriptor, submit.  Nothing else belongs here. */
#include "base/error.h"
#include "submit.h"

/* One or no tensor a side. */
static int flat(tutti_kind kind, const tutti_tensor *out, const tutti_tensor *in, int root, tutti_reduce_op reduce_op,
                const tutti_opts *opts)
{
    tutti_op op = {.kind = kind,
                   .root = root,
                   .reduce_op = reduce_op,
                   .n_in = in != NULL,
                   .in = in,
                   .n_out = out != NULL,
                   .out = out};
    return submit(&op, opts);
}

int tutti_broadcast(tutti_tensor tensor, int root, const tutti_opts *opts)
{
    return flat(TUTTI_BROADCAST, &tensor, NULL, root, TUTTI_SUM, opts);
}

int tutti_all_reduce(tutti_tensor tensor, tutti_reduce_op op, const tutti_opts *opts)
{
    return flat(TUTTI_ALL_REDUCE, &tensor, &tensor, -1, op, opts);
}

int tutti_all_reduce_into(tutti_tensor out, tutti_tensor in, tutti_reduce_op op, const tutti_opts *opts)
{
    return flat(TUTTI_ALL_REDUCE, &out, &in, -1, op, opts);
}

int tutti_reduce(tutti_tensor tensor, int root, tutti_reduce_op op, const tutti_opts *opts)
{
    return flat(TUTTI_REDUCE, &tensor, &tensor, root, op, opts);
}

int tutti_reduce_into(tutti_tensor out, tutti_tensor in, int root, tutti_reduce_op op, const tutti_opts *opts)
{
    return flat(TUTTI_REDUCE, &out, &in, root, op, opts);
}

int tutti_all_gather(const tutti_tensor *out, int n, tutti_tensor in, const tutti_opts *opts)
{
    tutti_op op = {.kind = TUTTI_ALL_GATHER, .list = true, .n_in = 1, .in = &in, .n_out = n, .out = out};
    if (n <= 0) return error_set(TUTTI_ERR_INVALID_ARGUMENT, "all_gather: the out list has %d tensors", n);
    return submit(&op, opts);
}

int tutti_all_gather_into_tensor(tutti_tensor out, tutti_tensor in, const tutti_opts *opts)
{
    return flat(TUTTI_ALL_GATHER, &out, &in, -1, TUTTI_SUM, opts);
}

int tutti_gather(tutti_tensor in, const tutti_tensor *out, int n, int root, const tutti_opts *opts)
{
    tutti_op op = {.kind = TUTTI_GATHER, .list = true, .root = root, .n_in = 1, .in = &in, .n_out = n, .out = out};
    if (n < 0) return error_set(TUTTI_ERR_INVALID_ARGUMENT, "gather: the out list has %d tensors", n);
    return submit(&op, opts);
}

int tutti_gather_into_tensor(tutti_tensor out, tutti_tensor in, int root, const tutti_opts *opts)
{
    return flat(TUTTI_GATHER, &out, &in, root, TUTTI_SUM, opts);
}

int tutti_scatter(tutti_tensor out, const tutti_tensor *in, int n, int root, const tutti_opts *opts)
{
    tutti_op op = {.kind = TUTTI_SCATTER, .list = true, .root = root, .n_in = n, .in = in, .n_out = 1, .out = &out};
    if (n < 0) return error_set(TUTTI_ERR_INVALID_ARGUMENT, "scatter: the in list has %d tensors", n);
    return submit(&op, opts);
}

int tutti_scatter_tensor(tutti_tensor out, tutti_tensor in, int root, const tutti_opts *opts)
{
    return flat(TUTTI_SCATTER, &out, &in, root, TUTTI_SUM, opts);
}

int tutti_reduce_scatter(tutti_tensor out, const tutti_tensor *in, int n, tutti_reduce_op reduce_op,
                         const tutti_opts *opts)
{
    tutti_op op = {.kind = TUTTI_REDUCE_SCATTER,
                   .list = true,
                   .reduce_op = reduce_op,
                   .n_in = n,
                   .in = in,
                   .n_out = 1,
                   .out = &out};
    if (n <= 0) return error_set(TUTTI_ERR_INVALID_ARGUMENT, "reduce_scatter: the in list has %d tensors", n);
    return submit(&op, opts);
}

int tutti_reduce_scatter_tensor(tutti_tensor out, tutti_tensor in, tutti_reduce_op op, const tutti_opts *opts)
{
    return flat(TUTTI_REDUCE_SCATTER, &out, &in, -1, op, opts);
}

int tutti_all_to_all(const tutti_tensor *out, const tutti_tensor *in, int n, const tutti_opts *opts)
{
    tutti_op op = {.kind = TUTTI_ALL_TO_ALL, .list = true, .n_in = n, .in = in, .n_out = n, .out = out};
    if (n <= 0) return error_set(TUTTI_ERR_INVALID_ARGUMENT, "all_to_all: the lists have %d tensors", n);
    return submit(&op, opts);
}

int tutti_all_to_all_single(tutti_tensor out, tutti_tensor in, const int64_t *out_splits, const int64_t *in_splits,
                            const tutti_opts *opts)
{
    tutti_op op = {.kind = TUTTI_ALL_TO_ALL,
                   .n_in = 1,
                   .in = &in,
                   .n_out = 1,
                   .out = &out,
                   .in_splits = in_splits,
                   .out_splits = out_splits};
    return submit(&op, opts);
}

int tutti_barrier(const tutti_opts *opts)
{
    return flat(TUTTI_BARRIER, NULL, NULL, -1, TUTTI_SUM, opts);
}

int tutti_monitored_barrier(const tutti_opts *opts)
{
    return flat(TUTTI_MONITORED_BARRIER, NULL, NULL, -1, TUTTI_SUM, opts);
}

int tutti_send(tutti_tensor tensor, int dst, const tutti_opts *opts)
{
    return flat(TUTTI_SEND, NULL, &tensor, dst, TUTTI_SUM, opts);
}

int tutti_recv(tutti_tensor tensor, int src, const tutti_opts *opts)
{
    return flat(TUTTI_RECV, &tensor, NULL, src, TUTTI_SUM, opts);
}

int tutti_isend(tutti_tensor tensor, int dst, const tutti_opts *opts, tutti_work **work)
{
    tutti_op op = {.kind = TUTTI_SEND, .root = dst, .n_in = 1, .in = &tensor};
    if (work == NULL) return error_set(TUTTI_ERR_INVALID_ARGUMENT, "isend: work is NULL");
    return submit_async(&op, opts, work);
}

int tutti_irecv(tutti_tensor tensor, int src, const tutti_opts *opts, tutti_work **work)
{
    tutti_op op = {.kind = TUTTI_RECV, .root = src, .n_out = 1, .out = &tensor};
    if (work == NULL) return error_set(TUTTI_ERR_INVALID_ARGUMENT, "irecv: work is NULL");
    return submit_async(&op, opts, work);
}

/* Started in the order given; what cannot start is refused before any other has. */
int tutti_batch_isend_irecv(const tutti_p2p_op *ops, int n, const tutti_opts *opts, tutti_work **works)
{
    if (n < 0 || (n > 0 && (ops == NULL || works == NULL)))
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "batch_isend_irecv: ops or works is NULL, or n (%d) is negative",
                         n);
    return submit_batch(ops, n, opts, works);
}
