/* Collectives within one host, through a collective segment (board).  Each rank of a group has control slots there that
 * it alone writes and all read.
 *
 * Every operation of a group takes one or more steps, counted alike by all ranks.  A rank posts a step by filling its
 * control slot (the operation's fingerprint, small data, or tensor addresses) and storing the step's number.  It waits
 * for the others by reading that number from theirs.  No message is sent and nothing is matched: one cache line per
 * rank carries arrival, operation and, if small, data.
 *
 *   small   data fits the slot or its eager buffers (slots, rooms); the ranks concerned copy it out
 *   split   two ranks with a core each, while both wait for their calls: small chunks, one a step, through the rooms.
 * Each rank posts the next chunk before it copies out the current one, so neither waits while lines move between cores,
 * and the rooms stay in the first-level caches piped   chunks, one a step, through two trays (fragment buffers) per
 * rank (pipe.c); if the first step finds that all data to be read is memory of tutti_alloc, it continues as large
 * (share.c) large   the slots hold tensor addresses; each rank reads what it needs from the others' memory
 * (shm_pull), a block at a time, and reduces blocks while they are cached.  No rank writes to another's memory, so a
 * rank that has abandoned an operation may reuse its memory at once.  The last step says that the rank has read all it
 * needs, and is posted only if all ranks are still alive
 *
 * A rank that abandons an operation withdraws its steps: for ranks that have not seen them it never arrived.  So no
 * data read meanwhile counts, and no rank completes an operation that was reported as failed.
 *
 * Reductions run in order of rank, so all ranks and all runs get the same bits.
 *
 * Control slots are reused after BOARD_DEPTH steps.  A rank that has posted step k is finished with every step before k
 * - 1.  It may fill its slot for step k once all have posted step k - BOARD_DEPTH + 2.  The same holds for slots with
 * BOARD_SLOTS and rooms with BOARD_ROOMS.  Trays are filled once all have posted step k - BOARD_TRAYS + 1; then all are
 * finished with the tray's last use.  Ranks that wait for nobody, such as the root of a broadcast, can therefore run
 * ahead.  If ranks share a core, each time slice covers many operations.
 */
#ifndef BOARD_H
#define BOARD_H

#include "tcp/shm/shm.h"

enum { BOARD_DEPTH = 64, BOARD_SLOTS = 32, BOARD_ROOMS = 4, BOARD_TRAYS = 2 };
enum {
    BOARD_FIRST =
        0, /* segment of the root group, reserved by the rank that creates the shared memory, if all ranks share it */
    BOARD_ABSENT = -1
};
enum { BOARD_AHEAD = 1 }; /* steps that a rank may post beyond the current one */

/* Data bytes that fit a control slot, and a small eager buffer. */
enum { BOARD_INLINE = SHM_LINE - 16, BOARD_SLOT = 1024 };

struct board_cell {
    _Alignas(SHM_LINE) _Atomic uint64_t step; /* twice the step, plus 1 if this rank waits (coll.c, both_wait) */
    uint64_t fingerprint;
    union {
        char small[BOARD_INLINE]; /* data that fits; more is in the step's slot or room */
        struct {
            uint64_t in, out; /* addresses of the rank's tensors */
            uint64_t shared;  /* the peers can read them in place */
        };
    };
};

enum board_state { BOARD_NONE, BOARD_READY };

/* A pending operation. */
struct board_op {
    TAILQ_ENTRY(board_op) link;
    tutti_request *request;
    uint64_t call; /* see tutti_op; 0: the description may not be reused */
    tutti_kind kind;
    tutti_reduce_op reduce;
    tutti_dtype dtype;
    int root;
    bool large, piped;
    bool split;     /* piped, in small chunks through the rooms, one step ahead */
    bool may_split; /* split while both ranks wait, if the cores allow it */
    bool shows;     /* piped, but the first step decides whether to switch to large: see share.c */
    bool either;    /* piped, by whichever path is faster while the cores share a cache */
    bool reads;     /* if either: large while they do not, see near.c */
    bool sliced;    /* each rank reduces a slice for those that need the result */
    bool streams;   /* the output would not stay in the cache */
    const char *in;
    char *out;
    const tutti_tensor *list; /* blocks of the side that is a list, or NULL */
    int64_t numel;            /* elements per block; of the whole tensor if it has no blocks */
    size_t element, bytes;    /* bytes of an element, and of numel elements */
    size_t put;               /* bytes that a rank copies in or exposes */
    bool puts;                /* true if this rank does so, too */
    uint64_t depth;           /* steps until its buffers are reused */
    size_t chunk;             /* piped: maximum bytes of each block, or of the whole, per step */
    int64_t steps;
    /* Progress. */
    uint64_t first;  /* first step; 0: not started */
    int64_t at;      /* current step, 0 .. steps - 1 */
    int64_t entered; /* steps posted */
    int64_t ahead;   /* steps to post beyond the current one, if possible */
    bool far;        /* either, and the cores share no cache */
    bool met;
    int meets_from, meets_to; /* ranks that the step waits for, from .. to - 1, except this one */
    int peer;                 /* next rank to wait for, or to read from */
    int64_t midst_ns;         /* see near.c */
    size_t done;              /* finished bytes of the block, or of the peer's part */
};

struct board {
    struct shm *shm;
    const tutti_host *host;
    enum board_state state;
    int n, rank;
    int *seat;                          /* of each rank of the group */
    int index;                          /* -1: none */
    char *base, *slots, *rooms, *trays; /* base: the control slots */
    size_t room;
    size_t tray;                         /* capacity of a tray; half as much again follows it for results */
    uint64_t next;                       /* first step of the next operation to run */
    uint64_t all_in;                     /* all ranks have posted this step */
    int since_async;                     /* operations since the last async one, up to PATIENCE */
    _Atomic uint64_t *words;             /* see near.c */
    uint32_t tray_ps;                    /* measured ps per byte into a tray; 0: unknown */
    struct cost_model fills[TUTTI_SEND]; /* see shm_put.c */
    struct cost_model results[2];        /* of piped and of large operations */
    struct shm_put put;                  /* the current copy */
    char *scratch;                       /* blocks read from peers */
    char *result;                        /* data that peers read and that has no place in the caller's memory */
    size_t result_bytes;
    bool result_is_shared;
    TAILQ_HEAD(board_ops, board_op) ops; /* started; the first one runs */
    struct board_op *spare;
    LIST_ENTRY(board) link; /* among those with operations */
    bool linked;
};
LIST_HEAD(board_list, board);

size_t board_bytes(int n);

/* Reserves a segment for a group if its ranks share memory.  Returns its index, or BOARD_ABSENT.  One rank calls it for
 * all. */
int board_reserve(struct shm *shm, int32_t n, const int32_t *global_ranks);
/* Opens the segment reserved for the group.  With BOARD_ABSENT there is none, and operations run as plans. */
void board_open(struct board *board, struct shm *shm, int index, int32_t rank, int32_t n, const int32_t *global_ranks);
void board_close(struct board *board);

/* Implements entries of tutti_backend.native. */
int board_begin(struct board *board, const tutti_op *op, tutti_request *request, struct board_list *running);
bool board_cancel(struct board *board, tutti_request *request);
int board_progress(struct board_list *running);
/* True if some operation could advance; checked before sleeping. */
bool board_is_ready(const struct board_list *running);
/* Marks the ranks that a pending request waits for. */
void board_awaits(const struct board *board, const tutti_request *request, bool *ranks);

/* Implements tutti_backend.explain. */
const char *board_explain(const struct board *board, const tutti_op *op);

/* directory.c; empty in a new segment.  take: reserves a segment for a group of n ranks and returns its index, or
 * BOARD_ABSENT; one rank calls it for all.  leave: the last of n ranks releases it. */
int board_directory_take(struct shm *shm, int n);
bool board_directory_has(const struct shm *shm, int index);
void board_directory_leave(struct shm *shm, int index, int n);

/* take.c.  Fills the description of an operation, not its progress. */
bool board_takes(const struct board *board, const tutti_op *op, struct board_op *made);
void board_set_steps(const struct board *board, struct board_op *op);
void board_split(const struct board *board, struct board_op *op);
/* Sets the ranks that the current step waits for. */
void board_set_meets(const struct board *board, struct board_op *op);
static inline bool board_meets(const struct board_op *op, int rank)
{
    return rank >= op->meets_from && rank < op->meets_to;
}

/* small.c, pipe.c, large.c: put fills this rank's control slot for the step being posted; work runs
 * the step once the others have arrived. */
void board_put_small(struct board *board, struct board_op *op);
void board_work_small(struct board *board, struct board_op *op);
void board_put_pipe(struct board *board, struct board_op *op);
void board_work_pipe(struct board *board, struct board_op *op);
/* Computes the number of chunks and steps. */
void board_cut_pipe(const struct board *board, struct board_op *op);
void board_put_large(struct board *board, struct board_op *op);
/* Handles one block at most.  Returns TUTTI_OK if the step is done, 1 if it is not, or an error if a rank's memory
 * cannot be read. */
int board_work_large(struct board *board, struct board_op *op);
/* Allocates its buffers. */
int board_prepare_large(struct board *board, const struct board_op *op);
void board_free_result(struct board *board);

/* share.c.  board_show declares in the first control slot of a piped operation whether this rank's memory can be
 * read in place; it returns true if no peer will read its tray then.  board_is_shared: true if all ranks' memory can
 * be, once they have arrived. */
bool board_show(struct board *board, struct board_op *op);
bool board_is_shared(const struct board *board, const struct board_op *op);

/* fill.c.  board_fill fills a tray for the step being posted, board_put a room.  board_reduce_result reduces what
 * peers will read; board_begin_result, called before the data is touched, chooses the kind of store. */
void board_fill(struct board *board, struct board_op *op);
void board_put(struct board *board, const struct board_op *op, void *to, const void *from, size_t bytes);
void board_begin_result(struct board *board, const struct board_op *op, size_t bytes);
void board_reduce_result(struct board *board, const struct board_op *op, char *to, const void *const *from,
                         size_t bytes);

/* near.c.  board_goes_near: true if an operation with a choice takes the path for cores that share a cache; its
 * first step may be posted.  The estimate comes from rank 0's plain stores, and from whole split operations, whose
 * chunks are too short to time: from the middle of the operation to its end (board_has_split, called after each step).
 */
bool board_goes_near(struct board *board, const struct board_op *op);
void board_has_filled(struct board *board, const struct board_op *op, size_t bytes, uint64_t ns);
void board_has_split(struct board *board, struct board_op *op);

struct board_cell *board_cell_of(const struct board *board, int rank, uint64_t step);
char *board_slot_of(const struct board *board, int rank, uint64_t step);
char *board_room_of(const struct board *board, int rank, uint64_t step);
char *board_tray_of(const struct board *board, int rank, uint64_t step);

/* Returns TUTTI_OK, or an error if the rank is lost. */
int board_lost(const struct board *board, int rank);
/* True if the rank has posted this step or a later one. */
bool board_has_entered(const struct board *board, int rank, uint64_t step);

#endif
