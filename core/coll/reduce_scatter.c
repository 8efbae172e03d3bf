/* Reduce-scatter: reduces input block i of all ranks into OUT(0) of rank i.  Every rank knows the sizes of all
 * blocks. */
#include "parts.h"

static bool find_segment(const struct coll_args *args, int block, int64_t j, int64_t *numel)
{
    int64_t whole = args->in.count[block];
    if (j >= ring_segments(whole, args->segment)) return false;
    *numel = ring_segment_numel(whole, args->segment, j);
    return true;
}

/* Appends one segment.  Round s sends block (rank - s - 1) and receives (rank - s - 2), so the last one received is the
 * rank's own.  A partial sum is in one half of the slot while the next one arrives in the other. */
static void append_ring_segment(struct plan *plan, const struct coll_args *args, int64_t j, struct plan_ref slot,
                                int64_t half)
{
    int size = args->size, rank = args->rank;
    int64_t at = j * args->segment, n;
    struct plan_ref sum = plan_shift(coll_in(args, ring_rank(rank, -1, size)), at);
    for (int round = 0; round < size - 1; round++) {
        int out = ring_rank(rank, -round - 1, size), in = ring_rank(out, -1, size);
        if (find_segment(args, out, j, &n)) plan_send(plan, ring_rank(rank, 1, size), sum, n);
        sum = in == rank ? plan_at(PLAN_OUT(0), at) : plan_shift(slot, round % 2 * half);
        if (find_segment(args, in, j, &n))
            plan_recv_reduce(plan, ring_rank(rank, -1, size), sum, plan_shift(coll_in(args, in), at), n);
    }
    if (args->average && find_segment(args, rank, j, &n)) plan_average(plan, sum, sum, n);
}

void reduce_scatter_ring(struct plan *plan, const struct coll_args *args)
{
    int64_t largest = coll_largest(args->in.count, args->size), half = ring_min(args->segment, largest);
    struct coll_slots slots = coll_slots(plan, largest, args->segment, 2 * half);
    for (int64_t j = 0; j < ring_segments(largest, args->segment); j++)
        append_ring_segment(plan, args, j, coll_slot(slots, j), half);
}

/* Receives this rank's block from every other rank, and sums in the order of their distance. */
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

/* Returns the offset of a corner's blocks: its rank's and those of the rank folded into it. */
static int64_t corner_offset(const struct coll_args *args, const struct coll_cube *cube, int corner)
{
    return ring_sum(args->in.count, tree_corner_rank(cube->fold, corner));
}

static void append_halving_round(struct plan *plan, const struct coll_args *args, const struct coll_cube *cube, int bit,
                                 struct plan_ref in, struct plan_ref acc)
{
    int peer = coll_cube_rank(cube, cube->corner ^ bit);
    int mine = cube->corner & ~(bit - 1), theirs = mine ^ bit;
    int64_t give = corner_offset(args, cube, theirs), keep = corner_offset(args, cube, mine);
    coll_send(plan, args, peer, plan_shift(in, give), corner_offset(args, cube, theirs + bit) - give);
    coll_recv_reduce(plan, args, peer, plan_shift(acc, keep), plan_shift(in, keep),
                     corner_offset(args, cube, mine + bit) - keep);
}

/* Appends the result: the rank's own block, and the next one for the rank folded into it. */
static void append_halving_result(struct plan *plan, const struct coll_args *args, const struct coll_cube *cube,
                                  struct plan_ref acc)
{
    int rank = args->rank;
    struct plan_ref own = plan_shift(acc, ring_sum(args->in.count, rank));
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
    int64_t total = ring_sum(args->in.count, args->size);
    struct plan_ref in = coll_flat_input(plan, args);
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
        append_halving_round(plan, args, &cube, bit, in, acc);
        in = acc;
    }
    append_halving_result(plan, args, &cube, acc);
}
