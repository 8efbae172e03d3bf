/* Reductions in one order for all sizes, roots and placements: up the binomial tree over rank numbers to rank 0, and
 * from there to the rank that gets the result.  TUTTI_DETERMINISTIC selects them; for all_reduce it selects
 * reduce_broadcast. */
#include "parts.h"

/* Appends one piece: reduces it to rank 0 and sends it to `to`, which stores it in `result`. */
static void append_piece(struct plan *plan, const struct coll_args *args, int to, struct plan_ref in,
                         struct plan_ref result, struct plan_ref slot, int64_t numel)
{
    struct plan_ref acc = args->rank == 0 && to == 0 ? result : slot;
    coll_tree_reduce(plan, args, 0, in, acc, numel);
    if (to == 0) return;
    if (args->rank == 0) plan_send(plan, to, acc, numel);
    if (args->rank == to) plan_recv(plan, 0, result, numel);
}

void reduce_fixed_tree(struct plan *plan, const struct coll_args *args)
{
    struct coll_slots slots = coll_slots(plan, args->count, args->segment, ring_min(args->segment, args->count));
    for (int64_t j = 0; j < ring_segments(args->count, args->segment); j++) {
        int64_t at = j * args->segment;
        append_piece(plan, args, args->root, plan_at(PLAN_IN(0), at), plan_at(PLAN_OUT(0), at), coll_slot(slots, j),
                     ring_segment_numel(args->count, args->segment, j));
    }
}

void reduce_scatter_fixed_tree(struct plan *plan, const struct coll_args *args)
{
    int64_t largest = coll_largest(args->in.count, args->size), piece = 0;
    struct coll_slots slots =
        coll_slots(plan, ring_times(largest, args->size), args->segment, ring_min(args->segment, largest));
    for (int block = 0; block < args->size; block++) {
        int64_t count = args->in.count[block];
        for (int64_t j = 0; j < ring_segments(count, args->segment); j++) {
            int64_t at = j * args->segment;
            append_piece(plan, args, block, plan_shift(coll_in(args, block), at), plan_at(PLAN_OUT(0), at),
                         coll_slot(slots, piece++), ring_segment_numel(count, args->segment, j));
        }
    }
}
