/* Helpers of several builders: references to blocks, messages cut into segments, and parts of algorithms.
 *
 * Both ends cut a message into segments in the same way, at multiples of args->segment from its beginning.  Most
 * builders run the whole algorithm for one piece of the data before they turn to the next one.  Plans derive which
 * steps may overlap, so the pieces are pipelined.  The scratch of one piece is used again a few pieces later. */
#ifndef COLL_PARTS_H
#define COLL_PARTS_H

#include "coll.h"
#include "ring.h"
#include "tree.h"

/* Number of pieces with their own scratch; the next piece waits for the first. */
enum { COLL_IN_FLIGHT = 4 };

static inline struct plan_ref coll_in(const struct coll_args *args, int block)
{
    return args->in.list ? plan_at(PLAN_IN(block), 0) : plan_at(PLAN_IN(0), args->in.at[block]);
}

static inline struct plan_ref coll_out(const struct coll_args *args, int block)
{
    return args->out.list ? plan_at(PLAN_OUT(block), 0) : plan_at(PLAN_OUT(0), args->out.at[block]);
}

/* Sends one message, cut into segments. */
static inline void coll_send(struct plan *plan, const struct coll_args *args, int peer, struct plan_ref src,
                             int64_t numel)
{
    for (int64_t j = 0; j < ring_segments(numel, args->segment); j++)
        plan_send(plan, peer, plan_shift(src, j * args->segment), ring_segment_numel(numel, args->segment, j));
}

static inline void coll_recv(struct plan *plan, const struct coll_args *args, int peer, struct plan_ref dst,
                             int64_t numel)
{
    for (int64_t j = 0; j < ring_segments(numel, args->segment); j++)
        plan_recv(plan, peer, plan_shift(dst, j * args->segment), ring_segment_numel(numel, args->segment, j));
}

static inline void coll_recv_reduce(struct plan *plan, const struct coll_args *args, int peer, struct plan_ref dst,
                                    struct plan_ref a, int64_t numel)
{
    for (int64_t j = 0; j < ring_segments(numel, args->segment); j++) {
        int64_t at = j * args->segment;
        plan_recv_reduce(plan, peer, plan_shift(dst, at), plan_shift(a, at),
                         ring_segment_numel(numel, args->segment, j));
    }
}

/* Sends a block from its source to its destination.  No rank processes a part of it, so it is not cut, unless segments
 * of a larger operation are pipelined through it. */
static inline void coll_send_block(struct plan *plan, const struct coll_args *args, int peer, struct plan_ref src,
                                   int64_t numel)
{
    if (args->is_part)
        coll_send(plan, args, peer, src, numel);
    else
        plan_send(plan, peer, src, numel);
}

static inline void coll_recv_block(struct plan *plan, const struct coll_args *args, int peer, struct plan_ref dst,
                                   int64_t numel)
{
    if (args->is_part)
        coll_recv(plan, args, peer, dst, numel);
    else
        plan_recv(plan, peer, dst, numel);
}

/* Copies a rank's own block in segments: the backend polls after each copy, so peers need not wait for all of them. */
static inline void coll_copy(struct plan *plan, const struct coll_args *args, struct plan_ref dst, struct plan_ref src,
                             int64_t numel)
{
    for (int64_t j = 0; j < ring_segments(numel, args->segment); j++) {
        int64_t at = j * args->segment;
        plan_copy(plan, plan_shift(dst, at), plan_shift(src, at), ring_segment_numel(numel, args->segment, j));
    }
}

/* Returns the largest count in a list indexed by rank. */
static inline int64_t coll_largest(const int64_t *count, int size)
{
    int64_t largest = 0;
    for (int i = 0; i < size; i++) largest = count[i] > largest ? count[i] : largest;
    return largest;
}

/* Copies the input to scratch, block after block.  Returns the copy. */
static inline struct plan_ref coll_copy_input(struct plan *plan, const struct coll_args *args)
{
    struct plan_ref copy = plan_scratch(plan, ring_sum(args->in.count, args->size)), to = copy;
    for (int i = 0; i < args->size; i++) {
        plan_copy(plan, to, coll_in(args, i), args->in.count[i]);
        to = plan_shift(to, args->in.count[i]);
    }
    return copy;
}

/* Scratch buffers that the pieces use in turn. */
struct coll_slots {
    struct plan_ref first;
    int64_t numel, slots;
};

/* Reserves as many slots, of `each` elements, as a tensor of numel elements in pieces of at most `piece` can use. */
static inline struct coll_slots coll_slots(struct plan *plan, int64_t numel, int64_t piece, int64_t each)
{
    int64_t slots = ring_min(ring_segments(numel, piece), COLL_IN_FLIGHT);
    return (struct coll_slots){plan_scratch(plan, slots * each), each, slots};
}

static inline struct plan_ref coll_slot(struct coll_slots slots, int64_t piece)
{
    return plan_shift(slots.first, piece % slots.slots * slots.numel);
}

/* Returns the input with consecutive blocks, copied to scratch if necessary. */
static inline struct plan_ref coll_flat_input(struct plan *plan, const struct coll_args *args)
{
    return args->in.list ? coll_copy_input(plan, args) : coll_in(args, 0);
}

/* ---- parts of algorithms, each for one piece of the data ----------------------------------------------------- */

/* Broadcasts `data` of root down a binomial tree; every other rank receives into its own. */
void coll_tree_broadcast(struct plan *plan, const struct coll_args *args, int root, struct plan_ref data,
                         int64_t numel);

/* Reduces `in` of all ranks up a binomial tree to root, whose `acc` receives the result.  Other ranks with children in
 * the tree use their `acc` for partial sums.  in and acc may be the same. */
void coll_tree_reduce(struct plan *plan, const struct coll_args *args, int root, struct plan_ref in,
                      struct plan_ref acc, int64_t numel);

/* A rank's position in a hypercube over the group, whose corner 0 is root. */
struct coll_cube {
    struct tree_fold fold;
    int root, size, v, corner;
};

static inline struct coll_cube coll_cube(const struct coll_args *args, int root)
{
    int v = tree_virtual(args->rank, root, args->size);
    struct tree_fold fold = tree_fold(args->size);
    return (struct coll_cube){fold, root, args->size, v, tree_corner(fold, v)};
}

/* Returns the rank at a corner. */
static inline int coll_cube_rank(const struct coll_cube *cube, int corner)
{
    return tree_real(tree_corner_rank(cube->fold, corner), cube->root, cube->size);
}

/* Returns the rank that is folded into this corner, or the corner that this rank is folded into. */
static inline int coll_cube_partner(const struct coll_cube *cube)
{
    return tree_real(cube->corner < 0 ? cube->v - 1 : cube->v + 1, cube->root, cube->size);
}

/* Reduces and scatters by recursive halving.  Afterwards each corner's acc holds chunk `corner` (there are as many
 * chunks as corners), reduced over all ranks, and averaged if requested.  Folded ranks only send their input. */
void coll_cube_reduce_scatter(struct plan *plan, const struct coll_args *args, const struct coll_cube *cube,
                              struct plan_ref in, struct plan_ref acc, int64_t numel);

/* All-gathers by recursive doubling: from one chunk per corner to all chunks on all ranks. */
void coll_cube_all_gather(struct plan *plan, const struct coll_args *args, const struct coll_cube *cube,
                          struct plan_ref data, int64_t numel);

/* What a rank has in the rounds of an all-reduce over the corners, for one piece of the data. */
struct coll_sums {
    struct plan_ref own, out; /* its sum so far; where the result goes */
    struct plan_ref slot;     /* scratch */
    bool in_place;            /* own is out */
    int64_t numel;
};

/* Appends the rounds among the corners. */
typedef void coll_rounds(struct plan *plan, const struct coll_cube *cube, const struct coll_sums *sums);

/* Appends an all-reduce in which the corners run `rounds` on each piece, with `slot_pieces` pieces of scratch.  Folded
 * ranks send their input and receive the result. */
void coll_cube_all_reduce(struct plan *plan, const struct coll_args *args, int slot_pieces, coll_rounds *rounds);

/* Gathers from one chunk per corner to all chunks on corner 0. */
void coll_cube_gather(struct plan *plan, const struct coll_args *args, const struct coll_cube *cube,
                      struct plan_ref data, int64_t numel);

/* Appends an operation among some of the group's ranks as a part of another one, as if they were a group, with IN(0)
 * and OUT(0) at in and out.  members are their ranks; part->rank is this rank's index in it.  Blocks are flat. */
static inline void coll_part(struct plan *plan, const struct coll_args *part, const int *members, struct plan_ref in,
                             struct plan_ref out)
{
    part->build_part(plan, part, members, in, out);
}

/* ---- builders ------------------------------------------------------------------------------------------------- */

/* Lists all algorithms: the kind, its name, the algorithm's name in TUTTI_ALGO, true if it supports blocks that differ
 * in size, and when it combines in the order of ranks (coll_in_order).  The builder of an algorithm is
 * kind_algorithm().  Then the cost, from which coll_select chooses: what is one piece (coll_piece), and its phases
 * (coll_pattern; SUM reduces what arrives). */
/* clang-format off */
#define RUN(pattern) COLL_##pattern
#define SUM(pattern) (COLL_##pattern | COLL_SUM)
#define COLL_ALGORITHMS(X)                                                                                            \
    X(ALL_REDUCE,     all_reduce,     recursive_doubling,    true, ALWAYS,  SEGMENTS, SUM(FOLD), SUM(CUBE), RUN(FOLD))        \
    X(ALL_REDUCE,     all_reduce,     recursive_multiplying, true, ALWAYS,  SEGMENTS, SUM(FOLD), SUM(QUADS), RUN(FOLD))       \
    X(ALL_REDUCE,     all_reduce,     ring,                  true, NEVER,   RANKS,    SUM(RING), RUN(RING))                   \
    X(ALL_REDUCE,     all_reduce,     rabenseifner,          true, NEVER,   CORNERS,  SUM(FOLD), SUM(HALVES), RUN(HALVES), RUN(FOLD))\
    X(ALL_REDUCE,     all_reduce,     circulant,             true, NEVER,   WHOLE,    SUM(CIRCLES), RUN(CIRCLES))                 \
    X(ALL_REDUCE,     all_reduce,     reduce_broadcast,      true, ALWAYS,  SEGMENTS, SUM(TREE), RUN(TREE))                   \
    X(ALL_REDUCE,     all_reduce,     hierarchical,          true, NEVER,   WHOLE,    RUN(LANES))                             \
    X(ALL_REDUCE,     all_reduce,     leaders,               true, NEVER,   WHOLE,    RUN(LEADER))                            \
    X(BROADCAST,      broadcast,      binomial,              true, NEVER,   SEGMENTS, RUN(TREE))                              \
    X(BROADCAST,      broadcast,      scatter_allgather,     true, NEVER,   RANKS,    RUN(SPREAD), RUN(RING))                 \
    X(BROADCAST,      broadcast,      chain,                 true, NEVER,   SEGMENTS, RUN(CHAIN))                             \
    X(BROADCAST,      broadcast,      double_tree,           true, NEVER,   SEGMENTS, RUN(TWO_TREES))                         \
    X(BROADCAST,      broadcast,      linear,                true, NEVER,   SEGMENTS, RUN(FAN))                               \
    X(BROADCAST,      broadcast,      hierarchical,          true, NEVER,   WHOLE,    RUN(LANES))                             \
    X(BROADCAST,      broadcast,      leaders,               true, NEVER,   WHOLE,    RUN(LEADER))                            \
    X(REDUCE,         reduce,         binomial,              true, ROOT_0,  SEGMENTS, SUM(TREE))                              \
    X(REDUCE,         reduce,         chain,                 true, ROOT_0,  SEGMENTS, SUM(CHAIN))                             \
    X(REDUCE,         reduce,         double_tree,           true, NEVER,   SEGMENTS, SUM(TWO_TREES))                         \
    X(REDUCE,         reduce,         reduce_scatter_gather, true, NEVER,   CORNERS,  SUM(FOLD), SUM(HALVES), RUN(SPREAD))    \
    X(REDUCE,         reduce,         fixed_tree,            true, ALWAYS,  SEGMENTS, SUM(TREE))                              \
    X(REDUCE,         reduce,         hierarchical,          true, NEVER,   WHOLE,    RUN(LANES))                             \
    X(REDUCE,         reduce,         leaders,               true, NEVER,   WHOLE,    RUN(LEADER))                            \
    X(ALL_GATHER,     all_gather,     ring,                  true, NEVER,   RANKS,    RUN(RING), RUN(OWN))                    \
    X(ALL_GATHER,     all_gather,     bruck,                 true, NEVER,   WHOLE,    RUN(BRUCK), RUN(COPY))                  \
    X(ALL_GATHER,     all_gather,     gather_broadcast,      true, NEVER,   WHOLE,    RUN(SPREAD), RUN(TREE), RUN(COPY))      \
    X(ALL_GATHER,     all_gather,     hierarchical,          true, NEVER,   WHOLE,    RUN(LANES))                             \
    X(ALL_GATHER,     all_gather,     leaders,               true, NEVER,   WHOLE,    RUN(LEADER))                            \
    X(GATHER,         gather,         linear,                true, NEVER,   WHOLE,    RUN(DEAL), RUN(OWN))                    \
    X(GATHER,         gather,         binomial,              false, NEVER,  WHOLE,    RUN(SPREAD), RUN(COPY))                 \
    X(SCATTER,        scatter,        linear,                true, NEVER,   WHOLE,    RUN(DEAL), RUN(OWN))                    \
    X(SCATTER,        scatter,        binomial,              false, NEVER,  WHOLE,    RUN(COPY), RUN(SPREAD))                 \
    X(REDUCE_SCATTER, reduce_scatter, ring,                  true, NEVER,   RANKS,    SUM(RING))                              \
    X(REDUCE_SCATTER, reduce_scatter, pairwise,              true, NEVER,   WHOLE,    SUM(PAIRS))                             \
    X(REDUCE_SCATTER, reduce_scatter, recursive_halving,     true, NEVER,   WHOLE,    SUM(FOLD), SUM(HALVES), RUN(OWN))       \
    X(REDUCE_SCATTER, reduce_scatter, circulant,             true, NEVER,   WHOLE,    SUM(CIRCLES), RUN(OWN))                   \
    X(REDUCE_SCATTER, reduce_scatter, fixed_tree,            true, ALWAYS,  WHOLE,    SUM(EACH), RUN(DEAL))                   \
    X(REDUCE_SCATTER, reduce_scatter, hierarchical,          true, NEVER,   WHOLE,    RUN(LANES))                             \
    X(REDUCE_SCATTER, reduce_scatter, leaders,               true, NEVER,   WHOLE,    RUN(LEADER))                            \
    X(ALL_TO_ALL,     all_to_all,     pairwise,              true, NEVER,   WHOLE,    RUN(PAIRS), RUN(OWN))                   \
    X(ALL_TO_ALL,     all_to_all,     bruck,                 false, NEVER,  WHOLE,    RUN(SHUFFLE), RUN(COPY))                \
    X(BARRIER,        barrier,        dissemination,         true, NEVER,   WHOLE,    RUN(SHIFT))                             \
    X(BARRIER,        barrier,        dissemination_4,       true, NEVER,   WHOLE,    RUN(SHIFT_4))                           \
    X(BARRIER,        barrier,        tree,                  true, NEVER,   WHOLE,    RUN(TREE), RUN(TREE))                   \
    X(BARRIER,        barrier,        linear,                true, NEVER,   WHOLE,    RUN(PAIRS))                             \
    X(BARRIER,        barrier,        leaders,               true, NEVER,   WHOLE,    RUN(LEADER))                            \
    X(SCAN,           scan,           recursive_doubling,    true, ALWAYS,  SEGMENTS, SUM(SHIFT))                             \
    X(SCAN,           scan,           chain,                 true, ALWAYS,  SEGMENTS, SUM(CHAIN))                             \
    X(EXSCAN,         exscan,         recursive_doubling,    true, ALWAYS,  SEGMENTS, SUM(SHIFT))                             \
    X(EXSCAN,         exscan,         chain,                 true, ALWAYS,  SEGMENTS, SUM(CHAIN))
/* clang-format on */

#define COLL_BUILDER(kind, prefix, name, ...) void prefix##_##name(struct plan *plan, const struct coll_args *args);
COLL_ALGORITHMS(COLL_BUILDER)
#undef COLL_BUILDER

#endif
