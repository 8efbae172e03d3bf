/* Reduce: reduces IN(0) of all ranks into OUT(0) of root.  Other ranks have no output and sum in scratch. */
#include "parts.h"

void coll_tree_reduce(struct plan *plan, const struct coll_args *args, int root, struct plan_ref in,
                      struct plan_ref acc, int64_t numel)
{
    int size = args->size, v = tree_virtual(args->rank, root, size), up = tree_bit(v, size);
    for (int bit = 1; bit < up; bit *= 2) {
        if (v + bit >= size) break;
        plan_recv_reduce(plan, tree_real(v + bit, root, size), acc, in, numel);
        in = acc;
    }
    if (v != 0)
        plan_send(plan, tree_real(v - up, root, size), in, numel);
    else if (args->average)
        plan_average(plan, acc, acc, numel);
}

void reduce_binomial(struct plan *plan, const struct coll_args *args)
{
    bool root = args->rank == args->root;
    int64_t piece = ring_min(args->segment, args->count);
    struct coll_slots slots = coll_slots(plan, args->count, args->segment, root ? 0 : piece);
    for (int64_t j = 0; j < ring_segments(args->count, args->segment); j++) {
        int64_t at = j * args->segment, n = ring_segment_numel(args->count, args->segment, j);
        struct plan_ref acc = root ? plan_at(PLAN_OUT(0), at) : coll_slot(slots, j);
        coll_tree_reduce(plan, args, args->root, plan_at(PLAN_IN(0), at), acc, n);
    }
}

/* Passes partial sums from rank to rank towards root; each rank adds its own data.  This causes the least traffic, for
 * messages of many segments. */
void reduce_chain(struct plan *plan, const struct coll_args *args)
{
    int size = args->size, v = tree_virtual(args->rank, args->root, size);
    bool sums = v > 0 && v < size - 1; /* partial sums go to scratch */
    int64_t piece = sums ? ring_min(args->segment, args->count) : 0;
    struct coll_slots slots = coll_slots(plan, args->count, args->segment, piece);
    for (int64_t j = 0; j < ring_segments(args->count, args->segment); j++) {
        int64_t at = j * args->segment, n = ring_segment_numel(args->count, args->segment, j);
        struct plan_ref in = plan_at(PLAN_IN(0), at), acc = v == 0 ? plan_at(PLAN_OUT(0), at) : coll_slot(slots, j);
        if (v < size - 1) plan_recv_reduce(plan, ring_rank(args->rank, 1, size), acc, in, n);
        if (v == 0 && args->average) plan_average(plan, acc, acc, n);
        if (v > 0) plan_send(plan, ring_rank(args->rank, -1, size), sums ? acc : in, n);
    }
}

void reduce_reduce_scatter_gather(struct plan *plan, const struct coll_args *args)
{
    bool root = args->rank == args->root;
    struct coll_cube cube = coll_cube(args, args->root);
    int64_t piece = ring_times(args->segment, cube.fold.corners);
    bool scratch = !root && cube.corner >= 0;
    struct coll_slots slots = coll_slots(plan, args->count, piece, scratch ? ring_min(piece, args->count) : 0);
    for (int64_t j = 0; j < ring_segments(args->count, piece); j++) {
        int64_t n = ring_segment_numel(args->count, piece, j);
        struct plan_ref acc = root ? plan_at(PLAN_OUT(0), j * piece) : coll_slot(slots, j);
        coll_cube_reduce_scatter(plan, args, &cube, plan_at(PLAN_IN(0), j * piece), acc, n);
        coll_cube_gather(plan, args, &cube, acc, n);
    }
}
