/* Scatter: copies input block i of root to OUT(0) of rank i. */
#include "parts.h"

void scatter_linear(struct plan *plan, const struct coll_args *args)
{
    if (args->rank != args->root) {
        coll_recv_block(plan, args, args->root, plan_at(PLAN_OUT(0), 0), args->count);
        return;
    }
    for (int i = 1; i < args->size; i++) {
        int peer = ring_rank(args->root, i, args->size);
        coll_send_block(plan, args, peer, coll_in(args, peer), args->in.count[peer]);
    }
    coll_copy(plan, args, plan_at(PLAN_OUT(0), 0), coll_in(args, args->root), args->count);
}

/* Reverses receive_subtrees of gather.c, largest subtree first. */
static void send_subtrees(struct plan *plan, const struct coll_args *args)
{
    int size = args->size;
    int64_t count = args->count;
    for (int child = tree_bit(0, size) / 2; child > 0; child /= 2) {
        int span = tree_span(child, size), peer = tree_real(child, args->root, size);
        struct plan_ref blocks = span == 1 ? coll_in(args, peer) : plan_scratch(plan, span * count);
        for (int i = 0; i < span && span > 1; i++)
            plan_copy(plan, plan_shift(blocks, i * count), coll_in(args, ring_rank(peer, i, size)), count);
        coll_send(plan, args, peer, blocks, span * count);
    }
    plan_copy(plan, plan_at(PLAN_OUT(0), 0), coll_in(args, args->root), count);
}

void scatter_binomial(struct plan *plan, const struct coll_args *args)
{
    if (args->rank == args->root) {
        send_subtrees(plan, args);
        return;
    }
    int size = args->size, v = tree_virtual(args->rank, args->root, size), span = tree_span(v, size);
    int parent = tree_real(v - tree_bit(v, size), args->root, size);
    struct plan_ref own = plan_at(PLAN_OUT(0), 0);
    struct plan_ref blocks = span == 1 ? own : plan_scratch(plan, span * args->count);
    coll_recv(plan, args, parent, blocks, span * args->count);
    for (int bit = tree_bit(v, size) / 2; bit > 0; bit /= 2) {
        if (bit >= span) continue;
        coll_send(plan, args, tree_real(v + bit, args->root, size), plan_shift(blocks, bit * args->count),
                  tree_span(v + bit, size) * args->count);
    }
    plan_copy(plan, own, blocks, args->count);
}
