/* Reduce-scatter: input block i of all ranks, reduced, in OUT(0) of rank i.  Every rank knows all blocks' sizes. */
#include "parts.h"

static bool reduce_scatter_segment(const struct coll_args *args, int block, int64_t j, int64_t *numel)
{
    int64_t whole = args->in.count[block];
    if (j >= ring_segments(whole, args->segment)) return false;
    *numel = ring_segment_numel(whole, args->segment, j);
    return true;
}

/* In round s block (rank - s - 1) leaves and (rank - s - 2) arrives, so that the last to arrive is the rank's own.  A
 * sum on its way lies in one half of the slot while the next arrives in the other. */
static void reduce_scatter_ring_segment(struct plan *plan, const struct coll_args *args, int64_t j,
                                        struct plan_ref slot, int64_t half)
{
    int size = args->size, rank = args->rank;
    int64_t at = j * args->segment, n;
    struct plan_ref sum = plan_shift(coll_in(args, ring_rank(rank, -1, size)), at);
    for (int round = 0; round < size - 1; round++) {
        int out = ring_rank(rank, -round - 1, size), in = ring_rank(out, -1, size);
        if (reduce_scatter_segment(args, out, j, &n)) plan_send(plan, ring_rank(rank, 1, size), sum, n);
        sum = in == rank ? plan_at(PLAN_OUT(0), at) : plan_shift(slot, round % 2 * half);
        if (reduce_scatter_segment(args, in, j, &n))
            plan_recv_reduce(plan, ring_rank(rank, -1, size), sum, plan_shift(coll_in(args, in), at), n);
    }
    if (args->average && reduce_scatter_segment(args, rank, j, &n)) plan_average(plan, sum, sum, n);
}

void reduce_scatter_ring(struct plan *plan, const struct coll_args *args)
{
    int64_t largest = coll_largest(args->in.count, args->size), half = ring_min(args->segment, largest);
    struct coll_slots slots = coll_slots(plan, largest, args->segment, 2 * half);
    for (int64_t j = 0; j < ring_segments(largest, args->segment); j++)
        reduce_scatter_ring_segment(plan, args, j, coll_slot(slots, j), half);
}

/* Each rank gets its block from each other and sums as they come, in the order of their distance. */
void reduce_scatter_pairwise(struct plan *plan, const struct coll_args *args)
{
    int size = args->size, rank = args->rank;
    struct plan_ref out = plan_at(PLAN_OUT(0), 0), sum = coll_in(args, rank);
    for (int i = 1; i < size; i++) {
        int to = ring_rank(rank, i, size), from = ring_rank(rank, -i, size);
        coll_send(plan, args, to, coll_in(args, to), args->in.count[to]);
        coll_recv_reduce(plan, args, from, out, sum, args->in.count[rank]);
        sum = out;
    }
    if (args->average) plan_average(plan, out, out, args->in.count[rank]);
}

/* Where rank's block begins when all lie one behind the other. */
static int64_t reduce_scatter_at(const struct coll_args *args, int rank)
{
    int64_t at = 0;
    for (int i = 0; i < rank; i++) at += args->in.count[i];
    return at;
}

/* Where the blocks of a corner begin: its rank's and those of the rank folded into it. */
static int64_t halving_at(const struct coll_args *args, const struct coll_cube *cube, int corner)
{
    return reduce_scatter_at(args, tree_corner_rank(cube->fold, corner));
}

/* The input, one block behind the other. */
static struct plan_ref halving_input(struct plan *plan, const struct coll_args *args, int64_t total)
{
    if (!args->in.list) return coll_in(args, 0);
    struct plan_ref input = plan_scratch(plan, total), to = input;
    for (int i = 0; i < args->size; i++) {
        plan_copy(plan, to, coll_in(args, i), args->in.count[i]);
        to = plan_shift(to, args->in.count[i]);
    }
    return input;
}

static void halving_round(struct plan *plan, const struct coll_args *args, const struct coll_cube *cube, int bit,
                          struct plan_ref in, struct plan_ref acc)
{
    int peer = coll_cube_rank(cube, cube->corner ^ bit);
    int mine = cube->corner & ~(bit - 1), theirs = mine ^ bit;
    int64_t give = halving_at(args, cube, theirs), keep = halving_at(args, cube, mine);
    coll_send(plan, args, peer, plan_shift(in, give), halving_at(args, cube, theirs + bit) - give);
    coll_recv_reduce(plan, args, peer, plan_shift(acc, keep), plan_shift(in, keep),
                     halving_at(args, cube, mine + bit) - keep);
}

/* The result: the rank's own block, and the next for the rank folded into it. */
static void halving_result(struct plan *plan, const struct coll_args *args, const struct coll_cube *cube,
                           struct plan_ref acc)
{
    int rank = args->rank;
    struct plan_ref own = plan_shift(acc, reduce_scatter_at(args, rank));
    struct plan_ref next = plan_shift(own, args->in.count[rank]);
    if (args->average) plan_average(plan, own, own, args->in.count[rank]);
    plan_copy(plan, plan_at(PLAN_OUT(0), 0), own, args->in.count[rank]);
    if (!tree_has_folded(cube->fold, cube->v)) return;
    if (args->average) plan_average(plan, next, next, args->in.count[rank + 1]);
    coll_send(plan, args, rank + 1, next, args->in.count[rank + 1]);
}

void reduce_scatter_recursive_halving(struct plan *plan, const struct coll_args *args)
{
    struct coll_cube cube = coll_cube(args, 0);
    int64_t total = reduce_scatter_at(args, args->size);
    struct plan_ref in = halving_input(plan, args, total);
    if (cube.corner < 0) {
        coll_send(plan, args, coll_cube_partner(&cube), in, total);
        coll_recv(plan, args, coll_cube_partner(&cube), plan_at(PLAN_OUT(0), 0), args->in.count[args->rank]);
        return;
    }
    struct plan_ref acc = plan_scratch(plan, total);
    if (tree_has_folded(cube.fold, cube.v)) {
        coll_recv_reduce(plan, args, coll_cube_partner(&cube), acc, in, total);
        in = acc;
    }
    for (int bit = cube.fold.corners / 2; bit > 0; bit /= 2) {
        halving_round(plan, args, &cube, bit, in, acc);
        in = acc;
    }
    halving_result(plan, args, &cube, acc);
}
