/* Collectives within one host, through a board: for each rank of a group a few cells that it alone writes and all read.
 *
 * Every operation of a group takes one or more steps, which all its ranks count alike.  A rank enters a step by
 * filling its cell for it (the operation's fingerprint, small data, or where its tensors are) and storing the step's
 * number; it meets the others by reading that number from theirs.  So no message is sent and nothing is matched: one
 * cache line a rank says that it has come, what it does and, if that is little, with which data.
 *
 *   small   up to the cell's room: written once into the cell, read out of it by whom it concerns
 *   split   between two ranks with a core each, from 4 KiB on, as long as both wait for what they call: chunks of
 *           2 KiB, one a step, through the rooms.  Each puts the next one before it takes the one that both are in.
 *           So nobody waits while lines go from core to core, and the rooms stay in the first-level caches
 *           (all_reduce of 8 KiB 1.0 us for 1.5)
 *   piped   chunks, one a step, through two trays that each rank has beside its cells (board_pipe.c); where the first
 *           step finds that all that is to be read is memory of tutti_alloc, it goes on as a large one (board_share.c)
 *   large   the cells say where the tensors are; each rank reads what it needs out of the others' memory (shm_pull),
 *           a block at a time, and reduces the blocks while they are in the cache.  Nobody writes to another one's
 *           memory, so a rank that has given up an operation may use its memory again at once.  The last step says
 *           that one has read all it needs, and is entered only where everybody still lives
 *
 * A rank that gives an operation up takes its steps back: to those who have not met it there it has never come.  So
 * nobody believes what was read out of its memory meanwhile, and nobody completes what it was told had failed.
 *
 * Reductions are done in order of rank, so all ranks and all runs get the same bits.
 *
 * Cells are used again after BOARD_DEPTH steps.  Having entered a step means that one has done with all earlier ones
 * but the one before it, so a rank may fill its cell for step k once all have entered step k - BOARD_DEPTH + 2; the
 * same holds for slots and BOARD_SLOTS, for rooms and BOARD_ROOMS.  With trays nobody is ahead: they are filled once
 * all have entered step k - BOARD_TRAYS + 1, who then have done with the tray's last use, be it the step before that or
 * one of an operation before the one that this is in.  So ranks that wait for nobody (a root that broadcasts, the
 * others when they send it theirs) run ahead of the others, and where ranks share a core, each turn of one is worth
 * many operations.
 */
#ifndef BOARD_H
#define BOARD_H

#include "shm.h"

enum { BOARD_DEPTH = 64, BOARD_SLOTS = 32, BOARD_ROOMS = 4, BOARD_TRAYS = 2 };
enum {
    BOARD_FIRST = 0, /* the board of the family's first group, taken by who makes the segment if all ranks share it */
    BOARD_ABSENT = -1
};
enum { BOARD_AHEAD = 1 }; /* steps that a rank may have entered beyond the one that it is in */

/* Bytes of an operation's data that fit into a cell; that fit into a slot. */
enum { BOARD_INLINE = SHM_LINE - 16, BOARD_SLOT = 1024 };

struct board_cell {
    _Alignas(SHM_LINE) _Atomic uint64_t step; /* twice the step, and 1: this rank waits (board.c, both_wait) */
    uint64_t fingerprint;
    union {
        char small[BOARD_INLINE]; /* data that fit in here; more are in the step's slot or room */
        struct {
            uint64_t in, out; /* addresses of the rank's tensors */
            uint64_t shared;  /* the others can read them in place */
        };
    };
};

enum board_state { BOARD_NONE, BOARD_READY };

/* An operation under way. */
struct board_op {
    TAILQ_ENTRY(board_op) link;
    tutti_request *request;
    uint64_t call; /* see tutti_op; 0: what follows may not be used for another one */
    tutti_kind kind;
    tutti_reduce_op reduce;
    tutti_dtype dtype;
    int root;
    bool large, piped;
    bool split;     /* piped, in small chunks through the rooms, and a step ahead */
    bool may_split; /* while both ranks wait, and if cores are near where that counts */
    bool shows;     /* piped, but the first step tells whether it had better be large: see board_share.c */
    bool either;    /* piped, in whichever way is the faster one while the ranks' cores are near each other */
    bool reads;     /* and large while they are far, if either: see board_near.c */
    bool sliced;    /* each rank reduces a part for those who take the result */
    bool streams;   /* what is written would not stay in the cache anyway */
    const char *in;
    char *out;
    const tutti_tensor *list; /* the blocks of the side that is a list, or NULL */
    int64_t numel;            /* elements of a block, or of the whole where there are no blocks */
    size_t element, bytes;    /* bytes of those */
    size_t put;               /* bytes that a rank puts down for others, or shows them */
    bool puts;                /* this rank does, too */
    uint64_t depth;           /* for how many steps the place lasts where that is */
    size_t chunk;             /* piped: bytes of each block, or of the whole, that a step carries at most */
    int64_t steps;
    /* where it stands */
    uint64_t first;  /* its first step; 0: it has not begun */
    int64_t at;      /* the step that it is in, 0 .. steps - 1 */
    int64_t entered; /* steps */
    int64_t ahead;   /* steps that it enters beyond the one that it is in, if it can */
    bool far;        /* either, and cores are far */
    bool met;
    int meets_from, meets_to; /* the ranks that the step waits for, from .. to - 1, but for this one */
    int peer;                 /* the next one to be met, or to be read from */
    int64_t midst_ns;         /* see board_near.c */
    size_t done;              /* bytes of the block, or of the peer's part, that are done */
};

struct board {
    struct shm *shm;
    const tutti_host *host;
    enum board_state state;
    int n, rank;
    int *seat;                          /* of each rank of the group */
    int index;                          /* -1: none */
    char *base, *slots, *rooms, *trays; /* base: the cells */
    size_t room;
    size_t tray;                   /* what a rank can put into one; half as much lies behind it */
    uint64_t next;                 /* step that the next operation to run begins with */
    uint64_t all_in;               /* all ranks have entered this one */
    int since_async;               /* operations, up to PATIENCE, since the last that its caller did not wait for */
    _Atomic uint64_t *words;       /* see board_near.c */
    uint32_t tray_ps;              /* what a byte takes into a tray; 0: not known */
    struct pace fills[TUTTI_SEND]; /* see shm_put.c */
    struct pace results[2];        /* of piped, and of large operations */
    struct shm_put put;            /* what is being put */
    char *scratch;                 /* blocks of others */
    char *result;                  /* what others read that has no place in the caller's memory */
    size_t result_bytes;
    bool result_is_shared;
    TAILQ_HEAD(board_ops, board_op) ops; /* begun; the first one runs */
    struct board_op *spare;
    LIST_ENTRY(board) link; /* of those with operations */
    bool linked;
};
LIST_HEAD(board_list, board);

size_t board_bytes(int n);

/* Takes a board for a group if its ranks share memory: its number, or BOARD_ABSENT.  One rank calls it for all. */
int board_reserve(struct shm *shm, int32_t n, const int32_t *global_ranks);
/* Opens the board that was taken for the group; BOARD_ABSENT: there is none, and its operations are plans. */
void board_open(struct board *board, struct shm *shm, int index, int32_t rank, int32_t n, const int32_t *global_ranks);
void board_close(struct board *board);

/* As an entry of tutti_backend.native. */
int board_begin(struct board *board, const tutti_op *op, tutti_request *request, struct board_list *running);
bool board_cancel(struct board *board, tutti_request *request);
int board_progress(struct board_list *running);
/* Before sleeping: whether some operation could go on. */
bool board_is_ready(const struct board_list *running);
/* Marks the ranks of the group that a pending request waits for. */
void board_awaits(const struct board *board, const tutti_request *request, bool *ranks);

/* As tutti_backend.explain. */
const char *board_explain(const struct board *board, const tutti_op *op);

/* board_directory.c; a new segment's is empty.  take: the number of a board for a group of n ranks, or BOARD_ABSENT;
 * one rank calls it for all.  leave: the last of n ranks gives it back. */
int board_directory_take(struct shm *shm, int n);
bool board_directory_has(const struct shm *shm, int index);
void board_directory_leave(struct shm *shm, int index, int n);

/* board_take.c.  Fills what the operation is, not where it stands. */
bool board_takes(const struct board *board, const tutti_op *op, struct board_op *made);
void board_set_steps(const struct board *board, struct board_op *op);
void board_split(const struct board *board, struct board_op *op);
/* Whom the step that it is in waits for. */
void board_set_meets(const struct board *board, struct board_op *op);
static inline bool board_meets(const struct board_op *op, int rank)
{
    return rank >= op->meets_from && rank < op->meets_to;
}

/* board_small.c, board_pipe.c, board_large.c: put fills the own cell for the step that is being entered, work does what
 * the step does once the others are met. */
void board_put_small(struct board *board, struct board_op *op);
void board_work_small(struct board *board, struct board_op *op);
void board_put_pipe(struct board *board, struct board_op *op);
void board_work_pipe(struct board *board, struct board_op *op);
/* Into how many chunks and steps. */
void board_cut_pipe(const struct board *board, struct board_op *op);
void board_put_large(struct board *board, struct board_op *op);
/* One block at most.  TUTTI_OK: the step has done; 1: there is more to do, or to wait for; an error: a rank's memory
 * cannot be read. */
int board_work_large(struct board *board, struct board_op *op);
/* Memory for it. */
int board_prepare_large(struct board *board, const struct board_op *op);
void board_free_result(struct board *board);

/* board_share.c.  Says in the first cell of an operation that is piped whether this rank's memory can be read in place;
 * true: and so nobody will look into its tray.  Whether all ranks' can, once they are met. */
bool board_show(struct board *board, struct board_op *op);
bool board_is_shared(const struct board *board, const struct board_op *op);

/* board_fill.c.  Fills what a piped operation has for the step that is being entered; puts what a small one has into
 * the room; and reduces what others will read: begin, before any of it is looked at, says in board->put how. */
void board_fill(struct board *board, struct board_op *op);
void board_put(struct board *board, const struct board_op *op, void *to, const void *from, size_t bytes);
void board_begin_result(struct board *board, const struct board_op *op, size_t bytes);
void board_reduce_result(struct board *board, const struct board_op *op, char *to, const void *const *from,
                         size_t bytes);

/* board_near.c.  Whether an operation that may go either way goes the way of cores that are near each other; the step
 * that it begins with may be entered.  It goes by what rank 0 has filled with plain stores, in so long; and by a
 * split operation as a whole, whose chunks are too small to be timed: from where both ranks are in the midst of it to
 * the end, in which each byte has gone into a room and out of one (called in each of its steps, once it has done). */
bool board_goes_near(struct board *board, const struct board_op *op);
void board_has_filled(struct board *board, const struct board_op *op, size_t bytes, uint64_t ns);
void board_has_split(struct board *board, struct board_op *op);

struct board_cell *board_cell_of(const struct board *board, int rank, uint64_t step);
char *board_slot_of(const struct board *board, int rank, uint64_t step);
char *board_room_of(const struct board *board, int rank, uint64_t step);
char *board_tray_of(const struct board *board, int rank, uint64_t step);

/* A rank that has not come, and never will.  TUTTI_OK: it is there; an error: it is lost. */
int board_lost(const struct board *board, int rank);
/* Whether rank has entered the step, or a later one. */
bool board_has_entered(const struct board *board, int rank, uint64_t step);

#endif
