/* Builds the plans of all ranks of a case with the functions that production uses. */
#include "simulate.h"

#include <math.h>
#include <stdlib.h>

#include "coll/cost.h"

enum { ELEMENT = 4 };

struct sim_group *sim_group_new(const struct sim_case *what)
{
    int size = what->hosts * what->per_host;
    struct sim_group *group = calloc(1, sizeof *group);
    int32_t *host = malloc((size_t)size * sizeof *host);
    bool has_blocks = tutti_kind_has_blocks(what->kind);
    int64_t count = what->kind == TUTTI_BARRIER ? 0 : what->bytes / ELEMENT;
    *group = (struct sim_group){.what = *what, .link = sim_link(what->network)};
    for (int rank = 0; rank < size; rank++) host[rank] = rank / what->per_host;
    group->hosts = coll_hosts_new(host, size);
    group->count = malloc(2 * (size_t)size * sizeof *group->count);
    group->at = group->count + size;
    for (int rank = 0; rank < size; rank++) {
        group->count[rank] = has_blocks ? (count + size - 1) / size : count;
        group->at[rank] = rank * group->count[rank];
    }
    free(host);
    return group;
}

/* Removes from the link what a backend does not report. */
static void forget_details(struct sim_group *group)
{
    struct coll_link *link = &group->link;
    bool copies = link->processor_bytes_per_us > 0 && link->processor_bytes_per_us < link->bytes_per_us;
    *link = (struct coll_link){.latency_ns = link->latency_ns,
                               .bytes_per_us = copies ? link->processor_bytes_per_us : link->bytes_per_us,
                               .segment_bytes = link->segment_bytes};
}

void sim_group_free(struct sim_group *group)
{
    free(group->hosts);
    free(group->count);
    free(group);
}

static struct coll_blocks make_side(const struct sim_group *group, bool present)
{
    if (!present) return (struct coll_blocks){0};
    return (struct coll_blocks){false, group->count, group->at};
}

struct coll_args sim_args(const struct sim_group *group, int rank)
{
    tutti_kind kind = group->what.kind;
    struct coll_args args = {
        .kind = kind,
        .rank = rank,
        .size = group->what.hosts * group->what.per_host,
        .count = group->count[0],
        .in = make_side(group, tutti_kind_in_blocks(kind) && tutti_kind_has_in(kind, rank, 0)),
        .out = make_side(group, tutti_kind_out_blocks(kind) && tutti_kind_has_out(kind, rank, 0)),
        .even = true,
        .element = ELEMENT,
        .link = &group->link,
        .hosts = group->hosts,
    };
    args.segment = coll_segment(&args);
    return args;
}

double sim_time(const struct sim_group *group, const struct coll_algorithm *algorithm, int64_t max_steps)
{
    int size = group->what.hosts * group->what.per_host;
    struct plan **plans = calloc((size_t)size, sizeof *plans);
    int64_t steps = 0;
    double time = -1;
    for (int rank = 0; rank < size && steps <= max_steps; rank++) {
        struct coll_args args = sim_args(group, rank);
        plans[rank] = coll_build(algorithm, &args, group->what.network->reduce_most / ELEMENT);
        steps += plans[rank]->n_steps;
    }
    if (steps <= max_steps) time = sim_run(group->what.network, plans, group->hosts, size, ELEMENT);
    for (int rank = 0; rank < size; rank++) plan_free(plans[rank]);
    free(plans);
    return time;
}

void sim_judge(const struct sim_case *what, int64_t max_steps, bool assumed, struct sim_result *result)
{
    struct sim_group *group = sim_group_new(what);
    const struct coll_algorithm *next;
    struct coll_args args = sim_args(group, 0);
    double best = INFINITY, taken = INFINITY;
    *result = (struct sim_result){0};
    cost_cheapest(&args, result->estimate);
    if (assumed) forget_details(group);
    const struct coll_algorithm *chosen = coll_select(&args, NULL, NULL);
    for (; (next = coll_nth(what->kind, result->n)) != NULL; result->n++) {
        int i = result->n;
        bool suits = !isinf(result->estimate[i]);
        result->time[i] = suits && max_steps > 0 ? sim_time(group, next, max_steps) : -1;
        double time = result->time[i] >= 0 ? result->time[i] : result->estimate[i];
        if (next == chosen) taken = time;
        if (time >= best) continue;
        best = time;
        result->best = next->name;
    }
    result->chosen = chosen->name;
    result->ratio = taken / best;
    sim_group_free(group);
}
