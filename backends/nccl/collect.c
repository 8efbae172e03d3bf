/* The operations that move.  NCCL is given bytes: so every dtype goes, also those that it cannot add. */
#include "ncclb.h"

static size_t bytes_of(const tutti_tensor *tensor)
{
    return (size_t)(tensor->numel * tutti_dtype_bytes(tensor->dtype));
}

/* A block of one side of an operation: where it is, how long. */
struct block {
    char *data;
    size_t bytes;
};

/* Rank r's block of tensors, which are one flat tensor or a list; at counts up the elements before it. */
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
    struct ncclb_channel *channel;
    CUstream stream;
    ncclResult_t result; /* the first that is an error */
};

static void note(struct exchange *exchange, ncclResult_t result)
{
    if (result != ncclSuccess && result != ncclInProgress && exchange->result == ncclSuccess) exchange->result = result;
}

static void put(struct exchange *exchange, struct block block, int peer)
{
    if (block.bytes == 0) return;
    note(exchange,
         ncclb_lib.ncclSend(block.data, block.bytes, ncclInt8, peer, exchange->channel->comm, exchange->stream));
}

static void take(struct exchange *exchange, struct block block, int peer)
{
    if (block.bytes == 0) return;
    note(exchange,
         ncclb_lib.ncclRecv(block.data, block.bytes, ncclInt8, peer, exchange->channel->comm, exchange->stream));
}

static ncclResult_t end(struct exchange *exchange)
{
    ncclResult_t result = ncclb_lib.ncclGroupEnd();
    return exchange->result != ncclSuccess ? exchange->result : result;
}

/* ---- each kind --------------------------------------------------------------------------------------------- */

static ncclResult_t broadcast(struct ncclb_channel *channel, const tutti_op *op, CUstream stream)
{
    const tutti_tensor *out = op->n_out > 0 ? op->out : op->in, *in = op->n_in > 0 ? op->in : op->out;
    return ncclb_lib.ncclBroadcast(in->data, out->data, bytes_of(out), ncclInt8, op->root, channel->comm, stream);
}

/* A list's tensors lie anywhere and differ in size: one broadcast from each rank, as one. */
static ncclResult_t all_gather(struct ncclb_channel *channel, const tutti_op *op, CUstream stream)
{
    if (!op->list)
        return ncclb_lib.ncclAllGather(op->in->data, op->out->data, bytes_of(op->in), ncclInt8, channel->comm, stream);
    struct exchange exchange = {channel, stream, ncclSuccess};
    note(&exchange, ncclb_lib.ncclGroupStart());
    for (int r = 0; r < channel->size; r++) {
        const void *from = r == channel->rank ? op->in->data : op->out[r].data;
        if (op->out[r].numel > 0)
            note(&exchange, ncclb_lib.ncclBroadcast(from, op->out[r].data, bytes_of(&op->out[r]), ncclInt8, r,
                                                    channel->comm, stream));
    }
    return end(&exchange);
}

static ncclResult_t gather(struct ncclb_channel *channel, const tutti_op *op, CUstream stream)
{
    bool is_root = channel->rank == op->root;
    if (!op->list && ncclb_lib.gather != NULL)
        return ncclb_lib.gather(op->in->data, is_root ? op->out->data : NULL, bytes_of(op->in), ncclInt8, op->root,
                                channel->comm, stream);
    struct exchange exchange = {channel, stream, ncclSuccess};
    struct block own = {op->in->data, bytes_of(op->in)};
    int64_t at = 0;
    note(&exchange, ncclb_lib.ncclGroupStart());
    if (!is_root) put(&exchange, own, op->root);
    for (int r = 0; is_root && r < channel->size; r++) {
        struct block block = block_of(op->out, NULL, op->list, channel->size, r, &at);
        if (r == channel->rank && block.data == own.data) continue;
        if (r == channel->rank) put(&exchange, own, r);
        take(&exchange, block, r);
    }
    return end(&exchange);
}

static ncclResult_t scatter(struct ncclb_channel *channel, const tutti_op *op, CUstream stream)
{
    bool is_root = channel->rank == op->root;
    if (!op->list && ncclb_lib.scatter != NULL)
        return ncclb_lib.scatter(is_root ? op->in->data : NULL, op->out->data, bytes_of(op->out), ncclInt8, op->root,
                                 channel->comm, stream);
    struct exchange exchange = {channel, stream, ncclSuccess};
    struct block own = {op->out->data, bytes_of(op->out)};
    int64_t at = 0;
    note(&exchange, ncclb_lib.ncclGroupStart());
    if (!is_root) take(&exchange, own, op->root);
    for (int r = 0; is_root && r < channel->size; r++) {
        struct block block = block_of(op->in, NULL, op->list, channel->size, r, &at);
        if (r == channel->rank && block.data == own.data) continue;
        put(&exchange, block, r);
        if (r == channel->rank) take(&exchange, own, r);
    }
    return end(&exchange);
}

static ncclResult_t all_to_all(struct ncclb_channel *channel, const tutti_op *op, CUstream stream)
{
    if (!op->list && op->in_splits == NULL && ncclb_lib.all_to_all != NULL)
        return ncclb_lib.all_to_all(op->in->data, op->out->data, bytes_of(op->in) / (size_t)channel->size, ncclInt8,
                                    channel->comm, stream);
    struct exchange exchange = {channel, stream, ncclSuccess};
    int64_t in_at = 0, out_at = 0;
    note(&exchange, ncclb_lib.ncclGroupStart());
    for (int r = 0; r < channel->size; r++) {
        struct block in = block_of(op->in, op->in_splits, op->list, channel->size, r, &in_at);
        struct block out = block_of(op->out, op->out_splits, op->list, channel->size, r, &out_at);
        if (r == channel->rank && in.data == out.data) continue;
        put(&exchange, in, r);
        take(&exchange, out, r);
    }
    return end(&exchange);
}

ncclResult_t ncclb_collect(struct ncclb_channel *channel, const tutti_op *op, CUstream stream)
{
    switch (op->kind) {
    case TUTTI_BROADCAST:
        return broadcast(channel, op, stream);
    case TUTTI_ALL_GATHER:
        return all_gather(channel, op, stream);
    case TUTTI_GATHER:
        return gather(channel, op, stream);
    case TUTTI_SCATTER:
        return scatter(channel, op, stream);
    case TUTTI_ALL_TO_ALL:
        return all_to_all(channel, op, stream);
    case TUTTI_BARRIER:
        return ncclb_lib.ncclAllReduce(channel->group->word, channel->group->word, 1, ncclInt32, ncclSum, channel->comm,
                                       stream);
    case TUTTI_SEND: /* a pair's channel: the sender is its rank 0 */
        return ncclb_lib.ncclSend(op->in->data, bytes_of(op->in), ncclInt8, 1, channel->comm, stream);
    case TUTTI_RECV:
        return ncclb_lib.ncclRecv(op->out->data, bytes_of(op->out), ncclInt8, 0, channel->comm, stream);
    default:
        return ncclInvalidArgument;
    }
}
