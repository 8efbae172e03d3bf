/* State of a group on NCCL, and the interfaces between the files of this folder.
 *
 * A group has comm streams: one for its collectives, and one per direction of messages to and from each peer, so that
 * they do not delay each other.  A comm stream is a communicator, created in the background at its first use, and a
 * CUDA stream.  Operations enter it in order.  While it opens, or while NCCL still connects it to new peers, they wait
 * in its queue as copies.
 *
 *   libs.c         NCCL's functions, loaded by name         alone.c       detects two ranks on one GPU
 *   comm_stream.c  opening communicators, failing, closing  reap.c        threads that end communicators
 *   queue.c        from a descriptor to a stream            completion.c  completion events
 *   collect.c      operations that move data                reduce.c      operations that reduce
 *   together.c     collective setup: splits, windows        proxy.c       proxy threads for older NCCL
 *   memory.c       tutti_alloc                              control.c     failure propagation through the store
 *   backend.c      function table                           ../cuda       the driver and the rank's device
 */
#ifndef NCCLB_H
#define NCCLB_H

#include <pthread.h>
#include <sys/queue.h>

#include "cuda/device.h"
#include "libs.h"

struct ncclb_group;
struct ncclb_comm_stream;
struct ncclb_proxy;

/* A completion event: recorded after the enqueued operations, with the request that completes there. */
struct ncclb_completion {
    TAILQ_ENTRY(ncclb_completion) link;
    struct ncclb_comm_stream *cs;
    CUevent event;
    CUevent begin; /* timed: recorded before the operation; NULL if its duration is not needed */
    CUstream stream;
    bool timed, begun;      /* event measures time; begin was recorded */
    tutti_request *request; /* NULL: the operation was reported as done when it was enqueued */
    int64_t deadline_ns;    /* for operations without a request; the core watches the others */
    int64_t first_ns;       /* deadline of the first operation, if the event was re-recorded */
    tutti_kind kind;
};

/* Progress of an operation. */
enum ncclb_place {
    NCCLB_HELD,      /* waits for its comm stream */
    NCCLB_GATHERED,  /* inside an open NCCL group */
    NCCLB_SUBMITTED, /* submitted to NCCL, which is still connecting */
    NCCLB_ENQUEUED   /* in its stream */
};

/* An operation that is not in its stream yet. */
struct ncclb_waiting {
    TAILQ_ENTRY(ncclb_waiting) link;
    tutti_op op; /* a copy, followed by its lists */
    tutti_request *request;
    CUevent after; /* async: work in the caller's stream at the time of the call */
    enum ncclb_place place;
};

enum ncclb_state { NCCLB_CLOSED, NCCLB_WANTS_ID, NCCLB_STARTING, NCCLB_READY, NCCLB_DEAD };

enum { NCCLB_SCALED = 4 };

struct ncclb_comm_stream {
    TAILQ_ENTRY(ncclb_comm_stream) link; /* open comm streams of the group */
    struct ncclb_group *group;
    enum ncclb_state state;
    int rank, size;
    char key[48]; /* key of its unique id in the group's store */
    ncclComm_t comm;
    struct ncclb_proxy *proxy; /* thread that calls NCCL; NULL: any thread */
    void *async_result;        /* result of a failed call; NCCL may write it until the communicator has ended */
    CUstream stream;
    CUevent entry; /* work in the caller's stream */
    CUevent begin; /* recorded before the next operation in its own stream */
    bool begun;
    bool is_ending;  /* its communicator was aborted but has not ended */
    int64_t poll_ns; /* no poll of the store or of NCCL's error before this time */
    TAILQ_HEAD(ncclb_waits, ncclb_waiting) waiting;
    TAILQ_HEAD(ncclb_completions, ncclb_completion) completions; /* in the order of the operations */
    struct {
        ncclRedOp_t op;
        ncclDataType_t type;
        double factor;
    } scaled[NCCLB_SCALED]; /* PREMUL_SUM operators created for this communicator */
    int n_scaled, next_scaled;
};

/* Memory returned by tutti_alloc. */
struct ncclb_block {
    LIST_ENTRY(ncclb_block) link;
    void *memory;
    void *handle; /* registration with the communicator */
    void *window; /* or registration as a window */
    size_t bytes;
    bool driver; /* from cuMemAlloc, not ncclMemAlloc */
};

struct ncclb_group {
    const tutti_host *host;
    tutti_group_info info;
    tutti_counters *counters; /* or NULL */
    struct ncclb_group *first;
    struct ncclb_group *made_from; /* group whose communicator is split; valid during open */
    int color;
    TAILQ_ENTRY(ncclb_group) tree_link;
    TAILQ_HEAD(, ncclb_group) tree; /* root group only */
    struct device device;
    struct ncclb_comm_stream main;
    struct ncclb_comm_stream *pairs; /* to each rank, then from each rank; NULL before the first message */
    TAILQ_HEAD(, ncclb_comm_stream) open;
    struct ncclb_completions spare[2]; /* without and with timing */
    LIST_HEAD(, ncclb_block) blocks;
    void *barrier_word; /* operand of a barrier's all_reduce */
    int clock;          /* root group only: a timerfd that wakes the core's poll */
    int64_t moved_ns;
    int64_t control_ns; /* no poll for a control message before this time */
    uint32_t calls;
    bool fp8_reduces, aborted, failed, notified;
    char why[300];             /* the reported failure */
    bool coalescing;           /* an NCCL group is open */
    struct ncclb_proxy *proxy; /* thread that opens NCCL groups, or NULL */
};

/* Returns the time ms after now, or INT64_MAX. */
static inline int64_t ncclb_deadline(int64_t now, int64_t ms)
{
    return ms < INT64_MAX / 2000000 ? now + ms * 1000000 : INT64_MAX;
}

/* ---- alone.c ---- */

/* Checks that no other rank uses the same GPU; the error message names both ranks and the remedies. */
int ncclb_check_alone(struct ncclb_group *group);

/* ---- comm_stream.c ---- */

void ncclb_comm_stream_init(struct ncclb_comm_stream *cs, struct ncclb_group *group, int rank, int size,
                            const char *key);

/* Starts or continues to open the comm stream; see its state for progress. */
void ncclb_comm_stream_open(struct ncclb_comm_stream *cs);

/* Polls for asynchronous NCCL errors; fails the group on one. */
void ncclb_comm_stream_watch(struct ncclb_comm_stream *cs, int64_t now);

/* Fails the group.  Only the first call counts: it has the root cause. */
void ncclb_fail_group(struct ncclb_group *group, int status, const char *text);

/* Fails the group and marks the comm stream as dead.  Returns status, with the message set. */
int ncclb_comm_stream_fail(struct ncclb_comm_stream *cs, int status, const char *text);

/* Translates an NCCL error, with its last message and the versions, and fails the group. */
int ncclb_comm_stream_failed(struct ncclb_comm_stream *cs, const char *what, ncclResult_t result);

/* Aborts its communicator. */
void ncclb_comm_stream_abort(struct ncclb_comm_stream *cs);
void ncclb_comm_stream_close(struct ncclb_comm_stream *cs);

/* True if NCCL has finished all submitted operations, so that other calls are allowed. */
bool ncclb_comm_stream_is_free(const struct ncclb_comm_stream *cs);

/* Uses an existing communicator. */
void ncclb_comm_stream_adopt(struct ncclb_comm_stream *cs, ncclComm_t comm);

/* ---- together.c ---- */

/* True if all ranks call tutti_alloc together, to register windows. */
bool ncclb_has_windows(const struct ncclb_group *group);
int ncclb_make_window(struct ncclb_group *group, struct ncclb_block *block);

/* Takes part in the split of a group's communicator; *comm is the new one, if the rank has a color. */
int ncclb_split(struct ncclb_group *from, int color, int key, ncclComm_t *comm);

/* Takes part without a color. */
int ncclb_abstain(void *group);

/* True if communicators are created together with their groups. */
bool ncclb_is_eager(const struct ncclb_group *group);

/* ---- proxy.c ---- */

/* Creates a thread with all signals blocked, since signals belong to the program.  Returns false on failure. */
bool ncclb_thread_new(pthread_t *thread, void *(*main)(void *), void *argument);

/* Starts *proxy if this NCCL version needs one and it is not running. */
int ncclb_proxy_start(const struct ncclb_group *group, struct ncclb_proxy **proxy);

/* Calls fn on the proxy thread, or on this thread if it is NULL, and returns its result. */
ncclResult_t ncclb_proxy_call(struct ncclb_proxy *proxy, ncclResult_t (*fn)(void *argument), void *argument);

/* Stops and frees a proxy after its communicator has ended. */
void ncclb_proxy_stop(struct ncclb_proxy *proxy);

/* ---- reap.c ---- */

/* Creates a list for up to `most` communicators to end.  Returns NULL, with a log line, on failure. */
struct reaping *ncclb_reap_new(struct ncclb_group *group, int most);

/* Moves the comm stream's communicator, if any, to the list; leaks it if the list is NULL.  gently: pending operations
 * complete first. */
void ncclb_reap_add(struct reaping *reaping, struct ncclb_comm_stream *cs, bool gently);

/* Ends the communicators on threads, with a bounded wait.  Returns true if all have ended. */
bool ncclb_reap(struct ncclb_group *group, struct reaping *reaping);

/* ---- queue.c ---- */

/* Queues op: implements a native entry. */
int ncclb_queue(struct ncclb_comm_stream *cs, const tutti_op *op, tutti_request *request);

/* Begins or ends an NCCL group, which consists of the operations queued in between. */
int ncclb_coalesce(void *group, bool begin);

/* Advances queued operations.  Returns true if any moved. */
int ncclb_queue_move(struct ncclb_comm_stream *cs, int64_t now);

/* Polls for a short time until a queued request is in its stream. */
void ncclb_queue_poll_briefly(struct ncclb_group *group, const tutti_request *request);

/* Detaches the request from its queued operation and its completion event. */
void ncclb_queue_forget(struct ncclb_comm_stream *cs, const tutti_request *request);
void ncclb_queue_clear(struct ncclb_comm_stream *cs);

/* ---- completion.c ---- */

/* Records a completion event after the work in `stream`.  request may be NULL. */
int ncclb_completion_add(struct ncclb_comm_stream *cs, CUstream stream, const tutti_op *op, tutti_request *request);

/* Records the start of the next operation in the comm stream's own stream, to measure its duration. */
CUresult ncclb_completion_begin(struct ncclb_comm_stream *cs);

/* Makes `stream` wait for the latest completion event if that is in another stream. */
int ncclb_completion_follow(struct ncclb_comm_stream *cs, CUstream stream);

/* True if the work before the event has completed. */
bool ncclb_completion_has_ended(const struct ncclb_completion *completion);

/* Completes finished operations.  Returns true if there were any. */
int ncclb_completion_move(struct ncclb_comm_stream *cs, int64_t now);
void ncclb_completion_clear(struct ncclb_comm_stream *cs);
void ncclb_completion_free(struct ncclb_completion *completion);

/* ---- collect.c, reduce.c ---- */

/* Submits op to NCCL on `stream`. */
ncclResult_t ncclb_collect(struct ncclb_comm_stream *cs, const tutti_op *op, CUstream stream);
ncclResult_t ncclb_reduce(struct ncclb_comm_stream *cs, const tutti_op *op, CUstream stream);

/* Checks that NCCL supports the reduction.  Returns UNSUPPORTED with a message otherwise. */
int ncclb_reduce_check(const struct ncclb_group *group, const tutti_op *op);

/* ---- control.c ---- */

int ncclb_notify(void *group, int32_t peer, const void *message, size_t bytes);
void ncclb_poll_control(struct ncclb_group *group, int64_t now);

/* ---- memory.c ---- */

int ncclb_alloc(void *group, size_t bytes, void **memory);
int ncclb_free(void *group, void *memory);
void ncclb_memory_register(struct ncclb_group *group);

/* Deregisters all memory when the group closes.  quiet: no pending operation can use the memory. */
void ncclb_memory_close(struct ncclb_group *group, bool quiet);

/* ---- backend.c ---- */

/* Aborts all communicators, which releases the memory of pending operations. */
void ncclb_abort(void *group);

#endif
