/* The mpi backend: what its files share.
 *
 *   mpi_backend.c  the table
 *   mpi_start.c    starting MPI, which threads may call it
 *   mpi_end.c      leaving it
 *   mpi_meet.c     which rank of MPI_COMM_WORLD each of ours is; communicators
 *   mpi_types.c    datatypes and reduce operations
 *   mpi_flight.c   MPI requests under way
 *   mpi_native.c   collectives by MPI's nonblocking ones
 *   mpi_wait.c     sleeping
 *   mpi_bell.c     waking a rank that sleeps
 *   mpi_message.c  messages with 64-bit tags and fingerprints, over MPI's with small ones; with mpi_message.h
 *   mpi_header.c   what each of them begins with
 *   mpi_match.c    which receive it is for
 *
 * All entries of a family come one at a time, so its state needs no lock.  MPI itself may need one: see mpib_enter.
 */
#ifndef MPIB_H
#define MPIB_H

#include <mpi.h>
#include <pthread.h>
#include <sys/queue.h>
#include <tutti/backend.h>

#ifdef OPEN_MPI
#define MPIB_BUILT_FOR "Open MPI"
#else
#define MPIB_BUILT_FOR "MPICH"
#endif

#ifndef MPIB_TABLE
#define MPIB_TABLE "mpi" /* or mpi_openmpi, mpi_mpich, where both are built */
#endif

/* Room for what any MPI says of itself: what is called may be another one than this was built for. */
enum { MPIB_VERSION_MOST = 8192 };
_Static_assert(MPIB_VERSION_MOST >= MPI_MAX_LIBRARY_VERSION_STRING, "this one's, too");

/* What rides along with its header, which is then less than what any MPI sends at once. */
enum { MPIB_SHORT = 3072 };

struct mpib_group;

/* ---- bells ------------------------------------------------------------------------------------------------------ */

enum { MPIB_BELL_ADDRESSES = 8 };

/* Where a rank can be rung; it goes through the store. */
struct mpib_bell {
    uint64_t number; /* what a ring has to say */
    uint32_t n;
    struct {
        uint32_t length;
        char bytes[28]; /* a sockaddr */
    } address[MPIB_BELL_ADDRESSES];
};

/* ---- requests of MPI under way --------------------------------------------------------------------------------- */

/* What an MPI_Request belongs to, and what follows once it is done. */
struct mpib_flight {
    tutti_request *request;   /* to be completed at the end; NULL: nobody waits any more, or never did */
    struct mpib_group *group; /* of request */
    void *memory;             /* freed at the end */
    struct mpib_slot *slot;   /* to be reused at the end */
    char *data;               /* a long message goes in pieces: the next one's place, */
    size_t left;              /* and how much is to follow */
    int32_t peer, tag;
    bool sends, is_message;
    bool ended; /* as MPI_Testsome has just said, with */
    int error;
};

/* ---- a family of groups ---------------------------------------------------------------------------------------- */

/* A receive that waits for its message, or a message that waits to be begun; lives in request->priv. */
struct mpib_posted {
    TAILQ_ENTRY(mpib_posted) link;
    struct mpib_group *group;
    tutti_request *request;
    struct mpib_arrived *found; /* on the list of found ones: its message, which does not fit */
    bool waits;                 /* on one of the lists */
    bool sends;
};
_Static_assert(sizeof(struct mpib_posted) <= sizeof(((tutti_request *)NULL)->priv),
               "a receive's state fits its request");

TAILQ_HEAD(mpib_posted_list, mpib_posted);
TAILQ_HEAD(mpib_arrived_list, mpib_arrived);
LIST_HEAD(mpib_group_list, mpib_group);

struct mpib_peer {
    struct mpib_arrived_list arrived; /* messages that nobody has asked for yet; they mostly are asked for in order */
    bool has_left;                    /* it has exited: nothing of its comes any more */
};

/* A receive whose caller looks for its message right now. */
struct mpib_awaited {
    struct mpib_group *group;
    tutti_request *request; /* NULL: there is none */
    int status;             /* what its message made of it, once that has come */
    bool has_come;
};

/* What each message needs comes first: after a large one's copy little of it is left in the caches. */
struct mpib_family {
    const tutti_host *host;
    MPI_Comm comm;     /* messages; its ranks are the global ranks */
    MPI_Request inbox; /* the receive for headers; it */
    bool listens;      /* has been started */
    bool hears;        /* the last round looked at it */
    bool shares_cores; /* this host has more ranks than cores for them */
    bool moved;        /* something has ended or begun since moved_ns */
    int n_flights, room;
    int n_copies; /* of the flights: short messages of which MPI still reads a copy */
    int32_t next_tag;
    MPI_Request *requests; /* those under way, and beside each what it is */
    struct mpib_flight *flights;
    struct mpib_envelope *buffer; /* one header with what it carries */
    struct mpib_slot *spare;      /* for headers on their way */
    struct mpib_awaited awaited;
    struct mpib_posted_list posted;
    struct mpib_posted_list found;
    struct mpib_posted_list peeking; /* receives that take nothing */
    struct mpib_posted_list later;   /* sends and receives that only the main thread may begin */
    struct mpib_peer *peers;         /* by global rank */
    int n_peers, n_arrived;
    uint64_t arrivals; /* that there have been */
    int goodbyes;      /* peers whose last word this was */

    int *done; /* scratch of MPI_Testsome */
    MPI_Status *status;
    int64_t moved_ns;
    int32_t rank;
    void *core;
    struct mpib_group_list groups;
    pthread_t waiter; /* the program's thread that opened it */
    int timer;
    int bell;                /* its descriptor; -1: none */
    struct mpib_bell *bells; /* of all ranks */
    int rings, rings_due;    /* heard, and to be heard before it is relied on */
    uint64_t *dead;          /* groups that have failed: nobody takes what still comes for them */
    int n_dead;
    bool closing; /* nobody takes anything any more */
};

/* TUTTI_MPI_NATIVE */
enum mpib_native { MPIB_NATIVE_MEASURED, MPIB_NATIVE_NEVER, MPIB_NATIVE_ALWAYS };

/* The state of one group; the first one's holds the family. */
struct mpib_group {
    struct mpib_family *family; /* NULL where there is one rank: MPI is left alone then */
    uint64_t id;
    const int32_t *global_ranks;
    int32_t rank, world_size;
    enum mpib_native native;
    MPI_Comm comm; /* collectives */
    void *core;
    LIST_ENTRY(mpib_group) link;
    bool listed;
    STAILQ_HEAD(, mpib_untold) untold; /* of the family's first group: see mpib_tell */
    _Alignas(64) struct mpib_family own;
};

/* ---- mpi_start.c ----------------------------------------------------------------------------------------------- */

/* Starts MPI if nobody has.  world_size is for the sentence. */
int mpib_start(const tutti_host *host, int world_size);

/* MPI of less than THREAD_MULTIPLE is called by one thread at a time.  False: this thread may not call it at all. */
bool mpib_enter(void);
bool mpib_main_only(void);
void mpib_leave(void);

/* Around calls of MPI that wait for other ranks. */
void mpib_block_begin(void);
void mpib_block_end(void);

/* Whether families are open, or left operations behind: MPI cannot be finalized then. */
void mpib_family_opened(void);
void mpib_family_closed(bool clean);

/* host->error with MPI's own words. */
int mpib_error(const tutti_host *host, const char *what, int error);

/* "Open MPI 4.1.4" */
const char *mpib_library(void);

/* ---- mpi_end.c ------------------------------------------------------------------------------------------------- */

/* This rank exits without MPI_Finalize, and says so to all. */
void mpib_end_alone(const tutti_host *host, const char *why);

/* Whether all ranks are about to call MPI_Finalize; waits until that is known. */
bool mpib_end_together(const tutti_host *host);

/* ---- mpi_meet.c ------------------------------------------------------------------------------------------------ */

int mpib_meet_world(struct mpib_group *group, const tutti_group_info *info);
int mpib_meet_members(struct mpib_group *group, const tutti_group_info *info);
/* As the entries of the table: whether this rank can take part in making a communicator, and a number for it. */
int mpib_ready(void *state);
int mpib_offer(void *state, const tutti_group_info *info, uint8_t *offer);

/* ---- mpi_types.c ----------------------------------------------------------------------------------------------- */

/* Once, after MPI has started.  MPI's error, or MPI_SUCCESS. */
int mpib_types_make(const tutti_host *host);
void mpib_types_free(void);
MPI_Datatype mpib_type(tutti_dtype dtype); /* MPI_DATATYPE_NULL: none */
MPI_Op mpib_reduce(tutti_reduce_op op);    /* MPI_OP_NULL: none */

/* ---- mpi_flight.c ---------------------------------------------------------------------------------------------- */

int mpib_flights_reserve(struct mpib_family *family, int n); /* room for n more, a few, or NO_MEMORY */
void mpib_flights_add(struct mpib_family *family, MPI_Request request, const struct mpib_flight *flight);

/* Begins a long message: data goes in pieces under tag. */
int mpib_flights_begin(struct mpib_family *family, const struct mpib_flight *flight);

/* Whether the request's, which is under way, has ended, which then is not completed but told here: DONE, PENDING or an
 * error. */
int mpib_flights_look(struct mpib_family *family, tutti_request *request);

/* How many ended. */
int mpib_flights_test(struct mpib_family *family);

/* Nobody waits any more for what the group has under way. */
void mpib_flights_drop(struct mpib_family *family, const struct mpib_group *group);

/* A receive under way is taken back: OK, or an error where it is too late. */
int mpib_flights_cancel(struct mpib_family *family, const tutti_request *request);

/* ---- mpi_native.c ---------------------------------------------------------------------------------------------- */

/* Gives the table its entries of operations that may be MPI's. */
void mpib_native_fill(enum mpib_native way, tutti_backend *table);

/* ---- mpi_message.c --------------------------------------------------------------------------------------------- */

int mpib_messages_open(struct mpib_family *family, int world_size);
void mpib_messages_close(struct mpib_family *family);
int mpib_messages_poll(struct mpib_family *family);

int mpib_send(void *group, tutti_request *request);
int mpib_recv(void *group, tutti_request *request);
int mpib_recv_reduce(void *group, tutti_request *request);
int mpib_notify(void *group, int32_t peer, const void *message, size_t bytes);
int mpib_tell(void *group, int32_t peer, const void *message, size_t bytes);
void mpib_forget_untold(struct mpib_group *group);
void mpib_left(void *group);

int mpib_progress(void *group);

/* ---- mpi_header.c ---------------------------------------------------------------------------------------------- */

/* From here on headers are taken in; until here. */
int mpib_messages_listen(struct mpib_family *family);
void mpib_messages_deafen(struct mpib_family *family);

void mpib_slot_give(struct mpib_family *family, struct mpib_slot *slot);

/* ---- mpi_match.c ----------------------------------------------------------------------------------------------- */

int mpib_cancel(void *group, tutti_request *request);

/* The group is closed: its receives wait no more. */
void mpib_messages_drop(struct mpib_group *group);

/* The group has failed: what peers have begun to send for it is taken in and dropped, or they could never end. */
void mpib_abort(void *group);

/* The same for all of the family, at its end; tells the peers that nothing more will come from here. */
void mpib_messages_last(struct mpib_family *family, int peers);

/* ---- mpi_bell.c ------------------------------------------------------------------------------------------------ */

/* A descriptor that polls readable when it is rung, and where; -1 where there can be none. */
int mpib_bell_open(const tutti_host *host, bool one_host, struct mpib_bell *bell);

void mpib_bell_ring(int fd, const struct mpib_bell *bell);

/* How many rings have come in. */
int mpib_bell_rings(int fd, uint64_t number);

/* Each rank rings some others, so that all find out whether rings reach them. */
void mpib_bells_try(struct mpib_family *family, int world_size);

/* ---- mpi_wait.c ------------------------------------------------------------------------------------------------ */

int mpib_wait_open(struct mpib_family *family, const tutti_group_info *info);
void mpib_wait_close(struct mpib_family *family);
int mpib_arm(void *group, int *descriptors);

#endif
