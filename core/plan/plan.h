/* A plan: the steps of one rank's part in one collective, as data.
 *
 * A builder (core/coll) appends the steps in the order in which a sequential program would run them.  It states no
 * dependencies.  plan_* derives them from what each step reads and writes: read after write, write after read, and
 * write after write, on element ranges of named buffers.  So exactly the steps that may overlap do.  One executor
 * (exec.c) runs any plan over any point-to-point table.  A test runs plans symbolically and proves them.
 *
 * Positions and lengths are in elements of the operation's dtype, so one plan serves all dtypes.
 *
 * Matching: the k-th send of rank a to rank b matches the k-th receive of b from a.  They are counted in the order in
 * which they were added (the slot), whatever the order in which they complete. */
#ifndef PLAN_H
#define PLAN_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <tutti/types.h>

/* Buffers by number: the operation's inputs and outputs, then scratch that the executor allocates. */
#define PLAN_SCRATCH 0
#define PLAN_IN(i) (1 + 2 * (i))
#define PLAN_OUT(i) (2 + 2 * (i))

struct plan_ref {
    int32_t buffer;
    int64_t at; /* element offset */
};

enum plan_step_kind {
    PLAN_SEND,        /* a -> peer */
    PLAN_RECV,        /* peer -> dst */
    PLAN_RECV_REDUCE, /* dst = a op (the data from peer), in any order: not for ops that are not commutative */
    PLAN_REDUCE,      /* dst = a op b, a being the lower ranks'; dst may be a or b */
    PLAN_COPY,        /* dst = a */
    PLAN_SCALE,       /* dst = a * factor (the first step of PREMUL_SUM) */
    PLAN_AVERAGE      /* dst = a / world size (the last step of AVG) */
};

struct plan_step {
    uint8_t kind;
    int32_t peer;  /* group rank, or -1 */
    uint32_t slot; /* see "Matching" */
    int64_t numel;
    struct plan_ref dst, a, b;
    uint32_t first_next, nexts; /* the steps that wait for this one: plan.next[first_next ..) */
    uint32_t waits;             /* number of steps that this one waits for */
};

struct plan {
    struct plan_step *steps;
    uint32_t n_steps;
    uint32_t *next;  /* successors of all steps, step by step; valid after plan_finish */
    uint32_t n_next; /* entries of next */
    uint32_t *ready; /* the steps that wait for no other; valid after plan_finish */
    uint32_t n_ready;
    int64_t scratch; /* elements of scratch needed */
    int rank, size;
    bool reduces;                 /* a step is a PLAN_REDUCE */
    struct plan_builder *builder; /* private to plan.c; NULL after plan_finish */
    int error;                    /* first failure while building: TUTTI_ERR_NO_MEMORY, or 0 */
};

/* Returns a new, empty plan of rank in a group of size ranks; NULL if out of memory.  recv_reduce_most is the largest
 * number of elements for which the point-to-point table's recv_reduce is used (PLAN_ALWAYS, PLAN_NEVER).  Beyond it,
 * plan_recv_reduce appends a receive (into dst or, if that overlaps a, into scratch) and a reduce, whose left operand
 * is that of the lower rank. */
#define PLAN_ALWAYS INT64_MAX
#define PLAN_NEVER 0
struct plan *plan_new(int rank, int size, int64_t recv_reduce_most);
void plan_free(struct plan *plan);

/* Declares, before any step, that element x of buffer `alias` is element x + shift of buffer `target`: an operation in
 * place, or in the rank's own slice.  A step that would copy data onto itself is dropped. */
void plan_alias(struct plan *plan, int32_t alias, int32_t target, int64_t shift);

/* Begins steps of a part of the group on parts of the buffers.  Until plan_leave, peers are indices into members, and
 * PLAN_IN(0) and PLAN_OUT(0) are in and out.  members is borrowed until then.  Does not nest. */
void plan_enter(struct plan *plan, const int *members, struct plan_ref in, struct plan_ref out);
void plan_leave(struct plan *plan);

/* True if peer is a lower rank of the group than this one: its data is the left operand. */
bool plan_is_lower(const struct plan *plan, int peer);

/* Append a step and return its id, or UINT32_MAX if none was appended.  A step with numel 0 is not appended, except
 * send and recv, which then carry an empty message. */
uint32_t plan_send(struct plan *plan, int peer, struct plan_ref src, int64_t numel);
uint32_t plan_recv(struct plan *plan, int peer, struct plan_ref dst, int64_t numel);
uint32_t plan_recv_reduce(struct plan *plan, int peer, struct plan_ref dst, struct plan_ref a, int64_t numel);
uint32_t plan_reduce(struct plan *plan, struct plan_ref dst, struct plan_ref a, struct plan_ref b, int64_t numel);
uint32_t plan_copy(struct plan *plan, struct plan_ref dst, struct plan_ref src, int64_t numel);
uint32_t plan_scale(struct plan *plan, struct plan_ref dst, struct plan_ref src, int64_t numel);
uint32_t plan_average(struct plan *plan, struct plan_ref dst, struct plan_ref src, int64_t numel);

/* Reserves numel elements of scratch. */
struct plan_ref plan_scratch(struct plan *plan, int64_t numel);

/* Adds an order that no buffer shows: step `after` must not start before `before` has completed (a barrier's
 * rounds). */
void plan_order(struct plan *plan, uint32_t before, uint32_t after);

/* Finishes the plan: fills next, ready and waits.  Returns 0 or TUTTI_ERR_NO_MEMORY. */
int plan_finish(struct plan *plan);

/* Prints one line per step: id, kind, peer, slot, ranges, and the steps that wait for it. */
void plan_print(const struct plan *plan, FILE *out);

static inline struct plan_ref plan_at(int32_t buffer, int64_t at)
{
    return (struct plan_ref){buffer, at};
}

static inline struct plan_ref plan_shift(struct plan_ref ref, int64_t by)
{
    return (struct plan_ref){ref.buffer, ref.at + by};
}

#endif
