/* Tutti: torch.distributed for C.
 *
 *     #include <tutti/tutti.h>
 *
 *     int main(void)
 *     {
 *         TUTTI_CHECK(tutti_init_process_group("tcp", NULL));
 *         float x[4] = {1, 2, 3, 4};
 *         TUTTI_CHECK(tutti_all_reduce(tutti_view(x, 4), TUTTI_SUM, NULL));
 *         return tutti_destroy_process_group(NULL);
 *     }
 *
 * Conventions, which hold for every function unless its comment says otherwise:
 *
 * - It returns TUTTI_OK or a negative tutti_status; tutti_last_error() then has the sentence.  A call that returns an
 *   error never also completes.  A failure after a call has returned comes out of tutti_wait with the same text.
 * - Any thread may call.  Within one group the order of the calls is the order of the collectives, and every rank of
 *   the group makes the same calls in the same order.  Point-to-point calls do not take part in that order.
 * - A thread that pthread_cancel ends in a call leaves the operation under way with its tensors, and it keeps its
 *   place in the order: to repeat it puts this rank one call ahead of the others.
 * - Tensors are borrowed: they must stay valid, and inputs unchanged, until the operation has completed.  Structs that
 *   are passed by pointer (options, lists, splits) are copied before the call returns.
 * - A tensor list has one entry a rank of the group, in rank order.  Entries may differ in numel, not in dtype.
 * - The memory of outputs and inputs is apart, or the operation is done in place: the reduction's output is its input;
 *   the one tensor of a gathering or scattering operation is the rank's own part of the whole; all_to_all's out is its
 *   in, with the same sizes of all parts.  Any other overlap of an input with an output: INVALID_ARGUMENT.  Outputs
 *   among themselves, which must be apart, are not looked at.
 * - src, dst and root are global ranks (ranks of the default group's world), unless opts->group_rank is set; in a group
 *   made by tutti_create_group the two are the same.
 * - group, and opts, may be NULL: the default group, all defaults.
 * - A blocking call on CPU tensors returns when the data is there: its own, not those of operations that were begun
 *   with async_op before, which may still be under way.  Their Works say when; a barrier does not.  On CUDA tensors it
 *   enqueues on opts->stream and returns: the result may be used by later work on that stream.  Through a CPU backend
 *   it returns when it is done.
 * - A struct that the program fills (options, tutti_p2p_op) grows at its end.  The functions that take one are
 * therefore inline: each passes the struct's size to an exported function, of the same name with _sized at the end.
 * sized.h has these, which bindings for other languages call.
 * - Errors common to all operations: INVALID_ARGUMENT (a NULL that may not be, a rank outside the group, a negative
 *   or overflowing count, a dtype or list length that does not fit, a device that no backend of the group serves;
 *   refused before anything is sent, the group stays usable), UNSUPPORTED (no backend of the group does this operation
 *   or dtype), TIMEOUT, PEER_LOST, MISMATCH (the ranks' calls differ), ABORTED (the group failed before; the text has
 *   the first cause), NO_MEMORY, SYSTEM, BACKEND.  After TIMEOUT, PEER_LOST or MISMATCH in a collective the group is
 *   failed: every later call on it answers ABORTED at once; destroy it and make another.
 * - A forked child cannot use its parent's groups (INVALID_ARGUMENT).  It may destroy those it has, and make its own.
 */
#ifndef TUTTI_TUTTI_H
#define TUTTI_TUTTI_H

#include <tutti/sized.h>
#include <tutti/store.h>
#include <tutti/types.h>

#include <stdio.h>
#include <stdlib.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TUTTI_VERSION_MAJOR 0
#define TUTTI_VERSION_MINOR 2
#define TUTTI_VERSION_PATCH 0

/* Counts up when an exported function goes away or changes; the number in the library's soname. */
#define TUTTI_ABI_VERSION 1

/* A process group as this rank sees it. */
typedef struct tutti_group tutti_group;

/* An operation under way. */
typedef struct tutti_work tutti_work;

/* ---- errors and version ------------------------------------------------------------------------------------ */

/* The sentence of this thread's latest failed call; "" if none failed.  Valid until the thread's next failing call. */
TUTTI_API const char *tutti_last_error(void);

/* "TUTTI_ERR_TIMEOUT" for TUTTI_ERR_TIMEOUT, and so on; never NULL. */
TUTTI_API const char *tutti_status_string(int status);

/* "0.2.0", of the library that is loaded. */
TUTTI_API const char *tutti_version(void);

/* TUTTI_ABI_VERSION of the library that is loaded: bindings that open it by themselves compare it with their own. */
TUTTI_API int tutti_abi_version(void);

/* "all_reduce", "float32", "SUM"; never NULL.  A value that this library does not know: "unknown operation", "?". */
TUTTI_API const char *tutti_kind_name(tutti_kind kind);
TUTTI_API const char *tutti_dtype_name(tutti_dtype dtype);
TUTTI_API const char *tutti_reduce_op_name(tutti_reduce_op op);

/* Ends the program with the sentence on stderr where the expression is an error: for examples and tests.  Commas in it,
 * as those of a compound literal, are fine. */
#define TUTTI_CHECK(...)                                                                                               \
    do {                                                                                                               \
        int tutti_check_status = (__VA_ARGS__);                                                                        \
        if (tutti_check_status < 0) {                                                                                  \
            fprintf(stderr, "%s:%d: %s: %s: %s\n", __FILE__, __LINE__, #__VA_ARGS__,                                   \
                    tutti_status_string(tutti_check_status), tutti_last_error());                                      \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

/* ---- starting and ending ----------------------------------------------------------------------------------- */

typedef struct tutti_init_opts {
    const char *init_method;  /* "env://", "tcp://host:port?rank=R&world_size=N", "file:///path?.."; NULL: env:// */
    tutti_store *store;       /* meet through this store instead (then rank and world_size are needed); borrowed until
                                 the group is destroyed.  With init_method: an error */
    int rank;                 /* this rank; counts where world_size is given, before init_method and the environment */
    int world_size;           /* 0: rank and world size come from init_method or the environment */
    int64_t timeout_ms;       /* of the group's operations; 0: 30 minutes, 10 for CUDA tensors on nccl */
    int64_t store_timeout_ms; /* of the rendezvous; 0: 5 minutes */
    tutti_device device;      /* the device of this rank; zero: CPU, or LOCAL_RANK's device for nccl */
} tutti_init_opts;

/* Makes the default group of all ranks.  backend, in any case of letters: a name ("tcp", "mpi", "nccl"), a map from
 * devices to names ("cpu:tcp,cuda:nccl"), each optionally with its fallbacks ("cpu:tcp|mpi"), or NULL or "auto" for the
 * best that is there.  CUDA tensors may be given to backends of CPU tensors ("cuda:tcp"): they go through host memory,
 * as does what the CUDA backends of a map lack and its CPU ones have.  Returns when all ranks have joined.
 * Where a host's ranks are at least as many as its cores, their calling threads are spread over these (where they are
 * more, also while they wait in later calls of backend tcp); the thread's affinity is afterwards as it was.
 * Where stdin, stdout or stderr is closed, /dev/null is opened in its place, and stays.
 * Errors: INVALID_ARGUMENT (a default group exists; a variable is missing or malformed, by name; a bad map), BACKEND
 * (a plug-in is not there or refused, with the paths tried), TIMEOUT ("joined 2 of 3, missing 1"), and what the store
 * answers (STORE, AUTH, SYSTEM: see store.h). */
static inline int tutti_init_process_group(const char *backend, const tutti_init_opts *opts)
{
    return tutti_init_process_group_sized(backend, opts, sizeof *opts);
}

/* Ends a group: lets operations in flight complete (up to 2 s), then gives everything back (up to 2 s more, where a
 * backend cannot take back what it has begun, as an MPI its sends).  NULL: the default group.
 *
 * What a send or a collective has reported as complete arrives unless its receiver is gone.  So this function waits, as
 * long as a receiver lives that has not received everything (one whose process is stopped, say), up to the group's
 * timeout; a warning names that rank after 2 s.  The same holds for a process that calls exit with groups open.  After
 * the timeout, or if the sender ends by _exit or a signal, such a message may be lost.  A failed group ends within 2 s:
 * it gives a second to what was sent before.
 *
 * What another rank waits for from this one then ends within a second: ABORTED, or PEER_LOST with the default group.
 * Not so on nccl, where it is the timeout that ends it.
 *
 * With the default group, or one of tutti_create_group, all groups end that descend from it: calls on them answer
 * ABORTED, and their handles, which are a little memory, may still be given to this function.  The handle is invalid
 * afterwards.  Ending a failed group succeeds.  Not while another thread makes a group from it.
 *
 * A process whose threads all end by pthread_exit lives on while it has a group, whose thread takes no signals but
 * SIGKILL: destroy it, or call exit. */
TUTTI_API int tutti_destroy_process_group(tutti_group *group);

/* The same, where what was sent has delivery_ms to arrive instead of the group's timeout.  TUTTI_INFINITE: as long as
 * the receivers live.  Errors: INVALID_ARGUMENT (delivery_ms is negative). */
TUTTI_API int tutti_destroy_process_group_within(tutti_group *group, int64_t delivery_ms);

/* Whether the default group exists. */
TUTTI_API bool tutti_is_initialized(void);

/* Whether the plug-in of this name can be loaded here; tutti_last_error() has the reason where it cannot. */
TUTTI_API bool tutti_is_backend_available(const char *name);

/* Fails all operations of the group, on every rank, with ABORTED and this text.  Local waiters return within 100 ms,
 * the other ranks' within 1 s.  May be called while other threads wait. */
TUTTI_API int tutti_abort(tutti_group *group, const char *reason);

/* ---- groups ------------------------------------------------------------------------------------------------ */

typedef struct tutti_group_opts {
    const char *backend; /* as in tutti_init_process_group; NULL: the parent's */
    tutti_group *parent; /* the group whose ranks are chosen from; NULL: the default group */
    int64_t timeout_ms;  /* 0: the parent's */
    bool members_only;   /* only the members call (torch: use_local_synchronization); a group with the same members
                            made so several times needs the same order of calls on all of them */
    bool high_priority;  /* CUDA: a stream of high priority */
    const char *name;    /* for messages; NULL: made up */
    tutti_device device; /* of tutti_create_group: this rank's device; zero: CPU */
} tutti_group_opts;

/* A group of n of the parent's ranks, given as global ranks, whose order is the order in the new group.  All ranks of
 * the parent call it in the same order (see members_only); one that is not a member gets a handle in which its
 * rank and the world size are -1, good for tutti_get_rank and tutti_destroy_process_group alone.
 * Errors: MISMATCH on every member that can see it (the lists, their order or the backends differ between ranks; the
 * sentence has both lists), PEER_LOST (a member died), TIMEOUT (a member did not make this group in time).  With
 * members_only the first operation on the group may return them instead. */
static inline int tutti_new_group(const int *ranks, int n, const tutti_group_opts *opts, tutti_group **group)
{
    return tutti_new_group_sized(ranks, n, opts, sizeof *opts, group);
}

/* Groups of the parent's ranks that gave the same color, ordered by key, then by rank; as MPI_Comm_split.  A negative
 * color: no group, the handle has rank -1.  All ranks of the parent call.
 * Errors: TIMEOUT (a rank did not call within the parent's timeout: nobody splits, nor does that one when it calls),
 * STORE (a backend without control messages gathers the choices in the store of the rendezvous). */
static inline int tutti_split_group(int color, int key, const tutti_group_opts *opts, tutti_group **group)
{
    return tutti_split_group_sized(color, key, opts, sizeof *opts, group);
}

/* A group on its own, beside the default group and without needing it: world_size callers that share store, with
 * ranks 0 .. world_size - 1.  Several ranks may be threads of one process.  They are waited for as long as for an
 * operation (opts->timeout_ms, 30 minutes where it is 0; TIMEOUT).  store is borrowed until the group has been
 * destroyed; use a prefix store to make several groups from one.
 *
 * Groups of the same ranks, backends and environment (TUTTI_*) share descriptors, connections and thread: what was sent
 * in one that is destroyed goes on being delivered while another one is there, and the first one's store is in use
 * until the last one ends. */
static inline int tutti_create_group(const char *backend, tutti_store *store, int rank, int world_size,
                                     const tutti_group_opts *opts, tutti_group **group)
{
    return tutti_create_group_sized(backend, store, rank, world_size, opts, sizeof *opts, group);
}

/* After a failure: a group of the ranks that are left, in the old order, over the connections that are left; group may
 * have failed.  The new one descends from it: a default group, or one of tutti_create_group, is destroyed after it, not
 * before (a subgroup may be at once).  A launcher that ends all ranks when one dies, as tutti-run and mpirun do, leaves
 * nobody to call this.  Every survivor calls it, and gets the same members: a rank is left out if its connection to any
 * of the others has ended, or if the others gave it up in a timeout and it has not called by then.  Any other rank is
 * waited for, up to group's timeout.  Nobody lost: a new group of the same ranks.  Global ranks stay what they were.
 * Errors: STORE (the ranks agree through the store of the rendezvous, which must live), ABORTED (the others go on
 * without this rank), TIMEOUT (a rank neither called nor is known to be lost; it is named, and told
 * so when it calls after all). */
TUTTI_API int tutti_shrink_group(tutti_group *group, tutti_group **smaller);

/* This rank in the group, the number of its ranks; -1 in a group that one is not a member of, and before init. */
TUTTI_API int tutti_get_rank(const tutti_group *group);
TUTTI_API int tutti_get_world_size(const tutti_group *group);

/* This rank among those of its node, their number, and the number of the node, from 0, all of the default group: as the
 * launcher says (torchrun, tutti-run, mpirun, mpiexec, srun), else as the group's backend has found (tutti_get_host).
 * -1 before init, and where neither knows. */
TUTTI_API int tutti_get_local_rank(void);
TUTTI_API int tutti_get_local_world_size(void);
TUTTI_API int tutti_get_node_rank(void);

/* Translation; -1 where the rank is not in the group. */
TUTTI_API int tutti_get_global_rank(const tutti_group *group, int group_rank);
TUTTI_API int tutti_get_group_rank(const tutti_group *group, int global_rank);

/* The group's name for messages, and its backends as a map ("cpu:tcp").  Valid while the group is. */
TUTTI_API const char *tutti_get_name(const tutti_group *group);
TUTTI_API const char *tutti_get_backend(const tutti_group *group);

/* The device for this rank's tensors in the group: CUDA where only CUDA has a backend, else CPU. */
TUTTI_API tutti_device tutti_get_device(const tutti_group *group);

/* The host that a rank of the group is on: hosts are numbered from 0 in the order of their first ranks.  -1 where the
 * backend does not know. */
TUTTI_API int tutti_get_host(const tutti_group *group, int group_rank);

/* ---- tensors ----------------------------------------------------------------------------------------------- */

/* A CPU tensor over n elements at data. */
static inline tutti_tensor tutti_tensor_of(const void *data, int64_t numel, tutti_dtype dtype)
{
    tutti_device cpu = {TUTTI_CPU, 0};
    tutti_tensor tensor = {(void *)(uintptr_t)data, numel, dtype, cpu};
    return tensor;
}

/* The same tensor on another device. */
static inline tutti_tensor tutti_on(tutti_tensor tensor, tutti_device device)
{
    tensor.device = device;
    return tensor;
}

/* Memory for bytes on the group's device (see tutti_get_device), aligned to 64 at least, that the group's transports
 * can use best.  Each rank may call it or not, with any size.  On CPU, over shared memory, it is memory that the other
 * ranks of the host map: collectives and messages read it where it is.  Its pages are taken at once, so a lack of them
 * is an error here, and a process that forks shares it with its child.
 *
 * Freed with tutti_free, on CPU with this or another group that descends from the same one, or after these have been
 * destroyed: until it is freed it stays readable and writable, and then group may be NULL or any group.  On CUDA it is
 * freed before its group is destroyed.  No operation may be under way on it.  As with free, what was not given out, or
 * has been freed, must not be given back.  Errors: INVALID_ARGUMENT, NO_MEMORY (which says how much), ABORTED (another
 * plug-in than Tutti's own cannot free memory after its groups). */
TUTTI_API int tutti_alloc(tutti_group *group, int64_t bytes, void **memory);
TUTTI_API int tutti_free(tutti_group *group, void *memory);

/* inout = inout op in, in this process alone, on CPU tensors of one dtype and numel: the reduction that the collectives
 * use (AVG divides by 2; PREMUL_SUM: UNSUPPORTED).  Needs no group. */
TUTTI_API int tutti_reduce_local(tutti_tensor inout, tutti_tensor in, tutti_reduce_op op);

/* ---- options of one call ----------------------------------------------------------------------------------- */

/* Where and how, not what: zero everywhere is the default.  Copied before the call returns. */
typedef struct tutti_opts {
    tutti_group *group;    /* NULL: the default group */
    tutti_work **async_op; /* non-NULL: return at once, *async_op receives the Work, to be waited for or freed */
    void *stream;          /* CUDA: a cudaStream_t */
    int64_t timeout_ms;    /* of this operation; 0: the group's; TUTTI_NOW: none, it ends or fails when begun */
    int tag;               /* of send and recv; 0 .. INT_MAX; of recv and probe also TUTTI_ANY_TAG */
    bool group_rank;       /* src, dst and root are ranks of the group */
    int *source;           /* recv: receives the rank that sent (global, or of the group with group_rank) */
    double factor;         /* of TUTTI_PREMUL_SUM, which needs one that is not 0 */
    int64_t *received;     /* recv: takes a message of up to the tensor's size, and receives its bytes */
    int *received_tag;     /* recv: receives the message's tag */
} tutti_opts;

/* ---- collectives ------------------------------------------------------------------------------------------- */

/* All ranks of the group make the same calls, in the same order.  A gather, scatter or all_to_all of lists is another
 * call than one of single tensors. */

/* Every rank's tensor becomes root's.
 *
 * A root receives nothing, so a rank that names itself the root while others name another one cannot know it: it gets
 * TUTTI_OK, as does each root of a scatter.  The group's next collective is MISMATCH on every rank then, and names this
 * call ("their earlier calls differ").  A program that has to know before it goes on calls tutti_barrier. */
static inline int tutti_broadcast(tutti_tensor tensor, int root, const tutti_opts *opts)
{
    return tutti_broadcast_sized(tensor, root, opts, sizeof *opts);
}

/* Every rank's tensor becomes the reduction of all, the same bits everywhere.  _into leaves in as it was; in and out
 * are the same memory or apart. */
static inline int tutti_all_reduce(tutti_tensor tensor, tutti_reduce_op op, const tutti_opts *opts)
{
    return tutti_all_reduce_sized(tensor, op, opts, sizeof *opts);
}

static inline int tutti_all_reduce_into(tutti_tensor out, tutti_tensor in, tutti_reduce_op op, const tutti_opts *opts)
{
    return tutti_all_reduce_into_sized(out, in, op, opts, sizeof *opts);
}

/* Root's tensor becomes the reduction of all; the others' stay as they are.  _into: out is used on the root alone. */
static inline int tutti_reduce(tutti_tensor tensor, int root, tutti_reduce_op op, const tutti_opts *opts)
{
    return tutti_reduce_sized(tensor, root, op, opts, sizeof *opts);
}

static inline int tutti_reduce_into(tutti_tensor out, tutti_tensor in, int root, tutti_reduce_op op,
                                    const tutti_opts *opts)
{
    return tutti_reduce_into_sized(out, in, root, op, opts, sizeof *opts);
}

/* out[r], of as many elements as rank r's in, becomes rank r's in.  n is the group's size. */
static inline int tutti_all_gather(const tutti_tensor *out, int n, tutti_tensor in, const tutti_opts *opts)
{
    return tutti_all_gather_sized(out, n, in, opts, sizeof *opts);
}

/* The same into consecutive parts of one tensor: out.numel is in.numel times the group's size.  in may be its own part
 * of out. */
static inline int tutti_all_gather_into_tensor(tutti_tensor out, tutti_tensor in, const tutti_opts *opts)
{
    return tutti_all_gather_into_tensor_sized(out, in, opts, sizeof *opts);
}

/* Root's out[r] becomes rank r's in.  The others pass NULL and 0. */
static inline int tutti_gather(tutti_tensor in, const tutti_tensor *out, int n, int root, const tutti_opts *opts)
{
    return tutti_gather_sized(in, out, n, root, opts, sizeof *opts);
}

/* The same into consecutive parts of one tensor; out is used on the root alone.  in may be root's own part of it. */
static inline int tutti_gather_into_tensor(tutti_tensor out, tutti_tensor in, int root, const tutti_opts *opts)
{
    return tutti_gather_into_tensor_sized(out, in, root, opts, sizeof *opts);
}

/* Rank r's out becomes root's in[r].  The others pass NULL and 0. */
static inline int tutti_scatter(tutti_tensor out, const tutti_tensor *in, int n, int root, const tutti_opts *opts)
{
    return tutti_scatter_sized(out, in, n, root, opts, sizeof *opts);
}

/* The same from consecutive parts of one tensor; in is used on the root alone. */
static inline int tutti_scatter_tensor(tutti_tensor out, tutti_tensor in, int root, const tutti_opts *opts)
{
    return tutti_scatter_tensor_sized(out, in, root, opts, sizeof *opts);
}

/* Rank r's out becomes the reduction of all ranks' in[r]. */
static inline int tutti_reduce_scatter(tutti_tensor out, const tutti_tensor *in, int n, tutti_reduce_op op,
                                       const tutti_opts *opts)
{
    return tutti_reduce_scatter_sized(out, in, n, op, opts, sizeof *opts);
}

/* The same from consecutive parts of one tensor: in.numel is out.numel times the group's size.  out may be its own
 * part of in. */
static inline int tutti_reduce_scatter_tensor(tutti_tensor out, tutti_tensor in, tutti_reduce_op op,
                                              const tutti_opts *opts)
{
    return tutti_reduce_scatter_tensor_sized(out, in, op, opts, sizeof *opts);
}

/* out[r] becomes rank r's in[own rank].  Both lists have n entries, the group's size. */
static inline int tutti_all_to_all(const tutti_tensor *out, const tutti_tensor *in, int n, const tutti_opts *opts)
{
    return tutti_all_to_all_sized(out, in, n, opts, sizeof *opts);
}

/* The same in consecutive parts of one tensor each.  Splits are elements a rank, zeros allowed, and add up to
 * the tensor's numel; NULL: equal parts.  in may be out if the splits are the same on both sides. */
static inline int tutti_all_to_all_single(tutti_tensor out, tutti_tensor in, const int64_t *out_splits,
                                          const int64_t *in_splits, const tutti_opts *opts)
{
    return tutti_all_to_all_single_sized(out, in, out_splits, in_splits, opts, sizeof *opts);
}

/* No rank leaves before the last has entered. */
static inline int tutti_barrier(const tutti_opts *opts)
{
    return tutti_barrier_sized(opts, sizeof *opts);
}

/* A barrier that, when its time runs out, names the ranks that did not come: all of them in a group of up to 128 ranks,
 * in a larger one those that are found.  Every rank then tells every other one, so it is for finding out, not for each
 * step. */
static inline int tutti_monitored_barrier(const tutti_opts *opts)
{
    return tutti_monitored_barrier_sized(opts, sizeof *opts);
}

/* ---- point to point ---------------------------------------------------------------------------------------- */

/* Messages of one pair and tag arrive in the order of the calls.  Both sides may isend first, at any size.  A blocking
 * send may wait until its message is being received: at more than 64 KiB always, at more than 16 KiB where it is read
 * out of its memory, at less where much is on its way already.  Ranks that all begin with one then wait for each other,
 * until their time runs out.
 * A receive of another size or dtype than was sent: MISMATCH there, and on the sender too unless the message was small
 * enough to be on its way already (on mpi: not on the sender); nothing is written; the group stays usable.  To self:
 * INVALID_ARGUMENT.  recv's src may be TUTTI_ANY_SOURCE (see opts->source).
 * A send whose time runs out is taken back, and its memory is the program's again.  Unless it was small enough to be on
 * its way, it is then not received; a receive that had begun to take it fails with ABORTED ("rank 1 took its message
 * back"), as only that message does, not the group.  mpi cannot take a send back: it keeps the memory of one of more
 * than 3 KiB, which must stay valid and unchanged, and it may still be received. */
static inline int tutti_send(tutti_tensor tensor, int dst, const tutti_opts *opts)
{
    return tutti_send_sized(tensor, dst, opts, sizeof *opts);
}

static inline int tutti_recv(tutti_tensor tensor, int src, const tutti_opts *opts)
{
    return tutti_recv_sized(tensor, src, opts, sizeof *opts);
}

/* send and recv, returning at once with a Work. */
static inline int tutti_isend(tutti_tensor tensor, int dst, const tutti_opts *opts, tutti_work **work)
{
    return tutti_isend_sized(tensor, dst, opts, sizeof *opts, work);
}

static inline int tutti_irecv(tutti_tensor tensor, int src, const tutti_opts *opts, tutti_work **work)
{
    return tutti_irecv_sized(tensor, src, opts, sizeof *opts, work);
}

/* A receive need not know all of its message:
 *
 * - opts->received makes the tensor's size a limit.  The receive takes a message of any size up to it, puts it where
 *   the tensor begins, and sets *received to its bytes.  A larger message, or one of another dtype: MISMATCH, nothing
 *   is written, and the message is gone.
 * - opts->tag == TUTTI_ANY_TAG takes the oldest message of any tag, and sets *received_tag.  Messages of one pair and
 *   tag keep their order, among receives of one tag and of any tag alike.
 *
 * *source, *received and *received_tag are valid once the call has returned TUTTI_OK, or the Work has ended with it.
 * Both forms, and probes, are for CPU tensors on tcp, on mpi, and on plug-ins that say that they have them.
 * Elsewhere: UNSUPPORTED. */

/* What a probe finds. */
struct tutti_message {
    int source; /* as opts->source */
    int tag;
    int64_t bytes;
};

/* Waits until a message from src (or TUTTI_ANY_SOURCE) with opts->tag (or TUTTI_ANY_TAG) is there that no receive has
 * met, and describes it, as MPI_Probe does.  The message stays: the next receive from message->source with message->tag
 * gets it.  message may be NULL.  source, received and received_tag of opts are set, too.
 * Errors: UNSUPPORTED (see above), INVALID_ARGUMENT (between tutti_coalesce_begin and _end), and those of a receive. */
static inline int tutti_probe(int src, const tutti_opts *opts, tutti_message *message)
{
    return tutti_probe_sized(src, opts, sizeof *opts, message);
}

/* The same, returning after one round of progress, as MPI_Iprobe does.  *found is false if nothing is there. */
static inline int tutti_iprobe(int src, const tutti_opts *opts, bool *found, tutti_message *message)
{
    return tutti_iprobe_sized(src, opts, sizeof *opts, found, message);
}

typedef struct tutti_p2p_op {
    tutti_kind kind; /* TUTTI_SEND or TUTTI_RECV */
    tutti_tensor tensor;
    int peer;
    int tag;
    int *source; /* as in tutti_opts */
} tutti_p2p_op;

/* Starts n sends and receives as one, the receives first; works[i] receives the i-th's Work.  On an error none was
 * started. opts' tag, source and async_op are not used. */
static inline int tutti_batch_isend_irecv(const tutti_p2p_op *ops, int n, const tutti_opts *opts, tutti_work **works)
{
    return tutti_batch_isend_irecv_sized(ops, sizeof *ops, n, opts, sizeof *opts, works);
}

/* ---- several operations as one ----------------------------------------------------------------------------- */

/* Between the two, this thread's collectives and point-to-point calls on the group are checked and kept (an async_op's
 * Work is set to NULL), and _end starts them together; one Work stands for all.  Small all_reduces and broadcasts
 * that follow each other and are alike go out as one message, within the shortest of their timeouts.  An operation that
 * uses what one before it writes sees its result; it has to do so on all ranks (else MISMATCH).  work may be NULL: _end
 * then blocks until all are done.
 * The functions of byte strings of differing length cannot be kept: INVALID_ARGUMENT. */
TUTTI_API int tutti_coalesce_begin(tutti_group *group);
TUTTI_API int tutti_coalesce_end(tutti_group *group, tutti_work **work);

/* ---- byte strings of differing length ---------------------------------------------------------------------- */

/* As torch's object collectives.  The library allocates each out[i].data; tutti_bytes_free frees them.  Blocking: an
 * async_op in opts is not used.  A rank that has no memory for what comes aborts the group: NO_MEMORY there, ABORTED on
 * those that wait for it. */
static inline int tutti_all_gather_bytes(tutti_bytes *out, int n, const void *data, size_t bytes,
                                         const tutti_opts *opts)
{
    return tutti_all_gather_bytes_sized(out, n, data, bytes, opts, sizeof *opts);
}

static inline int tutti_gather_bytes(tutti_bytes *out, int n, const void *data, size_t bytes, int root,
                                     const tutti_opts *opts)
{
    return tutti_gather_bytes_sized(out, n, data, bytes, root, opts, sizeof *opts);
}

static inline int tutti_broadcast_bytes(tutti_bytes *inout, int root, const tutti_opts *opts)
{
    return tutti_broadcast_bytes_sized(inout, root, opts, sizeof *opts);
}

static inline int tutti_scatter_bytes(tutti_bytes *out, const tutti_bytes *in, int n, int root, const tutti_opts *opts)
{
    return tutti_scatter_bytes_sized(out, in, n, root, opts, sizeof *opts);
}

/* A message of a length that the sender alone knows: one of TUTTI_UINT8 like any other.  recv_bytes allocates
 * out->data, and receives the very message that it has measured, whatever other threads receive meanwhile.  opts->tag
 * may be TUTTI_ANY_TAG, src TUTTI_ANY_SOURCE.  If there is no memory, the message stays where it is.  UNSUPPORTED as
 * tutti_probe. */
static inline int tutti_send_bytes(const void *data, size_t bytes, int dst, const tutti_opts *opts)
{
    return tutti_send_bytes_sized(data, bytes, dst, opts, sizeof *opts);
}

static inline int tutti_recv_bytes(tutti_bytes *out, int src, const tutti_opts *opts)
{
    return tutti_recv_bytes_sized(out, src, opts, sizeof *opts);
}

/* ---- work -------------------------------------------------------------------------------------------------- */

/* Blocks the host until *work is done, then frees it, sets it to NULL and gives the operation's result.
 * If timeout_ms passes first: TIMEOUT, *work stays and the operation goes on.  0, or TUTTI_NOW, polls once;
 * TUTTI_DEFAULT_TIMEOUT waits as long as the operation itself may take.  *work == NULL: INVALID_ARGUMENT. */
TUTTI_API int tutti_wait(tutti_work **work, int64_t timeout_ms);

/* The same without freeing; may be called again, with the same answer. */
TUTTI_API int tutti_work_wait(tutti_work *work, int64_t timeout_ms);

/* Waits for all of n works and frees them (NULL entries are skipped).  Gives the first error by index.  If the time
 * runs out those that are done have been freed and set to NULL: the first error of those, or TIMEOUT. */
TUTTI_API int tutti_wait_all(tutti_work **works, int n, int64_t timeout_ms);

/* Waits until one of n works is done, frees it, sets it to NULL, and gives its index and result.  All NULL: *index is
 * -1, TUTTI_OK. */
TUTTI_API int tutti_wait_any(tutti_work **works, int n, int64_t timeout_ms, int *index);

/* Lets a CUDA stream wait for the operation; the host goes on.  CPU work: blocks. */
TUTTI_API int tutti_wait_stream(tutti_work *work, void *stream);

/* Whether it is done, well or not.  Never blocks; drives progress. */
TUTTI_API bool tutti_work_is_completed(tutti_work *work);

/* TUTTI_OK when done or still under way, else its error; and that error's sentence, "" where there is none. */
TUTTI_API int tutti_work_status(tutti_work *work);
TUTTI_API const char *tutti_work_error(tutti_work *work);

/* Calls callback(work, argument) once it is done: at once in this thread if it is already, else in the thread that
 * completes it.  The callback must not block and must not wait; it may start operations.  One callback a work. */
TUTTI_API int tutti_work_then(tutti_work *work, void (*callback)(tutti_work *work, void *argument), void *argument);

/* What it is; its place among the group's collectives (0 for point to point), counted from 1; the nanoseconds from
 * its start until its end, -1 before that (CUDA work in a stream: as long as it ran there; else from the call); the
 * rank that a receive came from (as opts->source), -1 before that. */
TUTTI_API tutti_kind tutti_work_op(const tutti_work *work);
TUTTI_API uint64_t tutti_work_sequence(const tutti_work *work);
TUTTI_API int64_t tutti_work_duration_ns(const tutti_work *work);
TUTTI_API int tutti_work_source(const tutti_work *work);

/* Of a receive that has ended well: its message's tag and bytes.  TUTTI_ANY_TAG and -1 before that. */
TUTTI_API int tutti_work_tag(const tutti_work *work);
TUTTI_API int64_t tutti_work_received(const tutti_work *work);

/* A descriptor that polls readable once it is done, for event loops; owned by the work.  Negative: an error. */
TUTTI_API int tutti_work_fd(tutti_work *work);

/* Waits until all that this process had begun on the group when it called is done, well or not: operations with a Work,
 * also those whose Work was given up, and calls of other threads.  Their Works still give their results.  What is kept
 * since tutti_coalesce_begin has not begun.  TIMEOUT: something is still under way, and goes on; tutti_last_error()
 * says what and how many.  timeout_ms as in tutti_wait. */
TUTTI_API int tutti_group_quiesce(tutti_group *group, int64_t timeout_ms);

/* The place of the latest collective that this rank has begun on the group (see tutti_work_sequence); 0 before the
 * first and where it is no member.  The same on all ranks that have made the same calls. */
TUTTI_API uint64_t tutti_get_sequence(const tutti_group *group);

/* Gives the handle up without waiting; the operation still completes, its tensors must stay valid until then.
 * NULL is ignored. */
TUTTI_API void tutti_work_free(tutti_work *work);

/* ---- starting ranks ---------------------------------------------------------------------------------------- */

/* Runs fn(rank, argument) in nprocs child processes that share one rendezvous (env:// works in each), as
 * torch.multiprocessing.spawn; waits for them.  A child's exit status is fn's result.  If one fails the others are
 * ended, and the answer is SYSTEM with a sentence that says which rank and how.  Call it before any thread is
 * started and before tutti_init_process_group (after it: INVALID_ARGUMENT). */
TUTTI_API int tutti_spawn(int (*fn)(int rank, void *argument), void *argument, int nprocs);

/* ---- seeing what it does ----------------------------------------------------------------------------------- */

/* These write text for people into text, at most capacity bytes with the final zero; what does not fit is left out.
 * Lines end with \n.  The wording may change from version to version. */

/* The names of the plug-ins in the folders that are searched, separated by blanks. */
TUTTI_API int tutti_list_backends(char *text, size_t capacity);

/* Loads a plug-in and tells where it lies, what it offers and what it found on this machine.  BACKEND, with the paths
 * tried and the reason in tutti_last_error(), where it is refused or cannot work here.  Needs no group. */
TUTTI_API int tutti_describe_backend(const char *name, char *text, size_t capacity);

/* What the backends of a group use in it: addresses, providers, which ranks are reached how. */
TUTTI_API int tutti_describe_group(tutti_group *group, char *text, size_t capacity);

/* How an operation of this kind and size would be done in opts->group, and why: backend, algorithm, the rule that chose
 * it, segments, and what this rank would send.  Nothing is sent.  bytes are those of the operation's larger tensor, or
 * list of tensors, on one rank; parts are equal, the root is rank 0 of the group.  Errors: INVALID_ARGUMENT (no such
 * kind, no member of the group, TUTTI_ALGO), UNSUPPORTED. */
static inline int tutti_explain(tutti_kind kind, int64_t bytes, const tutti_opts *opts, char *text, size_t capacity)
{
    return tutti_explain_sized(kind, bytes, opts, sizeof *opts, text, capacity);
}

/* The i-th algorithm that TUTTI_ALGO can name for a kind of operation; NULL behind the last. */
TUTTI_API const char *tutti_algorithm_name(tutti_kind kind, int i);

#ifdef __cplusplus
}
#endif

/* ---- the shorthands ---------------------------------------------------------------------------------------- */

/* tutti_view(pointer, n): a CPU tensor whose dtype follows from the pointer's type; char is an integer of 8 bits, with
 * a sign where the compiler gives it one.  For 16- and 8-bit floats, complex numbers in C++, and void pointers use
 * tutti_tensor_of.
 * tutti_with(.group = g, .async_op = &work): options in place, in C and in C++20; C++ wants them in the order of
 * tutti_opts.  They last until the end of the full expression, in C of the block. */
#ifndef __cplusplus
/* What tutti_view finds of any other type: its name is the compiler's message. */
struct tutti_view_knows_no_dtype_for_this_pointer_use_tutti_tensor_of {
    int none;
};
#define TUTTI_DTYPE_OF(pointer)                                                                                        \
    _Generic((pointer),                                                                                                \
        bool *: TUTTI_BOOL, const bool *: TUTTI_BOOL,                                                                  \
        char *: ((char)-1 < 0 ? TUTTI_INT8 : TUTTI_UINT8),                                                             \
        const char *: ((char)-1 < 0 ? TUTTI_INT8 : TUTTI_UINT8),                                                       \
        int8_t *: TUTTI_INT8, const int8_t *: TUTTI_INT8,                                                              \
        int16_t *: TUTTI_INT16, const int16_t *: TUTTI_INT16,                                                          \
        int32_t *: TUTTI_INT32, const int32_t *: TUTTI_INT32,                                                          \
        long *: (sizeof(long) == 8 ? TUTTI_INT64 : TUTTI_INT32),                                                       \
        const long *: (sizeof(long) == 8 ? TUTTI_INT64 : TUTTI_INT32),                                                 \
        long long *: TUTTI_INT64, const long long *: TUTTI_INT64,                                                      \
        uint8_t *: TUTTI_UINT8, const uint8_t *: TUTTI_UINT8,                                                          \
        uint16_t *: TUTTI_UINT16, const uint16_t *: TUTTI_UINT16,                                                      \
        uint32_t *: TUTTI_UINT32, const uint32_t *: TUTTI_UINT32,                                                      \
        unsigned long *: (sizeof(long) == 8 ? TUTTI_UINT64 : TUTTI_UINT32),                                            \
        const unsigned long *: (sizeof(long) == 8 ? TUTTI_UINT64 : TUTTI_UINT32),                                      \
        unsigned long long *: TUTTI_UINT64, const unsigned long long *: TUTTI_UINT64,                                  \
        float *: TUTTI_FLOAT32, const float *: TUTTI_FLOAT32,                                                          \
        double *: TUTTI_FLOAT64, const double *: TUTTI_FLOAT64,                                                        \
        float _Complex *: TUTTI_COMPLEX64, const float _Complex *: TUTTI_COMPLEX64,                                    \
        double _Complex *: TUTTI_COMPLEX128, const double _Complex *: TUTTI_COMPLEX128,                                   \
        default: (struct tutti_view_knows_no_dtype_for_this_pointer_use_tutti_tensor_of){0})
/* The comma is for clang: of an &x that goes to a const pointer it thinks that x is only read, and warns of a recv. */
#define tutti_view(pointer, numel) tutti_tensor_of(((void)0, (pointer)), (numel), TUTTI_DTYPE_OF(pointer))
#define tutti_with(...) (&(tutti_opts){__VA_ARGS__})
#else
#include <type_traits>
inline const tutti_opts *tutti_opts_in_place(const tutti_opts &opts)
{
    return &opts;
}
/* In a lambda, where a pragma may stand: what is left out is zero, and gcc would warn of it. */
#define tutti_with(...)                                                                                                \
    tutti_opts_in_place([&] {                                                                                          \
        _Pragma("GCC diagnostic push")                                                                                 \
            _Pragma("GCC diagnostic ignored \"-Wmissing-field-initializers\"") return tutti_opts{__VA_ARGS__};         \
        _Pragma("GCC diagnostic pop")                                                                                  \
    }())

template <typename T> inline tutti_tensor tutti_view(T *pointer, int64_t numel)
{
    using U = typename std::remove_cv<T>::type;
    static_assert(std::is_arithmetic<U>::value, "tutti_view takes arithmetic types; use tutti_tensor_of");
    static_assert(!std::is_same<U, long double>::value, "long double has no dtype");
    const int code = std::is_same<U, bool>::value       ? 6
                     : std::is_floating_point<U>::value ? 2
                     : std::is_unsigned<U>::value       ? 1
                                                        : 0;
    return tutti_tensor_of(pointer, numel, (tutti_dtype)(code << 8 | (int)sizeof(U) * 8));
}
#endif

#endif
