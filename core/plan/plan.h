/* A plan: the steps of one rank's part in one collective, as data.
 *
 * A builder (core/coll) writes the steps in the order in which a sequential program would do them.  It states no
 * dependencies: plan_* derives them from what each step reads and writes (read after write, write after read, write
 * after write, on element ranges of named buffers), so everything that may overlap does, and nothing else.  One
 * executor (exec.c) runs any plan over any point-to-point table; a test runs it symbolically and proves it.
 *
 * Positions and lengths are in elements of the operation's dtype, so one plan serves all dtypes.
 *
 * Matching: the k-th send of rank a to rank b meets the k-th receive of b from a, counted in the order in which they
 * were added (the slot), whatever the order in which they complete.
 */
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
    PLAN_RECV_REDUCE, /* dst = a op (what comes from peer) */
    PLAN_REDUCE,      /* dst = a op b; dst may be a or b */
    PLAN_COPY,        /* dst = a */
    PLAN_SCALE,       /* dst = a * factor (PREMUL_SUM's first step) */
    PLAN_AVERAGE      /* dst = a / world size (AVG's last step) */
};

struct plan_step {
    uint8_t kind;
    int32_t peer;  /* group rank, or -1 */
    uint32_t slot; /* see "Matching" */
    int64_t numel;
    struct plan_ref dst, a, b;
    uint32_t first_next, nexts; /* the steps that wait for this one: plan.next[first_next ..) */
    uint32_t waits;             /* how many steps this one waits for */
};

struct plan {
    struct plan_step *steps;
    uint32_t n_steps;
    uint32_t *next;  /* successors, all steps' one after another; valid after plan_finish */
    uint32_t n_next; /* how many */
    uint32_t *ready; /* the steps that wait for none; valid after plan_finish */
    uint32_t n_ready;
    int64_t scratch; /* elements of scratch needed */
    int rank, size;
    bool reduces;                 /* some step is a PLAN_REDUCE */
    struct plan_builder *builder; /* private to plan.c; gone after plan_finish */
    int error;                    /* first failure while building: TUTTI_ERR_NO_MEMORY, or 0 */
};

/* A new, empty plan of rank in a group of size ranks; NULL when out of memory.  recv_reduce_most says up to how many
 * elements the point-to-point table's recv_reduce is to be used (PLAN_ALWAYS, PLAN_NEVER); beyond it plan_recv_reduce
 * appends a receive, into dst or, where that overlaps a, into scratch, and a reduce. */
#define PLAN_ALWAYS INT64_MAX
#define PLAN_NEVER 0
struct plan *plan_new(int rank, int size, int64_t recv_reduce_most);
void plan_free(struct plan *plan);

/* Declares, before any step, that element x of buffer `alias` is element x + shift of buffer `target`: an operation in
 * place, or in its own slice.  A step that would copy something onto itself is dropped. */
void plan_alias(struct plan *plan, int32_t alias, int32_t target, int64_t shift);

/* A part of the group at work on parts of the buffers: until plan_leave, peers are places in members, and PLAN_IN(0)
 * and PLAN_OUT(0) are in and out.  members is read until then.  Not nested. */
void plan_enter(struct plan *plan, const int *members, struct plan_ref in, struct plan_ref out);
void plan_leave(struct plan *plan);

/* Each appends a step (none where numel is 0, except send and recv, which then carry an empty message) and returns its
 * id, or UINT32_MAX if none was appended. */
uint32_t plan_send(struct plan *plan, int peer, struct plan_ref src, int64_t numel);
uint32_t plan_recv(struct plan *plan, int peer, struct plan_ref dst, int64_t numel);
uint32_t plan_recv_reduce(struct plan *plan, int peer, struct plan_ref dst, struct plan_ref a, int64_t numel);
uint32_t plan_reduce(struct plan *plan, struct plan_ref dst, struct plan_ref a, struct plan_ref b, int64_t numel);
uint32_t plan_copy(struct plan *plan, struct plan_ref dst, struct plan_ref src, int64_t numel);
uint32_t plan_scale(struct plan *plan, struct plan_ref dst, struct plan_ref src, int64_t numel);
uint32_t plan_average(struct plan *plan, struct plan_ref dst, struct plan_ref src, int64_t numel);

/* numel elements of scratch of their own. */
struct plan_ref plan_scratch(struct plan *plan, int64_t numel);

/* An order that no buffer shows: step `after` must not begin before `before` has completed (a barrier's rounds). */
void plan_order(struct plan *plan, uint32_t before, uint32_t after);

/* Ends building: fills next, ready and waits.  Returns 0 or TUTTI_ERR_NO_MEMORY. */
int plan_finish(struct plan *plan);

/* One line a step: id, kind, peer, slot, ranges, and what waits for it. */
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
