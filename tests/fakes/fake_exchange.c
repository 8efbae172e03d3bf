/* FAKE NCCL's operations in a stream: each is a set of messages through mailboxes in shared memory. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fake_nccl.h"

static struct fake_box *box(ncclComm_t comm, int from, int to)
{
    return (struct fake_box *)((char *)comm->region->box + (size_t)(from * comm->n + to) * sizeof(struct fake_box));
}

static void nap(void)
{
    static const struct timespec little = {0, 20000};
    nanosleep(&little, NULL);
}

/* Spins until the communicator is aborted, as a kernel on a GPU does. */
static void stand_still(ncclComm_t comm)
{
    while (!atomic_load(&comm->aborted)) nap();
}

static void mismatch(ncclComm_t comm, int peer, const struct fake_call *theirs, const struct fake_call *mine)
{
    static const char *const names[] = {"send",   "recv",       "broadcast",     "all_reduce",
                                        "reduce", "all_gather", "reduce_scatter"};
    snprintf(comm->text, sizeof comm->text,
             "FAKE NCCL: rank %d called %s (count %llu, type %d, op %d, root %d), rank %d called %s (count %llu, type "
             "%d, op %d, "
             "root %d)",
             peer, names[theirs->kind], (unsigned long long)theirs->count, theirs->dtype, theirs->op, theirs->root,
             comm->rank, names[mine->kind], (unsigned long long)mine->count, mine->dtype, mine->op, mine->root);
    atomic_store(&comm->error, ncclInvalidUsage);
    stand_still(comm);
}

static bool fits(const struct fake_call *theirs, const struct fake_call *mine)
{
    int kind = mine->kind == FAKE_RECV ? FAKE_SEND : mine->kind;
    return theirs->kind == kind && theirs->count == mine->count && theirs->dtype == mine->dtype &&
           theirs->op == mine->op && theirs->root == mine->root;
}

/* Transfers one chunk of one message if the mailbox is free. */
static bool move(ncclComm_t comm, struct fake_message *message)
{
    struct fake_box *at = message->send ? box(comm, comm->rank, message->peer) : box(comm, message->peer, comm->rank);
    if (atomic_load_explicit(&at->full, memory_order_acquire) == (message->send ? 1u : 0u)) return false;
    uint64_t left = message->bytes - message->moved;
    if (message->send) {
        at->call = message->call;
        at->bytes = (uint32_t)(left < FAKE_CHUNK ? left : FAKE_CHUNK);
        memcpy(at->data, message->data + message->moved, at->bytes);
        message->moved += at->bytes;
        atomic_store_explicit(&at->full, 1, memory_order_release);
    } else {
        if (!fits(&at->call, &message->call)) {
            mismatch(comm, message->peer, &at->call, &message->call);
            return false;
        }
        memcpy(message->data + message->moved, at->data, at->bytes);
        message->moved += at->bytes;
        atomic_store_explicit(&at->full, 0, memory_order_release);
    }
    message->done = message->moved == message->bytes;
    return true;
}

static void move_to_self(struct fake_message *messages, int n, int self)
{
    for (int i = 0; i < n; i++) {
        if (messages[i].done || !messages[i].send || messages[i].peer != self) continue;
        for (int k = 0; k < n; k++) {
            if (messages[k].done || messages[k].send || messages[k].peer != self) continue;
            memcpy(messages[k].data, messages[i].data, messages[i].bytes);
            messages[i].done = messages[k].done = true;
            break;
        }
    }
}

/* True if the message is the next of its direction to its peer.  Such messages are transferred in order. */
static bool is_first(const struct fake_message *messages, int i)
{
    for (int k = 0; k < i; k++)
        if (!messages[k].done && messages[k].peer == messages[i].peer && messages[k].send == messages[i].send)
            return false;
    return true;
}

static void exchange(ncclComm_t comm, struct fake_message *messages, int n)
{
    move_to_self(messages, n, comm->rank);
    int left = 0, idle = 0;
    for (int i = 0; i < n; i++) left += !messages[i].done;
    while (left > 0 && !atomic_load(&comm->aborted)) {
        bool moved = false;
        for (int i = 0; i < n; i++) {
            if (messages[i].done || !is_first(messages, i) || !move(comm, &messages[i])) continue;
            moved = true;
            left -= messages[i].done;
        }
        idle = moved ? 0 : idle + 1;
        if (idle > 20)
            nap();
        else if (!moved)
            sched_yield();
    }
}

static void collective(struct fake_op *op)
{
    ncclComm_t comm = op->comm;
    int n = comm->n, rank = comm->rank, m = 0, root = op->call.root;
    ncclDataType_t type = (ncclDataType_t)op->call.dtype;
    uint64_t bytes = op->call.count * fake_bytes(type);
    struct fake_message *messages = calloc(2 * (size_t)n, sizeof *messages);
    char *all = malloc(bytes * (uint64_t)n + 1);
    bool reduces =
        op->call.kind == FAKE_ALL_REDUCE || op->call.kind == FAKE_REDUCE || op->call.kind == FAKE_REDUCE_SCATTER;
    bool to_root = op->call.kind == FAKE_REDUCE, from_root = op->call.kind == FAKE_BROADCAST;
    bool parts = op->call.kind == FAKE_REDUCE_SCATTER;
    for (int peer = 0; peer < n; peer++) {
        const char *from = op->send + (parts ? (uint64_t)peer * bytes : 0);
        char *to = reduces ? all + (uint64_t)peer * bytes : from_root ? op->recv : op->recv + (uint64_t)peer * bytes;
        bool sends = to_root ? peer == root : from_root ? rank == root : true;
        bool takes = to_root ? rank == root : from_root ? peer == root : true;
        if (peer == rank) {
            if (takes && to != from) memmove(to, from, bytes);
            continue;
        }
        if (sends)
            messages[m++] = (struct fake_message){.peer = peer, .send = true, .data = (char *)from, .bytes = bytes};
        if (takes) messages[m++] = (struct fake_message){.peer = peer, .data = to, .bytes = bytes};
    }
    for (int i = 0; i < m; i++) messages[i].call = op->call;
    int scalar = op->call.op - ncclNumOps;
    exchange(comm, messages, m);
    if (reduces && (!to_root || rank == root) && !atomic_load(&comm->aborted)) {
        if (scalar >= 0) fake_scale(type, all, op->call.count * (uint64_t)n, comm->scalars[scalar % FAKE_SCALARS], 0);
        for (int r = 1; r < n; r++)
            fake_reduce(type, (ncclRedOp_t)op->call.op, all, all + (uint64_t)r * bytes, op->call.count);
        if (op->call.op == ncclAvg) fake_scale(type, all, op->call.count, 0, n);
        memcpy(op->recv, all, bytes);
    }
    free(all);
    free(messages);
}

/* Injects the fault that was requested for this operation.  Returns false if there is none. */
static bool play_fault(ncclComm_t comm)
{
    uint64_t number = ++comm->ops;
    long slow = fake_fault("slow", comm->rank);
    if (slow > 0) nanosleep(&(struct timespec){slow / 1000, slow % 1000 * 1000000}, NULL);
    bool hang = fake_fault("hang", comm->rank) == (long)number, error = fake_fault("error", comm->rank) == (long)number;
    if (error) {
        snprintf(comm->text, sizeof comm->text,
                 "FAKE NCCL: a peer's connection broke, as requested by FAKE_NCCL_FAULT");
        atomic_store(&comm->error, ncclRemoteError);
    }
    if (hang || error) stand_still(comm);
    return hang || error;
}

static uint64_t take_ticket(void *argument)
{
    ncclComm_t comm = ((struct fake_op *)argument)->comm;
    pthread_mutex_lock(&comm->lock);
    uint64_t ticket = comm->tickets++;
    pthread_mutex_unlock(&comm->lock);
    return ticket;
}

static void run(void *argument, uint64_t ticket)
{
    struct fake_op *op = argument;
    ncclComm_t comm = op->comm;
    pthread_mutex_lock(&comm->lock);
    while (comm->serving != ticket) pthread_cond_wait(&comm->changed, &comm->lock);
    pthread_mutex_unlock(&comm->lock);
    if (!atomic_load(&comm->aborted) && !play_fault(comm)) {
        if (op->messages == NULL) {
            collective(op);
        } else {
            struct fake_message *messages = malloc((size_t)op->n_messages * sizeof *messages);
            memcpy(messages, op->messages, (size_t)op->n_messages * sizeof *messages);
            exchange(comm, messages, op->n_messages);
            free(messages);
        }
    }
    pthread_mutex_lock(&comm->lock);
    comm->serving++;
    pthread_cond_broadcast(&comm->changed);
    pthread_mutex_unlock(&comm->lock);
}

static void drop(void *argument)
{
    struct fake_op *op = argument;
    fake_release(op->comm);
    free(op->messages);
    free(op);
}

const struct fake_work fake_nccl_work = {take_ticket, run, drop};
