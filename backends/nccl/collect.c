/* Operations that move data.  NCCL gets bytes, so every dtype works, including those it cannot reduce. */
#include "ncclb.h"

static size_t bytes_of(const tutti_tensor *tensor)
{
    return (size_t)(tensor->numel * tutti_dtype_bytes(tensor->dtype));
}

/* One block of an operand. */
struct block {
    char *data;
    size_t bytes;
};

/* Returns rank r's block of `tensors`, which is one flat tensor or a list; *at counts the elements before it. */
static struct block block_of(const tutti_tensor *tensors, const int64_t *splits, bool list, int size, int r,
                             int64_t *at)
{
    int64_t element = tutti_dtype_bytes(tensors[0].dtype);
    if (list) return (struct block){tensors[r].data, bytes_of(&tensors[r])};
    int64_t numel = splits != NULL ? splits[r] : tensors[0].numel / size;
    struct block block = {(char *)tensors[0].data + *at * element, (size_t)(numel * element)};
    *at += numel;
    return block;
}

/* ---- grouped messages -------------------------------------------------------------------------------------- */

struct exchange {
    struct ncclb_comm_stream *cs;
    CUstream stream;
    ncclResult_t result; /* the first error */
};

static void record(struct exchange *exchange, ncclResult_t result)
{
    if (result != ncclSuccess && result != ncclInProgress && exchange->result == ncclSuccess) exchange->result = result;
}

static void post_send(struct exchange *exchange, struct block block, int peer)
{
    if (block.bytes == 0) return;
    record(exchange, ncclb_lib.ncclSend(block.data, block.bytes, ncclInt8, peer, exchange->cs->comm, exchange->stream));
}

static void post_receive(struct exchange *exchange, struct block block, int peer)
{
    if (block.bytes == 0) return;
    record(exchange, ncclb_lib.ncclRecv(block.data, block.bytes, ncclInt8, peer, exchange->cs->comm, exchange->stream));
}

static ncclResult_t end_group(struct exchange *exchange)
{
    ncclResult_t result = ncclb_lib.ncclGroupEnd();
    return exchange->result != ncclSuccess ? exchange->result : result;
}

/* ---- kinds of operation ---------------------------------------------------------------------------------------- */

static ncclResult_t broadcast(struct ncclb_comm_stream *cs, const tutti_op *op, CUstream stream)
{
    const tutti_tensor *out = op->n_out > 0 ? op->out : op->in, *in = op->n_in > 0 ? op->in : op->out;
    return ncclb_lib.ncclBroadcast(in->data, out->data, bytes_of(out), ncclInt8, op->root, cs->comm, stream);
}

/* Broadcasts once per rank, in one NCCL group, because the tensors of a list are at arbitrary addresses and differ in
 * size. */
static ncclResult_t all_gather(struct ncclb_comm_stream *cs, const tutti_op *op, CUstream stream)
{
    if (!op->list)
        return ncclb_lib.ncclAllGather(op->in->data, op->out->data, bytes_of(op->in), ncclInt8, cs->comm, stream);
    struct exchange exchange = {cs, stream, ncclSuccess};
    record(&exchange, ncclb_lib.ncclGroupStart());
    for (int r = 0; r < cs->size; r++) {
        const void *from = r == cs->rank ? op->in->data : op->out[r].data;
        if (op->out[r].numel > 0)
            record(&exchange, ncclb_lib.ncclBroadcast(from, op->out[r].data, bytes_of(&op->out[r]), ncclInt8, r,
                                                      cs->comm, stream));
    }
    return end_group(&exchange);
}

static ncclResult_t gather(struct ncclb_comm_stream *cs, const tutti_op *op, CUstream stream)
{
    bool is_root = cs->rank == op->root;
    if (!op->list && ncclb_lib.gather != NULL)
        return ncclb_lib.gather(op->in->data, is_root ? op->out->data : NULL, bytes_of(op->in), ncclInt8, op->root,
                                cs->comm, stream);
    struct exchange exchange = {cs, stream, ncclSuccess};
    struct block own = {op->in->data, bytes_of(op->in)};
    int64_t at = 0;
    record(&exchange, ncclb_lib.ncclGroupStart());
    if (!is_root) post_send(&exchange, own, op->root);
    for (int r = 0; is_root && r < cs->size; r++) {
        struct block block = block_of(op->out, NULL, op->list, cs->size, r, &at);
        if (r == cs->rank && block.data == own.data) continue;
        if (r == cs->rank) post_send(&exchange, own, r);
        post_receive(&exchange, block, r);
    }
    return end_group(&exchange);
}

static ncclResult_t scatter(struct ncclb_comm_stream *cs, const tutti_op *op, CUstream stream)
{
    bool is_root = cs->rank == op->root;
    if (!op->list && ncclb_lib.scatter != NULL)
        return ncclb_lib.scatter(is_root ? op->in->data : NULL, op->out->data, bytes_of(op->out), ncclInt8, op->root,
                                 cs->comm, stream);
    struct exchange exchange = {cs, stream, ncclSuccess};
    struct block own = {op->out->data, bytes_of(op->out)};
    int64_t at = 0;
    record(&exchange, ncclb_lib.ncclGroupStart());
    if (!is_root) post_receive(&exchange, own, op->root);
    for (int r = 0; is_root && r < cs->size; r++) {
        struct block block = block_of(op->in, NULL, op->list, cs->size, r, &at);
        if (r == cs->rank && block.data == own.data) continue;
        post_send(&exchange, block, r);
        if (r == cs->rank) post_receive(&exchange, own, r);
    }
    return end_group(&exchange);
}

static ncclResult_t all_to_all(struct ncclb_comm_stream *cs, const tutti_op *op, CUstream stream)
{
    if (!op->list && op->in_splits == NULL && ncclb_lib.all_to_all != NULL)
        return ncclb_lib.all_to_all(op->in->data, op->out->data, bytes_of(op->in) / (size_t)cs->size, ncclInt8,
                                    cs->comm, stream);
    struct exchange exchange = {cs, stream, ncclSuccess};
    int64_t in_at = 0, out_at = 0;
    record(&exchange, ncclb_lib.ncclGroupStart());
    for (int r = 0; r < cs->size; r++) {
        struct block in = block_of(op->in, op->in_splits, op->list, cs->size, r, &in_at);
        struct block out = block_of(op->out, op->out_splits, op->list, cs->size, r, &out_at);
        if (r == cs->rank && in.data == out.data) continue;
        post_send(&exchange, in, r);
        post_receive(&exchange, out, r);
    }
    return end_group(&exchange);
}

ncclResult_t ncclb_collect(struct ncclb_comm_stream *cs, const tutti_op *op, CUstream stream)
{
    switch (op->kind) {
    case TUTTI_BROADCAST:
        return broadcast(cs, op, stream);
    case TUTTI_ALL_GATHER:
        return all_gather(cs, op, stream);
    case TUTTI_GATHER:
        return gather(cs, op, stream);
    case TUTTI_SCATTER:
        return scatter(cs, op, stream);
    case TUTTI_ALL_TO_ALL:
        return all_to_all(cs, op, stream);
    case TUTTI_BARRIER:
        return ncclb_lib.ncclAllReduce(cs->group->barrier_word, cs->group->barrier_word, 1, ncclInt32, ncclSum,
                                       cs->comm, stream);
    case TUTTI_SEND: /* on the comm stream of a pair, the sender is rank 0 */
        return ncclb_lib.ncclSend(op->in->data, bytes_of(op->in), ncclInt8, 1, cs->comm, stream);
    case TUTTI_RECV:
        return ncclb_lib.ncclRecv(op->out->data, bytes_of(op->out), ncclInt8, 0, cs->comm, stream);
    default:
        return ncclInvalidArgument;
    }
}
