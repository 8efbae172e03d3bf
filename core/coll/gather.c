/* Gather: copies IN(0) of rank i to output block i of root. */
#include "parts.h"

void gather_linear(struct plan *plan, const struct coll_args *args)
{
    if (args->rank != args->root) {
        coll_send_block(plan, args, args->root, plan_at(PLAN_IN(0), 0), args->count);
        return;
    }
    for (int i = 1; i < args->size; i++) {
        int peer = ring_rank(args->root, i, args->size);
        coll_recv_block(plan, args, peer, coll_out(args, peer), args->out.count[peer]);
    }
    coll_copy(plan, args, coll_out(args, args->root), plan_at(PLAN_IN(0), 0), args->count);
}

/* Receives the blocks of a subtree in one message, in the order of virtual ranks.  They go through scratch unless it is
 * a single block. */
static void receive_subtrees(struct plan *plan, const struct coll_args *args)
{
    int size = args->size;
    int64_t count = args->count;
    plan_copy(plan, coll_out(args, args->root), plan_at(PLAN_IN(0), 0), count);
    for (int child = 1; child < size; child *= 2) {
        int span = tree_span(child, size), peer = tree_real(child, args->root, size);
        struct plan_ref blocks = span == 1 ? coll_out(args, peer) : plan_scratch(plan, span * count);
        coll_recv(plan, args, peer, blocks, span * count);
        for (int i = 0; i < span && span > 1; i++)
            plan_copy(plan, coll_out(args, ring_rank(peer, i, size)), plan_shift(blocks, i * count), count);
    }
}

void gather_binomial(struct plan *plan, const struct coll_args *args)
{
    if (args->rank == args->root) {
        receive_subtrees(plan, args);
        return;
    }
    int size = args->size, v = tree_virtual(args->rank, args->root, size), span = tree_span(v, size);
    struct plan_ref blocks = plan_at(PLAN_IN(0), 0);
    if (span > 1) {
        blocks = plan_scratch(plan, span * args->count);
        plan_copy(plan, blocks, plan_at(PLAN_IN(0), 0), args->count);
    }
    for (int bit = 1; bit < span; bit *= 2)
        coll_recv(plan, args, tree_real(v + bit, args->root, size), plan_shift(blocks, bit * args->count),
                  tree_span(v + bit, size) * args->count);
    coll_send(plan, args, tree_real(v - tree_bit(v, size), args->root, size), blocks, span * args->count);
}
