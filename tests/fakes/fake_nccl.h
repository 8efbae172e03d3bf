/* FAKE: a stand-in for NCCL on the FAKE driver's streams, for ranks in one process or in several on one host.  Data
 * goes through shared memory, and every call of a collective is compared with the peers'.
 *
 * NCCL's demands are checked.  A communicator must be polled until it is ready, and again after its first operation,
 * which makes its connections, and during a split or the registration of a window.  All ranks must take part in those
 * two, and nothing may run during a split.  Destroying a communicator waits for the goodbyes of living peers
 * (ncclCommFinalize), and aborting one waits for the whole device.
 *
 *   FAKE_NCCL_FAULT=KIND@RANK:N   on that rank of a communicator:
 *      error@R:N   its Nth operation meets an asynchronous error
 *      hang@R:N    its Nth operation never ends
 *      slow@R:N    each operation begins N milliseconds late
 *      oom@R:0     its communicators find no memory
 *      late@R:N    ncclCommDestroy takes N milliseconds more; an exit under it aborts the process
 *   FAKE_NCCL_LATE_US=N           every call answers ncclInProgress.  A separate thread puts the operation into its
 *                                 stream N microseconds later, as NCCL does from 2.23 on
 *   FAKE_NCCL_VERSION=22809       the reported version.  Before 22700, a thread may begin nothing while something of
 *                                 another call of its own is under way.  Before 22400, ncclSend and ncclRecv return
 *                                 ncclSuccess although they are
 */
#ifndef FAKE_NCCL_H
#define FAKE_NCCL_H

#define __CUDA_BF16_TYPES_EXIST__ 1 /* headers before 2.24 have bfloat16 only beside CUDA's own */
#include <nccl.h>
#include <stdatomic.h>

#include "fake_cuda.h"

#if NCCL_VERSION_CODE < NCCL_VERSION(2, 27, 0) /* headers without windows */
typedef struct ncclWindow *ncclWindow_t;
enum { NCCL_WIN_COLL_SYMMETRIC = 1 };
ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *memory, size_t bytes, ncclWindow_t *window, int flags);
ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window);
#endif

enum { FAKE_CHUNK = 32 << 10, FAKE_SCALARS = 64, FAKE_RANKS = 16 };

enum fake_kind {
    FAKE_SEND,
    FAKE_RECV,
    FAKE_BROADCAST,
    FAKE_ALL_REDUCE,
    FAKE_REDUCE,
    FAKE_ALL_GATHER,
    FAKE_REDUCE_SCATTER
};

/* Description of a call, which must be equal on all peers. */
struct fake_call {
    int32_t kind, dtype, op, root;
    uint64_t count;
};

/* A mailbox from one rank to another, one chunk at a time. */
struct fake_box {
    atomic_uint full;
    uint32_t bytes;
    struct fake_call call;
    char data[FAKE_CHUNK];
};

/* A rank's request for a split.  There are two turns, because a rank may be ahead by one. */
struct fake_choice {
    atomic_int turn;
    int color, key;
};

struct fake_region {
    atomic_int joined;              /* number of ranks that have joined */
    atomic_int process[FAKE_RANKS]; /* of the ranks that have joined and not left */
    struct fake_choice split[2][FAKE_RANKS];
    struct fake_box box[]; /* index: from * n + to */
};

struct ncclComm {
    struct fake_region *region;
    size_t region_bytes;
    char name[128];
    int rank, n;
    bool ready, connected;
    int polls; /* polls left until it is connected */
    long late_us;
    struct fake_held {
        struct fake_op *op;
        CUstream stream;
    } held[64];
    int n_held;
    int splits, windows;
    CUcontext context;
    struct ncclComm *next; /* all existing communicators */
    pthread_t caller;      /* thread that started the pending call; job: the call */
    uint64_t job;
    atomic_bool works; /* a separate thread handles a split, a window or a deferred operation */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t tickets, serving; /* operations run in the order in which they were enqueued */
    int references;
    atomic_bool aborted;
    atomic_int error;
    char text[200];
    uint64_t ops;
    double scalars[FAKE_SCALARS];
    int n_scalars;
};

struct fake_message {
    int peer;
    bool send, done;
    char *data;
    uint64_t bytes, moved;
    bool begun;
    struct fake_call call;
};

struct fake_op {
    ncclComm_t comm;
    struct fake_call call;
    const char *send;
    char *recv;
    int n_messages; /* of a group of sends and receives */
    struct fake_message *messages;
};

extern const struct fake_work fake_nccl_work;

size_t fake_bytes(ncclDataType_t type);

/* Computes a = a op b for n elements, with the built-in op of call.op. */
void fake_reduce(ncclDataType_t type, ncclRedOp_t op, void *a, const void *b, uint64_t n);

/* Computes x = x * factor, or x / divisor if divisor is not 0. */
void fake_scale(ncclDataType_t type, void *x, uint64_t n, double factor, int divisor);

double fake_scalar(ncclDataType_t type, const void *scalar);

/* Drops a reference to a communicator, and frees it with the last one. */
void fake_release(ncclComm_t comm);

/* True if the communicator is ready and no thread works on it. */
bool fake_is_free(ncclComm_t comm);

/* Starts a thread that works on the communicator, and enqueues the operations that waited for its connections. */
void fake_begin_working(ncclComm_t comm, void *(*fn)(void *), void *argument);
void fake_enqueue_held(ncclComm_t comm);

/* Returns the version that is reported. */
int fake_version(void);

/* Returns the number of threads in ncclCommDestroy, for tests. */
int fake_nccl_ending(void);

/* Returns the number of splits in this process, for tests. */
int fake_nccl_splits(void);

/* Returns the bytes allocated by ncclMemAlloc in total, for tests. */
size_t fake_nccl_allocated(void);

/* Return the number of existing windows and communicators, for tests. */
int fake_nccl_windows(void);
int fake_nccl_communicators(void);

/* Returns, or increases, the number of misuses that NCCL would not notice but that corrupt its state.  For tests. */
int fake_nccl_misuses(void);
void fake_misused(const char *how);

/* Counts communicators, and starts n operations by one call of this thread.  For tests. */
void fake_job_list(ncclComm_t comm);
void fake_job_unlist(ncclComm_t comm);
void fake_job_begin(ncclComm_t *comms, int n);

/* Returns the fault requested by FAKE_NCCL_FAULT for this rank, or -1. */
long fake_fault(const char *kind, int rank);

#endif
