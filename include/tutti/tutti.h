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
 * This header is the whole API for programs, in one file, so that it can be read from top to bottom.  The following
 * holds for every function unless its comment says otherwise.
 *
 * - Result: a function returns TUTTI_OK or a negative tutti_status.  tutti_last_error() then has the error message.  A
 *   call that returns an error never also completes.  A failure after the call has returned is reported by tutti_wait,
 *   with the same message.
 * - Threads: any thread may call.  Within one group, the order of the calls is the order of the collectives, and every
 *   rank of the group makes the same calls in the same order.  Point-to-point calls take no part in that order.
 * - Cancellation: if pthread_cancel ends a thread inside a call, the operation continues and keeps its tensors and its
 *   place in the order.  A rank that repeats the call is one call ahead of the others.
 * - Ownership: tensors are borrowed.  They must stay valid, and inputs unchanged, until the operation has completed.
 *   Structs and arrays passed by pointer (options, tensor lists, splits) are copied before the call returns.
 * - Tensor lists: one entry per rank of the group, in rank order.  Entries may differ in numel but not in dtype.
 * - Overlap: inputs and outputs are disjoint, or the operation is in place.  In place means: a reduction's output is
 *   its input; the one tensor of a gather or scatter is the rank's own part of the whole; all_to_all's out is its in,
 *   with the same sizes of all parts.  Any other overlap of an input with an output is INVALID_ARGUMENT.  Outputs must
 *   not overlap each other, which is not checked.
 * - Ranks: src, dst and root are global ranks (ranks of the default group) unless opts->group_rank is set.  In a group
 *   made by tutti_create_group the two are the same.
 * - Defaults: group and opts may be NULL, which means the default group and all defaults.
 * - Blocking calls: on CPU tensors a call returns when its own data is complete.  Operations started earlier with
 *   async_op may still be running; only their Works show when they end, not a barrier.  On CUDA tensors a call
 *   enqueues on opts->stream and returns, and later work on that stream may use the result.  If a CPU backend does the
 *   operation, the call returns when it is complete.
 * - Versions: structs that the program fills (options, tutti_p2p_op) grow at their end.  The functions that take one
 *   are therefore inline: each passes the struct's size to an exported function of the same name with the suffix
 *   _sized.  Bindings for other languages call those (sized.h).
 * - Errors common to all operations: INVALID_ARGUMENT (a NULL that is not allowed, a rank outside the group, a negative
 *   or overflowing count, a dtype or list length that does not fit, a device that no backend of the group serves; the
 *   call is refused before anything is sent, and the group stays usable), UNSUPPORTED (no backend of the group does
 *   this operation or dtype), TIMEOUT, PEER_LOST, MISMATCH (the ranks' calls differ), ABORTED (the group failed before;
 *   the message has the first cause), NO_MEMORY, SYSTEM, BACKEND.  After TIMEOUT, PEER_LOST or MISMATCH in a collective
 *   the group has failed: every later call on it returns ABORTED at once.  Destroy it and make another one.
 * - Fork: a forked child cannot use its parent's groups (INVALID_ARGUMENT).  It may destroy them, and make its own. */
#ifndef TUTTI_TUTTI_H
#define TUTTI_TUTTI_H

#include <tutti/sized.h>
#include <tutti/stats.h>
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

/* The number in the library's soname.  It grows when an exported function is removed or changed. */
#define TUTTI_ABI_VERSION 1

/* A process group as this rank sees it. */
typedef struct tutti_group tutti_group;

/* An operation that has been started. */
typedef struct tutti_work tutti_work;

/* ---- errors and version ------------------------------------------------------------------------------------ */

/* Returns the error message of this thread's last failed call, or "" if none failed.  Valid until the thread's next
 * failing call. */
TUTTI_API const char *tutti_last_error(void);

/* Sets the calling thread's error message, formatted as printf does, and returns status: for libraries that build on
 * Tutti and report failures as it does.  At most 1,023 bytes are kept. */
TUTTI_API int tutti_set_error(int status, const char *format, ...)
#ifdef __GNUC__
    __attribute__((format(printf, 2, 3)))
#endif
    ;

/* Returns the status as text: "TUTTI_ERR_TIMEOUT" for TUTTI_ERR_TIMEOUT.  Never NULL. */
TUTTI_API const char *tutti_status_string(int status);

/* Returns the version of the loaded library, as "0.2.0". */
TUTTI_API const char *tutti_version(void);

/* Returns the TUTTI_ABI_VERSION of the loaded library.  A binding that opens the library itself compares it with its
 * own. */
TUTTI_API int tutti_abi_version(void);

/* Return the names of enumerators: "all_reduce", "float32", "SUM".  Never NULL: an unknown value is "unknown operation"
 * or "?".  The name of an op of tutti_op_create is valid until it is freed. */
TUTTI_API const char *tutti_kind_name(tutti_kind kind);
TUTTI_API const char *tutti_dtype_name(tutti_dtype dtype);
TUTTI_API const char *tutti_reduce_op_name(tutti_reduce_op op);

/* Prints the error message to stderr and exits with 1 if the expression is an error.  For examples and tests.  The
 * expression may contain commas, as a compound literal does. */
#define TUTTI_CHECK(...)                                                                                               \
    do {                                                                                                               \
        int tutti_check_status = (__VA_ARGS__);                                                                        \
        if (tutti_check_status < 0) {                                                                                  \
            fprintf(stderr, "%s:%d: %s: %s: %s\n", __FILE__, __LINE__, #__VA_ARGS__,                                   \
                    tutti_status_string(tutti_check_status), tutti_last_error());                                      \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

/* ---- log --------------------------------------------------------------------------------------------------- */

/* The environment chooses what is logged (TUTTI_LOG) and where to (TUTTI_LOG_FILE, else stderr): docs/logging.md. */
enum { TUTTI_LOG_ERROR = 0, TUTTI_LOG_WARN = 1, TUTTI_LOG_INFO = 2, TUTTI_LOG_DEBUG = 3 };

/* A line of the log, valid during the call of the logger. */
typedef struct tutti_log_line {
    uint32_t size;         /* sizeof(tutti_log_line) in the library, which may append fields */
    int32_t level;         /* TUTTI_LOG_ERROR to TUTTI_LOG_DEBUG */
    int32_t rank;          /* of the default group; -1 until it is known */
    int32_t unused;        /* 0 */
    const char *subsystem; /* "store", "net", ..: the names in TUTTI_LOG, or one that a plug-in made up */
    const char *text;      /* the message: one line, without a line feed */
    int64_t unix_ns;       /* the time, in nanoseconds since 1970 (UTC) */
} tutti_log_line;

typedef void (*tutti_logger)(const tutti_log_line *line, void *argument);

/* Passes the lines that TUTTI_LOG selects to a function of the program, instead of writing them.  NULL: writes them
 * again.  May be called before init, at any time, and from any thread.  When it returns, the previous logger is running
 * in no thread and is not called again, so its argument may be freed.
 *
 * The logger is called from any thread, also from the library's own and from several at a time, and often with locks of
 * the library held.  So it must not wait for a thread that uses Tutti, and of Tutti it may call only
 * tutti_status_string, tutti_version, tutti_log and the functions for the names of kinds, dtypes and ops.  It must
 * return, not jump out or end the thread.  A line that is logged inside the logger is written to the file or stderr,
 * not passed to it.  Repeated lines are left out before, as without a logger.  A forked child keeps the logger.  Lines
 * that the library writes while the process exits do not go to it.
 *
 * Errors: INVALID_ARGUMENT (called inside the logger). */
TUTTI_API int tutti_set_logger(tutti_logger logger, void *argument);

/* Logs a line, formatted as printf does, if TUTTI_LOG selects its level for the subsystem: for libraries that build on
 * Tutti, and for programs.  subsystem is one of the names in TUTTI_LOG or a name of the caller's own, which has the
 * level of "plugin"; NULL means "plugin".  At most 1,023 bytes are kept.  Lines with the same format pointer count as
 * one place: docs/logging.md says how often a place writes.  Does nothing for a level that does not exist. */
TUTTI_API void tutti_log(const char *subsystem, int level, const char *format, ...)
#ifdef __GNUC__
    __attribute__((format(printf, 3, 4)))
#endif
    ;

/* ---- starting and ending ----------------------------------------------------------------------------------- */

typedef struct tutti_init_opts {
    const char *init_method;  /* "env://", "tcp://host:port?rank=R&world_size=N", "file:///path?..",
                                 or "redis://host:port/JOB?.." as for tutti_store_redis, where a rank and world size that
                                 are not given come from the launcher's variables; NULL means env:// */
    tutti_store *store;       /* rendezvous through this store instead; needs rank and world_size, excludes init_method.
                                 Borrowed until the group is destroyed */
    int rank;                 /* this rank; used only if world_size is set.  Overrides init_method and the
                                 environment */
    int world_size;           /* 0: rank and world size come from init_method or the environment */
    int64_t timeout_ms;       /* default of the group's operations; 0: 30 minutes, or 10 for CUDA tensors on nccl */
    int64_t store_timeout_ms; /* limit of the rendezvous; 0: 5 minutes */
    tutti_device device;      /* this rank's device; zero: CPU, or LOCAL_RANK's device for nccl */
    bool newcomer; /* join a job that is under way, as TUTTI_NEWCOMER=1 says in the environment: see tutti_regroup */
    bool reserved[7];
} tutti_init_opts;

/* Makes the default group, of all ranks.  Returns when all ranks have joined.
 *
 * backend is a name ("tcp", "mpi", "nccl"), a map from devices to names ("cpu:tcp,cuda:nccl"), or NULL or "auto" for
 * the best one available.  Case does not matter.  Each name may have fallbacks ("cpu:tcp|mpi").  A CPU backend may
 * serve CUDA tensors ("cuda:tcp"): they are staged through host memory.  So is every operation that the CUDA backends
 * of a map lack and its CPU backends have.
 *
 * Side effects: if a host has at least as many ranks as cores, the calling threads are spread over the cores, and each
 * thread's affinity is restored before the call returns.  With more ranks than cores, backend tcp does the same while a
 * thread waits in a later call.  If stdin, stdout or stderr is closed, /dev/null is opened in its place and stays open.
 *
 * Errors: INVALID_ARGUMENT (a default group exists; a variable is missing or malformed, and is named; a bad map; a
 * negative timeout), BACKEND (a plug-in is missing or was refused; the message lists the paths tried), TIMEOUT ("joined
 * 2 of 3, missing 1"), and the store's errors (STORE, AUTH, SYSTEM: see store.h). */
static inline int tutti_init_process_group(const char *backend, const tutti_init_opts *opts)
{
    return tutti_init_process_group_sized(backend, opts, sizeof *opts);
}

/* Destroys a group; NULL means the default group.  Waits up to 2 s for pending operations, then releases everything.
 * Releasing takes up to 2 s more if a backend cannot cancel an operation, as MPI cannot cancel its sends.  The handle
 * is invalid afterwards.  Must not be called while another thread makes a group from this one.
 *
 * Delivery: data that a send or a collective reported as complete arrives unless its receiver has ended.  The function
 * therefore waits up to the group's timeout while a running receiver has not received everything, for example because
 * its process is stopped.  A warning names that rank after 2 s.  The same holds for a process that calls exit with open
 * groups.  After the timeout, or if the sender ends by _exit or by a signal, such a message may be lost.  A failed
 * group ends within 2 s, and waits for messages that were sent before for 1 s of them.
 *
 * Peers: an operation of another rank that waits for this one then ends within a second, with ABORTED, or with
 * PEER_LOST for the default group.  On nccl only the timeout ends it.
 *
 * Descendants: if the group is the default one, or one of tutti_create_group, all groups made from it end as well.
 * Calls on them return ABORTED.  Their handles hold a little memory and may still be passed to this function.
 *
 * Process exit: a process whose threads all end by pthread_exit keeps running while it has a group, because the group's
 * thread runs and blocks all signals but SIGKILL.  Destroy the group, or call exit.
 *
 * Errors: INVALID_ARGUMENT (there is no default group).  Destroying a failed group succeeds. */
TUTTI_API int tutti_destroy_process_group(tutti_group *group);

/* Destroys a group like tutti_destroy_process_group, with delivery_ms in place of the group's timeout.  TUTTI_INFINITE
 * waits as long as the receivers are running.  Errors: INVALID_ARGUMENT (delivery_ms is negative; there is no default
 * group). */
TUTTI_API int tutti_destroy_process_group_within(tutti_group *group, int64_t delivery_ms);

/* True if the default group exists. */
TUTTI_API bool tutti_is_initialized(void);

/* True if the plug-in of this name can be loaded here.  Otherwise tutti_last_error() has the reason. */
TUTTI_API bool tutti_is_backend_available(const char *name);

/* Fails all operations of the group on every rank with ABORTED and this reason (copied; NULL: none given).  Local
 * waiters return within 100 ms, those of other ranks within 1 s.  May be called while other threads wait.  Errors:
 * INVALID_ARGUMENT (there is no default group, or this rank is not a member). */
TUTTI_API int tutti_abort(tutti_group *group, const char *reason);

/* ---- groups ------------------------------------------------------------------------------------------------ */

typedef struct tutti_group_opts {
    const char *backend; /* as in tutti_init_process_group; NULL: the parent's */
    tutti_group *parent; /* the group that the ranks are chosen from; NULL: the default group */
    int64_t timeout_ms;  /* 0: the parent's */
    bool members_only;   /* only the members call (torch: use_local_synchronization).  If groups of the same members are
                            made several times, all members make them in the same order */
    bool high_priority;  /* CUDA: use a high-priority stream */
    const char *name;    /* name in messages; NULL: generated */
    tutti_device device; /* tutti_create_group only: this rank's device; zero: CPU */
    /* Like TUTTI_ALGO, for this group and those made from it; the same on all members.  NULL: the parent's. */
    const char *algorithm;
} tutti_group_opts;

/* Makes a group of n of the parent's ranks.  ranks holds n global ranks; their order is the rank order of the new
 * group.  All ranks of the parent call this in the same order, unless opts->members_only is set.  A rank that is not a
 * member gets a handle in which rank and world size are -1.  Such a handle is valid only for tutti_get_rank,
 * tutti_get_world_size and tutti_destroy_process_group.
 *
 * Errors: INVALID_ARGUMENT (a rank is not in the parent or is listed twice; this rank is not in the parent), MISMATCH
 * on every member that can detect it (the lists, their order, the backends or the algorithms differ between ranks; the
 * message has both), PEER_LOST (a member died), TIMEOUT (a member did not make this group in time), ABORTED (the parent
 * has failed).  With members_only the first operation on the group may return them instead. */
static inline int tutti_new_group(const int *ranks, int n, const tutti_group_opts *opts, tutti_group **group)
{
    return tutti_new_group_sized(ranks, n, opts, sizeof *opts, group);
}

/* Splits the parent as MPI_Comm_split does: ranks with the same color form a group, ordered by key, then by rank.  A
 * negative color joins no group and gets a handle with rank -1.  All ranks of the parent call this.
 *
 * Errors: TIMEOUT (a rank did not call within the parent's timeout; then no rank splits; the late one also gets
 * TIMEOUT), STORE (backends without control messages gather the colors through the store of the rendezvous), and those
 * of tutti_new_group. */
static inline int tutti_split_group(int color, int key, const tutti_group_opts *opts, tutti_group **group)
{
    return tutti_split_group_sized(color, key, opts, sizeof *opts, group);
}

/* Makes a group that is independent of the default group, which need not exist: world_size callers that share a store,
 * with ranks 0 .. world_size - 1.  Several ranks may be threads of one process.  The store is borrowed until the group
 * has been destroyed; use prefix stores to make several groups through one store.
 *
 * Groups with the same ranks, backends and environment (TUTTI_*) share descriptors, connections and the progress
 * thread.  Messages sent in a destroyed group are therefore delivered as long as another such group exists, and the
 * first group's store is used until the last group ends.
 *
 * Errors: INVALID_ARGUMENT (a NULL store or group, a rank outside 0 .. world_size - 1, a bad backend map, a negative
 * timeout), TIMEOUT (a rank did not call within opts->timeout_ms, or 30 minutes if it is 0), BACKEND, PEER_LOST,
 * MISMATCH, NO_MEMORY, and the store's errors. */
static inline int tutti_create_group(const char *backend, tutti_store *store, int rank, int world_size,
                                     const tutti_group_opts *opts, tutti_group **group)
{
    return tutti_create_group_sized(backend, store, rank, world_size, opts, sizeof *opts, group);
}

/* Makes a group of the surviving ranks after a failure, in the old order and over the existing connections.  group may
 * have failed or not; if no rank is lost, the new group has the same ranks.  Global ranks do not change.
 *
 * Every survivor calls this and gets the same members.  A rank is left out if its connection to any other rank has
 * ended, or if a timeout was blamed on it and it has not called yet.  All other ranks are waited for, up to the group's
 * timeout.
 *
 * The new group descends from the old one: a default group, or one of tutti_create_group, must be destroyed after it.
 * A subgroup may be destroyed at once.  A launcher that ends all ranks when one dies, as tutti-run and mpirun do,
 * leaves no rank to call this.
 *
 * Errors: STORE (the ranks agree through the store of the rendezvous, which must be running), ABORTED (the others
 * continue without this rank), TIMEOUT (a rank neither called nor is known to be lost; the message names it, and that
 * rank gets TIMEOUT too if it calls later). */
TUTTI_API int tutti_shrink_group(tutti_group *group, tutti_group **smaller);

typedef struct tutti_regroup_opts {
    int64_t timeout_ms; /* for ranks that have not come; 0: the group's */
    int world_size;     /* newcomers are waited for until there are so many ranks; 0: for those that a launcher has
                           started, as tutti-run --on-failure=continue announces them */
    int reserved;
} tutti_regroup_opts;

/* Makes a new group of the survivors of a group and of newcomers: after a failure, or to let newcomers in.  NULL means
 * the default group; then *next becomes the default group, and next may be NULL.  The survivors come first, in their
 * old order, so rank 0 has the state of the computation unless no rank survived.  Newcomers follow in the order of
 * their arrival.
 *
 * Every survivor calls this.  The first call fails the old group, and all groups made from it, with ABORTED on all its
 * ranks, so that they come too.  The old group is given up in any case; after success only its handle is left, which
 * tutti_destroy_process_group frees.  That holds for a handle of the default group only if an earlier call returned it
 * in *next.  tutti_destroy_process_group ends the newest group as it ended the first.
 *
 * A newcomer joins with tutti_init_process_group: TUTTI_NEWCOMER=1 is set, or opts->newcomer.  It has no rank of its
 * own choice.  It waits up to store_timeout_ms for the first survivor, then as long again for the others, and leaves
 * with TIMEOUT.  In a group of tutti_create_group it calls tutti_join_group.
 *
 * The ranks meet in the store, so this goes on as long as the store does: see tutti-run for one that outlives rank 0.
 * All ranks get the same members.  A rank is waited for until it comes, or its process or connection has ended, or the
 * timeout of the first that waits has passed.  Then those who have come go on, and the late one gets ABORTED when it
 * calls; it may destroy the group and join as a newcomer.  Newcomers are waited for in the same way, if a launcher has
 * announced them or opts->world_size asks for them.  If a rank dies meanwhile, the others meet again.  If no group can
 * be made for so long although no rank dies, the call fails.
 *
 * A subgroup has no newcomers: for it this is tutti_shrink_group.
 *
 * Errors: ABORTED (the others have gone on without this rank), STORE, INVALID_ARGUMENT (a negative timeout or
 * world_size, not a member, next is NULL for another group than the default one, another thread makes or destroys the
 * default group), and those of tutti_init_process_group for a group that cannot be opened; the call may be repeated. */
static inline int tutti_regroup(tutti_group *group, const tutti_regroup_opts *opts, tutti_group **next)
{
    return tutti_regroup_sized(group, opts, sizeof *opts, next);
}

/* Joins a group of tutti_create_group as a newcomer, when its ranks next call tutti_regroup.  The store is the one that
 * the group was made with, and opts are as there.  Errors: TIMEOUT (no rank of the group has called tutti_regroup
 * within opts->timeout_ms, or 30 minutes if it is 0, or not all of them within as long after the first), and those of
 * tutti_create_group. */
static inline int tutti_join_group(const char *backend, tutti_store *store, const tutti_group_opts *opts,
                                   tutti_group **group)
{
    return tutti_join_group_sized(backend, store, opts, sizeof *opts, group);
}

/* True if the group has failed, or if newcomers or other ranks wait to regroup.  Cheap enough for every step: it asks
 * the store every 100 ms at most, and is false in between.  Ranks learn of it at different times, so a program that
 * lets newcomers in agrees on the step, or calls tutti_regroup at once and takes the other ranks' ABORTED like a
 * failure. */
TUTTI_API bool tutti_regroup_wanted(tutti_group *group);

/* Returns the rank that a rank of the group had in the group before the last tutti_regroup, or -1 if it is a newcomer,
 * and for all ranks of a group that was not made by tutti_regroup, or from one that was. */
TUTTI_API int tutti_get_old_rank(const tutti_group *group, int group_rank);

/* Returns a number that grows with each tutti_regroup, the same on all ranks; 0 for a group of tutti_init_process_group
 * that no rank joined as a newcomer, or of tutti_create_group. */
TUTTI_API uint64_t tutti_get_generation(const tutti_group *group);

/* Return this rank's number in the group and the number of its ranks; -1 for a non-member and before init. */
TUTTI_API int tutti_get_rank(const tutti_group *group);
TUTTI_API int tutti_get_world_size(const tutti_group *group);

/* Return this rank's number among the ranks of its node, the number of ranks on its node, and the number of its node
 * from 0; all for the default group.  They come from the launcher (torchrun, tutti-run, mpirun, mpiexec, srun), else
 * from the group's backend (tutti_get_host).  -1 before init, or if neither reports them. */
TUTTI_API int tutti_get_local_rank(void);
TUTTI_API int tutti_get_local_world_size(void);
TUTTI_API int tutti_get_node_rank(void);

/* Translate between a rank of the group and a global rank; -1 if the rank is not in the group. */
TUTTI_API int tutti_get_global_rank(const tutti_group *group, int group_rank);
TUTTI_API int tutti_get_group_rank(const tutti_group *group, int global_rank);

/* Return the group's name, as messages have it, and its backends as a map ("cpu:tcp"); "" before init.  Valid until the
 * group is destroyed. */
TUTTI_API const char *tutti_get_name(const tutti_group *group);
TUTTI_API const char *tutti_get_backend(const tutti_group *group);

/* Returns the device for this rank's tensors in the group: CUDA if only CUDA has a backend, else CPU. */
TUTTI_API tutti_device tutti_get_device(const tutti_group *group);

typedef enum tutti_rank_state {
    TUTTI_RANK_ALIVE, /* as far as this rank knows */
    TUTTI_RANK_LEFT,  /* it has destroyed the group, or ended by exit */
    TUTTI_RANK_LOST   /* its process or its connection has ended */
} tutti_rank_state;

typedef struct tutti_rank_health {
    int32_t state; /* a tutti_rank_state */
    int32_t reserved;
    int64_t silent_ms; /* time since this rank first asked it without getting an answer; 0: it has answered */
    char why[112];     /* why it is lost or has left; else "" */
} tutti_rank_health;

/* Tells which ranks of the group are alive.  ranks has one entry for each of the n ranks of the group.  The call does
 * not wait: it says what this rank knows, and asks all others for a sign of life, so that the next call knows more.
 * A rank answers while it computes, within 100 ms; one that is stopped, or whose host is gone, is silent.  Works on a
 * failed group.
 *
 * Without any call or traffic, a rank that is connected to another one learns of its death within a second on one host,
 * and within 6 s between hosts (TUTTI_SILENT_MS); a group connects its ranks as they need it, or when asked by this
 * function.  The next operation that involves the dead rank then fails, and tutti_regroup_wanted returns true.
 *
 * Errors: INVALID_ARGUMENT (n is not the size of the group, not a member), ABORTED (the group has been destroyed). */
static inline int tutti_group_health(tutti_group *group, tutti_rank_health *ranks, int n)
{
    return tutti_group_health_sized(group, ranks, sizeof *ranks, n);
}

/* Returns the number of the host that a rank of the group runs on.  Hosts are numbered from 0 in the order of their
 * first ranks.  -1 if the backend does not know, and for a rank that is not in the group. */
TUTTI_API int tutti_get_host(const tutti_group *group, int group_rank);

/* ---- tensors ----------------------------------------------------------------------------------------------- */

/* Returns a CPU tensor of numel elements at data. */
static inline
#if defined __GNUC__ && !defined __clang__ && __GNUC__ >= 11
    __attribute__((access(none, 1))) /* or GCC warns about buffers without values, which a call will fill */
#endif
    tutti_tensor
    tutti_tensor_of(const void *data, int64_t numel, tutti_dtype dtype)
{
    tutti_device cpu = {TUTTI_CPU, 0};
    tutti_tensor tensor = {(void *)(uintptr_t)data, numel, dtype, cpu};
#if defined __GNUC__ && defined __x86_64__ && defined __LP64__
    /* Stores the same as two vectors.  Compilers copy a tensor to a call's arguments by loads of 16 bytes.  A processor
     * passes a store on to such a load only if it has 16 bytes, too.  After stores of single fields the load would wait
     * for the cache. */
    int64_t first __attribute__((vector_size(16))) = {(int64_t)(uintptr_t)data, numel};
    int32_t second __attribute__((vector_size(16))) = {(int32_t)dtype, TUTTI_CPU, 0, 0};
    __builtin_memcpy(&tensor, &first, sizeof first);
    __builtin_memcpy((char *)&tensor + sizeof first, &second, sizeof second);
#endif
    return tensor;
}

/* Returns the tensor with another device; its data is not copied. */
static inline tutti_tensor tutti_on(tutti_tensor tensor, tutti_device device)
{
    tensor.device = device;
    return tensor;
}

/* Allocates memory on the group's device (see tutti_get_device), aligned to at least 64 bytes, that the group's
 * transports can access best.  Any rank may call it, with any size.  On CPU over shared memory, the other ranks of the
 * host map it, and collectives and messages read it in place.  Its pages are allocated at once, so a lack of memory is
 * an error here.  A process that forks shares it with its child.
 *
 * Errors: INVALID_ARGUMENT (bytes is negative, memory is NULL, this rank is not a member), NO_MEMORY (the message has
 * the size), UNSUPPORTED (no backend allocates on the group's device), ABORTED (the group has been destroyed), and the
 * backend's. */
TUTTI_API int tutti_alloc(tutti_group *group, int64_t bytes, void **memory);

/* Frees memory of tutti_alloc; NULL is ignored.  No operation may be using it.
 *
 * CPU memory may be freed with its group, with any group that descends from the same one, or after all of them have
 * been destroyed; then group may be NULL or any group.  Until it is freed it stays readable and writable.  CUDA memory
 * is freed before its group is destroyed.  As with free(), passing any other pointer, or the same one twice, is
 * undefined.
 *
 * Errors: INVALID_ARGUMENT (no such group, or not its CUDA memory), ABORTED (a backend that cannot free memory after
 * its groups, which Tutti's own backends can; the memory stays until the process ends). */
TUTTI_API int tutti_free(tutti_group *group, void *memory);

/* Computes inout = inout op in within this process, on CPU tensors, with the reduction that collectives use.  AVG
 * divides by 2.  An op of tutti_op_create computes inout = in op inout.  Needs no group.  Errors: INVALID_ARGUMENT
 * (dtype or numel differ, data is NULL, unknown op), UNSUPPORTED (PREMUL_SUM, an op that does not reduce the dtype, a
 * tensor on another device). */
TUTTI_API int tutti_reduce_local(tutti_tensor inout, tutti_tensor in, tutti_reduce_op op);

/* Converts the elements of `in` to out's dtype, within this process, on CPU tensors of equal numel.  Both dtypes are
 * floating: float16, bfloat16, float32, float64, float8_e4m3fn or float8_e5m2.  Needs no group.
 *
 * Each element is rounded once, to nearest even.  Beyond the largest finite value it becomes infinity, or +-448 for
 * float8_e4m3fn.  Every NaN becomes the canonical quiet NaN.  Equal dtypes are copied bit by bit.  out and in are
 * disjoint, or begin at the same address if out's elements are not larger than in's.
 *
 * Errors: INVALID_ARGUMENT (numel differs, data is NULL, the tensors overlap otherwise), UNSUPPORTED (another dtype, a
 * tensor on another device). */
TUTTI_API int tutti_cast(tutti_tensor out, tutti_tensor in);

/* ---- reductions of the program's own ------------------------------------------------------------------------ */

/* Options of an op.  A zero field means the default. */
typedef struct tutti_op_opts {
    int64_t element_bytes; /* size of the program's own element, up to 1 MiB; 0: elements of the tensors' dtype */
    bool commutative;      /* a op b is b op a: more algorithms may be used, which are faster for large tensors */
    uint8_t reserved[7];   /* zero */
} tutti_op_opts;

/* Makes a reduction for CPU tensors.  reduce, all_reduce, reduce_scatter, scan, exscan and tutti_reduce_local take *op
 * as they take TUTTI_SUM.  It belongs to the process, not to a group.
 *
 * fn computes inout[i] = in[i] op inout[i] for n elements, where `in` is the left operand: it holds the contributions
 * of lower ranks.  The op must be associative.  Unless opts->commutative, every result is rank 0's contribution op rank
 * 1's op .. in this order.  all_reduce gives the same bits on every rank, also if fn rounds.
 *
 * With element_bytes, the tensors are TUTTI_UINT8, and their numel, and that of each rank's part, is a multiple of
 * element_bytes; no element is cut.  In the library's memory an element is aligned as in an array that malloc returned,
 * in a tensor as the tensor is.  Without element_bytes, fn gets the tensors' dtype.
 *
 * fn is called by any thread that makes progress, also the library's own, and for several groups at the same time.  It
 * must not call Tutti, block, or leave other than by returning.  `argument` must stay valid until the op's operations
 * have ended.
 *
 * name: up to 63 characters; copied.  Calls of different names, element_bytes or commutative are a MISMATCH.  The error
 * names both ops, if this process has created both.  opts may be NULL.
 *
 * Errors: INVALID_ARGUMENT (name, fn or op is NULL, name is empty or too long, element_bytes out of range), NO_MEMORY
 * (256 ops exist). */
static inline int tutti_op_create(const char *name, tutti_op_fn fn, void *argument, const tutti_op_opts *opts,
                                  tutti_reduce_op *op)
{
    return tutti_op_create_sized(name, fn, argument, opts, sizeof *opts, op);
}

/* Frees an op.  Operations that use it go on and complete; later calls with it are refused.  Errors: INVALID_ARGUMENT
 * (not an op of tutti_op_create, or freed already). */
TUTTI_API int tutti_op_free(tutti_reduce_op op);

/* ---- options of one call ----------------------------------------------------------------------------------- */

/* Options of one call.  A zero field means the default.  Copied before the call returns. */
typedef struct tutti_opts {
    tutti_group *group;    /* NULL: the default group */
    tutti_work **async_op; /* if set, the call returns at once and stores the Work here; wait for it or free it */
    void *stream;          /* CUDA: a cudaStream_t */
    int64_t timeout_ms;    /* timeout of this operation; 0: the group's; TUTTI_NOW: fail unless it completes at once */
    int tag;               /* tag of send and recv: 0 .. INT_MAX; recv and probe also accept TUTTI_ANY_TAG */
    bool group_rank;       /* src, dst and root are ranks of the group */
    int *source;           /* recv: stores the sender's rank (global, or of the group with group_rank) */
    double factor;         /* factor of TUTTI_PREMUL_SUM; must not be 0 */
    int64_t *received;     /* recv: accept a message of up to the tensor's size, and store its size in bytes */
    int *received_tag;     /* recv: stores the message's tag */
} tutti_opts;

/* ---- collectives ------------------------------------------------------------------------------------------- */

/* All ranks of the group make the same calls in the same order.  The list form and the single-tensor form of gather,
 * scatter and all_to_all are different calls.  Errors: those common to all operations. */

/* Copies root's tensor to every rank.
 *
 * A root receives nothing.  So if two ranks name themselves the root, neither can detect it: both get TUTTI_OK.  The
 * same holds for scatter.  The group's next collective then returns MISMATCH on every rank and names this call ("their
 * earlier calls differ").  A program that must know before it continues calls tutti_barrier. */
static inline int tutti_broadcast(tutti_tensor tensor, int root, const tutti_opts *opts)
{
    return tutti_broadcast_sized(tensor, root, opts, sizeof *opts);
}

/* Reduces the tensors of all ranks into every rank's tensor, with the same bits on every rank.  _into leaves in
 * unchanged; out and in are the same memory or disjoint. */
static inline int tutti_all_reduce(tutti_tensor tensor, tutti_reduce_op op, const tutti_opts *opts)
{
    return tutti_all_reduce_sized(tensor, op, opts, sizeof *opts);
}

static inline int tutti_all_reduce_into(tutti_tensor out, tutti_tensor in, tutti_reduce_op op, const tutti_opts *opts)
{
    return tutti_all_reduce_into_sized(out, in, op, opts, sizeof *opts);
}

/* Reduces the tensors of ranks 0 to r (scan), or 0 to r - 1 (exscan), into rank r's tensor, in rank order, as MPI_Scan
 * and MPI_Exscan do; torch has neither.  exscan leaves rank 0's output unchanged.  _into leaves in unchanged.
 *
 * Errors: those common to all operations; UNSUPPORTED also for AVG, because the number of ranks differs. */
static inline int tutti_scan(tutti_tensor tensor, tutti_reduce_op op, const tutti_opts *opts)
{
    return tutti_scan_sized(tensor, op, opts, sizeof *opts);
}

static inline int tutti_scan_into(tutti_tensor out, tutti_tensor in, tutti_reduce_op op, const tutti_opts *opts)
{
    return tutti_scan_into_sized(out, in, op, opts, sizeof *opts);
}

static inline int tutti_exscan(tutti_tensor tensor, tutti_reduce_op op, const tutti_opts *opts)
{
    return tutti_exscan_sized(tensor, op, opts, sizeof *opts);
}

static inline int tutti_exscan_into(tutti_tensor out, tutti_tensor in, tutti_reduce_op op, const tutti_opts *opts)
{
    return tutti_exscan_into_sized(out, in, op, opts, sizeof *opts);
}

/* Reduces the tensors of all ranks into root's tensor; those of other ranks stay unchanged.  _into uses out on the root
 * only. */
static inline int tutti_reduce(tutti_tensor tensor, int root, tutti_reduce_op op, const tutti_opts *opts)
{
    return tutti_reduce_sized(tensor, root, op, opts, sizeof *opts);
}

static inline int tutti_reduce_into(tutti_tensor out, tutti_tensor in, int root, tutti_reduce_op op,
                                    const tutti_opts *opts)
{
    return tutti_reduce_into_sized(out, in, root, op, opts, sizeof *opts);
}

/* Copies rank r's in to out[r] on every rank.  out has n entries, n is the group's size, and out[r] has as many
 * elements as rank r's in. */
static inline int tutti_all_gather(const tutti_tensor *out, int n, tutti_tensor in, const tutti_opts *opts)
{
    return tutti_all_gather_sized(out, n, in, opts, sizeof *opts);
}

/* Gathers like tutti_all_gather, into consecutive parts of one tensor: out.numel is in.numel times the group's size. in
 * may be the rank's own part of out. */
static inline int tutti_all_gather_into_tensor(tutti_tensor out, tutti_tensor in, const tutti_opts *opts)
{
    return tutti_all_gather_into_tensor_sized(out, in, opts, sizeof *opts);
}

/* Copies rank r's in to out[r] on the root.  Other ranks pass NULL and 0 for out and n. */
static inline int tutti_gather(tutti_tensor in, const tutti_tensor *out, int n, int root, const tutti_opts *opts)
{
    return tutti_gather_sized(in, out, n, root, opts, sizeof *opts);
}

/* Gathers like tutti_gather, into consecutive parts of one tensor.  Only the root uses out.  in may be root's own part
 * of it. */
static inline int tutti_gather_into_tensor(tutti_tensor out, tutti_tensor in, int root, const tutti_opts *opts)
{
    return tutti_gather_into_tensor_sized(out, in, root, opts, sizeof *opts);
}

/* Copies root's in[r] to rank r's out.  Other ranks pass NULL and 0 for in and n. */
static inline int tutti_scatter(tutti_tensor out, const tutti_tensor *in, int n, int root, const tutti_opts *opts)
{
    return tutti_scatter_sized(out, in, n, root, opts, sizeof *opts);
}

/* Scatters like tutti_scatter, from consecutive parts of one tensor.  Only the root uses in.  out may be root's own
 * part of it. */
static inline int tutti_scatter_tensor(tutti_tensor out, tutti_tensor in, int root, const tutti_opts *opts)
{
    return tutti_scatter_tensor_sized(out, in, root, opts, sizeof *opts);
}

/* Reduces in[r] of all ranks into rank r's out.  in has n entries; n is the group's size. */
static inline int tutti_reduce_scatter(tutti_tensor out, const tutti_tensor *in, int n, tutti_reduce_op op,
                                       const tutti_opts *opts)
{
    return tutti_reduce_scatter_sized(out, in, n, op, opts, sizeof *opts);
}

/* Reduces and scatters like tutti_reduce_scatter, from consecutive parts of one tensor: in.numel is out.numel times the
 * group's size.  out may be the rank's own part of in. */
static inline int tutti_reduce_scatter_tensor(tutti_tensor out, tutti_tensor in, tutti_reduce_op op,
                                              const tutti_opts *opts)
{
    return tutti_reduce_scatter_tensor_sized(out, in, op, opts, sizeof *opts);
}

/* Sends in[r] to rank r and receives rank r's part in out[r].  Both lists have n entries; n is the group's size. */
static inline int tutti_all_to_all(const tutti_tensor *out, const tutti_tensor *in, int n, const tutti_opts *opts)
{
    return tutti_all_to_all_sized(out, in, n, opts, sizeof *opts);
}

/* Exchanges like tutti_all_to_all, with consecutive parts of one tensor on each side.  A split is the number of
 * elements of each rank's part; zeros are allowed, and the sum is the tensor's numel.  NULL means equal parts.  in and
 * out may be the same memory if the splits are the same on both sides. */
static inline int tutti_all_to_all_single(tutti_tensor out, tutti_tensor in, const int64_t *out_splits,
                                          const int64_t *in_splits, const tutti_opts *opts)
{
    return tutti_all_to_all_single_sized(out, in, out_splits, in_splits, opts, sizeof *opts);
}

/* Returns once every rank of the group has called it. */
static inline int tutti_barrier(const tutti_opts *opts)
{
    return tutti_barrier_sized(opts, sizeof *opts);
}

/* Waits like tutti_barrier, and its TIMEOUT names the ranks that did not arrive: all of them in a group of up to 128
 * ranks, in a larger one those that were found.  Every rank sends a message to every other one, so use it to diagnose,
 * not in each step. */
static inline int tutti_monitored_barrier(const tutti_opts *opts)
{
    return tutti_monitored_barrier_sized(opts, sizeof *opts);
}

/* ---- point to point ---------------------------------------------------------------------------------------- */

/* Send a tensor to a rank, and receive one.  Messages between two ranks with the same tag arrive in the order of the
 * calls.
 *
 * - Both ranks may isend first, at any size.
 * - A blocking send may wait until its message is being received: always above 64 KiB, above 16 KiB if the receiver
 *   reads it from the sender's memory, and below that if many messages are in flight.  Ranks that all start with a
 *   blocking send may therefore wait for each other until they time out.
 * - A receive of another size or dtype than was sent returns MISMATCH and writes nothing; the group stays usable.  The
 *   sender gets MISMATCH too, unless the message was small enough to be in flight already, and never on mpi.
 * - Sending to and receiving from oneself is INVALID_ARGUMENT.  recv's src may be TUTTI_ANY_SOURCE (see opts->source),
 *   unless the group has no other rank.
 * - A send that times out is cancelled, and the program owns its memory again.  Unless it was in flight already, the
 *   message is then not received.  A receive that had begun to take it fails with ABORTED ("rank 1 took its message
 *   back"); the group does not fail.  mpi cannot cancel a send: above 3 KiB it keeps the memory, which must stay valid
 *   and unchanged, and the message may still be received.
 * - A receive that times out while it takes a message loses it.  The sender then gets ABORTED ("withdrew its receive"),
 *   or TUTTI_OK if all of the message was in flight.  With TUTTI_NOW this happens only to messages that cannot be taken
 *   at once: above 64 KiB between hosts or from a blocked sender, above 4 MiB, and all that TUTTI_ALGO sends by fifo.
 *   Use tutti_iprobe or tutti_irecv.
 *
 * Errors: those common to all operations. */
static inline int tutti_send(tutti_tensor tensor, int dst, const tutti_opts *opts)
{
    return tutti_send_sized(tensor, dst, opts, sizeof *opts);
}

static inline int tutti_recv(tutti_tensor tensor, int src, const tutti_opts *opts)
{
    return tutti_recv_sized(tensor, src, opts, sizeof *opts);
}

/* Start a send or a receive, and return at once with a Work, which the caller waits for or frees. */
static inline int tutti_isend(tutti_tensor tensor, int dst, const tutti_opts *opts, tutti_work **work)
{
    return tutti_isend_sized(tensor, dst, opts, sizeof *opts, work);
}

static inline int tutti_irecv(tutti_tensor tensor, int src, const tutti_opts *opts, tutti_work **work)
{
    return tutti_irecv_sized(tensor, src, opts, sizeof *opts, work);
}

/* A receive may leave the size or the tag of its message open:
 *
 * - opts->received makes the tensor's size a limit.  The receive accepts a message of any size up to it, writes it to
 *   the start of the tensor, and sets *received to its size in bytes.  A larger message, or one of another dtype, is
 *   MISMATCH: nothing is written, and the message is discarded.
 * - opts->tag == TUTTI_ANY_TAG accepts the oldest message of any tag, and sets *received_tag.  Messages between two
 *   ranks with the same tag keep their order, whether a receive names the tag or not.
 *
 * *source, *received and *received_tag are valid once the call has returned TUTTI_OK, or once the Work has ended with
 * it.  Both forms, and probes, work on CPU tensors with tcp, with mpi, and with plug-ins that declare them.  Otherwise:
 * UNSUPPORTED. */

/* The message that a probe found. */
struct tutti_message {
    int source; /* as opts->source */
    int tag;
    int64_t bytes;
};

/* Waits for a message from src (or TUTTI_ANY_SOURCE) with opts->tag (or TUTTI_ANY_TAG) that no receive has matched, and
 * describes it, as MPI_Probe does.  The message is not received: the next receive from message->source with
 * message->tag gets it.  message may be NULL.  Also sets *source, *received and *received_tag of opts.  Errors:
 * UNSUPPORTED (see above), INVALID_ARGUMENT (between tutti_coalesce_begin and _end), and those of a receive. */
static inline int tutti_probe(int src, const tutti_opts *opts, tutti_message *message)
{
    return tutti_probe_sized(src, opts, sizeof *opts, message);
}

/* Probes like tutti_probe, but returns after one round of progress, as MPI_Iprobe does.  *found is false if there is no
 * message.  Also INVALID_ARGUMENT if found is NULL. */
static inline int tutti_iprobe(int src, const tutti_opts *opts, bool *found, tutti_message *message)
{
    return tutti_iprobe_sized(src, opts, sizeof *opts, found, message);
}

/* One send or receive of a batch. */
typedef struct tutti_p2p_op {
    tutti_kind kind; /* TUTTI_SEND or TUTTI_RECV */
    tutti_tensor tensor;
    int peer;
    int tag;
    int *source; /* as in tutti_opts */
} tutti_p2p_op;

/* Starts n sends and receives together, the receives first.  works[i] receives the Work of ops[i].  After an error none
 * of them was started.  The fields tag, source and async_op of opts are not used.  Each receive takes a message of its
 * tensor's size; tutti_work_source and tutti_work_tag tell where it came from.  Errors: those common to all operations,
 * and INVALID_ARGUMENT if received or received_tag of opts is set (use tutti_irecv for such a receive). */
static inline int tutti_batch_isend_irecv(const tutti_p2p_op *ops, int n, const tutti_opts *opts, tutti_work **works)
{
    return tutti_batch_isend_irecv_sized(ops, sizeof *ops, n, opts, sizeof *opts, works);
}

/* ---- several operations as one ----------------------------------------------------------------------------- */

/* Start operations together.  Between the two calls, this thread's collectives and point-to-point calls on the group
 * are checked and queued, and their async_op is set to NULL.  _end starts them together, and one Work represents all of
 * them.  If work is NULL, _end blocks until all are complete.
 *
 * Consecutive small all_reduces and broadcasts that are alike are sent as one message, within the shortest of their
 * timeouts.  An operation that reads what an earlier one writes sees its result; this dependency must exist on all
 * ranks (else MISMATCH).
 *
 * Errors: INVALID_ARGUMENT (begin without end, or end without begin, on this thread; the byte-string functions below,
 * which cannot be queued), and those of the queued operations. */
TUTTI_API int tutti_coalesce_begin(tutti_group *group);
TUTTI_API int tutti_coalesce_end(tutti_group *group, tutti_work **work);

/* ---- byte strings of differing length ---------------------------------------------------------------------- */

/* Do collectives of byte strings whose sizes may differ between ranks, like torch's object collectives.  The library
 * allocates each out[i].data; the caller frees it with tutti_bytes_free.  They block: async_op in opts is not used.  If
 * a rank cannot allocate the incoming data, it aborts the group: NO_MEMORY on that rank, ABORTED on those that wait for
 * it.  Other errors: INVALID_ARGUMENT (NULL data with bytes, n differs from the group's size), and those of all
 * operations. */
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

/* Send and receive a message whose size only the sender knows; on the wire it is an ordinary TUTTI_UINT8 message.
 * recv_bytes allocates out->data, which the caller frees with tutti_bytes_free.  It receives exactly the message that
 * it has probed, even if other threads receive at the same time.  opts->tag may be TUTTI_ANY_TAG, src TUTTI_ANY_SOURCE.
 * Errors: NO_MEMORY (the message stays unreceived), UNSUPPORTED as for tutti_probe, and those of send and recv. */
static inline int tutti_send_bytes(const void *data, size_t bytes, int dst, const tutti_opts *opts)
{
    return tutti_send_bytes_sized(data, bytes, dst, opts, sizeof *opts);
}

static inline int tutti_recv_bytes(tutti_bytes *out, int src, const tutti_opts *opts)
{
    return tutti_recv_bytes_sized(out, src, opts, sizeof *opts);
}

/* ---- work -------------------------------------------------------------------------------------------------- */

/* Waits until *work has ended, frees it, sets it to NULL and returns the operation's status.
 *
 * After timeout_ms it returns TIMEOUT; *work stays valid and the operation continues.  0 and TUTTI_NOW poll once.
 * TUTTI_DEFAULT_TIMEOUT waits until the operation's own timeout ends it.  Errors: INVALID_ARGUMENT (*work is NULL, a
 * negative timeout, a Work from before fork), TIMEOUT, and the operation's own. */
TUTTI_API int tutti_wait(tutti_work **work, int64_t timeout_ms);

/* Waits like tutti_wait, but does not free the Work.  It may be called again and returns the same status. */
TUTTI_API int tutti_work_wait(tutti_work *work, int64_t timeout_ms);

/* Waits for n works and frees them; NULL entries are skipped.  Returns the first error by index.  On TIMEOUT the works
 * that have ended are freed and set to NULL, and the result is the first error among them, or else TIMEOUT. */
TUTTI_API int tutti_wait_all(tutti_work **works, int n, int64_t timeout_ms);

/* Waits until one of n works has ended, frees it, sets it to NULL, stores its index and returns its status.  If all are
 * NULL, *index is -1 and the result TUTTI_OK.  Other errors: UNSUPPORTED (works of groups that do not descend from the
 * same one), INVALID_ARGUMENT, TIMEOUT (*index is -1). */
TUTTI_API int tutti_wait_any(tutti_work **works, int n, int64_t timeout_ms, int *index);

/* Makes a CUDA stream wait for the operation, without blocking the host.  For CPU tensors it blocks as tutti_work_wait
 * does, with the same errors. */
TUTTI_API int tutti_wait_stream(tutti_work *work, void *stream);

/* True if the operation has ended, with success or an error.  Never blocks, and makes one round of progress. */
TUTTI_API bool tutti_work_is_completed(tutti_work *work);

/* Return the operation's status, which is TUTTI_OK while it is running, and its error message, "" if there is none.
 * The message is owned by the Work. */
TUTTI_API int tutti_work_status(tutti_work *work);
TUTTI_API const char *tutti_work_error(tutti_work *work);

/* Calls callback(work, argument) once the operation has ended: in this thread if it has ended already, else in the
 * thread that completes it.  A wait in another thread may return before the callback does.  The callback must not block
 * or wait; it may start operations.  A Work takes one callback.  Errors: INVALID_ARGUMENT (a NULL argument, a second
 * callback). */
TUTTI_API int tutti_work_then(tutti_work *work, void (*callback)(tutti_work *work, void *argument), void *argument);

/* Describe the operation:
 * - op: its kind.
 * - sequence: its number among the group's collectives, from 1; 0 for point to point.
 * - duration_ns: the time from the call to its end, or on a CUDA stream the time that it ran there; -1 before its end;
 *   0 for a message that was complete when the call returned.  That of a message of less than 64 KiB counts from the
 *   library's first look at the clock after the call, and is 0 if it ended before that.  This is up to 2 ms later, and
 *   up to 100 ms if another thread of the program sleeps in a call on the same groups.
 * - source: the rank that a receive got its message from, as opts->source; -1 before its end. */
TUTTI_API tutti_kind tutti_work_op(const tutti_work *work);
TUTTI_API uint64_t tutti_work_sequence(const tutti_work *work);
TUTTI_API int64_t tutti_work_duration_ns(const tutti_work *work);
TUTTI_API int tutti_work_source(const tutti_work *work);

/* Return the tag and the size in bytes of a received message; TUTTI_ANY_TAG and -1 if there is none (yet). */
TUTTI_API int tutti_work_tag(const tutti_work *work);
TUTTI_API int64_t tutti_work_received(const tutti_work *work);

/* Returns a descriptor for event loops, which becomes readable once the operation has ended.  The Work owns it.
 * Errors: INVALID_ARGUMENT (work is NULL), SYSTEM (no descriptor is left). */
TUTTI_API int tutti_work_fd(tutti_work *work);

/* Waits until every operation that this process had started on the group before this call has ended, with success or an
 * error.  That includes operations whose Work was freed, and calls of other threads.  Their Works keep their results.
 * Calls queued since tutti_coalesce_begin have not started.  timeout_ms as in tutti_wait.  Errors: TIMEOUT (operations
 * are still running, and continue; the message counts them and describes the first), INVALID_ARGUMENT, NO_MEMORY. */
TUTTI_API int tutti_group_quiesce(tutti_group *group, int64_t timeout_ms);

/* Returns the number of the last collective that this rank has started on the group (see tutti_work_sequence); 0 before
 * the first one and for a non-member.  It is equal on all ranks that have made the same calls. */
TUTTI_API uint64_t tutti_get_sequence(const tutti_group *group);

/* Frees the handle without waiting.  The operation still completes, and its tensors must stay valid until then.  NULL
 * is ignored. */
TUTTI_API void tutti_work_free(tutti_work *work);

/* ---- flight recorder --------------------------------------------------------------------------------------- */

/* Each group keeps its last 1,024 collectives and its last 1,024 messages.  If TUTTI_RECORD_DIR is set, each rank
 * writes them to that folder when one of its operations fails or times out.  docs/flight-recorder.md describes the
 * file, and `tutti-trace stuck FOLDER` says what the ranks' files show. */

/* Names what the program does from now on, such as "epoch 3": operations of all threads of this process are recorded
 * with the text.  The last 64 texts are kept, 79 bytes of each.  Errors: INVALID_ARGUMENT (text is NULL). */
TUTTI_API int tutti_mark(const char *text);

/* Writes the records of all groups of this process to the file rank-RANK.record of a folder, whose name may contain %h
 * (host name), %p (process id) and %r (rank).  It is made if its parent exists, and an older file is replaced.  NULL:
 * the folder that TUTTI_RECORD_DIR names.  Waits about 3 s at most, for a slow file system or another thread.  If a
 * thread is inside a backend meanwhile, its groups are written without what their operations wait for.  Must not be
 * called from a signal handler.  Errors: INVALID_ARGUMENT (no folder), SYSTEM (the file cannot be written; the message
 * says why). */
TUTTI_API int tutti_record_write(const char *folder);

/* ---- starting ranks ---------------------------------------------------------------------------------------- */

/* Runs fn(rank, argument) in nprocs child processes that share one rendezvous, as torch.multiprocessing.spawn does, and
 * waits for them.  env:// works in each.  A child's exit status is fn's result.  If one child fails, the others are
 * ended.  Must be called before any thread is started.  Errors: SYSTEM (a child failed; the message has its rank and
 * how it ended; or fork failed), INVALID_ARGUMENT (fn is NULL, nprocs is below 1, or tutti_init_process_group has been
 * called), NO_MEMORY. */
TUTTI_API int tutti_spawn(int (*fn)(int rank, void *argument), void *argument, int nprocs);

/* ---- introspection ----------------------------------------------------------------------------------------- */

/* These functions write text for people, at most capacity bytes including the final zero; longer text is truncated.
 * Lines end with \n.  The wording may change between versions.  Errors of all: INVALID_ARGUMENT (text is NULL or
 * capacity 0). */

/* Lists the names of the plug-ins in the search folders, separated by blanks. */
TUTTI_API int tutti_list_backends(char *text, size_t capacity);

/* Loads a plug-in and describes where it is, what it offers and what it found on this machine.  Needs no group.
 * Errors: BACKEND (it was refused or cannot work here; tutti_last_error() has the paths tried and the reason). */
TUTTI_API int tutti_describe_backend(const char *name, char *text, size_t capacity);

/* Describes what the backends of a group use: addresses, providers, how each rank is reached.  Errors: INVALID_ARGUMENT
 * (this rank is not a member), ABORTED (the group has been destroyed). */
TUTTI_API int tutti_describe_group(tutti_group *group, char *text, size_t capacity);

/* Describes how an operation of this kind and size would be done in opts->group, and why: backend, algorithm, the rule
 * that selected it, segments, and what this rank would send.  Nothing is sent.  bytes is the size of the operation's
 * larger tensor, or list of tensors, on one rank.  Parts are equal, and the root is rank 0 of the group.  Errors:
 * INVALID_ARGUMENT (unknown kind, negative bytes, not a member, a bad TUTTI_ALGO), UNSUPPORTED. */
static inline int tutti_explain(tutti_kind kind, int64_t bytes, const tutti_opts *opts, char *text, size_t capacity)
{
    return tutti_explain_sized(kind, bytes, opts, sizeof *opts, text, capacity);
}

/* Returns the name of the i-th algorithm that TUTTI_ALGO can select for a kind of operation, or NULL if there are
 * fewer.  Algorithms of plans come first, then the paths of the loaded backends. */
TUTTI_API const char *tutti_algorithm_name(tutti_kind kind, int i);

/* Copies the counters of a group and of its tree (stats.h).  They begin at 0 when the group is made.  Errors:
 * INVALID_ARGUMENT (stats is NULL, this rank is not a member). */
static inline int tutti_get_stats(tutti_group *group, tutti_stats *stats)
{
    return tutti_get_stats_sized(group, stats, sizeof *stats);
}

/* Name the part of the program that this thread is in, for tools (tool.h) and traces (TUTTI_TRACE): "forward",
 * "epoch 3".  Ranges nest.  name is copied by a tool that keeps it; NULL counts as "".  Without a tool they do nothing.
 * Every push needs a pop of the same thread; a pop without one is ignored. */
TUTTI_API void tutti_range_push(const char *name);
TUTTI_API void tutti_range_pop(void);

#ifdef __cplusplus
}
#endif

/* ---- shorthands -------------------------------------------------------------------------------------------- */

#ifndef __cplusplus
/* tutti_view selects it for any other pointer, and its type's name becomes the compiler's message.  No file defines
 * it. */
extern const struct tutti_view_knows_no_dtype_for_this_pointer_use_tutti_tensor_of {
    int none;
} tutti_view_no_dtype;
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
        default: tutti_view_no_dtype)

/* The comma is for clang: it takes an &x that is passed to a const pointer as read-only, and would warn about a
 * recv. */
/* Makes a CPU tensor of numel elements, whose dtype follows from the pointer's type.  char is an 8-bit integer, signed
 * if the compiler's char is.  For 16- and 8-bit floats, complex numbers in C++, and void pointers use tutti_tensor_of.
 */
#define tutti_view(pointer, numel) tutti_tensor_of(((void)0, (pointer)), (numel), TUTTI_DTYPE_OF(pointer))

/* Makes options in place, in C and in C++20: tutti_with(.group = g, .async_op = &work).  C++ requires the order of
 * tutti_opts.  They last until the end of the full expression, in C until the end of the block. */
#define tutti_with(...) (&(tutti_opts){__VA_ARGS__})
#else
#include <type_traits>
inline const tutti_opts *tutti_opts_in_place(const tutti_opts &opts)
{
    return &opts;
}
/* A lambda, because a pragma is allowed in it: gcc would warn about the fields that are left out, which are zero. */
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
