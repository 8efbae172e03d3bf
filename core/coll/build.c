/* Builds a plan from arguments: everything that is common to all algorithms. */
#include "parts.h"

static bool has_input(const struct coll_args *args)
{
    return tutti_kind_has_in(args->kind, args->rank, args->root);
}

static bool has_output(const struct coll_args *args)
{
    return tutti_kind_has_out(args->kind, args->rank, args->root);
}

/* Declares in-place operations: the input is (a part of) the output or vice versa, and becomes one buffer with it. */
static void declare_aliases(struct plan *plan, const struct coll_args *args)
{
    bool in_blocks = tutti_kind_in_blocks(args->kind), out_blocks = tutti_kind_out_blocks(args->kind);
    if (!has_input(args) || !has_output(args)) return;
    if (in_blocks && out_blocks) { /* block by block */
        for (int i = 0; i < (args->in.list ? args->size : 1); i++) plan_alias(plan, PLAN_IN(i), PLAN_OUT(i), 0);
    } else if (out_blocks) { /* the input is its own slice of the output */
        struct plan_ref block = coll_out(args, args->rank);
        plan_alias(plan, PLAN_IN(0), block.buffer, block.at);
    } else if (in_blocks) { /* the output is its own slice of the input */
        struct plan_ref block = coll_in(args, args->rank);
        plan_alias(plan, PLAN_OUT(0), block.buffer, block.at);
    } else {
        plan_alias(plan, PLAN_IN(0), PLAN_OUT(0), 0);
    }
}

/* Scales a tensor into dst in segments, so that the first one can be sent before the last one is done. */
static void append_scale(struct plan *plan, const struct coll_args *args, struct plan_ref dst, struct plan_ref src,
                         int64_t numel)
{
    for (int64_t j = 0; j < ring_segments(numel, args->segment); j++)
        plan_scale(plan, plan_shift(dst, j * args->segment), plan_shift(src, j * args->segment),
                   ring_segment_numel(numel, args->segment, j));
}

static void scale_blocks(struct plan *plan, const struct coll_args *args)
{
    struct plan_ref first = plan_scratch(plan, 0);
    for (int i = 0; i < args->size; i++) {
        struct plan_ref scaled = plan_scratch(plan, args->in.count[i]);
        append_scale(plan, args, scaled, coll_in(args, i), args->in.count[i]);
        if (args->in.list) plan_alias(plan, PLAN_IN(i), PLAN_SCRATCH, scaled.at);
    }
    /* the blocks of a flat input are consecutive, and so are those in scratch */
    if (!args->in.list) plan_alias(plan, PLAN_IN(0), PLAN_SCRATCH, first.at - args->in.at[0]);
}

/* Scales each contribution, then makes the scaled data the algorithm's input. */
static void scale_input(struct plan *plan, struct coll_args *args)
{
    struct plan_ref in = plan_at(PLAN_IN(0), 0), out = plan_at(PLAN_OUT(0), 0);
    if (tutti_kind_in_blocks(args->kind)) {
        scale_blocks(plan, args);
    } else if (has_output(args)) {
        append_scale(plan, args, out, in, args->count);
        plan_alias(plan, PLAN_IN(0), PLAN_OUT(0), 0);
        args->in_place = true;
    } else {
        struct plan_ref scaled = plan_scratch(plan, args->count);
        append_scale(plan, args, scaled, in, args->count);
        plan_alias(plan, PLAN_IN(0), PLAN_SCRATCH, scaled.at);
    }
}

/* Appends the steps of a group of one rank, which sends no messages with any algorithm. */
static void append_single_rank(struct plan *plan, const struct coll_args *args)
{
    if (!has_input(args) || !has_output(args)) return;
    bool in_blocks = tutti_kind_in_blocks(args->kind), out_blocks = tutti_kind_out_blocks(args->kind);
    struct plan_ref in = in_blocks ? coll_in(args, 0) : plan_at(PLAN_IN(0), 0);
    struct plan_ref out = out_blocks ? coll_out(args, 0) : plan_at(PLAN_OUT(0), 0);
    int64_t numel = in_blocks ? args->in.count[0] : args->count;
    if (args->average)
        plan_average(plan, out, in, numel);
    else
        plan_copy(plan, out, in, numel);
}

static void build_part(struct plan *plan, const struct coll_args *part, const int *members, struct plan_ref in,
                       struct plan_ref out)
{
    const struct coll_algorithm *algorithm = coll_select(part, NULL, NULL);
    plan_enter(plan, members, in, out);
    if (part->size == 1)
        append_single_rank(plan, part);
    else
        algorithm->build(plan, part);
    plan_leave(plan);
}

/* Orders empty messages, which show no dependencies although an operation on nothing must still synchronise.  An empty
 * message is sent after those received before it, as if it held an element that depends on theirs. */
static void order_empty_messages(struct plan *plan)
{
    uint32_t received = UINT32_MAX, sends = plan->n_steps;
    while (sends > 0 && plan->steps[sends - 1].kind != PLAN_SEND) sends--;
    for (uint32_t i = 0; i < sends; i++) {
        if (plan->steps[i].numel > 0) continue;
        plan_order(plan, received, i);
        if (plan->steps[i].kind == PLAN_RECV) received = i;
    }
}

struct plan *coll_build(const struct coll_algorithm *algorithm, const struct coll_args *args, int64_t recv_reduce_most)
{
    struct plan *plan = plan_new(args->rank, args->size, recv_reduce_most);
    if (!plan) return NULL;
    struct coll_args given = *args;
    given.build_part = build_part;
    if (given.in_place) declare_aliases(plan, &given);
    if (given.premul) scale_input(plan, &given);
    if (given.size == 1)
        append_single_rank(plan, &given);
    else
        algorithm->build(plan, &given);
    order_empty_messages(plan);
    if (plan_finish(plan) == 0) return plan;
    plan_free(plan);
    return NULL;
}
