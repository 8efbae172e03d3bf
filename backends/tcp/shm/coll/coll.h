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
 * Control slots are reused after COLL_SLOTS steps.  A rank that has posted step k is finished with every step before
 * k - 1.  It may fill its slot for step k once all have posted step k - COLL_SLOTS + 2.  The same holds for small
 * buffers with COLL_SMALL_BUFFERS and for eager buffers with COLL_EAGER_BUFFERS.  Fragment buffers are filled once all
 * have posted step k - COLL_FRAGMENTS + 1.  Then all are finished with the buffer's last use.  Ranks that wait for
 * nobody, such as the root of a broadcast, can therefore run ahead.  If ranks share a core, each time slice covers many
 * operations.
 */
#ifndef TCP_COLL_H
#define TCP_COLL_H

#include "tcp/shm/shm.h"

enum { COLL_SLOTS = 64, COLL_SMALL_BUFFERS = 32, COLL_EAGER_BUFFERS = 4, COLL_FRAGMENTS = 2 };
/* COLL_FIRST: the segment of the root group, which the rank that creates the shared memory reserves if all share it. */
enum { COLL_FIRST = 0, COLL_ABSENT = -1 };
enum { COLL_AHEAD = 1 }; /* steps that a rank may post beyond the current one */

/* Data bytes that fit a control slot, and a small eager buffer. */
enum { COLL_INLINE = SHM_LINE - 16, COLL_SMALL = 1024 };

struct coll_slot {
    _Alignas(SHM_LINE) _Atomic uint64_t step; /* twice the step, plus 1 if this rank waits (coll.c, both_wait) */
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

/* A pending operation. */
struct coll_op {
    TAILQ_ENTRY(coll_op) link;
    tutti_request *request;
    uint64_t call; /* see tutti_op; 0: the description may not be reused */
    tutti_kind kind;
    tutti_reduce_op reduce;
    tutti_dtype dtype;
    int root;
    bool large, piped;
    bool split;     /* piped, in small chunks through the eager buffers, one step ahead */
    bool may_split; /* split while both ranks wait, if the cores allow it */
    bool shows;     /* piped, but the first step decides whether to switch to large: see shared.c */
    bool either;    /* piped, by whichever path is faster while the cores share a cache */
    bool reads;     /* if either: large while they do not, see cache.c */
    bool sliced;    /* each rank reduces a slice for those that need the result */
    bool streams;   /* the output would not stay in the cache */
    const char *in;
    char *out;
    const tutti_tensor *list; /* blocks of the side that is a list, or NULL */
    int64_t numel;            /* elements per block; of the whole tensor if it has no blocks */
    size_t element, bytes;    /* bytes of an element, and of numel elements */
    size_t in_bytes;          /* bytes that a rank copies in or exposes */
    bool has_input;           /* true if this rank does so, too */
    uint64_t depth;           /* steps until its buffers are reused */
    size_t chunk;             /* piped: maximum bytes of each block, or of the whole, per step */
    int64_t steps;
    /* Progress. */
    uint64_t first;             /* first step; 0: not started */
    int64_t at;                 /* current step, 0 .. steps - 1 */
    int64_t posted;             /* steps posted */
    int64_t ahead;              /* steps to post beyond the current one, if possible */
    bool far;                   /* either, and the cores share no cache */
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
    size_t fragment_bytes;         /* capacity of a fragment; half as much again follows it for results */
    uint64_t next;                 /* first step of the next operation to run */
    uint64_t all_in;               /* all ranks have posted this step */
    int since_async;               /* operations since the last async one, up to PATIENCE */
    _Atomic uint64_t *cache_words; /* see cache.c */
    uint32_t fragment_ps;          /* measured ps per byte into a fragment; 0: unknown */
    struct cost_model fragment_costs[TUTTI_SEND]; /* see copy_in.c */
    struct cost_model result_costs[2];            /* of piped and of large operations */
    struct shm_copy_in copy;                      /* the current copy */
    char *scratch;                                /* blocks read from peers */
    char *result; /* data that peers read and that has no place in the caller's memory */
    size_t result_bytes;
    bool result_is_shared;
    TAILQ_HEAD(coll_ops, coll_op) ops; /* started; the first one runs */
    struct coll_op *spare;
    LIST_ENTRY(coll_segment) link; /* among those with operations */
    bool linked;
};
LIST_HEAD(coll_list, coll_segment);

size_t coll_bytes(int n);

/* Reserves a segment for a group if its ranks share memory.  Returns its index, or COLL_ABSENT.  One rank calls it for
 * all. */
int coll_reserve(struct shm *shm, int32_t n, const int32_t *global_ranks);
/* Opens the segment reserved for the group.  With COLL_ABSENT there is none, and operations run as plans. */
void coll_open(struct coll_segment *segment, struct shm *shm, int index, int32_t rank, int32_t n,
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

/* Implements tutti_backend.explain. */
const char *coll_explain(const struct coll_segment *segment, const tutti_op *op);

/* directory.c; empty in a new segment.  take: reserves a segment for a group of n ranks and returns its index, or
 * COLL_ABSENT; one rank calls it for all.  leave: the last of n ranks releases it. */
int coll_directory_reserve(struct shm *shm, int n);
bool coll_directory_has(const struct shm *shm, int index);
void coll_directory_leave(struct shm *shm, int index, int n);

/* path.c.  Fills the description of an operation, not its progress. */
bool coll_describe(const struct coll_segment *segment, const tutti_op *op, struct coll_op *made);
void coll_set_steps(const struct coll_segment *segment, struct coll_op *op);
void coll_use_lockstep(const struct coll_segment *segment, struct coll_op *op);
/* Sets the ranks that the current step waits for. */
void coll_set_awaited(const struct coll_segment *segment, struct coll_op *op);
static inline bool coll_awaits_rank(const struct coll_op *op, int rank)
{
    return rank >= op->awaits_from && rank < op->awaits_to;
}

/* eager.c, pipelined.c, direct.c: put fills this rank's control slot for the step being posted; work runs
 * the step once the others have arrived. */
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
/* Allocates its buffers. */
int coll_direct_prepare(struct coll_segment *segment, const struct coll_op *op);
void coll_direct_free(struct coll_segment *segment);

/* shared.c.  coll_shared_declare declares in the first control slot of a piped operation whether this rank's memory can
 * be read in place; it returns true if no peer will read its fragment then.  coll_shared_by_all: true if all ranks'
 * memory can be, once they have arrived. */
bool coll_shared_declare(struct coll_segment *segment, struct coll_op *op);
bool coll_shared_by_all(const struct coll_segment *segment, const struct coll_op *op);

/* store.c.  coll_store_fragment fills a fragment for the step being posted, coll_store_eager a room. coll_result_reduce
 * reduces what peers will read; coll_result_begin, called before the data is touched, chooses the kind of store. */
void coll_store_fragment(struct coll_segment *segment, struct coll_op *op);
void coll_store_eager(struct coll_segment *segment, const struct coll_op *op, void *to, const void *from, size_t bytes);
void coll_result_begin(struct coll_segment *segment, const struct coll_op *op, size_t bytes);
void coll_result_reduce(struct coll_segment *segment, const struct coll_op *op, char *to, const void *const *from,
                        size_t bytes);

/* cache.c.  coll_cache_is_shared: true if an operation with a choice takes the path for cores that share a cache; its
 * first step may be posted.  The estimate comes from rank 0's plain stores, and from whole split operations, whose
 * chunks are too short to time: from the middle of the operation to its end (coll_cache_lockstep, called after each
 * step).
 */
bool coll_cache_is_shared(struct coll_segment *segment, const struct coll_op *op);
void coll_cache_filled(struct coll_segment *segment, const struct coll_op *op, size_t bytes, uint64_t ns);
void coll_cache_lockstep(struct coll_segment *segment, struct coll_op *op);

struct coll_slot *coll_slot_of(const struct coll_segment *segment, int rank, uint64_t step);
char *coll_small_of(const struct coll_segment *segment, int rank, uint64_t step);
char *coll_eager_of(const struct coll_segment *segment, int rank, uint64_t step);
char *coll_fragment_of(const struct coll_segment *segment, int rank, uint64_t step);

/* Returns TUTTI_OK, or an error if the rank is lost. */
int coll_lost(const struct coll_segment *segment, int rank);
/* True if the rank has posted this step or a later one. */
bool coll_has_posted(const struct coll_segment *segment, int rank, uint64_t step);

#endif
