/* All-gather: copies IN(0) of rank i to output block i of every rank.  Every rank knows the sizes of all blocks. */
#include "parts.h"

static bool find_segment(const struct coll_args *args, int block, int64_t j, struct plan_ref *ref, int64_t *numel)
{
    int64_t whole = args->out.count[block];
    if (j >= ring_segments(whole, args->segment)) return false;
    *ref = plan_shift(coll_out(args, block), j * args->segment);
    *numel = ring_segment_numel(whole, args->segment, j);
    return true;
}

void all_gather_ring(struct plan *plan, const struct coll_args *args)
{
    int size = args->size, rank = args->rank, left = ring_rank(rank, -1, size), right = ring_rank(rank, 1, size);
    int64_t largest = coll_largest(args->out.count, size), n;
    struct plan_ref ref;
    coll_copy(plan, args, coll_out(args, rank), plan_at(PLAN_IN(0), 0), args->count);
    for (int64_t j = 0; j < ring_segments(largest, args->segment); j++) {
        for (int round = 0; round < size - 1; round++) {
            if (find_segment(args, ring_rank(rank, -round, size), j, &ref, &n))
                plan_send(plan, right, round == 0 ? plan_at(PLAN_IN(0), j * args->segment) : ref, n);
            if (find_segment(args, ring_rank(rank, -round - 1, size), j, &ref, &n)) plan_recv(plan, left, ref, n);
        }
    }
}

/* Returns the elements of n consecutive blocks of the ring, starting at `first`. */
static int64_t sum_counts(const struct coll_args *args, int first, int n)
{
    int64_t sum = 0;
    for (int i = 0; i < n; i++) sum += args->out.count[ring_rank(first, i, args->size)];
    return sum;
}

/* Collects the blocks in scratch in the order rank, rank + 1, ...; each round doubles their number. */
void all_gather_bruck(struct plan *plan, const struct coll_args *args)
{
    int size = args->size, rank = args->rank;
    struct plan_ref own = plan_at(PLAN_IN(0), 0);
    struct plan_ref blocks = plan_scratch(plan, sum_counts(args, rank, size));
    plan_copy(plan, coll_out(args, rank), own, args->count);
    plan_copy(plan, blocks, own, args->count);
    int64_t end = args->count;
    for (int n_blocks = 1; n_blocks < size; n_blocks *= 2) {
        int n = n_blocks < size - n_blocks ? n_blocks : size - n_blocks;
        int64_t more = sum_counts(args, ring_rank(rank, n_blocks, size), n);
        coll_send(plan, args, ring_rank(rank, -n_blocks, size), n_blocks == 1 ? own : blocks,
                  sum_counts(args, rank, n));
        coll_recv(plan, args, ring_rank(rank, n_blocks, size), plan_shift(blocks, end), more);
        end += more;
    }
    int64_t at = args->count;
    for (int i = 1; i < size; i++) {
        int block = ring_rank(rank, i, size);
        plan_copy(plan, coll_out(args, block), plan_shift(blocks, at), args->out.count[block]);
        at += args->out.count[block];
    }
}

/* Gathers up a tree and broadcasts down it: 2 (size - 1) messages in total, against size * log size of bruck.  This
 * pays if ranks share cores.  Blocks are in scratch in order of rank, so those of a subtree are consecutive. */
void all_gather_gather_broadcast(struct plan *plan, const struct coll_args *args)
{
    int size = args->size, rank = args->rank, up = tree_bit(rank, size);
    int64_t total = sum_counts(args, 0, size), at = sum_counts(args, 0, rank);
    struct plan_ref all = plan_scratch(plan, total), own = plan_at(PLAN_IN(0), 0);
    plan_copy(plan, coll_out(args, rank), own, args->count);
    plan_copy(plan, plan_shift(all, at), own, args->count);
    for (int child = rank + 1; child < size && child < rank + up; child = rank + 2 * (child - rank))
        coll_recv(plan, args, child, plan_shift(all, sum_counts(args, 0, child)),
                  sum_counts(args, child, tree_span(child, size)));
    if (rank != 0) coll_send(plan, args, rank - up, plan_shift(all, at), sum_counts(args, rank, tree_span(rank, size)));
    for (int64_t j = 0; j < ring_segments(total, args->segment); j++)
        coll_tree_broadcast(plan, args, 0, plan_shift(all, j * args->segment),
                            ring_segment_numel(total, args->segment, j));
    for (int i = 0; i < size; i++) {
        if (i != rank) plan_copy(plan, coll_out(args, i), all, args->out.count[i]);
        all = plan_shift(all, args->out.count[i]);
    }
}
