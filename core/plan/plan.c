#include "plan/plan.h"
#include "plan/plan_ranges.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Without recv_reduce, data that is reduced in place is first received into a stage.  PLAN_STAGES is the number of
 * stages in use at once. */
enum { PLAN_STAGES = 4, PLAN_FIRST_STEPS = 16 };

struct plan_edge {
    uint32_t before, after;
};

struct plan_alias {
    bool set;
    int32_t target;
    int64_t shift;
};

struct plan_stage {
    struct plan_ref ref;
    int64_t numel;
};

struct plan_builder {
    int64_t recv_reduce_most;
    uint32_t max_steps, n_edges, max_edges, next_stage;
    int32_t n_aliases; /* entries of alias, indexed by buffer */
    struct plan_edge *edge;
    struct plan_alias *alias;
    struct plan_stage stage[PLAN_STAGES];
    const int *members; /* see plan_enter; NULL for the whole group */
    struct plan_ref in, out;
    struct ranges ranges;
    uint32_t slots[]; /* sends by peer, then receives by peer */
};

static void set_error(struct plan *plan)
{
    if (!plan->error) plan->error = TUTTI_ERR_NO_MEMORY;
}

static void free_builder(struct plan *plan)
{
    struct plan_builder *builder = plan->builder;
    if (!builder) return;
    ranges_fini(&builder->ranges);
    free(builder->edge);
    free(builder->alias);
    free(builder);
    plan->builder = NULL;
}

struct plan *plan_new(int rank, int size, int64_t recv_reduce_most)
{
    struct plan *plan = calloc(1, sizeof *plan);
    struct plan_builder *builder = malloc(sizeof *builder + 2 * (size_t)size * sizeof builder->slots[0]);
    struct plan_step *steps = malloc(PLAN_FIRST_STEPS * sizeof *steps);
    if (!plan || !builder || !steps) {
        free(plan);
        free(builder);
        free(steps);
        return NULL;
    }
    memset(builder, 0, offsetof(struct plan_builder, ranges)); /* the arrays of the range map need no zeros */
    memset(builder->slots, 0, 2 * (size_t)size * sizeof builder->slots[0]);
    ranges_init(&builder->ranges);
    builder->recv_reduce_most = recv_reduce_most;
    builder->max_steps = PLAN_FIRST_STEPS;
    plan->rank = rank;
    plan->size = size;
    plan->builder = builder;
    plan->steps = steps;
    return plan;
}

void plan_free(struct plan *plan)
{
    if (!plan) return;
    free_builder(plan);
    free(plan->steps);
    free(plan->next); /* `ready` is part of the same allocation */
    free(plan);
}

/* ---- buffers ----------------------------------------------------------------------------------------------- */

void plan_alias(struct plan *plan, int32_t alias, int32_t target, int64_t shift)
{
    struct plan_builder *builder = plan->builder;
    if (alias >= builder->n_aliases) {
        struct plan_alias *grown = realloc(builder->alias, (size_t)(alias + 1) * sizeof *grown);
        if (!grown) {
            set_error(plan);
            return;
        }
        memset(grown + builder->n_aliases, 0, (size_t)(alias + 1 - builder->n_aliases) * sizeof *grown);
        builder->alias = grown;
        builder->n_aliases = alias + 1;
    }
    builder->alias[alias] = (struct plan_alias){true, target, shift};
}

static struct plan_ref resolve(const struct plan *plan, struct plan_ref ref)
{
    const struct plan_builder *builder = plan->builder;
    if (builder->members && ref.buffer == PLAN_IN(0)) return plan_shift(builder->in, ref.at);
    if (builder->members && ref.buffer == PLAN_OUT(0)) return plan_shift(builder->out, ref.at);
    if (ref.buffer >= builder->n_aliases || !builder->alias[ref.buffer].set) return ref;
    return plan_at(builder->alias[ref.buffer].target, ref.at + builder->alias[ref.buffer].shift);
}

void plan_enter(struct plan *plan, const int *members, struct plan_ref in, struct plan_ref out)
{
    struct plan_builder *builder = plan->builder;
    assert(!builder->members);
    builder->in = resolve(plan, in);
    builder->out = resolve(plan, out);
    builder->members = members;
}

void plan_leave(struct plan *plan)
{
    plan->builder->members = NULL;
}

struct plan_ref plan_scratch(struct plan *plan, int64_t numel)
{
    struct plan_ref ref = plan_at(PLAN_SCRATCH, plan->scratch);
    plan->scratch += numel;
    return ref;
}

/* ---- dependencies ------------------------------------------------------------------------------------------ */

/* Adds an edge.  While building, a step's nexts counts its edges, and first_next is the step that its latest edge leads
 * to.  That is enough to skip a second edge between the same two steps, because all edges to one step are added
 * consecutively. */
static void add_edge(struct plan *plan, uint32_t before, uint32_t after)
{
    struct plan_builder *builder = plan->builder;
    struct plan_step *step = &plan->steps[before];
    if (step->nexts > 0 && step->first_next == after) return;
    if (builder->n_edges == builder->max_edges) {
        uint32_t max = builder->max_edges ? 2 * builder->max_edges : 2 * PLAN_FIRST_STEPS;
        struct plan_edge *grown = realloc(builder->edge, max * sizeof *grown);
        if (!grown) {
            set_error(plan);
            return;
        }
        builder->edge = grown;
        builder->max_edges = max;
    }
    builder->edge[builder->n_edges++] = (struct plan_edge){before, after};
    step->nexts++;
    step->first_next = after;
    plan->steps[after].waits++;
}

void plan_order(struct plan *plan, uint32_t before, uint32_t after)
{
    if (plan->error || before == UINT32_MAX || after == UINT32_MAX) return;
    assert(before < after); /* excludes cycles */
    add_edge(plan, before, after);
}

static bool reads_b(const struct plan_step *step)
{
    return step->kind == PLAN_REDUCE;
}

static bool reads_a(const struct plan_step *step)
{
    return step->kind != PLAN_RECV;
}

static bool writes_dst(const struct plan_step *step)
{
    return step->kind != PLAN_SEND;
}

static void add_hazards(struct plan *plan, uint32_t id)
{
    struct ranges *ranges = &plan->builder->ranges;
    const struct plan_step *step = &plan->steps[id];
    int64_t n = step->numel;
    ranges->n_before = 0;
    if (reads_a(step)) ranges_read(ranges, id, step->a.buffer, step->a.at, step->a.at + n);
    if (reads_b(step)) ranges_read(ranges, id, step->b.buffer, step->b.at, step->b.at + n);
    if (writes_dst(step)) ranges_write(ranges, id, step->dst.buffer, step->dst.at, step->dst.at + n);
    if (ranges->failed) set_error(plan);
    for (uint32_t i = 0; i < ranges->n_before; i++) add_edge(plan, ranges->before[i], id);
}

/* ---- steps ------------------------------------------------------------------------------------------------- */

static bool reserve_step(struct plan *plan)
{
    struct plan_builder *builder = plan->builder;
    if (plan->n_steps < builder->max_steps) return true;
    struct plan_step *grown = NULL;
    if (builder->max_steps < UINT32_MAX / 4) grown = realloc(plan->steps, 2 * builder->max_steps * sizeof *grown);
    if (!grown) {
        set_error(plan);
        return false;
    }
    plan->steps = grown;
    builder->max_steps *= 2;
    return true;
}

static uint32_t add_step(struct plan *plan, struct plan_step step)
{
    if (plan->error || !reserve_step(plan)) return UINT32_MAX;
    uint32_t id = plan->n_steps++;
    plan->steps[id] = step;
    if (step.numel > 0) add_hazards(plan, id);
    return plan->error ? UINT32_MAX : id;
}

static uint32_t add_message(struct plan *plan, enum plan_step_kind kind, int peer, struct plan_ref dst,
                            struct plan_ref a, int64_t numel)
{
    if (plan->error) return UINT32_MAX;
    if (plan->builder->members) peer = plan->builder->members[peer];
    uint32_t *slot = &plan->builder->slots[kind == PLAN_SEND ? peer : plan->size + peer];
    return add_step(
        plan,
        (struct plan_step){.kind = (uint8_t)kind, .peer = peer, .slot = (*slot)++, .numel = numel, .dst = dst, .a = a});
}

static uint32_t add_local(struct plan *plan, enum plan_step_kind kind, struct plan_ref dst, struct plan_ref a,
                          struct plan_ref b, int64_t numel)
{
    if (plan->error || numel == 0) return UINT32_MAX;
    return add_step(plan, (struct plan_step){.kind = (uint8_t)kind,
                                             .peer = -1,
                                             .numel = numel,
                                             .dst = resolve(plan, dst),
                                             .a = resolve(plan, a),
                                             .b = resolve(plan, b)});
}

uint32_t plan_send(struct plan *plan, int peer, struct plan_ref src, int64_t numel)
{
    src = resolve(plan, src);
    return add_message(plan, PLAN_SEND, peer, src, src, numel);
}

uint32_t plan_recv(struct plan *plan, int peer, struct plan_ref dst, int64_t numel)
{
    dst = resolve(plan, dst);
    return add_message(plan, PLAN_RECV, peer, dst, dst, numel);
}

/* Returns the next stage.  Stages are used in turn, and the derived dependencies make each user wait until it is
 * free. */
static struct plan_ref next_stage(struct plan *plan, int64_t numel)
{
    struct plan_stage *stage = &plan->builder->stage[plan->builder->next_stage++ % PLAN_STAGES];
    if (stage->numel < numel) *stage = (struct plan_stage){plan_scratch(plan, numel), numel};
    return stage->ref;
}

bool plan_is_lower(const struct plan *plan, int peer)
{
    return (plan->builder->members ? plan->builder->members[peer] : peer) < plan->rank;
}

static bool overlap(struct plan_ref x, struct plan_ref y, int64_t numel)
{
    return x.buffer == y.buffer && x.at < y.at + numel && y.at < x.at + numel;
}

/* Receives into dst if possible, where the sum will be: no other memory is touched, so more data stays in the cache. */
uint32_t plan_recv_reduce(struct plan *plan, int peer, struct plan_ref dst, struct plan_ref a, int64_t numel)
{
    if (numel == 0) return plan_recv(plan, peer, dst, 0);
    struct plan_ref sum = resolve(plan, dst), own = resolve(plan, a);
    if (numel <= plan->builder->recv_reduce_most) return add_message(plan, PLAN_RECV_REDUCE, peer, sum, own, numel);
    struct plan_ref received = overlap(sum, own, numel) ? next_stage(plan, numel) : dst;
    plan_recv(plan, peer, received, numel);
    bool is_lower = plan_is_lower(plan, peer);
    return is_lower ? plan_reduce(plan, dst, received, a, numel) : plan_reduce(plan, dst, a, received, numel);
}

uint32_t plan_reduce(struct plan *plan, struct plan_ref dst, struct plan_ref a, struct plan_ref b, int64_t numel)
{
    plan->reduces = true;
    return add_local(plan, PLAN_REDUCE, dst, a, b, numel);
}

uint32_t plan_copy(struct plan *plan, struct plan_ref dst, struct plan_ref src, int64_t numel)
{
    struct plan_ref to = resolve(plan, dst), from = resolve(plan, src);
    if (to.buffer == from.buffer && to.at == from.at) return UINT32_MAX;
    return add_local(plan, PLAN_COPY, dst, src, src, numel);
}

uint32_t plan_scale(struct plan *plan, struct plan_ref dst, struct plan_ref src, int64_t numel)
{
    return add_local(plan, PLAN_SCALE, dst, src, src, numel);
}

uint32_t plan_average(struct plan *plan, struct plan_ref dst, struct plan_ref src, int64_t numel)
{
    return add_local(plan, PLAN_AVERAGE, dst, src, src, numel);
}

/* ---- finishing --------------------------------------------------------------------------------------------- */

/* Stores the edges by the step that they leave, and collects the steps that wait for none. */
static void lay_out_edges(struct plan *plan)
{
    const struct plan_builder *builder = plan->builder;
    uint32_t first = 0;
    for (uint32_t i = 0; i < plan->n_steps; i++) {
        struct plan_step *step = &plan->steps[i];
        step->first_next = first;
        first += step->nexts;
        step->nexts = 0;
        if (step->waits == 0) plan->ready[plan->n_ready++] = i;
    }
    for (uint32_t i = 0; i < builder->n_edges; i++) {
        struct plan_step *before = &plan->steps[builder->edge[i].before];
        plan->next[before->first_next + before->nexts++] = builder->edge[i].after;
    }
    plan->n_next = builder->n_edges;
}

int plan_finish(struct plan *plan)
{
    struct plan_builder *builder = plan->builder;
    if (!builder) return plan->error;
    if (!plan->error) {
        plan->next = malloc(((size_t)builder->n_edges + plan->n_steps + 1) * sizeof *plan->next);
        if (!plan->next) set_error(plan);
    }
    if (!plan->error) {
        plan->ready = plan->next + builder->n_edges;
        lay_out_edges(plan);
    }
    free_builder(plan);
    return plan->error;
}

/* ---- printing ---------------------------------------------------------------------------------------------- */

static void print_range(FILE *out, const char *label, struct plan_ref ref, int64_t numel)
{
    fprintf(out, " %s", label);
    if (ref.buffer == PLAN_SCRATCH)
        fprintf(out, "scratch");
    else
        fprintf(out, "%s%d", ref.buffer % 2 ? "in" : "out", (ref.buffer - 1) / 2);
    fprintf(out, "[%" PRId64 ",%" PRId64 ")", ref.at, ref.at + numel);
}

void plan_print(const struct plan *plan, FILE *out)
{
    static const char *const name[] = {"send", "recv", "recv_reduce", "reduce", "copy", "scale", "average"};
    fprintf(out, "plan of rank %d of %d: %u steps, %" PRId64 " elements of scratch\n", plan->rank, plan->size,
            plan->n_steps, plan->scratch);
    for (uint32_t i = 0; i < plan->n_steps; i++) {
        const struct plan_step *step = &plan->steps[i];
        fprintf(out, "%5u %-11s", i, name[step->kind]);
        if (step->peer >= 0) fprintf(out, " peer %d slot %u", step->peer, step->slot);
        if (writes_dst(step)) print_range(out, "", step->dst, step->numel);
        if (reads_a(step)) print_range(out, "<- ", step->a, step->numel);
        if (reads_b(step)) print_range(out, "and ", step->b, step->numel);
        uint32_t nexts = plan->builder ? 0 : step->nexts; /* next is valid after plan_finish */
        for (uint32_t k = 0; k < nexts; k++) fprintf(out, "%s%u", k ? " " : " then ", plan->next[step->first_next + k]);
        fprintf(out, "\n");
    }
}
