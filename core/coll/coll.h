/* What a collective's builder is given, and the table of all algorithms.
 *
 * A builder is a pure function of its arguments: it appends steps to a plan and does nothing else.  Every rank of the
 * group builds its own plan from the same arguments (but for rank), so both ends of each message agree.
 */
#ifndef COLL_H
#define COLL_H

#include "plan.h"

/* One block a rank, as the operation's tensors have them: either a list of tensors (block i is all of buffer
 * PLAN_IN(i) or PLAN_OUT(i)) or consecutive parts of one flat tensor.  Blocks may differ in size. */
struct coll_blocks {
    bool list;
    const int64_t *count; /* elements of block i; size entries */
    const int64_t *at;    /* element offset of block i in the flat tensor; size entries; NULL for a list */
};

struct coll_args {
    tutti_kind kind;
    int rank, size;
    int root;      /* group rank */
    int64_t count; /* elements of this rank's flat tensor: broadcast, all_reduce, reduce; own block elsewhere */
    /* where this rank has a block a rank on that side (gather and scatter: the root alone); else zero */
    struct coll_blocks in, out;
    bool even;       /* every rank knows that all blocks have the same size (count) */
    int64_t segment; /* elements of one pipelined message, at least 1 */
    bool in_place;   /* this rank's input is its output (or its own slice of it): coll_build makes them one buffer */
    bool average;    /* the last step divides by size */
    bool premul;     /* each input is scaled first */
};

typedef void (*coll_builder)(struct plan *plan, const struct coll_args *args);

struct coll_algorithm {
    tutti_kind kind;
    const char *name; /* as TUTTI_ALGO spells it: "ring", "recursive_doubling" */
    coll_builder build;
    bool uneven; /* also where blocks differ in size, each rank knowing only its own counts */
};

/* All algorithms; the last entry has a NULL name. */
extern const struct coll_algorithm coll_algorithms[];

/* What the choice depends on besides the arguments. */
struct coll_link {
    int64_t latency_ns;    /* of a small message */
    int64_t bytes_per_us;  /* of a large one */
    int64_t segment_bytes; /* a good size for pipelining; 0: do not cut */
};

/* The algorithm for this operation, a function of kind, size, bytes and link alone, hence the same on all ranks.
 * override is TUTTI_ALGO's text ("all_reduce=ring,broadcast=binomial", or one name) or NULL.  NULL, with the error text
 * set, if override names an algorithm that does not exist or that cannot do these shapes. */
const struct coll_algorithm *coll_select(const struct coll_args *args, int64_t element_bytes,
                                         const struct coll_link *link, const char *override);

/* Builds and finishes the plan of args with algorithm; NULL when out of memory.
 *
 * The buffers: broadcast OUT(0) on every rank, root's holding the data; all_reduce IN(0) -> OUT(0); reduce IN(0) ->
 * OUT(0) on root; all_gather IN(0) -> out blocks; gather IN(0) -> out blocks on root; scatter in blocks on root ->
 * OUT(0); reduce_scatter in blocks -> OUT(0); all_to_all in blocks -> out blocks; barrier none.
 *
 * In place, the plan's steps name one buffer only: OUT(0) for all_reduce and reduce, the out blocks for all_gather,
 * gather and all_to_all, the in blocks for scatter and reduce_scatter.  The flag has no meaning on a rank that has only
 * one side (all but root in reduce, gather and scatter; all in broadcast). */
struct plan *coll_build(const struct coll_algorithm *algorithm, const struct coll_args *args, bool recv_reduce);

#endif
