/* Shared memory between the ranks of one host: who they are, the memory they share, messages through it.
 *
 * The ranks of a family that can attach each other share one segment: a sealed memfd without a name, made by the
 * lowest of them and handed out over a unix socket (shm_attach.c).  In it every rank has a seat, every ordered pair of
 * ranks a ring (shm_ring.c), and groups have boards (board.c).  Ranks here are the family's global ranks; seats are
 * places in the segment.  All calls come under the family's lock.
 *
 * A seat's pages are reserved before anybody uses them, so a lack of memory is an error at the start and never SIGBUS.
 * What is read from the segment is checked like what comes from a network: a rank that has gone wrong may have
 * written anything.
 */
#ifndef SHM_H
#define SHM_H

#include <sched.h>
#include <stdatomic.h>
#include <sys/queue.h>
#include <sys/types.h>
#include <tutti/backend.h>

#include "pace.h"
#include "wire.h"

enum {
    SHM_SEATS = 256, /* ranks of one host that share a segment; further ones go over the network */
    SHM_LINE = 128,  /* bytes that no two writers share: two lines, as processors fetch them in pairs */
    SHM_TINY = 16,
    SHM_INLINE = 104,
    SHM_BOARDS = 64 /* groups of one family that have a board at the same time */
};

/* A message in a ring.  turn is its number from 1, counted over the ring's whole life, so nothing that was in the cell
 * before can be mistaken for it.  A short message is one line: the header without what goes without saying
 * (shm_cell.h), and the payload. */
struct shm_cell {
    _Atomic uint64_t turn;
    uint32_t bytes; /* of the payload, and SHM_NAMED */
    uint8_t kind, flags, unused[2];
    uint64_t group, tag, fingerprint, credit;
    uint8_t tiny[SHM_TINY];
    /* The second line. */
    uint64_t size, id, ref;      /* SHM_NAMED: the header's */
    uint8_t payload[SHM_INLINE]; /* what is no longer than this and not tiny; more lies in the ring's bytes */
};

/* From one rank to another.  The first line is the reader's, all else the writer's.  Behind the cells lie the bytes of
 * messages, and the window. */
struct shm_ring {
    _Alignas(SHM_LINE) _Atomic uint64_t cells_read; /* what the writer may use again */
    _Atomic uint64_t bytes_read;
    _Atomic uint64_t window_read;
    _Alignas(SHM_LINE) _Atomic uint64_t wants_room; /* the writer sleeps, has more to send and no room */
    _Atomic uint32_t closed;                        /* the writer has ended the link, and opens no memory any more */
    _Atomic uint64_t window_put;
    _Alignas(SHM_LINE) struct shm_cell cell[];
};

/* One rank's place: its first line is written by others only to wake it. */
struct shm_seat {
    _Alignas(SHM_LINE) _Atomic uint64_t asleep;
    _Alignas(SHM_LINE) int32_t pid; /* as it calls itself */
    cpu_set_t cores;                /* where it may run */
    uint64_t probe_at;              /* address of 16 bytes of it, and what they hold */
    uint8_t probe[WIRE_NONCE];
    _Atomic uint64_t arena_at; /* where it has its arena; 0: it has not used it */
};

/* Which groups have boards: see board_directory.c.  No bool: of one that holds neither 0 nor 1 C says nothing. */
struct shm_entry {
    _Atomic uint32_t state;
    _Atomic uint32_t left; /* ranks of the group that have closed it */
    uint32_t has_pages;    /* written by the rank that is taking the entry, or giving it back */
};

struct shm_directory {
    _Alignas(SHM_LINE) struct shm_entry entry[SHM_BOARDS];
};

/* What a rank knows of another one's seat. */
struct shm_peer {
    int32_t rank;
    int seat;
    bool lost;
    char why[96];
    int bell;   /* eventfd: wakes it; -1 for the own one */
    int life;   /* polls readable, or hung up, once it has died; -1 for the own one */
    int arena;  /* the memory it shares: see shm_arena.c; -1 once part of it is mapped */
    char *seen; /* the part of that which is mapped here */
    size_t seen_bytes;
    pid_t pid;
    struct shm_ring *out, *in;
    uint64_t cells_put, bytes_put, cells_got, bytes_got; /* the own end's count of each ring */
    uint64_t cells_free, bytes_free;                     /* what was known of cells_read, bytes_read of `out` */
    uint64_t window_put, window_owed, window_free; /* the writer's count, what it still has to put, what was read */
    uint64_t window_got, window_due;               /* the reader's, and what it still has to get */
    struct pace pace;                              /* of large messages to it */
    struct pace puts;                              /* into the window: see shm_put.c */
    STAILQ_HEAD(, shm_waiting) waiting;            /* messages for which there was no room */
};

struct shm_waiting {
    STAILQ_ENTRY(shm_waiting) link;
    struct wire_header header;
    size_t bytes;
    uint8_t payload[];
};

struct shm_events {
    /* The header is this rank's own copy, as yet unchecked; the payload the peer can change at any time. */
    void (*message)(void *user, const struct wire_header *header, const void *payload, size_t bytes);
    void (*lost)(void *user, int32_t rank, const char *why);
};

struct shm_config {
    int32_t rank, world_size;
    int32_t local_world_size; /* -1: unknown */
    uint64_t family;
    int64_t timeout_ms, open_timeout_ms;
    const tutti_host *host;
    tutti_store *store;
    const struct shm_events *events;
    void *user;
};

/* The end of the liveness pipe that this process alone holds, and what tells it from a later descriptor. */
struct shm_held {
    int fd;
    dev_t device;
    ino_t inode; /* 0: there is none */
};

/* The memory that this rank shares. */
struct shm_arena {
    char *base; /* of its addresses, or NULL: it has not been used */
    size_t bytes;
    TAILQ_HEAD(, shm_block) blocks; /* given out, by address */
    bool is_read;                   /* a peer may be reading what is given back: an operation was given up */
};

struct shm {
    struct shm_config config;
    int n, seat;           /* seats, the own one */
    struct shm_peer *peer; /* by seat */
    int16_t *seat_of;      /* by rank; -1 */
    bool can_pull;         /* every rank here may read every other one's memory */
    bool can_share;        /* every rank here may map every other one's arena */
    struct shm_arena arena;
    size_t arena_bytes;    /* of every rank's */
    int looks, looks_most; /* at the others, before something that is waited for is left pending: see shm_looked */
    unsigned in_vain;      /* rounds of looks that found nothing */
    bool shares_cores;     /* ranks here do, all think so: others are given the core between two looks */
    unsigned pauses;
    int home;                         /* the core where this rank belongs, as far as is known */
    int64_t spread_ns, spread_gap_ns; /* when it may go there again, and how long after that */
    struct shm_held held;
    bool disowned;          /* the program has closed this process's descriptors: see shm_life.c */
    int memfd, bell, watch; /* watch: an epoll of the peers' lives */
    size_t cells, ring_bytes, window_bytes, ring_span, board_span, rings_at, boards_at;
    size_t bytes;
    char *base;
    bool armed;
    bool has_lost;     /* some peer's link has ended */
    unsigned rounds;   /* of progress, for what is looked at now and then */
    int board_refused; /* errno, where there was no memory for a board; until that has been said */
    uint8_t probe[WIRE_NONCE];
};

/* ---- shm_attach.c ------------------------------------------------------------------------------------------ */

/* Finds the ranks that share memory with this one; all of them come to the same answer.  *shm is NULL where there are
 * none.  An error where one of them may think otherwise. */
int shm_open_host(const struct shm_config *config, struct shm **shm);
void shm_close(struct shm *shm);

/* ---- shm_life.c -------------------------------------------------------------------------------------------- */

/* Makes a liveness descriptor, which hangs up when this process ends, execs, or closes its descriptors. */
bool shm_life_open(const tutti_host *host, int *life, struct shm_held *held);
void shm_life_close(const tutti_host *host, struct shm_held *held);
/* True if the program has closed this process's descriptors.  Their numbers may be the program's by then, so nothing is
 * written to, mapped from or closed by them any more. */
bool shm_is_disowned(struct shm *shm);

/* ---- shm_segment.c ----------------------------------------------------------------------------------------- */

/* How a segment for n ranks is laid out; fills cells .. bytes. */
void shm_measure(struct shm *shm, int n);
/* How large a file (RLIMIT_FSIZE), or how many addresses (RLIMIT_AS), the process may have. */
size_t shm_allowed(int resource);
/* Makes a segment and takes the pages of its first part; a descriptor, or -1 with errno. */
int shm_segment_make(size_t bytes, size_t reserved);
/* Whether fd is a segment that nobody can shrink, of this size. */
bool shm_segment_is_sound(int fd, size_t bytes);
/* Maps the segment and fills the own seat. */
bool shm_map(struct shm *shm);
static inline struct shm_seat *shm_seat_at(const struct shm *shm, int seat)
{
    return (struct shm_seat *)(void *)shm->base + seat;
}
void *shm_board_at(const struct shm *shm, int board);
struct shm_directory *shm_directory(const struct shm *shm);
/* Takes a board's pages, or gives them back, after which they are zero.  false: it cannot. */
bool shm_reserve_board(struct shm *shm, int board);
bool shm_release_board(struct shm *shm, int board);
/* Whether the memory of all of these peers can be read. */
bool shm_probe(struct shm *shm, const bool *present);
/* Reads a peer's memory, mapped or not.  false: it is gone, or has not got that memory.  The bytes are the peer's only
 * if shm_is_open says yes afterwards: a pid may have passed to another process, a link may have been ended. */
bool shm_pull(struct shm *shm, int seat, void *to, uint64_t from, size_t bytes);

/* ---- shm_arena.c ------------------------------------------------------------------------------------------- */

/* A descriptor of an arena for this rank, or -1; and whether one is what it should be. */
int shm_arena_make(void);
bool shm_arena_is_sound(int fd);
/* Maps the first page of a peer's arena.  The mapping grows without the descriptor.  False: there is no room. */
bool shm_arena_map_first(struct shm_peer *peer);
size_t shm_arena_bytes(void);
/* As tutti_backend.alloc and free. */
int shm_alloc(struct shm *shm, size_t bytes, void **memory);
int shm_free(struct shm *shm, void *memory);
/* As tutti_backend.reclaim. */
void shm_reclaim(void *memory, size_t bytes);
/* Whether these bytes are this rank's arena's, and the others can map that. */
bool shm_is_shared(const struct shm *shm, const void *memory, size_t bytes);
/* Where a peer's bytes are mapped here, or NULL: they are not in its arena.  Valid until the peer is asked again.
 * They count as little as shm_pull's until it is known that the peer has not taken them back. */
const void *shm_reach(struct shm *shm, int seat, uint64_t from, size_t bytes);
void shm_arena_close(struct shm *shm);

/* ---- shm_stream.c ------------------------------------------------------------------------------------------ */

/* As memcpy, for more than stays in the cache. */
void shm_stream(void *to, const void *from, size_t bytes);

/* How long something has taken, for a pace: something. */
static inline uint64_t shm_ns_since(const tutti_host *host, int64_t begin_ns)
{
    int64_t ns = host->now_ns() - begin_ns;
    return ns > 0 ? (uint64_t)ns : 1;
}

/* ---- shm_put.c --------------------------------------------------------------------------------------------- */

/* How bytes that others will read are written. */
struct shm_put {
    struct pace *pace; /* NULL: they are too few to be timed */
    size_t bytes;
    int64_t begin_ns;
    bool past; /* the caches */
};

/* What it costs who reads them that they are in no cache, ps a byte.  AWAY: they are read on other cores, mostly by
 * all; PARTS: each part of them by one rank; HERE: as often as not on the writer's own core, whose cache would have
 * them. */
enum shm_cost { SHM_COST_AWAY = 30, SHM_COST_PARTS = 60, SHM_COST_HERE = 150 };

/* Says in put->past how the bytes are to be written, by what earlier ones of the same pace took.  And once they are:
 * how long that took, ns, or 0. */
void shm_put_begin(const struct shm *shm, struct shm_put *put, struct pace *pace, size_t bytes);
uint64_t shm_put_end(const struct shm *shm, const struct shm_put *put, enum shm_cost cost_ps);

static inline void shm_put_copy(const struct shm_put *put, void *to, const void *from, size_t bytes)
{
    if (put->past)
        shm_stream(to, from, bytes);
    else
        tutti_copy(to, from, bytes);
}

/* ---- shm_cores.c ------------------------------------------------------------------------------------------- */

/* Whether each of these seats can have a core of its own. */
bool shm_have_cores(const struct shm *shm, const bool *present);

/* ---- shm_spread.c ------------------------------------------------------------------------------------------ */

/* Looks whether this rank's thread is on the core where it belongs, and moves it there. */
void shm_spread(struct shm *shm);

/* ---- shm_window.c ------------------------------------------------------------------------------------------ */

/* A message of so many bytes to this peer; where it begins, which its announcement has to say.  The one before it has
 * ended. */
uint64_t shm_window_begin(struct shm *shm, int seat, uint64_t bytes);
/* Puts as much of its next bytes, which are at data, as there is room for; how many. */
size_t shm_window_put(struct shm *shm, int seat, const void *data);
/* Whether there is room for a piece. */
bool shm_window_fits(struct shm *shm, int seat);
/* Nothing more is put of it. */
void shm_window_take_back(struct shm *shm, int seat);
/* The same from this peer, as announced.  false: nothing can begin there. */
bool shm_window_open(struct shm *shm, int seat, uint64_t start, uint64_t bytes);
/* The next piece, once it has come whole: its elements are.  NULL: it has not, or nothing is due. */
const void *shm_window_look(struct shm *shm, int seat, size_t *bytes);
/* It is not needed any more. */
void shm_window_read(struct shm *shm, int seat, size_t bytes);
/* Nothing more is read of it. */
void shm_window_shut(struct shm *shm, int seat);

/* ---- shm_ring.c -------------------------------------------------------------------------------------------- */

static inline int shm_seat_of(const struct shm *shm, int32_t rank)
{
    return shm != NULL ? shm->seat_of[rank] : -1;
}

/* As fabric_send; nothing happens on a lost link. */
int shm_send(struct shm *shm, int seat, const struct wire_header *header, const void *payload, size_t bytes);
/* Whether a message would go into the ring at once. */
bool shm_fits(struct shm *shm, int seat, size_t bytes);
/* Wakes the writer if it sleeps until there is room. */
void shm_tell_of_room(struct shm *shm, int seat);
/* Takes the message back that has this kind and id, if it still waits for room. */
bool shm_unsend(struct shm *shm, int seat, enum wire_kind kind, uint64_t id);
void shm_drop(struct shm *shm, int seat, const char *why, bool notify);
int shm_progress(struct shm *shm);
/* Reads what one peer has sent: how many messages. */
int shm_read(struct shm *shm, int seat);
/* Drops a peer of which shm_pull got nothing, or that is not open any more; what it had written is read first, for it
 * may say why. */
void shm_unreadable(struct shm *shm, int seat);
/* Drops the peers that have ended; how many. */
int shm_look_at_lives(struct shm *shm);
/* Whether the peer lives and has not ended the link. */
bool shm_is_open(struct shm *shm, int seat);
/* Announces that this rank is going to sleep.  0: something came meanwhile; else how many descriptors. */
int shm_arm(struct shm *shm, int *descriptors);
/* A look takes the line from whoever is about to write there: not at each turn of the loop. */
static inline void shm_relax(void)
{
#if defined __x86_64__
    __builtin_ia32_pause();
#elif defined __aarch64__
    __asm__ volatile("isb");
#endif
}

/* Between two looks at the others. */
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

/* Looks pay where the others are as good as here.  Where somebody has one of their cores they take it from whom they
 * look for, so there are fewer of them until they find something again. */
static inline void shm_looked(struct shm *shm, bool found)
{
    enum { LOOKS_LEAST = 2, TRY_EVERY = 32 };
    if (shm->shares_cores) return;
    if (found || ++shm->in_vain % TRY_EVERY == 0)
        shm->looks = shm->looks_most;
    else if (shm->looks > LOOKS_LEAST)
        shm->looks /= 2;
}

/* Wakes a peer that was seen asleep. */
void shm_ring_bell(struct shm *shm, int seat);

/* Wakes a peer if it sleeps.  What it is to see was stored before. */
static inline void shm_wake(struct shm *shm, int seat)
{
    /* relaxed: too early a look is waited for, see shm_ring.c; the compiler leaves it behind the store */
    atomic_signal_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&shm_seat_at(shm, seat)->asleep, memory_order_relaxed) != 0) shm_ring_bell(shm, seat);
}

#endif
