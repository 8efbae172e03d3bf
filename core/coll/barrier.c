/* Barrier: no rank returns before the last one has called it.  Messages are empty; coll_build orders each after those
 * received before it. */
#include "parts.h"

static const struct plan_ref nothing = {PLAN_SCRATCH, 0};

/* Sends to ways - 1 ranks a round, which multiplies the number of ranks that each has heard of by `ways`. */
static void append_dissemination(struct plan *plan, const struct coll_args *args, int ways)
{
    for (int64_t distance = 1; distance < args->size; distance *= ways) {
        for (int64_t to = distance; to < ways * distance && to < args->size; to += distance)
            plan_send(plan, ring_rank(args->rank, (int)to, args->size), nothing, 0);
        for (int64_t from = distance; from < ways * distance && from < args->size; from += distance)
            plan_recv(plan, ring_rank(args->rank, -(int)from, args->size), nothing, 0);
    }
}

void barrier_dissemination(struct plan *plan, const struct coll_args *args)
{
    append_dissemination(plan, args, 2);
}

/* Pays if the time between two sends is much shorter than a message's. */
void barrier_dissemination_4(struct plan *plan, const struct coll_args *args)
{
    append_dissemination(plan, args, 4);
}

/* Sends from every rank to every other one, so each rank can tell by itself which ranks have not called the barrier. */
void barrier_linear(struct plan *plan, const struct coll_args *args)
{
    for (int i = 1; i < args->size; i++) plan_send(plan, ring_rank(args->rank, i, args->size), nothing, 0);
    for (int i = 1; i < args->size; i++) plan_recv(plan, ring_rank(args->rank, -i, args->size), nothing, 0);
}

/* Sends up a tree and down it: more rounds than barrier_dissemination, but fewer messages. */
void barrier_tree(struct plan *plan, const struct coll_args *args)
{
    coll_tree_reduce(plan, args, 0, nothing, nothing, 0);
    coll_tree_broadcast(plan, args, 0, nothing, 0);
}
