/* The mpi backend: declarations shared by its files.
 *
 *   mpi_backend.c     function table
 *   mpi_start.c       starting MPI, thread rules
 *   mpi_end.c         finalizing MPI
 *   mpi_rendezvous.c  mapping to ranks of MPI_COMM_WORLD; communicators
 *   mpi_types.c       datatypes and reduce operations
 *   mpi_pending.c     pending MPI requests
 *   mpi_native.c      collectives by MPI's nonblocking ones
 *   mpi_wait.c        sleeping
 *   mpi_doorbell.c    doorbells: waking a rank that sleeps
 *   mpi_message.c     messages with 64-bit tags and fingerprints; with mpi_message.h
 *   mpi_header.c      message headers
 *   mpi_match.c       matching messages with receives
 *
 * Calls into one group tree are serialized by the core, so its state needs no lock.  MPI itself may need one: see
 * mpib_enter.
 */
#ifndef MPIB_H
#define MPIB_H

#include <mpi.h>
#include <pthread.h>
#include <sys/queue.h>
#include <tutti/match.h>

#ifdef OPEN_MPI
#define MPIB_BUILT_FOR "Open MPI"
#else
#define MPIB_BUILT_FOR "MPICH"
#endif

#ifndef MPIB_TABLE
#define MPIB_TABLE "mpi" /* or mpi_openmpi, mpi_mpich, if both are built */
#endif

/* Capacity for the version text of any MPI: the library at run time may differ from the one at build time. */
enum { MPIB_VERSION_MAX = 8192 };
_Static_assert(MPIB_VERSION_MAX >= MPI_MAX_LIBRARY_VERSION_STRING, "MPIB_VERSION_MAX holds this MPI's version text");

/* Maximum data carried by a header; together they stay below every MPI's eager limit. */
enum { MPIB_SHORT = 3072 };

struct mpib_group;

/* ---- doorbells -------------------------------------------------------------------------------------------------- */

enum { MPIB_DOORBELL_ADDRESSES = 8 };

/* Address of a rank's doorbell, exchanged through the store. */
struct mpib_doorbell {
    uint64_t number; /* content of a valid ring */
    uint32_t n;
    struct {
        uint32_t length;
        char bytes[28]; /* a sockaddr */
    } address[MPIB_DOORBELL_ADDRESSES];
};

/* ---- pending requests of MPI ------------------------------------------------------------------------------------- */

/* Owner of an MPI_Request, and what to do when it completes. */
struct mpib_pending {
    tutti_request *request;         /* completed at the end; NULL: none, or abandoned */
    struct mpib_group *group;       /* group of request */
    void *memory;                   /* freed at the end */
    struct mpib_outgoing *outgoing; /* returned to the spare list at the end */
    char *data;                     /* next piece of a long message */
    size_t left;                    /* bytes after that piece has started */
    int32_t peer, tag;
    bool sends, is_message;
    bool ended; /* reported by the current MPI_Testsome, with its error */
    int error;
};

/* ---- group tree -------------------------------------------------------------------------------------------------- */

enum mpib_state {
    MPIB_STARTED,    /* MPI has the request, or it has completed */
    MPIB_POSTED,     /* a receive or probe that has not matched a message */
    MPIB_MISMATCHED, /* a receive of another size than its message; the next progress call reports it */
    MPIB_DEFERRED    /* a message that only the main thread may start */
};

/* A request that MPI does not have yet; stored in request->priv. */
struct mpib_waiting {
    union {
        tutti_match_receive match; /* POSTED; first: see tutti_match_request */
        struct {
            TAILQ_ENTRY(mpib_waiting) link;
            struct mpib_arrived *arrived; /* MISMATCHED: the message */
            bool sends;                   /* DEFERRED */
        };
    };
    struct mpib_group *group;
    enum mpib_state state;
};
_Static_assert(sizeof(struct mpib_waiting) <= sizeof(((tutti_request *)NULL)->priv),
               "a waiting request's state fits it");

TAILQ_HEAD(mpib_waiting_list, mpib_waiting);
LIST_HEAD(mpib_group_list, mpib_group);

struct mpib_peer {
    int n_arrived; /* number of its unexpected messages */
    bool has_left; /* it has exited, so no further messages will arrive */
};

/* The receive whose caller is polling right now. */
struct mpib_awaited {
    struct mpib_group *group;
    tutti_request *request; /* NULL: none */
    tutti_match_key key;
    int status; /* result, once the message has arrived */
    bool has_arrived;
};

/* State of a group tree.  Fields that every message needs come first, since a large copy evicts most of the cache. */
struct mpib_tree {
    const tutti_host *host;
    MPI_Comm comm;      /* for messages; its ranks are the global ranks */
    MPI_Request inbox;  /* persistent receive for headers */
    bool inbox_started; /* inbox is started */
    bool polled_inbox;  /* the last round polled the inbox */
    bool shares_cores;  /* more ranks than cores on this host */
    bool has_moved;     /* something started or completed since moved_ns */
    int n_pending, capacity;
    int n_copies; /* pending short messages that MPI sends from a copy */
    int32_t next_tag;
    MPI_Request *requests; /* pending requests, and in parallel their owners */
    struct mpib_pending *pending;
    struct mpib_envelope *buffer; /* one header with its data */
    struct mpib_outgoing *spare;  /* free buffers for outgoing headers */
    struct mpib_awaited awaited;
    tutti_matcher matcher; /* posted receives and probes; unexpected messages */
    struct mpib_waiting_list mismatched, deferred;
    struct mpib_peer *peers; /* by global rank */
    int n_departed;          /* number of peers that have announced their departure */

    int *done; /* scratch for MPI_Testsome */
    MPI_Status *status;
    int64_t moved_ns;
    int32_t rank;
    void *core;
    struct mpib_group_list groups;
    pthread_t waiter; /* the thread that opened the root group */
    int timer;
    int doorbell_fd;                 /* descriptor of the doorbell, or -1 */
    struct mpib_doorbell *doorbells; /* doorbells of all ranks */
    int rings, rings_due;            /* rings received, and rings required before the doorbell is trusted */
    uint64_t *failed_groups;         /* ids of failed groups, whose messages are discarded */
    int n_failed_groups;
    tutti_counters *counters; /* or NULL */
    bool closing;             /* all messages are discarded */
};

/* TUTTI_MPI_NATIVE */
enum mpib_native { MPIB_NATIVE_MEASURED, MPIB_NATIVE_NEVER, MPIB_NATIVE_ALWAYS };

/* State of one group; the root group's holds the group tree. */
struct mpib_group {
    struct mpib_tree *tree; /* NULL in a group of one rank, which does not use MPI */
    uint64_t id;
    const int32_t *global_ranks;
    int32_t rank, world_size;
    enum mpib_native native;
    const tutti_path_row *choices; /* see mpi_native.c */
    int n_choices;
    MPI_Comm comm; /* communicator for collectives */
    void *core;
    LIST_ENTRY(mpib_group) link;
    bool listed;
    STAILQ_HEAD(, mpib_unsent) unsent; /* root group only: see mpib_tell */
    _Alignas(64) struct mpib_tree own;
};

/* ---- mpi_start.c ----------------------------------------------------------------------------------------------- */

/* Starts MPI unless it is running.  world_size is for the error message. */
int mpib_start(const tutti_host *host, int world_size);

/* Serializes calls of MPI below MPI_THREAD_MULTIPLE.  Returns false if this thread may not call MPI at all. */
bool mpib_enter(void);
bool mpib_main_only(void);
void mpib_leave(void);

/* Bracket calls of MPI that wait for other ranks. */
void mpib_block_begin(void);
void mpib_block_end(void);

/* Count open group trees and remember whether one left operations pending: MPI cannot be finalized then. */
void mpib_tree_opened(void);
void mpib_tree_closed(bool clean);

/* Calls host->error with MPI's text for the error. */
int mpib_error(const tutti_host *host, const char *what, int error);

/* Returns for example "Open MPI v4.1.4". */
const char *mpib_library(void);

/* ---- mpi_end.c ------------------------------------------------------------------------------------------------- */

/* Exits without MPI_Finalize and notifies all ranks. */
void mpib_end_alone(const tutti_host *host, const char *why);

/* Waits until it is known whether all ranks will call MPI_Finalize; returns true if so. */
bool mpib_end_together(const tutti_host *host);

/* ---- mpi_rendezvous.c
 * ------------------------------------------------------------------------------------------------ */

int mpib_create_world(struct mpib_group *group, const tutti_group_info *info);
int mpib_create_subgroup(struct mpib_group *group, const tutti_group_info *info);
/* Entries of the function table: reports whether this rank can create a communicator, and draws a number for it. */
int mpib_ready(void *state);
int mpib_offer(void *state, const tutti_group_info *info, uint8_t *offer);

/* ---- mpi_types.c ----------------------------------------------------------------------------------------------- */

/* Makes the datatypes and reduce operations, once, after MPI has started.  Returns MPI_SUCCESS or MPI's error. */
int mpib_types_make(const tutti_host *host);
void mpib_types_free(void);
MPI_Datatype mpib_type(tutti_dtype dtype); /* MPI_DATATYPE_NULL if none */
MPI_Op mpib_reduce(tutti_reduce_op op);    /* MPI_OP_NULL if none */

/* ---- mpi_pending.c --------------------------------------------------------------------------------------------- */

int mpib_pending_reserve(struct mpib_tree *tree, int n); /* makes room for a few (n) more, or returns NO_MEMORY */
void mpib_pending_add(struct mpib_tree *tree, MPI_Request request, const struct mpib_pending *pending);

/* Starts a long message: data is sent in pieces under one tag. */
int mpib_pending_begin(struct mpib_tree *tree, const struct mpib_pending *pending);

/* Tests the entry of a pending request.  The result is returned, not passed to host->complete: DONE, PENDING or an
 * error. */
int mpib_pending_poll(struct mpib_tree *tree, tutti_request *request);

/* Tests pending requests.  Returns how many have completed. */
int mpib_pending_test(struct mpib_tree *tree);

/* Detaches all pending requests of a group from their owners. */
void mpib_pending_drop(struct mpib_tree *tree, const struct mpib_group *group);

/* Cancels a pending receive.  Returns OK, or an error if it is too late. */
int mpib_pending_cancel(struct mpib_tree *tree, const tutti_request *request);

/* ---- mpi_native.c ---------------------------------------------------------------------------------------------- */

/* Implement entries of tutti_backend. */
extern const tutti_path mpib_paths[];
const char *mpib_explain(void *state, const tutti_op *op);
void mpib_choose(void *state, const tutti_path_row *choices, int32_t n);
/* Adds entries for the operations that MPI may run natively.  is_named: TUTTI_ALGO is set, so any may. */
void mpib_native_fill(enum mpib_native way, bool is_named, tutti_backend *table);

/* ---- mpi_message.c --------------------------------------------------------------------------------------------- */

int mpib_messages_open(struct mpib_tree *tree, int world_size);
void mpib_messages_close(struct mpib_tree *tree);
int mpib_messages_poll(struct mpib_tree *tree);

int mpib_send(void *group, tutti_request *request);
int mpib_recv(void *group, tutti_request *request);
int mpib_recv_reduce(void *group, tutti_request *request);
int mpib_notify(void *group, int32_t peer, const void *message, size_t bytes);
int mpib_tell(void *group, int32_t peer, const void *message, size_t bytes);
void mpib_drop_unsent(struct mpib_group *group);
void mpib_announce_exit(void *group);

int mpib_progress(void *group);

/* ---- mpi_header.c ---------------------------------------------------------------------------------------------- */

/* Start and stop receiving headers. */
int mpib_messages_listen(struct mpib_tree *tree);
void mpib_messages_unlisten(struct mpib_tree *tree);

void mpib_outgoing_release(struct mpib_tree *tree, struct mpib_outgoing *outgoing);

/* ---- mpi_match.c ----------------------------------------------------------------------------------------------- */

int mpib_cancel(void *group, tutti_request *request);

/* Withdraws the posted receives of a group that closes. */
void mpib_messages_drop(struct mpib_group *group);

/* Marks the group as failed.  Messages that peers have started are received and discarded, so that their sends
 * complete. */
void mpib_abort(void *group);

/* Does the same for the whole group tree when it closes, and announces the departure to the peers. */
void mpib_messages_last(struct mpib_tree *tree, int peers);

/* ---- mpi_doorbell.c
 * ------------------------------------------------------------------------------------------------ */

/* Returns a descriptor that polls readable when rung, and its address in *doorbell; -1 if there can be none. */
int mpib_doorbell_open(const tutti_host *host, bool one_host, struct mpib_doorbell *doorbell);

void mpib_doorbell_ring(int fd, const struct mpib_doorbell *doorbell);

/* Returns how many rings have arrived. */
int mpib_doorbell_rings(int fd, uint64_t number);

/* Rings a few other ranks, so that every rank finds out whether rings arrive. */
void mpib_doorbells_probe(struct mpib_tree *tree, int world_size);

/* ---- mpi_wait.c ------------------------------------------------------------------------------------------------ */

int mpib_wait_open(struct mpib_tree *tree, const tutti_group_info *info);
void mpib_wait_close(struct mpib_tree *tree);
int mpib_arm(void *group, int *descriptors);

#endif
