/* Collectives within one host, through a collective segment.  Each rank of a group has control slots there that it
 * alone writes and all read, and buffers likewise (but for the lanes of chunks.c).
 *
 * Every operation of a group takes one or more steps, and all ranks count them alike.  A rank posts a step by filling
 * its control slot (the operation's fingerprint, small data, or tensor addresses) and storing the step's number.  It
 * waits for the others by reading that number from theirs.  No message is sent and nothing is matched: one cache line
 * per rank carries arrival, operation and, if small, data.
 *
 * - Small data fits the control slot, or a tiny, small or eager buffer (eager.c).  The ranks concerned copy it out.
 * - Lockstep: two ranks with a core each send chunks of 2 KiB, one per step.  Each posts the next chunk before it
 *   copies out the current one, so it rarely waits while lines move between cores.  All chunks go through the first
 *   2 KiB of the eager buffers.
 * - Otherwise chunks go through two fragment buffers per rank, one per step (pipelined.c).  If the first step finds
 * that all data to be read is memory of tutti_alloc, the operation continues as a direct one (shared.c).
 * - Blocks of differing sizes, which a rank knows of its own alone, go the way that suits each rank's own ones, which
 *   its table of blocks says (uneven.c).  If all ranks know the sizes, each block has the space of the largest one, and
 *   any of the other paths takes them.
 * - In a direct operation the control slots hold tensor addresses (direct.c).  Each rank reads what it needs from the
 *   others' memory, a block at a time, and reduces blocks while they are cached.  No rank writes to another's memory,
 *   so a rank that has abandoned an operation may reuse its memory at once.  The last step says that the rank has read
 *   all it needs.  It is posted only if the ranks that it waits for are still alive: all, or in an operation with a
 *   root the root alone, which waits for all.  In a gather or scatter of lists the only step of a rank that reads says
 *   so (uneven.c), and only the ranks whose memory it has read must be alive: the others may have completed and exited.
 *
 * A rank that abandons an operation withdraws its steps.  For ranks that have not seen them it has never arrived, so
 * data that they read meanwhile do not count.  No rank completes an operation that was reported as failed.
 *
 * Reductions run in order of rank, so all ranks and all runs get the same bits.
 *
 * Operations run in order.  While one waits, the pending ones behind it are posted if all of them are short: eager
 * operations whose data fit a small buffer.  Short operations therefore do not wait for each other, and if ranks share
 * a core, each time slice covers many of them.
 *
 * Control slots and tiny buffers are reused after COLL_SLOTS steps.  A rank that has posted step k is finished with
 * every step before k - COLL_RUN_AHEAD, and with every step of a longer operation before k - COLL_AHEAD.  It may fill
 * its slot for step k once all have posted step k - COLL_SLOTS + COLL_RUN_AHEAD + 1.  The same holds for small buffers
 * with COLL_SMALL_BUFFERS.  Only longer operations use eager and fragment buffers.  A rank fills these once all have
 * posted step k - COLL_EAGER_BUFFERS + COLL_AHEAD + 1 and k - COLL_FRAGMENTS + 1.  For example, step k reuses the eager
 * buffer of step k - 8: a rank fills it once all have posted step k - 6, and so are finished with every longer step
 * before k - 7.  The first steps of a pipelined operation wait only for the last one before that used fragment buffers
 * (steps.c).  Then all are finished with the buffer's previous use.  A rank that waits for no other, such as the root
 * of a broadcast, can therefore run ahead.  If it has come as far as it can, it waits until half of the buffers are
 * free, unless they are few.
 *
 * A pipelined operation with a root runs further ahead in parts of fragment buffers, if one step suffices
 * (fragment_parts.c).  Therefore one with more than a small buffer's data is pipelined: with a core for each rank up to
 * where they measure, and where ranks share cores up to an eager buffer's, to do much in each time slice.
 */
#ifndef TCP_COLL_H
#define TCP_COLL_H

#include "tcp/shm/shm.h"

enum { COLL_SLOTS = 256, COLL_SMALL_BUFFERS = 128, COLL_EAGER_BUFFERS = 8, COLL_FRAGMENTS = 2 };
enum { COLL_PARTS = 128 }; /* of a fragment buffer */
/* COLL_FIRST: the segment of the root group.  The rank that creates the shared memory reserves it if all ranks share
 * the memory. */
enum { COLL_FIRST = 0, COLL_ABSENT = -1 };
enum { COLL_KINDS = TUTTI_BARRIER }; /* kinds that have a choice */
enum { COLL_AHEAD = 1 };             /* steps that a rank may post beyond the current one of a longer operation */
enum { COLL_RUN_AHEAD = 16 };        /* steps that a rank may post beyond the current one of a short operation */

/* Bytes of the published ways, and of a rank's counts of work: see agree.c. */
#define COLL_WORDS (COLL_KINDS * CHOICE_CLASSES * sizeof(uint64_t))

/* Bytes of data that fit a control slot, a tiny buffer and a small one. */
enum { COLL_INLINE = SHM_LINE - 16, COLL_TINY = 256, COLL_SMALL = 1024 };
/* Maximum bytes of a rank's data whose lines are asked for ahead. */
enum { COLL_ASKED = 512 };

struct coll_slot {
    _Alignas(SHM_LINE) _Atomic uint64_t step;
    uint64_t fingerprint;
    union {
        char small[COLL_INLINE]; /* short data; longer data are in the step's small or eager buffer */
        struct {
            uint64_t in, out; /* addresses of the rank's tensors */
            uint64_t shared;  /* nonzero if the peers can read the tensors in place */
        };
    };
};

enum coll_state { COLL_NONE, COLL_READY };

/* The paths that data can take.  The numbers are those of tutti_path. */
enum coll_path {
    COLL_NO_PATH,
    COLL_EAGER,     /* one step through the control slots or eager buffers */
    COLL_LOCKSTEP,  /* two ranks: small chunks through the eager buffers, one step ahead */
    COLL_PIPELINED, /* chunks through the fragment buffers */
    COLL_DIRECT,    /* each rank reads the others' memory */
    COLL_UNEVEN     /* blocks of differing sizes, which each rank places where they fit */
};

/* A way of an operation: a path, with plain or non-temporal stores of data that other ranks read.  A calibration times
 * the lower number first (choice.c): of copies the way with non-temporal stores, because where the cores share no cache
 * plain ones take up to ten times as long; of direct, which stores only results, the plain one. */
#define COLL_WAY(path, bypasses) (((int)(path)-COLL_EAGER) * 2 + ((bypasses) == ((path) == COLL_DIRECT)))
#define COLL_WAY_PATH(way) (COLL_EAGER + (way) / 2)
#define COLL_BYPASSES(way) ((way) % 2 == (COLL_WAY_PATH(way) == COLL_DIRECT))

/* Calls of one kind and size class, counted by all ranks alike: see agree.c. */
struct coll_class {
    uint64_t calls, end;    /* calls so far; the first call after the current span */
    uint8_t way;            /* the way of the current span */
    uint8_t kept;           /* 1 + the way of the latest long span that followed a timed one: the best one then; or 0 */
    bool is_timed;          /* the first span, which does not count, has ended */
    struct choice measured; /* rank 0 */
};

/* Where a rank's blocks of differing sizes are: see uneven.c. */
enum coll_place {
    COLL_NOWHERE,
    COLL_IN_SMALL,
    COLL_IN_EAGER,
    COLL_IN_FRAGMENT,
    COLL_IN_CHUNKS, /* in lanes of the fragment buffer, one after another: see chunks.c */
    COLL_IN_MEMORY
};

/* Bytes of blocks in chunks that were copied into the lane to a rank, and out of that from it: see chunks.c. */
struct coll_moved {
    size_t in, out;
    bool takes; /* the rank's block is in chunks */
};

/* A pending operation. */
struct coll_op {
    TAILQ_ENTRY(coll_op) link;
    SLIST_ENTRY(coll_op) spare_link;
    tutti_request *request;
    uint64_t call, form; /* see tutti_op; 0: the description may not be reused */
    tutti_kind kind;
    tutti_reduce_op reduce;
    tutti_dtype dtype;
    int root;
    enum coll_path path;
    bool bypasses;            /* data for other ranks are stored non-temporally */
    int way;                  /* the way that it takes: see coll_use_way */
    unsigned ways;            /* the ways that it can take */
    uint8_t usual;            /* the one that it takes without a measurement */
    struct coll_class *class; /* its calls, if there is more than one way */
    bool async;               /* the program may compute beside it */
    bool probes;              /* the first step finds whether all data are in arenas; if so, direct: see shared.c */
    int parts;                /* of the fragment buffer that its only step uses; 0: whole buffers, or none */
    bool sliced;              /* pipelined or direct: each rank reduces a slice for all ranks that need the result */
    bool non_temporal;        /* the output would not stay in the cache */
    const char *in;
    char *out;
    const tutti_tensor *list; /* blocks of the side that is a list whose sizes all ranks know, or NULL */
    struct coll_uneven {      /* COLL_UNEVEN */
        const tutti_tensor *in, *out;
        const int64_t *in_splits, *out_splits; /* elements of the blocks of a flat tensor; NULL: lists */
        size_t out_bytes;
        enum coll_place place; /* of this rank's blocks */
        bool in_chunks;        /* this rank's blocks are, or any that it reads */
        bool in_place;         /* others still read the input while it is overwritten */
        bool reads_first;      /* this rank posts its step once it has read */
        bool reads_memory;     /* blocks are in a rank's memory */
        bool refused;          /* a rank's block has another size */
    } uneven;
    size_t element, bytes; /* bytes of one element, and of a block (the largest one), or of the whole tensor */
    size_t in_bytes;       /* bytes that a rank with input copies in or exposes, or as many blocks of `bytes` */
    bool has_input;        /* true if this rank has input */
    bool is_simple;        /* one eager step, nothing to measure: see coll_run_simple */
    size_t sent, received; /* bytes of this rank's tensors, which no message carries */
    uint64_t depth;        /* steps until its buffers are reused */
    size_t chunk;          /* maximum bytes per step, of each block or of the whole tensor */
    int64_t steps;
    /* Progress. */
    uint64_t first;             /* number of the first step; 0: not started */
    int part;                   /* the first of its parts */
    uint64_t filled;            /* the last step before that may have used a fragment buffer */
    int64_t at;                 /* current step, 0 .. steps - 1 */
    int64_t posted;             /* steps posted */
    int64_t ahead;              /* steps to post beyond the current one, if possible */
    bool agrees;                /* the first step waits for the choice: see agree.c */
    uint64_t left;              /* calls to the end of the span; 0: the call begins a span */
    int64_t begin_ns;           /* when it began; 0: it is not timed */
    bool counts_work;           /* this rank adds the time of its copies and reductions to its count */
    bool arrived;               /* all ranks that the step waits for have posted it */
    int awaits_from, awaits_to; /* the step waits for ranks from .. to - 1, except this one */
    int peer;                   /* next rank to wait for, or to read from */
    size_t done;                /* finished bytes of this rank's block or of the peer's part */
};

struct coll_segment {
    struct shm *shm;
    const tutti_host *host;
    enum coll_state state;
    int n, rank;
    int *local_rank; /* by group rank */
    int index;       /* index of the segment */
    char *ranks;     /* what each rank writes, one rank after another */
    char *work;      /* the ranks' counts of work */
    struct coll_layout {
        size_t rank_span;      /* bytes from one rank's part to the next one's */
        size_t fragments_at;   /* offset in such a part */
        size_t eager_bytes;    /* capacity of an eager buffer */
        size_t fragment_bytes; /* capacity of a fragment buffer; results follow it */
        size_t fragment_span;  /* bytes of both */
    } layout;
    uint64_t next;              /* first step of the next operation to run */
    uint64_t filled, whole;     /* the last step that may have used a fragment buffer, and a whole one */
    uint64_t all_in;            /* all ranks are known to have posted this step */
    _Atomic uint64_t *words;    /* the published ways, by kind and class: see agree.c */
    struct coll_class *classes; /* in the same order */
    struct coll_moved *moved;   /* by rank, of the operation that runs */
    char *scratch;              /* blocks that were read from peers */
    char *result;               /* data for peers that cannot be in the caller's memory */
    size_t result_bytes;
    bool result_is_shared;
    TAILQ_HEAD(coll_ops, coll_op) ops; /* pending operations, in order; the first one runs */
    struct coll_op *unposted;          /* the first operation behind it that is not posted, or NULL */
    SLIST_HEAD(, coll_op) spare;       /* ended operations, for the next ones, the latest first */
    int n_spare;
    const tutti_path_row *choices; /* the core's rows, which precede the table: see tutti_backend.choose */
    int n_choices;
    /* Parts of fragment buffers: see fragment_parts.c. */
    int next_part[COLL_FRAGMENTS];             /* the one behind those that were used last in the buffer */
    int own_part[COLL_FRAGMENTS];              /* the same for blocks of differing sizes, by this rank alone */
    uint64_t used[COLL_FRAGMENTS][COLL_PARTS]; /* the last step that used the part */
    LIST_ENTRY(coll_segment) link;             /* in the list of segments with pending operations */
    bool linked;
};
LIST_HEAD(coll_list, coll_segment);

/* ---- layout.c ---------------------------------------------------------------------------------------------- */

/* Returns the bytes that a group of n ranks uses of a collective segment. */
size_t coll_group_bytes(int n);
/* Returns the bytes of a collective segment for any group of n ranks or fewer. */
size_t coll_bytes(int n);
/* Computes the positions of all parts of the segment with this index, for a group of n ranks. */
void coll_lay_out(struct coll_segment *segment, const struct shm *shm, int index, int n);
/* Resets the segment to the state in which no rank has posted a step. */
void coll_clear_steps(const struct shm *shm, int index, int n);
struct coll_slot *coll_slot_of(const struct coll_segment *segment, int rank, uint64_t step);
char *coll_tiny_of(const struct coll_segment *segment, int rank, uint64_t step);
char *coll_small_of(const struct coll_segment *segment, int rank, uint64_t step);
char *coll_eager_of(const struct coll_segment *segment, int rank, uint64_t step);
char *coll_fragment_of(const struct coll_segment *segment, int rank, uint64_t step);
/* Returns the rank's counts of work, by kind and class: see agree.c. */
_Atomic uint64_t *coll_work_of(const struct coll_segment *segment, int rank);

/* ---- coll.c ------------------------------------------------------------------------------------------------ */

/* Reserves a segment for a group if its ranks share memory.  Returns its index, or COLL_ABSENT.  Only one rank of the
 * group calls it. */
int coll_reserve(struct shm *shm, int32_t n, const int32_t *global_ranks);
/* Opens the segment that was reserved for the group.  With COLL_ABSENT operations run as plans.  Returns OK or
 * NO_MEMORY: a rank without memory cannot run plans alone, because it would wait for the others for ever. */
int coll_open(struct coll_segment *segment, struct shm *shm, int index, int32_t rank, int32_t n,
              const int32_t *global_ranks);
void coll_close(struct coll_segment *segment);

/* Starts an operation, for tutti_backend.native. */
int coll_begin(struct coll_segment *segment, const tutti_op *op, tutti_request *request, struct coll_list *running);
bool coll_cancel(struct coll_segment *segment, tutti_request *request);
int coll_progress(struct coll_list *running);
/* True if an operation can advance, so that this rank must not sleep. */
bool coll_is_ready(const struct coll_list *running);
/* Sets ranks[i] for each rank that a pending request waits for. */
void coll_awaits(const struct coll_segment *segment, const tutti_request *request, bool *ranks);

/* ---- steps.c ----------------------------------------------------------------------------------------------- */

/* True if a whole fragment buffer, or parts of it, have a rank's blocks. */
static inline bool coll_is_in_fragment(enum coll_place place)
{
    return place == COLL_IN_FRAGMENT || place == COLL_IN_CHUNKS;
}

/* True for the last step of an operation that reads memory, in which a rank has read all it needs. */
static inline bool coll_is_last(const struct coll_op *op)
{
    if (op->path == COLL_UNEVEN) return op->at == 1;
    return op->path == COLL_DIRECT && op->at == op->steps - 1;
}

/* Runs a simple operation from its beginning, within its call.  Returns as coll_advance does, which continues it if it
 * has to wait. */
int coll_run_simple(struct coll_segment *segment, struct coll_op *op);
/* Advances an operation.  Returns TUTTI_OK if it is complete, 1 if it is pending, or an error.  Sets *moved if anything
 * was done. */
int coll_advance(struct coll_segment *segment, struct coll_op *op, bool *moved);
/* Posts a short operation's step while the previous operation is pending.  Returns false if it must wait for that. */
bool coll_run_ahead(struct coll_segment *segment, struct coll_op *op);
/* Withdraws the operation's steps, so that data that peers read later do not count. */
void coll_withdraw_steps(struct coll_segment *segment, const struct coll_op *op);
/* True if the operation can advance. */
bool coll_op_is_ready(struct coll_segment *segment, const struct coll_op *op);
/* True if the operation waits for the rank. */
bool coll_op_awaits(const struct coll_segment *segment, const struct coll_op *op, int rank);
/* Returns TUTTI_OK, or an error if the rank is lost. */
int coll_lost(const struct coll_segment *segment, int rank);
/* True if the rank has posted this step or a later one. */
bool coll_has_posted(const struct coll_segment *segment, int rank, uint64_t step);

/* ---- directory.c ------------------------------------------------------------------------------------------- */

/* Reserves a collective segment for a group of n ranks.  Returns its index, or COLL_ABSENT.  Only one rank of the group
 * calls it.  In a new segment the directory is all zeros, which means empty. */
int coll_directory_reserve(struct shm *shm, int n);
bool coll_directory_has(const struct shm *shm, int index);
/* Returns the first step of the group that has the entry. */
uint64_t coll_directory_first(const struct shm *shm, int index);
/* Counts this rank as departed, which has posted no step after the last one.  The last of n ranks releases the segment.
 */
void coll_directory_leave(struct shm *shm, int index, int n, uint64_t last);

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

/* Fills in the description of an operation, not its progress.  Returns false if it must run as a plan. */
bool coll_describe(const struct coll_segment *segment, const tutti_op *op, struct coll_op *made);
/* Returns the list of blocks whose sizes all ranks know, or NULL. */
const tutti_tensor *coll_list_of(const tutti_op *op);
/* Sets the memory of an operation without lists. */
void coll_use_memory(const tutti_op *op, struct coll_op *made);
/* Changes the way of an operation.  It must not have posted a step. */
void coll_use_way(const struct coll_segment *segment, struct coll_op *op, int way);
/* Continues a probing operation as a direct one. */
void coll_use_direct(const struct coll_segment *segment, struct coll_op *op);
/* Sets the ranks that the current step waits for. */
void coll_set_awaited(const struct coll_segment *segment, struct coll_op *op);
static inline bool coll_awaits_rank(const struct coll_op *op, int rank)
{
    return rank >= op->awaits_from && rank < op->awaits_to;
}
/* Implements tutti_backend.explain.  The text is valid until this thread's next call. */
const char *coll_explain(const struct coll_segment *segment, const tutti_op *op);

/* ---- eager.c, pipelined.c, direct.c ------------------------------------------------------------------------ */

/* For each path: `post` fills this rank's control slot and buffers for the step being posted.  `run` does the step's
 * work once the others have arrived. */
void coll_eager_post(struct coll_segment *segment, struct coll_op *op);
void coll_eager_run(struct coll_segment *segment, struct coll_op *op);
/* Asks for the lines of short data that this rank fills, or reads from a rank, in a later step that is like this one.
 */
void coll_eager_own(const struct coll_segment *segment, const struct coll_op *op, uint64_t step);
void coll_eager_fetch(const struct coll_segment *segment, const struct coll_op *op, int rank, uint64_t step);
void coll_pipelined_post(struct coll_segment *segment, struct coll_op *op);
void coll_pipelined_run(struct coll_segment *segment, struct coll_op *op);
/* Computes the sizes of chunks and the number of steps. */
void coll_pipelined_cut(const struct coll_segment *segment, struct coll_op *op);
void coll_direct_post(struct coll_segment *segment, struct coll_op *op);
/* Handles at most one block.  Returns TUTTI_OK if the step is complete, 1 if it is not, or an error if a rank's memory
 * cannot be read. */
int coll_direct_run(struct coll_segment *segment, struct coll_op *op);
/* Allocates the segment's buffers for the operation.  Returns TUTTI_OK, or NO_MEMORY. */
int coll_direct_prepare(struct coll_segment *segment, const struct coll_op *op);
void coll_direct_free(struct coll_segment *segment);
enum { COLL_READ_MOST = 1 << 20 }; /* bytes read per call if nothing is reduced */
/* Reads from another rank's memory.  Returns TUTTI_OK, 1 if the rank has withdrawn its step, or an error if lost. */
int coll_read_peer(struct coll_segment *segment, struct coll_op *op, int rank, void *to, uint64_t from, size_t bytes);

/* ---- uneven.c ---------------------------------------------------------------------------------------------- */

/* Fills in the rest of the description. */
void coll_uneven_describe(const struct coll_segment *segment, const tutti_op *op, struct coll_op *made);
/* True if the description holds for the next call with the same tensors.  Not if it depends on whether ranks share
 * cores, which may change. */
bool coll_uneven_may_repeat(const struct coll_op *op);
/* Takes the tensors of such a call, and forgets what the last one has found of the blocks. */
void coll_uneven_repeat(const tutti_op *op, struct coll_op *made);
void coll_uneven_post(struct coll_segment *segment, struct coll_op *op);
/* As coll_eager_own and coll_eager_fetch, for a table and blocks in small buffers. */
void coll_uneven_own(const struct coll_segment *segment, const struct coll_op *op, uint64_t step);
void coll_uneven_fetch(const struct coll_segment *segment, const struct coll_op *op, int rank, uint64_t step);
/* Copies this rank's block for itself, if it has one. */
void coll_uneven_copy_own(const struct coll_segment *segment, const struct coll_op *op);
/* Called once the awaited ranks have posted: sets the number of steps.  Returns TUTTI_OK, or MISMATCH if a block's size
 * is not the expected one. */
int coll_uneven_arrived(struct coll_segment *segment, struct coll_op *op);
/* As coll_direct_run, or returns COLL_WAITS. */
int coll_uneven_run(struct coll_segment *segment, struct coll_op *op);
/* True if this rank of a gather or a scatter waits for those that read from it, or that it reads from. */
bool coll_uneven_waits(const struct coll_op *op);
/* True if a rank's blocks are in its memory. */
bool coll_uneven_is_in_memory(const struct coll_segment *segment, const struct coll_op *op, int rank);

/* True if the operation can go on after it has returned 1 or COLL_WAITS. */
bool coll_uneven_is_ready(const struct coll_segment *segment, const struct coll_op *op);
/* True if the operation waits for the rank to fill a chunk, or to empty one. */
bool coll_uneven_awaits(const struct coll_segment *segment, const struct coll_op *op, int rank);
/* True if the rank has most likely called another operation: it posted its step before it took all chunks.  Ranks of an
 * operation with a root need not have met before. */
bool coll_uneven_differs(const struct coll_segment *segment, const struct coll_op *op, int rank);

/* ---- chunks.c ---------------------------------------------------------------------------------------------- */

enum { COLL_WAITS = 2 }; /* nothing can be done yet */

/* True if chunks are faster than reads of memory, for blocks of this many bytes in the mean. */
bool coll_chunks_pay(const struct coll_segment *segment, const struct coll_op *op, size_t bytes);
/* Empties this rank's lane to another.  In a scatter the other one has to, when it begins. */
void coll_chunks_post(struct coll_segment *segment, struct coll_op *op, int rank);
void coll_chunks_begin(struct coll_segment *segment, struct coll_op *op);
/* True if a chunk of the block of this many bytes is left, and the lane has space. */
bool coll_chunks_have_space(const struct coll_segment *segment, const struct coll_op *op, int rank, size_t bytes);
/* Copies what there is space for of the block for a rank.  Returns false if that is nothing. */
bool coll_chunks_fill(struct coll_segment *segment, struct coll_op *op, int rank, const char *from, size_t bytes);
/* True if a chunk of a rank's block of this many bytes is left, and in the lane. */
bool coll_chunks_have_data(const struct coll_segment *segment, const struct coll_op *op, int rank, size_t bytes);
/* Copies what there is of a rank's block.  Returns false if that is nothing. */
bool coll_chunks_take(struct coll_segment *segment, struct coll_op *op, int rank, char *to, size_t bytes);

/* ---- fragment_parts.c -------------------------------------------------------------------------------------- */

/* Returns the number of parts that an operation in one step needs, or 0 if they are more than half a buffer. */
int coll_parts_needed(const struct coll_segment *segment, const struct coll_op *op);
/* Assigns parts to an operation that starts, and sets its depth. */
void coll_take_parts(struct coll_segment *segment, struct coll_op *op);
/* Returns the operation's parts of a rank's fragment buffer. */
char *coll_parts_at(const struct coll_segment *segment, const struct coll_op *op, int rank);

/* ---- shared.c ---------------------------------------------------------------------------------------------- */

/* Declares in the first control slot of a probing operation whether peers can read this rank's memory in place. Returns
 * true if no peer will read its fragment buffer. */
bool coll_shared_declare(struct coll_segment *segment, struct coll_op *op);
/* True if all ranks' memory can be read in place.  Called once they have arrived. */
bool coll_shared_by_all(const struct coll_segment *segment, const struct coll_op *op);

/* ---- result.c ---------------------------------------------------------------------------------------------- */

/* Reduces a result that peers will read. */
void coll_result_reduce(const struct coll_segment *segment, const struct coll_op *op, char *to, const void *const *from,
                        size_t bytes);

/* ---- agree.c ----------------------------------------------------------------------------------------------- */

struct coll_class *coll_class_of(const struct coll_segment *segment, const struct coll_op *op);
/* Returns the way of the next operation: that of the current span, or the first one of a size class. */
int coll_next_way(const struct coll_segment *segment, const struct coll_op *op);
/* Applies the way of the current span to an operation that starts.  Sets `agrees` if it must wait. */
void coll_agree_start(const struct coll_segment *segment, struct coll_op *op);
/* Begins or ends a span.  Called if `agrees`, when the first step may be posted. */
void coll_agree(const struct coll_segment *segment, struct coll_op *op);
/* Returns the time at which work begins that counts, or 0. */
int64_t coll_work_begin(const struct coll_segment *segment, const struct coll_op *op);
/* Adds the time since then to this rank's count. */
void coll_work_end(const struct coll_segment *segment, const struct coll_op *op, int64_t begin_ns);
/* Records the time of a complete operation. */
void coll_agree_done(const struct coll_segment *segment, const struct coll_op *op);

#endif
