/* Shared memory between the ranks of one host: attaching, the segment, and messages through it.
 *
 * The ranks of a group tree that can attach each other share one segment: a sealed, unnamed memfd, created by the
 * lowest of them and passed over a unix socket (shm_attach.c).  Each rank has a seat in it, its local rank.  Every
 * ordered pair of ranks has a ring (shm_ring.c), and groups have collective segments, called boards (coll.c).  Ranks
 * here are global ranks of the tree.  All calls are made under the tree's lock.
 *
 * A seat's pages are reserved before use, so a lack of memory is an error at startup and never SIGBUS.  Everything read
 * from the segment is checked like data from a network, because a faulty rank may have written anything.
 */
#ifndef SHM_H
#define SHM_H

#include <sched.h>
#include <stdatomic.h>
#include <sys/queue.h>
#include <sys/types.h>
#include <tutti/backend.h>

#include "tcp/base/cost_model.h"
#include "tcp/base/wire.h"

enum {
    SHM_SEATS = 256, /* ranks of one host in a segment; further ranks use the network */
    SHM_LINE = 128,  /* alignment that separates writers: two cache lines, since processors prefetch pairs */
    SHM_TINY = 16,
    SHM_INLINE = 104,
    SHM_BOARDS = 64 /* groups of one tree that have a collective segment at the same time */
};

/* A message in a ring.  turn counts messages from 1 over the ring's lifetime, so a stale value cannot be mistaken for
 * the current one.  A short message is one line: a reduced header (shm_cell.h) and the payload. */
struct shm_cell {
    _Atomic uint64_t turn;
    uint32_t bytes; /* of the payload, ORed with SHM_NAMED */
    uint8_t kind, flags, unused[2];
    uint64_t group, tag, fingerprint, credit;
    uint8_t tiny[SHM_TINY];
    /* Second line. */
    uint64_t size, id, ref;      /* valid with SHM_NAMED */
    uint8_t payload[SHM_INLINE]; /* payload of at most SHM_INLINE bytes that is not tiny; longer payload is in the
                                    ring's byte area */
};

/* A ring from one rank to another.  The reader writes the first line, the writer all others.  The byte area and the
 * copy-in/copy-out FIFO follow the slots. */
struct shm_ring {
    _Alignas(SHM_LINE) _Atomic uint64_t cells_read; /* slots the writer may reuse */
    _Atomic uint64_t bytes_read;
    _Atomic uint64_t window_read;
    _Alignas(SHM_LINE) _Atomic uint64_t wants_room; /* the writer sleeps and waits for space */
    _Atomic uint32_t closed; /* the writer has closed the link and serves no more single-copy reads */
    _Atomic uint64_t window_put;
    _Alignas(SHM_LINE) struct shm_cell cell[];
};

/* A rank's seat.  Others write its first line only to wake it. */
struct shm_seat {
    _Alignas(SHM_LINE) _Atomic uint64_t asleep;
    _Alignas(SHM_LINE) int32_t pid; /* in the rank's own pid namespace */
    cpu_set_t cores;                /* its affinity mask */
    uint64_t probe_at;              /* address of a 16-byte probe in the rank, and its content */
    uint8_t probe[WIRE_NONCE];
    _Atomic uint64_t arena_at; /* address of its arena, or 0 if unused */
};

/* Directory of collective segments: see directory.c.  Not bool: a peer writes these fields, and reading a bool
 * that is neither 0 nor 1 is undefined. */
struct shm_entry {
    _Atomic uint32_t state;
    _Atomic uint32_t left; /* ranks of the group that have closed it */
    uint32_t has_pages;    /* written by the rank that reserves or releases the entry */
};

struct shm_directory {
    _Alignas(SHM_LINE) struct shm_entry entry[SHM_BOARDS];
};

/* A rank's view of a peer's seat. */
struct shm_peer {
    int32_t rank;
    int seat;
    bool lost;
    char why[96];
    int bell;   /* eventfd doorbell that wakes the peer; -1 for this rank's own */
    int life;   /* liveness descriptor: readable or hung up once the peer has exited; -1 for this rank's own */
    int arena;  /* descriptor of its arena: see shm_arena.c; -1 once part of it is mapped */
    char *seen; /* the part of the arena mapped here */
    size_t seen_bytes;
    pid_t pid;
    struct shm_ring *out, *in;
    uint64_t cells_put, bytes_put, cells_got, bytes_got; /* this end's counters of each ring */
    uint64_t cells_free, bytes_free;                     /* last known cells_read, bytes_read of `out` */
    uint64_t window_put, window_owed,
        window_free;                 /* FIFO as writer: bytes written, bytes still to write, bytes known to be read */
    uint64_t window_got, window_due; /* FIFO as reader: bytes read, bytes still to read */
    struct cost_model pace;          /* cost model of large messages to it */
    struct cost_model puts;          /* cost model of copies into the FIFO: see shm_put.c */
    STAILQ_HEAD(, shm_waiting) waiting; /* messages waiting for space */
};

struct shm_waiting {
    STAILQ_ENTRY(shm_waiting) link;
    struct wire_header header;
    size_t bytes;
    uint8_t payload[];
};

struct shm_events {
    /* The header is a private copy, not yet validated; the peer can change the payload at any time. */
    void (*message)(void *user, const struct wire_header *header, const void *payload, size_t bytes);
    void (*lost)(void *user, int32_t rank, const char *why);
};

struct shm;
struct shm_config {
    int32_t rank, world_size;
    int32_t local_world_size; /* -1 if unknown */
    uint64_t family;
    int64_t timeout_ms, open_timeout_ms;
    const tutti_host *host;
    tutti_store *store;
    const struct shm_events *events;
    void *user;
    /* For collectives.  group_bytes returns the bytes of the segment that a group of n ranks takes.  take_group takes
     * the first ones of a new segment for all n ranks; if it cannot, every rank finds that out by itself. */
    size_t (*group_bytes)(int n);
    int (*take_group)(struct shm *shm, int n);
};

/* The write end of the liveness pipe, held by this process alone, and its identity, to tell it from a later descriptor
 * with the same number. */
struct shm_held {
    int fd;
    dev_t device;
    ino_t inode; /* 0: none */
};

/* The arena of this rank. */
struct shm_arena {
    char *base; /* NULL until first used */
    size_t bytes;
    TAILQ_HEAD(, shm_block) blocks; /* allocated blocks, by address */
    bool is_read;                   /* a peer may still read freed memory, because an operation was abandoned */
};

struct shm {
    struct shm_config config;
    int n, seat;           /* number of seats; this rank's seat */
    struct shm_peer *peer; /* by seat */
    int16_t *seat_of;      /* by rank, or -1 */
    bool can_pull;         /* every rank may read every other's memory (CMA) */
    bool can_share;        /* every rank can map every other's arena */
    struct shm_arena arena;
    size_t arena_bytes;    /* of every rank's arena */
    int looks, looks_most; /* polls before an awaited operation is left pending: see shm_looked */
    unsigned in_vain;      /* consecutive poll rounds that found nothing */
    bool shares_cores;     /* ranks share cores, as all of them have agreed: yield between polls */
    unsigned pauses;
    int home;                         /* this rank's preferred core, or -1 */
    int64_t spread_ns, spread_gap_ns; /* time of the next migration allowed, and the minimum gap after it */
    struct shm_held held;
    bool disowned;          /* the program closed this process's descriptors: see shm_life.c */
    int memfd, bell, watch; /* watch: an epoll set of the peers' liveness descriptors */
    size_t cells, ring_bytes, window_bytes, ring_span, board_span, rings_at, boards_at;
    size_t bytes;
    char *base;
    bool armed;
    bool has_lost;     /* at least one peer's link has ended */
    unsigned rounds;   /* progress calls, for periodic checks */
    int board_refused; /* errno of a failed reservation of a collective segment, until reported */
    uint8_t probe[WIRE_NONCE];
};

/* ---- shm_attach.c ------------------------------------------------------------------------------------------ */

/* Finds the ranks that share memory with this one; all come to the same result.  *shm is NULL if there are none.
 * Returns an error if a peer may have come to another result. */
int shm_open_host(const struct shm_config *config, struct shm **shm);
void shm_close(struct shm *shm);

/* ---- shm_life.c -------------------------------------------------------------------------------------------- */

/* Creates a liveness descriptor, which hangs up when this process exits, execs or closes its descriptors. */
bool shm_life_open(const tutti_host *host, int *life, struct shm_held *held);
void shm_life_close(const tutti_host *host, struct shm_held *held);
/* True if the program has closed this process's descriptors.  The numbers may belong to the program's own files by
 * then, so the library no longer writes to them, maps them or closes them. */
bool shm_is_disowned(struct shm *shm);

/* ---- shm_segment.c ----------------------------------------------------------------------------------------- */

/* Computes the layout of a segment for n ranks; fills cells .. bytes. */
void shm_measure(struct shm *shm, int n, size_t group_bytes);
/* Returns a resource limit in bytes: file size (RLIMIT_FSIZE) or address space (RLIMIT_AS). */
size_t shm_allowed(int resource);
/* Creates a segment and reserves the pages of its first part.  Returns a descriptor, or -1 with errno. */
int shm_segment_make(size_t bytes, size_t reserved);
/* True if fd is a sealed segment of this size. */
bool shm_segment_is_sound(int fd, size_t bytes);
/* Maps the segment and fills this rank's seat. */
bool shm_map(struct shm *shm);
static inline struct shm_seat *shm_seat_at(const struct shm *shm, int seat)
{
    return (struct shm_seat *)(void *)shm->base + seat;
}
void *shm_board_at(const struct shm *shm, int board);
struct shm_directory *shm_directory(const struct shm *shm);
/* Reserves or releases a collective segment's pages; released pages read as zeros.  Returns false on failure. */
bool shm_reserve_board(struct shm *shm, int board);
bool shm_release_board(struct shm *shm, int board);
/* True if the memory of all these peers can be read. */
bool shm_probe(struct shm *shm, const bool *present);
/* Single-copy read of a peer's memory, by mapping or CMA.  Returns false if the peer has exited or the address is
 * invalid.  The data is valid only if shm_is_open returns true afterwards: a pid may have been reused, or the link
 * closed. */
bool shm_pull(struct shm *shm, int seat, void *to, uint64_t from, size_t bytes);

/* ---- shm_arena.c ------------------------------------------------------------------------------------------- */

/* Creates an arena for this rank; returns a descriptor or -1. */
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
/* True if the range belongs to this rank's arena and the peers can map that. */
bool shm_is_shared(const struct shm *shm, const void *memory, size_t bytes);
/* Returns the local mapping of a range in a peer's arena, or NULL if it is not in the arena.  Valid until the next call
 * for this peer.  As with shm_pull, the data counts only once it is known that the peer has not withdrawn it. */
const void *shm_reach(struct shm *shm, int seat, uint64_t from, size_t bytes);
void shm_arena_close(struct shm *shm);

/* ---- shm_stream.c ------------------------------------------------------------------------------------------ */

/* Copies with non-temporal stores; for more than stays in the cache. */
void shm_stream(void *to, const void *from, size_t bytes);

/* Nanoseconds since begin_ns, at least 1, as input of a cost model. */
static inline uint64_t shm_ns_since(const tutti_host *host, int64_t begin_ns)
{
    int64_t ns = host->now_ns() - begin_ns;
    return ns > 0 ? (uint64_t)ns : 1;
}

/* ---- shm_put.c --------------------------------------------------------------------------------------------- */

/* A copy of bytes that other ranks will read. */
struct shm_put {
    struct cost_model *pace; /* NULL: too short to be timed */
    size_t bytes;
    int64_t begin_ns;
    bool past; /* use non-temporal stores */
};

/* Extra cost for readers if the data is not cached, in ps per byte.  AWAY: read on other cores, mostly by all.  PARTS:
 * each rank reads one part.  HERE: often read on the writer's own core, which would have it cached. */
enum shm_cost { SHM_COST_AWAY = 30, SHM_COST_PARTS = 60, SHM_COST_HERE = 150 };

/* shm_put_begin sets put->past according to the cost model.  shm_put_end updates the model and returns the duration in
 * ns, or 0 if not timed. */
void shm_put_begin(const struct shm *shm, struct shm_put *put, struct cost_model *pace, size_t bytes);
uint64_t shm_put_end(const struct shm *shm, const struct shm_put *put, enum shm_cost cost_ps);

static inline void shm_put_copy(const struct shm_put *put, void *to, const void *from, size_t bytes)
{
    if (put->past)
        shm_stream(to, from, bytes);
    else
        tutti_copy(to, from, bytes);
}

/* ---- shm_cores.c ------------------------------------------------------------------------------------------- */

/* True if each of these ranks can have a core of its own. */
bool shm_have_cores(const struct shm *shm, const bool *present);

/* ---- shm_spread.c ------------------------------------------------------------------------------------------ */

/* Moves this rank's thread back to its preferred core if it has been migrated. */
void shm_spread(struct shm *shm);

/* ---- shm_window.c ------------------------------------------------------------------------------------------ */

/* Starts a message to this peer.  Returns its start in the FIFO, which the RTS carries.  The previous message has
 * ended. */
uint64_t shm_window_begin(struct shm *shm, int seat, uint64_t bytes);
/* Copies in as much of the message's next bytes, at `data`, as fits.  Returns how many. */
size_t shm_window_put(struct shm *shm, int seat, const void *data);
/* True if there is space for a piece. */
bool shm_window_fits(struct shm *shm, int seat);
/* Abandons the rest of the message. */
void shm_window_take_back(struct shm *shm, int seat);
/* Starts receiving a message as announced.  Returns false if the start is invalid. */
bool shm_window_open(struct shm *shm, int seat, uint64_t start, uint64_t bytes);
/* Returns the next complete piece, or NULL if it has not arrived or none is due. */
const void *shm_window_look(struct shm *shm, int seat, size_t *bytes);
/* Releases a piece. */
void shm_window_read(struct shm *shm, int seat, size_t bytes);
/* Abandons the rest of the message being received. */
void shm_window_shut(struct shm *shm, int seat);

/* ---- shm_ring.c -------------------------------------------------------------------------------------------- */

static inline int shm_seat_of(const struct shm *shm, int32_t rank)
{
    return shm != NULL ? shm->seat_of[rank] : -1;
}

/* Same contract as fabric_send; does nothing on a lost link. */
int shm_send(struct shm *shm, int seat, const struct wire_header *header, const void *payload, size_t bytes);
/* True if a message would enter the ring at once. */
bool shm_fits(struct shm *shm, int seat, size_t bytes);
/* Wakes the writer if it sleeps until there is space. */
void shm_tell_of_room(struct shm *shm, int seat);
/* Withdraws the message with this kind and id if it still waits for space. */
bool shm_unsend(struct shm *shm, int seat, enum wire_kind kind, uint64_t id);
void shm_drop(struct shm *shm, int seat, const char *why, bool notify);
int shm_progress(struct shm *shm);
/* Handles one peer's messages.  Returns how many. */
int shm_read(struct shm *shm, int seat);
/* Drops a peer whose memory could not be read or whose link has closed.  Its pending messages are handled first, since
 * they may carry the cause. */
void shm_unreadable(struct shm *shm, int seat);
/* Drops the peers that have exited.  Returns how many. */
int shm_look_at_lives(struct shm *shm);
/* True if the peer is alive and has not closed the link. */
bool shm_is_open(struct shm *shm, int seat);
/* Announces that this rank is about to sleep.  Returns 0 if something arrived meanwhile, else the number of
 * descriptors. */
int shm_arm(struct shm *shm, int *descriptors);
/* Pauses between polls: each poll takes the cache line from its writer. */
static inline void shm_relax(void)
{
#if defined __x86_64__
    __builtin_ia32_pause();
#elif defined __aarch64__
    __asm__ volatile("isb");
#endif
}

/* Pauses between two polls of the peers, or yields if ranks share cores. */
static inline void shm_pause(struct shm *shm)
{
    enum { SPREAD_EVERY = 512 };
    if (!shm->shares_cores) {
        shm_relax();
        return;
    }
    sched_yield();
    if (++shm->pauses % SPREAD_EVERY == 0) shm_spread(shm);
}

/* Adapts the number of polls.  Polling pays if the peers are about to arrive.  If another process uses their cores,
 * polling only delays them, so the number is halved until polls succeed again. */
static inline void shm_looked(struct shm *shm, bool found)
{
    enum { LOOKS_LEAST = 2, LOOK_EVERY = 32 };
    if (shm->shares_cores) return;
    if (found || ++shm->in_vain % LOOK_EVERY == 0)
        shm->looks = shm->looks_most;
    else if (shm->looks > LOOKS_LEAST)
        shm->looks /= 2;
}

/* Wakes a peer that was seen asleep. */
void shm_ring_bell(struct shm *shm, int seat);

/* Wakes a peer if it sleeps.  The caller has already stored what the peer is to see. */
static inline void shm_wake(struct shm *shm, int seat)
{
    /* relaxed: a load that comes too early is covered by the sleeper's second check, see shm_ring.c; the fence keeps
     * the compiler from moving it before the store */
    atomic_signal_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&shm_seat_at(shm, seat)->asleep, memory_order_relaxed) != 0) shm_ring_bell(shm, seat);
}

#endif
