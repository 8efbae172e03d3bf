#include "cost.h"

#include <math.h>

#include "cost_phases.h"
#include "ring.h"

/* ---- parts ------------------------------------------------------------------------------------------------------ */

/* The parts of an algorithm over several hosts: within each host, before and after the part between hosts.  The first
 * of each is that of lanes, the second that of leaders. */
static const struct part_row {
    tutti_kind kind, before[2], after[2];
} part_rows[] = {
    {TUTTI_ALL_REDUCE, {TUTTI_REDUCE_SCATTER, TUTTI_REDUCE}, {TUTTI_ALL_GATHER, TUTTI_BROADCAST}},
    {TUTTI_BROADCAST, {TUTTI_BROADCAST, TUTTI_BROADCAST}, {TUTTI_ALL_GATHER, TUTTI_BROADCAST}},
    {TUTTI_REDUCE, {TUTTI_REDUCE_SCATTER, TUTTI_REDUCE}, {TUTTI_GATHER, TUTTI_KIND_COUNT}},
    {TUTTI_ALL_GATHER, {TUTTI_ALL_GATHER, TUTTI_ALL_GATHER}, {TUTTI_ALL_GATHER, TUTTI_BROADCAST}},
    {TUTTI_REDUCE_SCATTER, {TUTTI_REDUCE_SCATTER, TUTTI_REDUCE}, {TUTTI_SCATTER, TUTTI_SCATTER}},
    {TUTTI_BARRIER, {TUTTI_REDUCE, TUTTI_REDUCE}, {TUTTI_BROADCAST, TUTTI_BROADCAST}},
};

static struct cost_span span_of(const struct coll_algorithm *algorithm, const struct coll_args *args);

/* Returns the span of a part of `bytes` among `size` ranks, `times` of them that overlap. */
static struct cost_span span_part(const struct coll_args *args, tutti_kind kind, int size, int lanes, double bytes,
                                  double times)
{
    struct coll_args part = {.kind = kind, .size = size, .even = true, .segment = args->segment, .is_part = true};
    if (kind == TUTTI_KIND_COUNT || size == 1) return (struct cost_span){0};
    part.lanes = lanes;
    part.element = args->element;
    part.link = args->link;
    part.count = (int64_t)fmin(bytes / (double)args->element / (tutti_kind_has_blocks(kind) ? size : 1), 9e18);
    struct cost_span span = span_of(cost_cheapest(&part, NULL), &part);
    span.all += (times - 1) * fmax(span.cpu, span.link);
    span.cpu *= times;
    span.link *= times;
    return span;
}

/* In a broadcast the first part is on root's host and the last one on the others, so they overlap.  A root that is the
 * only leader need not wait for the first. */
static void join_broadcast(struct cost_span *before, struct cost_span *after, bool one)
{
    double first = one ? 0 : before->first;
    double rest = fmax(before->all - before->first, after->all - after->first);
    *after =
        (struct cost_span){.first = after->first, .all = after->first + rest, .cpu = fmax(before->cpu, after->cpu)};
    *before = (struct cost_span){.first = first, .all = first};
}

static struct cost_span span_parts(const struct coll_args *args, bool one)
{
    const struct coll_hosts *hosts = args->hosts;
    const struct part_row *row = part_rows;
    const struct cost_span never = {.all = INFINITY};
    if (args->is_part || hosts == NULL || hosts->n == 1 || hosts->most == 1) return never;
    while (row->kind != args->kind) row++;
    int lanes = one ? 1 : hosts->least, size = hosts->most;
    double bytes = cost_bytes(args), own = bytes / hosts->n;
    bool by_host = !one && tutti_kind_has_blocks(args->kind); /* one part for each host's blocks */
    struct cost_span before, between, after;
    before = args->kind == TUTTI_ALL_GATHER ? span_part(args, row->before[one], size, 0, own, 1)
             : by_host                      ? span_part(args, row->before[0], size, 0, own, hosts->n)
                                            : span_part(args, row->before[one], size, 0, bytes, 1);
    between = span_part(args, args->kind, hosts->n, lanes, bytes / lanes, 1);
    after = args->kind == TUTTI_REDUCE_SCATTER ? span_part(args, row->after[one], size / lanes, 0, own / lanes, 1)
            : by_host                          ? span_part(args, row->after[0], size, 0, own, hosts->n - 1)
                                               : span_part(args, row->after[one], size, 0, bytes, 1);
    double copies = tutti_kind_has_blocks(args->kind) && !hosts->in_order ? cost_copy(bytes) : 0;
    if (args->kind == TUTTI_BROADCAST) join_broadcast(&before, &after, one);
    struct cost_span span = {.first = before.first + between.first + after.first + copies,
                             .cpu = before.cpu + between.cpu + after.cpu + copies};
    double within = before.all - before.first + after.all - after.first;
    span.all = fmax(span.first + fmax(within, between.all - between.first), span.cpu);
    return span;
}

static struct cost_span span_of(const struct coll_algorithm *algorithm, const struct coll_args *args)
{
    if (args->size == 1) return (struct cost_span){0};
    if (algorithm->phase[0] == COLL_LANES || algorithm->phase[0] == COLL_LEADER)
        return span_parts(args, algorithm->phase[0] == COLL_LEADER);
    return cost_phases(algorithm, args, cost_bytes(args));
}

double cost_estimate(const struct coll_algorithm *algorithm, const struct coll_args *args)
{
    return span_of(algorithm, args).all;
}

/* ---- the choice ------------------------------------------------------------------------------------------------- */

static bool keeps_order(const struct coll_algorithm *algorithm, const struct coll_args *args)
{
    if (algorithm->in_order == COLL_IN_ORDER_ROOT_0) return args->root == 0;
    return algorithm->in_order == COLL_IN_ORDER_ALWAYS;
}

bool cost_supports(const struct coll_algorithm *algorithm, const struct coll_args *args)
{
    if (args->ordered && !keeps_order(algorithm, args)) return false;
    return algorithm->uneven || args->even || !tutti_kind_has_blocks(args->kind);
}

const struct coll_algorithm *cost_cheapest(const struct coll_args *args, double *estimates)
{
    const double nearly = 1.03;
    const struct coll_algorithm *next;
    double unasked[COLL_CHOICES], least = INFINITY;
    if (estimates == NULL) estimates = unasked;
    for (int i = 0; (next = coll_nth(args->kind, i)) != NULL; i++) {
        estimates[i] = cost_supports(next, args) ? cost_estimate(next, args) : INFINITY;
        least = fmin(least, estimates[i]);
    }
    for (int i = 0; (next = coll_nth(args->kind, i)) != NULL; i++)
        if (estimates[i] <= least * nearly) return next;
    return NULL;
}

int64_t cost_elements(const struct coll_args *args)
{
    if (!tutti_kind_has_blocks(args->kind)) return args->count;
    if (args->even) return ring_times(args->count, args->size);
    if (!tutti_kind_knows_blocks(args->kind)) return 0;
    return ring_sum(tutti_kind_in_blocks(args->kind) ? args->in.count : args->out.count, args->size);
}

double cost_bytes(const struct coll_args *args)
{
    return (double)cost_elements(args) * (double)args->element;
}
