/* Collectives within one host, through a collective segment.  Each rank of a group has control slots there that it
 * alone writes and all read.
 *
 * Every operation of a group takes one or more steps, counted alike by all ranks.  A rank posts a step by filling its
 * control slot (the operation's fingerprint, small data, or tensor addresses) and storing the step's number.  It waits
 * for the others by reading that number from theirs.  No message is sent and nothing is matched: one cache line per
 * rank carries arrival, operation and, if small, data.
 *
 * - Small data fits the control slot or an eager buffer (eager.c).  The ranks concerned copy it out.
 * - Two ranks with a core each split larger data into small chunks, one a step, while both wait for their calls.  Each
 *   rank posts the next chunk before it copies out the current one.  So neither waits while lines move between cores,
 *   and the eager buffers stay in the first-level caches.
 * - Otherwise chunks go through two fragment buffers per rank, one a step (pipelined.c).  If the first step finds that
 *   all data to be read is memory of tutti_alloc, the operation continues as a direct one (shared.c).
 * - In a direct operation the control slots hold tensor addresses (direct.c).  Each rank reads what it needs from the
 *   others' memory, a block at a time, and reduces blocks while they are cached.  No rank writes to another's memory,
 *   so a rank that has abandoned an operation may reuse its memory at once.  The last step says that the rank has read
 *   all it needs.  It is posted only if all ranks are still alive.
 *
 * A rank that abandons an operation withdraws its steps: for ranks that have not seen them it never arrived.  So no
 * data read meanwhile counts, and no rank completes an operation that was reported as failed.
 *
 * Reductions run in order of rank, so all ranks and all runs get the same bits.
 *
 * Operations run in order.  While one waits, the pending ones behind it are posted as long as they and it are short:
 * eager ones whose data fits a small buffer.  So short operations in flight do not take turns, and if ranks share a
 * core, each time slice covers many of them.
 *
 * Control slots are reused after COLL_SLOTS steps.  A rank that has posted step k is finished with every step before
 * k - COLL_RUN_AHEAD, and with every step of a longer operation before k - COLL_AHEAD.  It may fill its slot for step k
 * once all have posted step k - COLL_SLOTS + COLL_RUN_AHEAD + 1.  The same holds for small buffers with
 * COLL_SMALL_BUFFERS.  Longer operations alone use eager and fragment buffers: those are filled once all have posted
 * step k - COLL_EAGER_BUFFERS + COLL_AHEAD + 1, and k - COLL_FRAGMENTS + 1.  Then all are finished with the buffer's
 * last use.  Ranks that wait for nobody, such as the root of a broadcast, can therefore run ahead.
 */
#ifndef TCP_COLL_H
#define TCP_COLL_H

#include "tcp/shm/shm.h"

enum { COLL_SLOTS = 64, COLL_SMALL_BUFFERS = 32, COLL_EAGER_BUFFERS = 4, COLL_FRAGMENTS = 2 };
/* COLL_FIRST: the segment of the root group, which the rank that creates the shared memory reserves if all share it. */
enum { COLL_FIRST = 0, COLL_ABSENT = -1 };
enum { COLL_AHEAD = 1 };      /* steps that a rank may post beyond the current one of a longer operation */
enum { COLL_RUN_AHEAD = 16 }; /* steps that a rank may post beyond the current one of a short operation */
enum { COLL_PATIENCE = 64 };  /* consecutive blocking operations before a rank declares that it waits */

/* Data bytes that fit a control slot, and a small eager buffer. */
enum { COLL_INLINE = SHM_LINE - 16, COLL_SMALL = 1024 };

struct coll_slot {
    _Alignas(SHM_LINE) _Atomic uint64_t step; /* twice the step, plus 1 if this rank waits (steps.c, both_wait) */
    uint64_t fingerprint;
    union {
        char small[COLL_INLINE]; /* data that fits; more is in the step's small or eager buffer */
        struct {
            uint64_t in, out; /* addresses of the rank's tensors */
            uint64_t shared;  /* the peers can read them in place */
        };
    };
};

enum coll_state { COLL_NONE, COLL_READY };

/* The paths that data can take; path.c has the table.  The numbers are those of tutti_path. */
enum coll_path {
    COLL_NO_PATH,
    COLL_EAGER,     /* one step through the control slots or eager buffers */
    COLL_LOCKSTEP,  /* two ranks: small chunks through the eager buffers, one step ahead */
    COLL_PIPELINED, /* chunks through the fragment buffers */
    COLL_DIRECT     /* each rank reads the others' memory */
};

/* A pending operation. */
struct coll_op {
    TAILQ_ENTRY(coll_op) link;
    tutti_request *request;
    uint64_t call; /* see tutti_op; 0: the description may not be reused */
    tutti_kind kind;
    tutti_reduce_op reduce;
    tutti_dtype dtype;
    int root;
    enum coll_path path;
    enum coll_path separate; /* path if the cores share no cache, which the first step finds: see cache.c */
    enum coll_path waiting;  /* path if both ranks wait for their calls, which the first step finds */
    bool probes;             /* direct if all data to be read is in arenas, which the first step finds: see shared.c */
    bool sliced;             /* pipelined or direct: each rank reduces a slice for those that need the result */
    bool non_temporal;       /* the output would not stay in the cache */
    const char *in;
    char *out;
    const tutti_tensor *list; /* blocks of the side that is a list, or NULL */
    int64_t numel;            /* elements per block; of the whole tensor if it has no blocks */
    size_t element, bytes;    /* bytes of an element, and of numel elements */
    size_t in_bytes;          /* bytes that a rank copies in or exposes */
    bool has_input;           /* true if this rank does so, too */
    uint64_t depth;           /* steps until its buffers are reused */
    size_t chunk;             /* maximum bytes of each block, or of the whole, per step in chunks */
    int64_t steps;
    /* Progress. */
    uint64_t first;             /* first step; 0: not started */
    int64_t at;                 /* current step, 0 .. steps - 1 */
    int64_t posted;             /* steps posted */
    int64_t ahead;              /* steps to post beyond the current one, if possible */
    bool is_separate;           /* the cores share no cache; known if there is a path for that */
    bool arrived;               /* the ranks that the step waits for have posted it */
    int awaits_from, awaits_to; /* ranks that the step waits for, from .. to - 1, except this one */
    int peer;                   /* next rank to wait for, or to read from */
    int64_t midst_ns;           /* see cache.c */
    size_t done;                /* finished bytes of the block, or of the peer's part */
};

struct coll_segment {
    struct shm *shm;
    const tutti_host *host;
    enum coll_state state;
    int n, rank;
    int *local_rank; /* of each rank of the group */
    int index;       /* -1: none */
    char *slots, *small_buffers, *eager_buffers, *fragments;
    size_t eager_bytes;            /* capacity of an eager buffer */
    size_t fragment_bytes;         /* capacity of a fragment buffer; half as much again follows it for results */
    uint64_t next;                 /* first step of the next operation to run */
    uint64_t all_in;               /* all ranks have posted this step */
    int since_async;               /* operations since the last async one, up to COLL_PATIENCE */
    _Atomic uint64_t *cache_words; /* see cache.c */
    uint32_t fragment_ps;          /* measured ps per byte into a fragment buffer; 0: unknown */
    struct cost_model fragment_costs[TUTTI_SEND]; /* see copy_in.c */
    struct cost_model result_costs[2];            /* of operations in chunks, and of direct ones */
    struct shm_copy_in copy;                      /* the current copy */
    char *scratch;                                /* blocks read from peers */
    char *result; /* data that peers read and that has no place in the caller's memory */
    size_t result_bytes;
    bool result_is_shared;
    TAILQ_HEAD(coll_ops, coll_op) ops; /* pending, in order; the first one runs */
    struct coll_op *unposted;          /* the first of them behind it that is not posted, or NULL */
    struct coll_op *spare;
    const tutti_path_row *choices; /* rows that go before the table: see tutti_backend.choose */
    int n_choices;
    LIST_ENTRY(coll_segment) link; /* among those with operations */
    bool linked;
};
LIST_HEAD(coll_list, coll_segment);

/* ---- layout.c ---------------------------------------------------------------------------------------------- */

/* Returns the bytes of a segment for n ranks. */
size_t coll_bytes(int n);
/* Computes where everything lies in the segment with this index. */
void coll_lay_out(struct coll_segment *segment, struct shm *shm, int index);
struct coll_slot *coll_slot_of(const struct coll_segment *segment, int rank, uint64_t step);
char *coll_small_of(const struct coll_segment *segment, int rank, uint64_t step);
char *coll_eager_of(const struct coll_segment *segment, int rank, uint64_t step);
char *coll_fragment_of(const struct coll_segment *segment, int rank, uint64_t step);

/* ---- coll.c ------------------------------------------------------------------------------------------------ */

/* Reserves a segment for a group if its ranks share memory.  Returns its index, or COLL_ABSENT.  One rank calls it for
 * all. */
int coll_reserve(struct shm *shm, int32_t n, const int32_t *global_ranks);
/* Opens the segment reserved for the group.  With COLL_ABSENT there is none, and operations run as plans.
 * Errors: NO_MEMORY, because a rank that ran plans alone would wait for the others for ever. */
int coll_open(struct coll_segment *segment, struct shm *shm, int index, int32_t rank, int32_t n,
              const int32_t *global_ranks);
void coll_close(struct coll_segment *segment);

/* Implements entries of tutti_backend.native. */
int coll_begin(struct coll_segment *segment, const tutti_op *op, tutti_request *request, struct coll_list *running);
bool coll_cancel(struct coll_segment *segment, tutti_request *request);
int coll_progress(struct coll_list *running);
/* True if some operation could advance; checked before sleeping. */
bool coll_is_ready(const struct coll_list *running);
/* Marks the ranks that a pending request waits for. */
void coll_awaits(const struct coll_segment *segment, const tutti_request *request, bool *ranks);

/* ---- steps.c ----------------------------------------------------------------------------------------------- */

/* Returns TUTTI_OK if the operation is complete, 1 if it is pending, or an error.  *moved: something was done. */
int coll_advance(struct coll_segment *segment, struct coll_op *op, bool *moved);
/* Posts a short operation's step while the one before it is pending.  Returns false if it must wait for that. */
bool coll_run_ahead(struct coll_segment *segment, struct coll_op *op);
/* Withdraws the operation's steps, so that data read afterwards no longer counts. */
void coll_withdraw_steps(struct coll_segment *segment, const struct coll_op *op);
/* True if the operation could advance. */
bool coll_op_is_ready(struct coll_segment *segment, const struct coll_op *op);
/* True if the operation waits for the rank. */
bool coll_op_awaits(const struct coll_segment *segment, const struct coll_op *op, int rank);
/* Returns TUTTI_OK, or an error if the rank is lost. */
int coll_lost(const struct coll_segment *segment, int rank);
/* True if the rank has posted this step or a later one. */
bool coll_has_posted(const struct coll_segment *segment, int rank, uint64_t step);

/* ---- directory.c ------------------------------------------------------------------------------------------- */

/* The directory is empty in a new segment.  Reserves a collective segment for a group of n ranks and returns its index,
 * or COLL_ABSENT.  One rank calls it for all. */
int coll_directory_reserve(struct shm *shm, int n);
bool coll_directory_has(const struct shm *shm, int index);
/* Counts this rank out; the last of n ranks releases the segment. */
void coll_directory_leave(struct shm *shm, int index, int n);

/* ---- path.c ------------------------------------------------------------------------------------------------ */

/* The paths of collectives, for tutti_backend.paths. */
/* clang-format off */
#define COLL_PATHS_OF(kind)                                                                                            \
    {kind, COLL_EAGER, "eager"}, {kind, COLL_LOCKSTEP, "lockstep"},                                                    \
    {kind, COLL_PIPELINED, "pipelined"}, {kind, COLL_DIRECT, "direct"}
#define COLL_PATHS                                                                                                     \
    COLL_PATHS_OF(TUTTI_BROADCAST), COLL_PATHS_OF(TUTTI_ALL_REDUCE), COLL_PATHS_OF(TUTTI_REDUCE),                      \
    COLL_PATHS_OF(TUTTI_ALL_GATHER), COLL_PATHS_OF(TUTTI_GATHER), COLL_PATHS_OF(TUTTI_SCATTER),                        \
    COLL_PATHS_OF(TUTTI_REDUCE_SCATTER), COLL_PATHS_OF(TUTTI_ALL_TO_ALL), {TUTTI_BARRIER, COLL_EAGER, "eager"}
/* clang-format on */

/* Fills the description of an operation, not its progress.  Returns false if it is to run as a plan. */
bool coll_describe(const struct coll_segment *segment, const tutti_op *op, struct coll_op *made);
/* Changes the path of an operation that has not posted a step, or has posted its probe alone. */
void coll_use_path(const struct coll_segment *segment, struct coll_op *op, enum coll_path path);
/* Sets the ranks that the current step waits for. */
void coll_set_awaited(const struct coll_segment *segment, struct coll_op *op);
static inline bool coll_awaits_rank(const struct coll_op *op, int rank)
{
    return rank >= op->awaits_from && rank < op->awaits_to;
}
/* Implements tutti_backend.explain. */
const char *coll_explain(const struct coll_segment *segment, const tutti_op *op);

/* ---- eager.c, pipelined.c, direct.c ------------------------------------------------------------------------ */

/* post fills this rank's control slot and buffers for the step being posted; run does the step's work once the others
 * have arrived. */
void coll_eager_post(struct coll_segment *segment, struct coll_op *op);
void coll_eager_run(struct coll_segment *segment, struct coll_op *op);
void coll_pipelined_post(struct coll_segment *segment, struct coll_op *op);
void coll_pipelined_run(struct coll_segment *segment, struct coll_op *op);
/* Computes the number of chunks and steps. */
void coll_pipelined_cut(const struct coll_segment *segment, struct coll_op *op);
void coll_direct_post(struct coll_segment *segment, struct coll_op *op);
/* Handles one block at most.  Returns TUTTI_OK if the step is done, 1 if it is not, or an error if a rank's memory
 * cannot be read. */
int coll_direct_run(struct coll_segment *segment, struct coll_op *op);
/* Allocates the operation's buffers. */
int coll_direct_prepare(struct coll_segment *segment, const struct coll_op *op);
void coll_direct_free(struct coll_segment *segment);

/* ---- shared.c ---------------------------------------------------------------------------------------------- */

/* Declares in the first control slot of a probing operation whether this rank's memory can be read in place.  Returns
 * true if no peer will read its fragment buffer then. */
bool coll_shared_declare(struct coll_segment *segment, struct coll_op *op);
/* True if all ranks' memory can be read in place, once they have arrived. */
bool coll_shared_by_all(const struct coll_segment *segment, const struct coll_op *op);

/* ---- store.c ----------------------------------------------------------------------------------------------- */

/* Fills the buffer of the step being posted. */
void coll_store_chunk(struct coll_segment *segment, struct coll_op *op);
/* Copies data into an eager buffer. */
void coll_store_eager(struct coll_segment *segment, const struct coll_op *op, void *to, const void *from, size_t bytes);
/* Chooses the kind of store for a result that peers will read; called before the data is touched. */
void coll_result_begin(struct coll_segment *segment, const struct coll_op *op, size_t bytes);
/* Reduces such a result. */
void coll_result_reduce(struct coll_segment *segment, const struct coll_op *op, char *to, const void *const *from,
                        size_t bytes);

/* ---- cache.c ----------------------------------------------------------------------------------------------- */

/* True if an operation with a path for separate caches, whose first step may be posted, takes the one for a shared
 * cache. */
bool coll_cache_is_shared(struct coll_segment *segment, const struct coll_op *op);
/* Update the estimate: with the time of rank 0's plain stores, and, after each step, with that of an operation in
 * lockstep.  Its chunks are too short to time, so it is timed from its middle to its end. */
void coll_cache_stored(struct coll_segment *segment, const struct coll_op *op, size_t bytes, uint64_t ns);
void coll_cache_stepped(struct coll_segment *segment, struct coll_op *op);

#endif
