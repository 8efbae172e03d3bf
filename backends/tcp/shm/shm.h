/* Shared memory between the ranks of one host: attaching, the segment, and messages through it.
 *
 * The ranks of a group tree that can attach each other share one segment: a sealed, unnamed memfd.  The lowest of these
 * ranks creates it and passes it over a unix socket (attach.c).  Each rank has a local rank and an entry in it.  Every
 * ordered pair of ranks has a ring (ring.c), and groups have collective segments (coll/coll.h).  A `rank` that is not a
 * local rank is a global rank of the tree.  All calls are made under the tree's lock.
 *
 * All pages are reserved before use, so a lack of memory is an error at startup and never SIGBUS.  Everything read from
 * the segment is checked like data from a network, because a faulty rank may have written anything.
 */
#ifndef SHM_H
#define SHM_H

#include <sched.h>
#include <stdatomic.h>
#include <sys/queue.h>
#include <sys/types.h>
#include <tutti/backend.h>

#include "tcp/base/peer_handshake.h"
#include "tcp/base/spares.h"
#include "tcp/base/transport.h"
#include "tcp/shm/moves.h"

enum {
    SHM_RANKS_MAX = 256, /* maximum ranks of one host in a segment; further ranks use the network */
    SHM_LINE = 128,      /* alignment that separates writers: two cache lines, because processors prefetch pairs */
    SHM_TINY = 16,       /* maximum payload in a slot's first line */
    SHM_INLINE = 104,    /* maximum payload in a slot */
    SHM_SEGMENTS = 64    /* maximum groups of one tree with a collective segment at the same time */
};

/* A message in a ring.  `turn` counts messages from 1 over the ring's lifetime, so a stale value cannot be mistaken for
 * the current one.  A short message is one line: a reduced header (ring_slot.h) and the payload. */
struct shm_slot {
    _Atomic uint64_t turn;
    uint32_t bytes; /* payload bytes, ORed with SHM_FULL_HEADER */
    uint8_t kind, flags, unused[2];
    uint64_t group, tag, fingerprint, credit;
    uint8_t tiny[SHM_TINY];
    /* The second cache line begins here. */
    uint64_t size, id, ref;      /* valid with SHM_FULL_HEADER */
    uint8_t payload[SHM_INLINE]; /* more than SHM_TINY bytes; more than SHM_INLINE go to the ring's byte area */
};
_Static_assert(sizeof(struct shm_slot) == 3 * 64, "slots are whole cache lines");

/* A ring from one rank to another.  The reader writes the first line, the writer all others.  Its byte area and its
 * copy-in/copy-out FIFO are elsewhere: see shm_measure. */
struct shm_ring {
    _Alignas(SHM_LINE) _Atomic uint64_t slots_read; /* slots that the writer may reuse */
    _Atomic uint64_t bytes_read;
    _Atomic uint64_t fifo_read;
    _Alignas(SHM_LINE) _Atomic uint64_t wants_space; /* the writer sleeps until there is space */
    _Atomic uint32_t closed; /* the writer has closed the link and serves no more single-copy reads */
    _Atomic uint64_t fifo_written;
    _Alignas(SHM_LINE) struct shm_slot slot[];
};

/* A rank's entry.  Others write its first line only to wake it, and moved_ns. */
struct shm_rank {
    _Alignas(SHM_LINE) _Atomic uint64_t asleep;
    _Alignas(SHM_LINE) int32_t pid; /* in the rank's own pid namespace */
    cpu_set_t cores;                /* the rank's affinity mask */
    _Atomic uint32_t core;          /* where it last polled in vain or woke a rank: a core's number plus 1 */
    _Atomic uint32_t prefers, load; /* the number of its core plus 1, and its share of a core: see balance.c */
    _Atomic int64_t load_ns;        /* when it measured that */
    _Atomic int64_t moved_ns;       /* of the first rank: when a rank last left a core for the balance */
    uint64_t probe_at;              /* address in the rank of a 16-byte probe with the content below */
    uint8_t probe[HANDSHAKE_NONCE];
    _Atomic uint64_t arena_at; /* address of the arena in the rank, or 0 while unused */
};

/* An entry of the directory of collective segments: see directory.c.  Not bool: a peer writes these fields, and reading
 * a bool that is neither 0 nor 1 is undefined. */
struct shm_directory_entry {
    _Atomic uint32_t state;
    _Atomic uint32_t left; /* ranks of the group that have closed it */
    _Atomic uint64_t last; /* no group up to this one has posted a later step */
    /* Written by the rank that reserves or releases the entry. */
    _Atomic uint64_t bytes; /* of the memory that the segment has */
    uint64_t first;         /* the group's first step */
    uint32_t ranks;         /* the number of ranks whose layout that memory has */
};

struct shm_directory {
    _Alignas(SHM_LINE) struct shm_directory_entry entry[SHM_SEGMENTS];
};

/* A rank's view of a peer. */
struct shm_peer {
    int32_t rank;
    int local_rank;
    bool lost;
    char why[96];
    int doorbell_fd; /* the eventfd that wakes the peer; -1 for this rank itself */
    int liveness_fd; /* readable or hung up once the peer has exited; -1 for this rank itself */
    int arena_fd;    /* descriptor of the peer's arena: see arena.c; -1 once a part is mapped */
    char *mapped;    /* the mapped part of the peer's arena */
    size_t mapped_bytes;
    pid_t pid;
    struct shm_ring *out, *in;
    char *out_bytes, *in_bytes; /* the byte areas of the rings, each followed by a FIFO */
    size_t out_room, out_fifo;  /* bytes of the byte area and the FIFO of `out` that have memory */
    uint64_t slots_written, bytes_written, slots_consumed, bytes_consumed; /* this end's counters of each ring */
    uint64_t slots_freed, bytes_freed; /* last known slots_read and bytes_read of `out` */
    /* FIFO as writer: bytes written, still to write, known to be read */
    uint64_t fifo_written, fifo_unsent, fifo_freed;
    uint64_t fifo_consumed, fifo_expected; /* FIFO as reader: bytes read, still to read */
    struct shm_messages *messages;         /* calls of messages to the peer, by size class; NULL: none so far */
    struct shm_moves *stores;              /* copies of larger data to the peer: see stores.h; NULL: none so far */
    struct shm_moves *offers;              /* messages that it has offered: see offers.h; NULL: none so far */
    STAILQ_HEAD(, shm_waiting) waiting;    /* messages that wait for space in the ring */
};

/* Messages of one size class to a peer: see message_path.c. */
struct shm_messages {
    struct choice measured;
    uint64_t calls, end;   /* messages so far that followed none of the peer; the first one after the current span */
    uint64_t turn;         /* the turn of the last one, */
    bool waited;           /* and whether its sender waited for it */
    int64_t begin_ns;      /* when the current round began, or 0 if it is not timed */
    int in_round, n_timed; /* messages in the current round, and timed rounds in the current span */
    uint64_t followed;     /* the other messages so far */
    unsigned heard;        /* the path of the peer's last message, as a bit */
    int follows;           /* messages that may still follow that one */
};

struct shm_waiting {
    STAILQ_ENTRY(shm_waiting) link;
    struct transport_header header;
    size_t bytes;
    uint8_t payload[];
};

struct shm;
/* The collectives' part of the segment, which this layer only measures and reserves. */
struct shm_colls {
    size_t (*bytes)(int n); /* returns the bytes of a collective segment for n ranks */
    /* Reserves the first segment for all n ranks.  If it cannot, every rank finds no reserved segment in the
     * directory. */
    int (*reserve)(struct shm *shm, int n);
};

/* The write end of the liveness pipe, which this process alone holds.  Its identity distinguishes it from a later
 * descriptor with the same number. */
struct shm_held {
    int fd;
    dev_t device;
    ino_t inode; /* 0: no pipe yet */
};

/* What a peer may sleep for: this rank's messages, and the space that this rank has freed in the peer's ring. */
enum shm_store { SHM_WRITTEN, SHM_FREED, SHM_STORES };

/* The arena of this rank. */
struct shm_arena {
    char *base; /* NULL until first used */
    size_t bytes;
    TAILQ_HEAD(, shm_block) blocks; /* allocated blocks, in order of address */
    bool is_read;                   /* a peer may still read freed memory, because an operation was abandoned */
};

/* How this rank measures its load: see balance.c. */
struct shm_load {
    int64_t begin_ns, cpu_ns, work_ns; /* the window's begin, processor time at the last look, and what was computed */
    uint32_t pause_ns;                 /* what a pause takes */
    int better;                        /* the core that was the best one at the end of the last window */
};

struct shm {
    struct transport transport; /* must be the first member */
    struct transport_config config;
    int n, local_rank;              /* number of ranks; local rank of this one */
    struct shm_peer *peer;          /* by local rank */
    int16_t *local_rank_of;         /* by global rank; -1 if not in the segment */
    bool can_read_memory;           /* every rank may read every other's memory (CMA) */
    bool can_share;                 /* every rank can map every other's arena */
    struct transport_writes writes; /* writes under way or waiting for the FIFO, oldest first: see stream.c */
    struct transport_memories exposed, incoming; /* exposed memory, before and while its bytes arrive */
    void *scratch;                               /* TRANSPORT_REDUCE_MAX bytes: see transport.c */
    struct shm_arena arena;
    size_t arena_bytes;   /* size of each rank's arena */
    int polls, polls_max; /* polls before an awaited operation is left pending: see shm_polled */
    unsigned misses;      /* consecutive poll rounds that found nothing */
    bool shares_cores;    /* not every rank has a core, which all ranks find alike; then yield between polls */
    struct spares spares; /* memory of messages that wait for space in a ring */
    int next_any;         /* the local rank that was polled last for a message from any source */
    unsigned pauses;
    uint64_t turns;     /* rounds of progress: sends without one between them follow each other without a wait */
    int preferred_core; /* this rank's preferred core, or -1 */
    bool moved;         /* the balance needs this rank on another core than its own, */
    int balanced_core;  /* on this one */
    struct shm_load load;
    int64_t migrate_ns, migrate_gap_ns; /* earliest time of the next migration, and the minimum gap after it */
    struct shm_held held;
    bool disowned;                        /* the program closed this process's descriptors: see liveness.c */
    int memfd, doorbell_fd, watch;        /* watch: epoll set of the peers' liveness descriptors */
    size_t slots, ring_bytes, fifo_bytes; /* of each ring: see shm_measure */
    size_t ring_span, bytes_span, coll_span, rings_at, bytes_at, colls_at;
    size_t bytes;
    char *base;
    bool armed, is_unsettled;
    int n_unsettled;                                    /* operations begun since */
    uint64_t unsettled[SHM_STORES][SHM_RANKS_MAX / 64]; /* bits of local ranks: see shm_settle */
    bool has_rung;                                      /* it has woken a rank since it last made progress */
    bool has_lost;                                      /* at least one peer's link has ended */
    unsigned rounds;                                    /* progress calls, for periodic checks */
    int coll_refused; /* errno of a failed reservation of a collective segment, until reported */
    uint8_t *probe;   /* HANDSHAKE_NONCE bytes that other ranks read to identify this process: see segment.c */
};

/* ---- attach.c ------------------------------------------------------------------------------------------ */

/* Attaches the ranks that share memory with this one.  All come to the same result.  *shm is NULL if there are none.
 * Returns an error if a peer may have come to another result. */
int shm_open_host(const struct transport_config *config, const struct shm_colls *colls, struct shm **shm);
void shm_close(struct shm *shm);

/* ---- liveness.c -------------------------------------------------------------------------------------------- */

/* Creates a liveness descriptor, which hangs up when this process exits, execs or closes its descriptors. */
bool shm_liveness_open(const tutti_host *host, int *liveness_fd, struct shm_held *held);
void shm_liveness_close(const tutti_host *host, struct shm_held *held);
/* True if the program has closed this process's descriptors.  Their numbers may then belong to the program's own files,
 * so the library must not write to them, map them or close them. */
bool shm_is_disowned(struct shm *shm);

/* ---- segment.c ----------------------------------------------------------------------------------------- */

/* Computes the layout of a segment for n ranks.  Fills the fields from `slots` to `bytes`. */
void shm_measure(struct shm *shm, int n, size_t group_bytes);
/* Returns a resource limit, for example RLIMIT_FSIZE, or SIZE_MAX if there is none. */
size_t shm_allowed(int resource);
/* Creates a segment and reserves the pages of its first `reserved` bytes.  Returns a descriptor, or -1 with errno. */
int shm_segment_make(size_t bytes, size_t reserved);
/* True if fd is a sealed segment of this size. */
bool shm_segment_is_sound(int fd, size_t bytes);
/* Takes memory for a range of a memfd at once, so that a lack of memory is an error here and no later access fails.
 * Returns false, with errno, if there is none; a part of the range may have memory then.  Kernels before 6.2 give up
 * with EINTR at a signal, so it tries again, in steps that end between the signals of a timer. */
bool shm_take_pages(int fd, size_t at, size_t bytes);
/* Maps the segment and fills this rank's entry. */
bool shm_map(struct shm *shm);
/* Finds the rings to and from all peers in the mapped segment. */
void shm_find_rings(struct shm *shm);
/* Takes memory for `bytes` at `at` of the areas of the ring to a peer, so that no later access fails.  Returns false,
 * with errno, if there is none. */
bool shm_reserve(struct shm *shm, int local_rank, size_t at, size_t bytes);
static inline struct shm_rank *shm_rank_at(const struct shm *shm, int local_rank)
{
    return (struct shm_rank *)(void *)shm->base + local_rank;
}
void *shm_coll_at(const struct shm *shm, int index);
struct shm_directory *shm_directory(const struct shm *shm);
/* Takes memory for the first bytes of a collective segment, or releases all of it, which then reads as zeros.  Returns
 * false on failure. */
bool shm_coll_reserve(struct shm *shm, int index, size_t bytes);
bool shm_coll_release(struct shm *shm, int index);
/* True if this rank can read the memory of all ranks that are present. */
bool shm_probe(struct shm *shm, const bool *present);
/* Reads a peer's memory with a single copy, by mapping or CMA.  Returns false if the peer has exited or the address is
 * invalid.  The data is valid only if shm_is_open returns true afterwards: a pid may have been reused, or the link
 * closed. */
bool shm_read_memory(struct shm *shm, int local_rank, void *to, uint64_t from, size_t bytes);
/* The same for at most 1 GiB, but also returns false if the pid belongs to another program by now.  The data is valid
 * only if shm_has_closed returns false afterwards. */
bool shm_read_verified(struct shm *shm, int local_rank, void *to, uint64_t from, size_t bytes);

/* ---- arena.c ------------------------------------------------------------------------------------------- */

/* Creates an arena for this rank.  Returns a descriptor, or -1. */
int shm_arena_make(void);
bool shm_arena_is_sound(int fd);
/* Maps the first page of a peer's arena.  The mapping grows without the descriptor.  Returns false if it fails. */
bool shm_arena_map_first(struct shm_peer *peer);
size_t shm_arena_bytes(void);
/* Implement tutti_backend.alloc and free. */
int shm_alloc(struct shm *shm, size_t bytes, void **memory);
int shm_free(struct shm *shm, void *memory);
/* Implements tutti_backend.reclaim. */
void shm_reclaim(void *memory, size_t bytes);
/* True if the range is in this rank's arena and the peers can map the arena. */
bool shm_is_shared(const struct shm *shm, const void *memory, size_t bytes);
/* Returns the local mapping of a range in a peer's arena, or NULL if it is not in the arena.  Valid until the next call
 * for this peer.  As with shm_read_memory, the data are valid only if the peer has not withdrawn them meanwhile. */
const void *shm_arena_at(struct shm *shm, int local_rank, uint64_t from, size_t bytes);
void shm_arena_close(struct shm *shm);

/* ---- message_path.c ---------------------------------------------------------------------------------------- */

enum { SHM_EAGER_MAX = 16 << 10 }; /* up to this size, a copy into the ring and one out of it are the fastest */

/* The paths of messages, for tutti_backend.paths. */
#define SHM_MESSAGE_PATHS                                                                                              \
    {TUTTI_SEND, TRANSPORT_EAGER, "eager"}, {TUTTI_SEND, TRANSPORT_READ, "read"},                                      \
    {                                                                                                                  \
        TUTTI_SEND, TRANSPORT_WRITE, "fifo"                                                                            \
    }

/* Implements transport_ops.choose. */
enum transport_path shm_choose_path(struct shm *shm, int local_rank, const tutti_request *request, bool may_eager,
                                    bool blocked, const tutti_path_row *choice);
/* Implements transport_ops.hear. */
void shm_hear_path(struct shm *shm, int local_rank, size_t bytes, enum transport_path path);
/* Returns text about the path of a message whose sender is not blocked, for tutti_backend.explain.  The text is valid
 * until this thread's next call. */
const char *shm_explain_message(struct shm *shm, size_t bytes, const tutti_path_row *choice);

/* ---- non_temporal.c ------------------------------------------------------------------------------------------ */

/* Copies with non-temporal stores. */
void shm_copy_non_temporal(void *to, const void *from, size_t bytes);

/* ---- cores.c ------------------------------------------------------------------------------------------- */

/* True if each of these ranks can have a core of its own. */
bool shm_have_cores(const struct shm *shm, const bool *present);
/* Returns the number of cores that the host's ranks have together. */
int shm_count_cores(const struct shm *shm);
/* True if there are two cores for each rank of the host, so that progress threads take no time from the program. */
bool shm_have_spare_cores(const struct shm *shm);

/* ---- affinity.c ------------------------------------------------------------------------------------------ */

enum { SHM_RESTORE_EVERY = 64 }; /* yields between two looks at the cores, if ranks share them */

/* Moves this rank's thread back to its preferred core if it has been migrated, or to a core that carries less. */
void shm_affinity_restore(struct shm *shm);
/* Moves this rank to its preferred core if another rank shares its core, although each could have one.  If it is there
 * or has moved a moment ago, it yields to the other one. */
void shm_affinity_spread(struct shm *shm);

/* ---- balance.c ------------------------------------------------------------------------------------------- */

/* Measures this rank's load, at each look at the cores.  Returns true once a window. */
bool shm_measure_load(struct shm *shm, int64_t now_ns);
/* Returns the core of the mask that this rank, which prefers `core`, is to prefer.  `home` is its own one.  Call it
 * when a load has been measured. */
int shm_balance(struct shm *shm, int core, int home, const cpu_set_t *mask);

/* ---- fifo.c ------------------------------------------------------------------------------------------ */

/* Takes memory for what a message of this size needs of the FIFO to this peer.  Returns false if there is none. */
bool shm_fifo_reserve(struct shm *shm, int local_rank, size_t bytes);
/* Starts a message to this peer.  Returns its start in the FIFO, which its SHM_STREAM carries.  The previous message
 * must have ended. */
uint64_t shm_fifo_begin(struct shm *shm, int local_rank, uint64_t bytes);
/* Copies in as many of the message's next bytes, at `data`, as fit.  Returns how many. */
size_t shm_fifo_copy_in(struct shm *shm, int local_rank, const void *data);
/* True if there is space for a piece. */
bool shm_fifo_has_space(struct shm *shm, int local_rank);
/* Abandons the rest of the message. */
void shm_fifo_abandon(struct shm *shm, int local_rank);
/* Starts to receive the message that begins at `start`.  Returns false if that is invalid. */
bool shm_fifo_open(struct shm *shm, int local_rank, uint64_t start, uint64_t bytes);
/* Returns the next complete piece, or NULL if it has not arrived or none is due. */
const void *shm_fifo_peek(struct shm *shm, int local_rank, size_t *bytes);
/* Releases a piece, so that the writer may reuse its space. */
void shm_fifo_release(struct shm *shm, int local_rank, size_t bytes);
/* Abandons the rest of the message being received. */
void shm_fifo_close(struct shm *shm, int local_rank);

/* ---- stream.c ---------------------------------------------------------------------------------------------- */

/* This transport's own kind of message: the FIFO carries `bytes` for the memory exposed under `ref`.  `id` is 1 plus
 * the start in the FIFO. */
enum { SHM_STREAM = TRANSPORT_KINDS };

/* Implement entries of transport_ops. */
void shm_write(struct shm *shm, int32_t rank, struct transport_write *write);
bool shm_unwrite(struct shm *shm, struct transport_write *write);
void shm_expose(struct shm *shm, int32_t rank, struct transport_memory *memory);
void shm_conceal(struct shm *shm, struct transport_memory *memory);
/* Handles a SHM_STREAM. */
void shm_stream_begin(struct shm *shm, int32_t rank, const struct transport_header *header);
/* Completes streams that have arrived in full.  Called when the link to rank has ended. */
void shm_stream_finish(struct shm *shm, int32_t rank);
int shm_stream_progress(struct shm *shm);

/* ---- transport.c ------------------------------------------------------------------------------------------- */

/* Initializes and returns the transport, or returns NULL with an error text if out of memory. */
struct transport *shm_transport(struct shm *shm);

/* ---- ring.c -------------------------------------------------------------------------------------------- */

static inline int shm_local_rank(const struct shm *shm, int32_t rank)
{
    return shm != NULL ? shm->local_rank_of[rank] : -1;
}

/* Implements transport_ops.send. */
int shm_send(struct shm *shm, int local_rank, const struct transport_header *header, const void *payload, size_t bytes);
/* True if the ring has space for a message.  Takes no memory for it. */
bool shm_fits(struct shm *shm, int local_rank, size_t bytes);
/* Takes memory for the first `bytes` of the byte area, at least.  Returns false if there is none. */
bool shm_ring_reserve(struct shm *shm, int local_rank, size_t bytes);
/* Withdraws the message with this kind and id if it still waits for space. */
bool shm_unsend(struct shm *shm, int local_rank, uint8_t kind, uint64_t id);
void shm_drop(struct shm *shm, int local_rank, const char *why, bool notify);
/* Drops a peer because this rank could take no memory for messages to it.  Returns the error. */
int shm_drop_starved(struct shm *shm, int local_rank);
int shm_progress(struct shm *shm);
/* Handles up to `most` of the messages that have arrived from one peer.  Returns how many. */
int shm_read(struct shm *shm, int local_rank, size_t most);
/* Drops a peer whose memory could not be read or whose link has closed.  Handles its pending messages first, because
 * they may carry the cause. */
void shm_unreadable(struct shm *shm, int local_rank);
/* Drops the peers that have exited.  Returns how many. */
int shm_check_liveness(struct shm *shm);
/* True if the peer has closed the link.  If not, it has not reused the memory of its messages before this call. */
bool shm_has_closed(struct shm *shm, int local_rank);
/* True if the peer is alive and has not closed the link. */
bool shm_is_open(struct shm *shm, int local_rank);
/* Marks this rank as asleep.  Returns the number of descriptors to sleep on, or 0 if something has arrived. */
int shm_arm(struct shm *shm, int *descriptors);
/* Pauses between polls, because each poll takes the cache line from its writer. */
static inline void shm_relax(void)
{
#if defined __x86_64__
    __builtin_ia32_pause();
#elif defined __aarch64__
    __asm__ volatile("isb");
#endif
}

/* Adapts the number of polls.  Polling pays if the peers are about to arrive.  If another process uses the
 * peers' cores, polling only delays them, so the number is halved until polls succeed again. */
static inline void shm_polled(struct shm *shm, bool found)
{
    enum { POLLS_MIN = 2, RETRY_EVERY = 32 };
    if (shm->shares_cores) return;
    if (!found) shm_affinity_spread(shm);
    if (found || ++shm->misses % RETRY_EVERY == 0)
        shm->polls = shm->polls_max;
    else if (shm->polls > POLLS_MIN)
        shm->polls /= 2;
}

/* ---- wake.c -------------------------------------------------------------------------------------------- */

/* Wakes a peer that was seen asleep.  Returns false if it is awake, or another waker was first. */
bool shm_ring_doorbell(struct shm *shm, int local_rank);
/* Wakes the writer of a ring if it sleeps until there is space.  shm_settle repeats the check. */
void shm_wake_writer(struct shm *shm, int local_rank);
void shm_settle_all(struct shm *shm);

/* Repeats the checks of shm_wake and shm_wake_writer behind a fence, so that no wake-up is lost.  Functions of this
 * layer that let the rank wait call it.  Their caller calls it after shm_arm, and shm_settle_sometimes before
 * shm_send. */
static inline void shm_settle(struct shm *shm)
{
    if (shm->is_unsettled) shm_settle_all(shm);
}

/* Begins an operation: settles if several have begun since a store.  Their own checks find most sleepers. */
static inline void shm_settle_sometimes(struct shm *shm)
{
    enum { OPERATIONS = 8 };
    if (shm->is_unsettled && ++shm->n_unsettled >= OPERATIONS) shm_settle_all(shm);
}

static inline void shm_unsettle(struct shm *shm, enum shm_store store, int local_rank)
{
    unsigned bit = (unsigned)local_rank; /* unsigned: divided by a shift */
    shm->unsettled[store][bit / 64] |= UINT64_C(1) << bit % 64;
    shm->is_unsettled = true;
}

/* Wakes a peer if it sleeps.  The caller must have stored everything that the peer is to see. */
static inline void shm_wake(struct shm *shm, int local_rank)
{
    /* relaxed: shm_settle covers a load that is too early: see wake.c.  The fence keeps the compiler from moving the
     * load before the store. */
    atomic_signal_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&shm_rank_at(shm, local_rank)->asleep, memory_order_relaxed) == 0 ||
        !shm_ring_doorbell(shm, local_rank))
        shm_unsettle(shm, SHM_WRITTEN, local_rank);
}

/* Pauses between two polls of the peers, or yields if ranks share cores. */
static inline void shm_pause(struct shm *shm)
{
    if (!shm->shares_cores) {
        shm_relax();
        return;
    }
    shm_settle(shm); /* the core may go to another process for a while */
    sched_yield();
    if (++shm->pauses % SHM_RESTORE_EVERY == 0) shm_affinity_restore(shm);
}

#endif
