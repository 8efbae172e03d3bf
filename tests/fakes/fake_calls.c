/* FAKE NCCL's operations, and groups of them. */
#include "fake_nccl.h"

#include <stdlib.h>
#include <time.h>

enum { GROUP_MAX = 256 };

static _Thread_local int depth;
static _Thread_local struct fake_held *group; /* of an open group */
static _Thread_local int n_group;

/* ---- groups ------------------------------------------------------------------------------------------------ */

ncclResult_t ncclGroupStart(void)
{
    if (depth++ == 0) group = calloc(GROUP_MAX, sizeof *group);
    return group != NULL ? ncclSuccess : ncclSystemError;
}

/* Merges a send or receive into one of the same communicator and stream, because such operations run at once. */
static bool merge(struct fake_op *op, CUstream stream, int before)
{
    for (int i = 0; i < before; i++) {
        struct fake_op *other = group[i].op;
        if (other == NULL || other->messages == NULL || op->messages == NULL || other->comm != op->comm ||
            group[i].stream != stream)
            continue;
        other->messages = realloc(other->messages, (size_t)(other->n_messages + 1) * sizeof *other->messages);
        other->messages[other->n_messages++] = op->messages[0];
        fake_nccl_work.drop(op);
        return true;
    }
    return false;
}

void fake_enqueue_held(ncclComm_t comm)
{
    for (int i = 0; i < comm->n_held; i++) fake_enqueue(comm->held[i].stream, &fake_nccl_work, comm->held[i].op);
    comm->n_held = 0;
}

static void *late_main(void *argument)
{
    ncclComm_t comm = argument;
    nanosleep(&(struct timespec){comm->late_us / 1000000, comm->late_us % 1000000 * 1000}, NULL);
    if (!atomic_load(&comm->aborted)) fake_enqueue_held(comm);
    atomic_store(&comm->works, false);
    fake_release(comm);
    return NULL;
}

/* Starts a communicator's operations of a group once all have been submitted. */
static ncclResult_t start(ncclComm_t comm)
{
    if (comm->n_held == 0 || atomic_load(&comm->works)) return ncclSuccess;
    if (comm->connected) fake_begin_working(comm, late_main, comm);
    return ncclInProgress;
}

static ncclResult_t launch(struct fake_op *op, CUstream stream)
{
    ncclComm_t comm = op->comm;
    stream = fake_stream(stream);
    if (comm->connected && comm->late_us == 0)
        return fake_enqueue(stream, &fake_nccl_work, op) == CUDA_SUCCESS ? ncclSuccess : ncclUnhandledCudaError;
    comm->held[comm->n_held++] = (struct fake_held){op, stream};
    return ncclInProgress;
}

ncclResult_t ncclGroupEnd(void)
{
    if (depth == 0) return ncclInvalidUsage;
    if (--depth > 0) return ncclSuccess;
    ncclResult_t result = ncclSuccess;
    ncclComm_t comms[GROUP_MAX];
    int n_comms = 0;
    for (int i = 0; i < n_group; i++)
        if (merge(group[i].op, group[i].stream, i)) group[i].op = NULL;
    for (int i = 0; i < n_group; i++) {
        if (group[i].op == NULL) continue;
        comms[n_comms++] = group[i].op->comm;
        ncclResult_t one = launch(group[i].op, group[i].stream);
        if (one != ncclSuccess) result = one;
    }
    if (result == ncclInProgress) fake_job_begin(comms, n_comms);
    for (int i = 0; i < n_comms; i++) start(comms[i]); /* an operation is freed when it has run */
    n_group = 0;
    free(group);
    group = NULL;
    return result;
}

static ncclResult_t call(ncclComm_t comm, struct fake_call what, const void *send, void *recv, int peer,
                         CUstream stream)
{
    if (comm == NULL || what.dtype < 0 || what.dtype > ncclBfloat16) return ncclInvalidArgument;
    if (!fake_is_free(comm) || (comm->n_held > 0 && depth == 0))
        return ncclInvalidArgument; /* the communicator was not polled */
    if (what.root >= comm->n || peer >= comm->n || n_group == GROUP_MAX) return ncclInvalidArgument;
    if (what.count == 0) return ncclSuccess;
    struct fake_op *op = calloc(1, sizeof *op);
    *op = (struct fake_op){.comm = comm, .call = what, .send = send, .recv = recv};
    pthread_mutex_lock(&comm->lock);
    comm->references++;
    pthread_mutex_unlock(&comm->lock);
    if (what.kind <= FAKE_RECV) {
        op->n_messages = 1;
        op->messages = calloc(1, sizeof *op->messages);
        op->messages[0] = (struct fake_message){.peer = peer,
                                                .send = what.kind == FAKE_SEND,
                                                .data = recv != NULL ? recv : (char *)(uintptr_t)send,
                                                .bytes = what.count * fake_bytes((ncclDataType_t)what.dtype),
                                                .call = what};
    }
    if (depth == 0) {
        ncclResult_t result = launch(op, stream);
        if (result != ncclInProgress) return result;
        fake_job_begin(&comm, 1);
        result = start(comm);
        return what.kind <= FAKE_RECV && fake_version() < NCCL_VERSION(2, 24, 0) ? ncclSuccess : result;
    }
    group[n_group++] = (struct fake_held){op, stream};
    return ncclSuccess;
}

/* ---- operations -------------------------------------------------------------------------------------------- */

ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
    return call(comm, (struct fake_call){FAKE_SEND, (int)type, 0, -1, count}, send, NULL, peer, stream);
}

ncclResult_t ncclRecv(void *recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream)
{
    return call(comm, (struct fake_call){FAKE_RECV, (int)type, 0, -1, count}, NULL, recv, peer, stream);
}

ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream)
{
    return call(comm, (struct fake_call){FAKE_BROADCAST, (int)type, 0, root, count}, send, recv, -1, stream);
}

ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream)
{
    return call(comm, (struct fake_call){FAKE_ALL_REDUCE, (int)type, (int)op, -1, count}, send, recv, -1, stream);
}

ncclResult_t ncclReduce(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t stream)
{
    return call(comm, (struct fake_call){FAKE_REDUCE, (int)type, (int)op, root, count}, send, recv, -1, stream);
}

ncclResult_t ncclAllGather(const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream)
{
    return call(comm, (struct fake_call){FAKE_ALL_GATHER, (int)type, 0, -1, count}, send, recv, -1, stream);
}

ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream)
{
    return call(comm, (struct fake_call){FAKE_REDUCE_SCATTER, (int)type, (int)op, -1, count}, send, recv, -1, stream);
}
