/* The state of a group on NCCL, and what the files of this folder have of each other.
 *
 * A group has channels: one for its collectives, and one for each direction of messages to and from a peer, so
 * that neither holds up the others.  A channel is a communicator, which is opened at its first use without anyone
 * waiting, and a stream.  Operations are put into a channel in order; while it opens, or while NCCL still connects
 * it to new peers, they wait in its queue as copies.
 *
 *   libs.c      NCCL, loaded by name                       alone.c     two ranks on one GPU
 *   channel.c   opening communicators, failing, closing    reap.c      the threads on which they are ended
 *   queue.c     from a descriptor to a stream              mark.c      how it is seen that a stream has come so far
 *   collect.c   the operations that move                   reduce.c    those that reduce
 *   together.c  what all ranks wait for: splits, windows
 *   memory.c    tutti_alloc                                notes.c     failures, told through the store
 *   hand.c      the threads that call older NCCL
 *   backend.c   the table                                  ../cuda     the driver, and the rank's device
 */
#ifndef NCCLB_H
#define NCCLB_H

#include <pthread.h>
#include <sys/queue.h>

#include "cuda/device.h"
#include "libs.h"

struct ncclb_group;
struct ncclb_channel;
struct ncclb_hand;

/* A place in a stream: an event behind what was enqueued so far, and whose request ends there. */
struct ncclb_mark {
    TAILQ_ENTRY(ncclb_mark) link;
    struct ncclb_channel *channel;
    CUevent event;
    CUevent begin; /* timed: before the operation; NULL where nobody will ask how long it took */
    CUstream stream;
    bool timed, begun;      /* its event takes the time; begin was recorded for it */
    tutti_request *request; /* NULL: an operation that was answered when it had been enqueued */
    int64_t deadline_ns;    /* of such a one; the core watches the others */
    int64_t first_ns;       /* that of the first one, where it was moved on since */
    tutti_kind kind;
};

/* How far an operation has come. */
enum ncclb_place {
    NCCLB_HELD,     /* it waits for its channel */
    NCCLB_GATHERED, /* in an NCCL group that is open */
    NCCLB_HANDED,   /* NCCL has it, but still connects */
    NCCLB_ENQUEUED  /* in its stream */
};

/* An operation that is not in its stream yet. */
struct ncclb_waiting {
    TAILQ_ENTRY(ncclb_waiting) link;
    tutti_op op; /* a copy, its lists behind it */
    tutti_request *request;
    CUevent after; /* async: what its stream held when it was issued */
    enum ncclb_place place;
};

enum ncclb_state { NCCLB_CLOSED, NCCLB_WANTS_ID, NCCLB_STARTING, NCCLB_READY, NCCLB_DEAD };

enum { NCCLB_SCALED = 4 };

struct ncclb_channel {
    TAILQ_ENTRY(ncclb_channel) link; /* the group's that are not closed */
    struct ncclb_group *group;
    enum ncclb_state state;
    int rank, size;
    char key[48]; /* of its unique id in the group's store */
    ncclComm_t comm;
    struct ncclb_hand *hand; /* the thread that calls NCCL for it; NULL: any */
    CUstream stream;
    CUevent entry; /* what the caller's stream held */
    CUevent begin; /* before the next operation in the own stream */
    bool begun;
    bool lingers;    /* its communicator was aborted, which is not through */
    int64_t look_ns; /* the store, or NCCL's error, is not asked again before this */
    TAILQ_HEAD(ncclb_waits, ncclb_waiting) waiting;
    TAILQ_HEAD(ncclb_marks, ncclb_mark) marks; /* in the order of the operations */
    struct {
        ncclRedOp_t op;
        ncclDataType_t type;
        double factor;
    } scaled[NCCLB_SCALED]; /* PREMUL_SUM's, made for this communicator */
    int n_scaled, next_scaled;
};

/* Memory given out by tutti_alloc. */
struct ncclb_block {
    LIST_ENTRY(ncclb_block) link;
    void *memory;
    void *handle; /* its registration with the communicator */
    void *window; /* or that as a window */
    size_t bytes;
    bool driver; /* cuMemAlloc's, else ncclMemAlloc's */
};

struct ncclb_group {
    const tutti_host *host;
    tutti_group_info info;
    struct ncclb_group *first;
    struct ncclb_group *made_from; /* the group that is split for this one; valid while it is opened */
    int color;
    TAILQ_ENTRY(ncclb_group) family_link;
    TAILQ_HEAD(, ncclb_group) family; /* the first one's */
    struct device device;
    struct ncclb_channel main;
    struct ncclb_channel *pairs; /* to each rank, then from each rank; NULL before the first message */
    TAILQ_HEAD(, ncclb_channel) open;
    struct ncclb_marks spare[2]; /* without and with time */
    LIST_HEAD(, ncclb_block) blocks;
    void *word; /* what a barrier reduces */
    int clock;  /* the first one's: a timerfd that wakes the core's poll */
    int64_t moved_ns;
    int64_t note_ns; /* a peer's note is not looked for before this */
    uint32_t calls;
    bool fp8_reduces, aborted, told, noted;
    char why[300];           /* what was told */
    bool coalescing;         /* an NCCL group is open */
    struct ncclb_hand *hand; /* the thread that opens it, likewise */
};

/* The moment ms after now; or never. */
static inline int64_t ncclb_deadline(int64_t now, int64_t ms)
{
    return ms < INT64_MAX / 2000000 ? now + ms * 1000000 : INT64_MAX;
}

/* ---- alone.c ---- */

/* Whether no other rank has the same GPU; the sentence names both and says how to go on. */
int ncclb_check_alone(struct ncclb_group *group);

/* ---- channel.c ---- */

void ncclb_channel_init(struct ncclb_channel *channel, struct ncclb_group *group, int rank, int size, const char *key);

/* Begins to open it, or goes on; the state afterwards says how far it is. */
void ncclb_channel_open(struct ncclb_channel *channel);

/* Looks for errors that NCCL met meanwhile; on one the group is failed. */
void ncclb_channel_watch(struct ncclb_channel *channel, int64_t now);

/* The group cannot go on.  Told once: the first cause is the one that counts. */
void ncclb_tell(struct ncclb_group *group, int status, const char *text);

/* Likewise, and the channel is not used any more; gives status, with the sentence. */
int ncclb_channel_fail(struct ncclb_channel *channel, int status, const char *text);

/* A NCCL error as ours, with its last words and the versions; the group is failed. */
int ncclb_channel_failed(struct ncclb_channel *channel, const char *what, ncclResult_t result);

/* Ends its communicator at once. */
void ncclb_channel_abort(struct ncclb_channel *channel);
void ncclb_channel_close(struct ncclb_channel *channel);

/* Whether NCCL can be asked for something besides operations: it is through with those that it has. */
bool ncclb_channel_is_free(const struct ncclb_channel *channel);

/* Its communicator is there already. */
void ncclb_channel_adopt(struct ncclb_channel *channel, ncclComm_t comm);

/* ---- together.c ---- */

/* Whether tutti_alloc is called by all ranks together, to register windows. */
bool ncclb_has_windows(const struct ncclb_group *group);
int ncclb_make_window(struct ncclb_group *group, struct ncclb_block *block);

/* Takes part in the split of a group's communicator; *comm is the rank's part, if it has a color. */
int ncclb_split(struct ncclb_group *from, int color, int key, ncclComm_t *comm);

/* The same without a part. */
int ncclb_abstain(void *group);

/* Whether communicators are made with their groups. */
bool ncclb_is_eager(const struct ncclb_group *group);

/* ---- hand.c ---- */

/* One that gets no signals: those are the program's.  False: there is none to be had. */
bool ncclb_thread_new(pthread_t *thread, void *(*main)(void *), void *argument);

/* *hand, if NCCL is so old that one is needed and there is none yet. */
int ncclb_hand_new(const struct ncclb_group *group, struct ncclb_hand **hand);

/* fn's answer, called by the hand; by this thread where that is NULL. */
ncclResult_t ncclb_hand_do(struct ncclb_hand *hand, ncclResult_t (*fn)(void *argument), void *argument);

/* After its communicator has ended. */
void ncclb_hand_free(struct ncclb_hand *hand);

/* ---- reap.c ---- */

/* Communicators that are to be ended, up to so many; NULL, with a line in the log, where that cannot be. */
struct reaping *ncclb_reap_new(struct ncclb_group *group, int most);

/* Takes the channel's communicator, if it has one; where reaping is NULL that is left.  gently: what is under way ends
 * first. */
void ncclb_reap_add(struct reaping *reaping, struct ncclb_channel *channel, bool gently);

/* Ends them on threads and waits for that a while; whether they have ended. */
bool ncclb_reap(struct ncclb_group *group, struct reaping *reaping);

/* ---- queue.c ---- */

/* Puts op into the channel: the answer of a native entry. */
int ncclb_queue(struct ncclb_channel *channel, const tutti_op *op, tutti_request *request);

/* What is queued between begin and end is one NCCL group. */
int ncclb_coalesce(void *group, bool begin);

/* Moves what waits in the channel; whether anything did. */
int ncclb_queue_move(struct ncclb_channel *channel, int64_t now);

/* Looks a while whether the request, which waits, comes into its stream. */
void ncclb_queue_hurry(struct ncclb_group *group, const tutti_request *request);

/* Forgets the request where it waits, or where its end is marked. */
void ncclb_queue_forget(struct ncclb_channel *channel, const tutti_request *request);
void ncclb_queue_clear(struct ncclb_channel *channel);

/* ---- mark.c ---- */

/* Marks the end of what was put into stream.  request may be NULL. */
int ncclb_mark(struct ncclb_channel *channel, CUstream stream, const tutti_op *op, tutti_request *request);

/* The channel's next operation begins in its own stream: for how long it takes. */
CUresult ncclb_mark_begin(struct ncclb_channel *channel);

/* Lets stream wait for the channel's latest mark if that is in another stream. */
int ncclb_mark_follow(struct ncclb_channel *channel, CUstream stream);

/* Whether what the mark is behind has ended. */
bool ncclb_mark_has_ended(const struct ncclb_mark *mark);

/* Completes what has ended; whether anything did. */
int ncclb_mark_move(struct ncclb_channel *channel, int64_t now);
void ncclb_mark_clear(struct ncclb_channel *channel);
void ncclb_mark_free(struct ncclb_mark *mark);

/* ---- collect.c, reduce.c ---- */

/* Hands op to NCCL on stream. */
ncclResult_t ncclb_collect(struct ncclb_channel *channel, const tutti_op *op, CUstream stream);
ncclResult_t ncclb_reduce(struct ncclb_channel *channel, const tutti_op *op, CUstream stream);

/* Whether NCCL can: UNSUPPORTED with a sentence where not. */
int ncclb_reduce_check(const struct ncclb_group *group, const tutti_op *op);

/* ---- notes.c ---- */

int ncclb_notify(void *group, int32_t peer, const void *message, size_t bytes);
void ncclb_look_for_note(struct ncclb_group *group, int64_t now);

/* ---- memory.c ---- */

int ncclb_alloc(void *group, size_t bytes, void **memory);
int ncclb_free(void *group, void *memory);
void ncclb_memory_register(struct ncclb_group *group);

/* quiet: no operation may be using it. */
void ncclb_memory_close(struct ncclb_group *group, bool quiet);

/* ---- backend.c ---- */

/* Ends the communicators; operations under way let go of their memory. */
void ncclb_abort(void *group);

#endif
