/* Collectives without blocks over several hosts: within a host, between the hosts, within a host. */
#include "hierarchy.h"

#include <stdlib.h>

/* ---- who is where ----------------------------------------------------------------------------------------------- */

int hierarchy_ranks(const struct hierarchy *hierarchy, int host)
{
    return hierarchy->hosts->begin[host + 1] - hierarchy->hosts->begin[host];
}

static bool hierarchy_is_rooted(const struct hierarchy *hierarchy, int host)
{
    const struct coll_args *args = hierarchy->args;
    return (args->kind == TUTTI_BROADCAST || args->kind == TUTTI_REDUCE) && hierarchy->hosts->of[args->root] == host;
}

int hierarchy_rank(const struct hierarchy *hierarchy, int host, int place)
{
    const int *ranks = hierarchy->hosts->rank + hierarchy->hosts->begin[host];
    int shift = 0;
    while (hierarchy_is_rooted(hierarchy, host) && ranks[shift] != hierarchy->args->root) shift++;
    return ranks[ring_rank(place, shift, hierarchy_ranks(hierarchy, host))];
}

int hierarchy_carrier(const struct hierarchy *hierarchy, int host, int flock)
{
    return (int)((int64_t)flock * hierarchy_ranks(hierarchy, host) / hierarchy->slices);
}

static void hierarchy_find(struct hierarchy *hierarchy)
{
    const struct coll_hosts *hosts = hierarchy->hosts;
    hierarchy->host = hosts->of[hierarchy->args->rank];
    hierarchy->n_local = hierarchy_ranks(hierarchy, hierarchy->host);
    for (int place = 0; place < hierarchy->n_local; place++) {
        hierarchy->local[place] = hierarchy_rank(hierarchy, hierarchy->host, place);
        if (hierarchy->local[place] == hierarchy->args->rank) hierarchy->place = place;
    }
    while (hierarchy_carrier(hierarchy, hierarchy->host, hierarchy->flock + 1) <= hierarchy->place) hierarchy->flock++;
    hierarchy->carries = hierarchy_carrier(hierarchy, hierarchy->host, hierarchy->flock) == hierarchy->place;
    for (int host = 0; host < hosts->n; host++)
        hierarchy->across[host] = hierarchy_rank(hierarchy, host, hierarchy_carrier(hierarchy, host, hierarchy->flock));
}

/* All on one host, where nobody knows better. */
static struct coll_hosts *hierarchy_one_host(int size)
{
    int32_t *host = calloc((size_t)size, sizeof *host);
    struct coll_hosts *hosts = host ? coll_hosts_new(host, size) : NULL;
    free(host);
    return hosts;
}

bool hierarchy_open(struct plan *plan, const struct coll_args *args, bool one, struct hierarchy *hierarchy)
{
    size_t size = (size_t)args->size;
    *hierarchy = (struct hierarchy){.args = args, .hosts = args->hosts};
    if (!args->hosts) hierarchy->hosts = hierarchy->own = hierarchy_one_host(args->size);
    hierarchy->count = malloc(size * (3 * sizeof(int64_t) + 2 * sizeof(int)));
    if (!hierarchy->hosts || !hierarchy->count) {
        hierarchy_close(hierarchy);
        if (!plan->error) plan->error = TUTTI_ERR_NO_MEMORY;
        return false;
    }
    hierarchy->at = hierarchy->count + size;
    hierarchy->block = hierarchy->at + size;
    hierarchy->local = (int *)(hierarchy->block + size);
    hierarchy->across = hierarchy->local + size;
    hierarchy->slices = one ? 1 : hierarchy->hosts->least;
    hierarchy_find(hierarchy);
    return true;
}

void hierarchy_close(struct hierarchy *hierarchy)
{
    free(hierarchy->count);
    free(hierarchy->own);
}

/* ---- parts ------------------------------------------------------------------------------------------------------ */

static struct coll_args hierarchy_part(const struct hierarchy *hierarchy, tutti_kind kind, int64_t count)
{
    const struct coll_args *args = hierarchy->args;
    return (struct coll_args){.kind = kind,
                              .count = count,
                              .segment = args->segment,
                              .is_part = true,
                              .in_place = true,
                              .element = args->element,
                              .link = args->link,
                              .build_part = args->build_part,
                              .in = {.count = hierarchy->count, .at = hierarchy->at},
                              .out = {.count = hierarchy->count, .at = hierarchy->at}};
}

struct coll_args hierarchy_within(const struct hierarchy *hierarchy, tutti_kind kind, int64_t count)
{
    struct coll_args part = hierarchy_part(hierarchy, kind, count);
    part.rank = hierarchy->place;
    part.size = hierarchy->n_local;
    return part;
}

struct coll_args hierarchy_between(const struct hierarchy *hierarchy, tutti_kind kind, int64_t count)
{
    struct coll_args part = hierarchy_part(hierarchy, kind, count);
    part.rank = hierarchy->host;
    part.size = hierarchy->hosts->n;
    part.average = hierarchy->args->average;
    return part;
}

void hierarchy_slices(struct hierarchy *hierarchy, int64_t numel)
{
    int64_t at = 0;
    for (int place = 0, i = 0; place < hierarchy->n_local; place++) {
        bool carries = i < hierarchy->slices && hierarchy_carrier(hierarchy, hierarchy->host, i) == place;
        hierarchy->at[place] = at;
        hierarchy->count[place] = carries ? ring_chunk_numel(numel, hierarchy->slices, i++) : 0;
        at += hierarchy->count[place];
    }
}

/* This rank's slice of numel elements: empty where it carries none. */
static int64_t hierarchy_slice(const struct hierarchy *hierarchy, int64_t numel, int64_t *at)
{
    *at = ring_chunk_at(numel, hierarchy->slices, hierarchy->flock + !hierarchy->carries);
    return hierarchy->carries ? ring_chunk_numel(numel, hierarchy->slices, hierarchy->flock) : 0;
}

/* Reduces `in` of the host's ranks; each carrier's slice goes to its `to`.  Where the result is: a rank that is alone
 * on its host has it already. */
static struct plan_ref hierarchy_fold(struct plan *plan, struct hierarchy *hierarchy, struct plan_ref in,
                                      struct plan_ref to, int64_t numel, bool in_place)
{
    int64_t at, n = hierarchy_slice(hierarchy, numel, &at);
    if (hierarchy->n_local == 1) return in;
    bool one = hierarchy->slices == 1;
    struct coll_args part = hierarchy_within(hierarchy, one ? TUTTI_REDUCE : TUTTI_REDUCE_SCATTER, one ? numel : n);
    part.in_place = in_place;
    hierarchy_slices(hierarchy, numel);
    coll_part(plan, &part, hierarchy->local, in, to);
    return to;
}

/* From a slice a carrier to all slices on all of the host's ranks. */
static void hierarchy_spread(struct plan *plan, struct hierarchy *hierarchy, struct plan_ref data, int64_t numel)
{
    int64_t at, n = hierarchy_slice(hierarchy, numel, &at);
    bool one = hierarchy->slices == 1;
    struct coll_args part = hierarchy_within(hierarchy, one ? TUTTI_BROADCAST : TUTTI_ALL_GATHER, one ? numel : n);
    hierarchy_slices(hierarchy, numel);
    coll_part(plan, &part, hierarchy->local, plan_shift(data, at), data);
}

/* ---- all_reduce ------------------------------------------------------------------------------------------------- */

static void hierarchy_all_reduce(struct plan *plan, const struct coll_args *args, bool one)
{
    struct hierarchy hierarchy;
    struct plan_ref in = plan_at(PLAN_IN(0), 0), out = plan_at(PLAN_OUT(0), 0);
    if (!hierarchy_open(plan, args, one, &hierarchy)) return;
    int64_t at, n = hierarchy_slice(&hierarchy, args->count, &at);
    struct plan_ref slice = plan_shift(out, at);
    struct plan_ref have = hierarchy_fold(plan, &hierarchy, in, slice, args->count, args->in_place);
    if (hierarchy.carries) {
        struct coll_args part = hierarchy_between(&hierarchy, TUTTI_ALL_REDUCE, n);
        part.in_place = args->in_place || hierarchy.n_local > 1;
        coll_part(plan, &part, hierarchy.across, have, slice);
    }
    hierarchy_spread(plan, &hierarchy, out, args->count);
    hierarchy_close(&hierarchy);
}

void all_reduce_hierarchical(struct plan *plan, const struct coll_args *args)
{
    hierarchy_all_reduce(plan, args, false);
}

void all_reduce_leaders(struct plan *plan, const struct coll_args *args)
{
    hierarchy_all_reduce(plan, args, true);
}

/* ---- broadcast -------------------------------------------------------------------------------------------------- */

/* Root's host gets it from root, so that its carriers have their slices; the carriers hand them to the other hosts. */
static void hierarchy_broadcast(struct plan *plan, const struct coll_args *args, bool one)
{
    struct hierarchy hierarchy;
    struct plan_ref data = plan_at(PLAN_OUT(0), 0);
    if (!hierarchy_open(plan, args, one, &hierarchy)) return;
    int64_t at, n = hierarchy_slice(&hierarchy, args->count, &at);
    int from = hierarchy.hosts->of[args->root];
    if (hierarchy.host == from) {
        struct coll_args part = hierarchy_within(&hierarchy, TUTTI_BROADCAST, args->count);
        coll_part(plan, &part, hierarchy.local, data, data);
    }
    if (hierarchy.carries) {
        struct coll_args part = hierarchy_between(&hierarchy, TUTTI_BROADCAST, n);
        part.root = from;
        coll_part(plan, &part, hierarchy.across, plan_shift(data, at), plan_shift(data, at));
    }
    if (hierarchy.host != from) hierarchy_spread(plan, &hierarchy, data, args->count);
    hierarchy_close(&hierarchy);
}

void broadcast_hierarchical(struct plan *plan, const struct coll_args *args)
{
    hierarchy_broadcast(plan, args, false);
}

void broadcast_leaders(struct plan *plan, const struct coll_args *args)
{
    hierarchy_broadcast(plan, args, true);
}

/* ---- reduce ----------------------------------------------------------------------------------------------------- */

/* Root's carriers gather their slices at root; all but root sum in scratch, a slice of it. */
static void hierarchy_reduce(struct plan *plan, const struct coll_args *args, bool one)
{
    struct hierarchy hierarchy;
    struct plan_ref in = plan_at(PLAN_IN(0), 0), out = plan_at(PLAN_OUT(0), 0);
    if (!hierarchy_open(plan, args, one, &hierarchy)) return;
    bool root = args->rank == args->root, near = hierarchy.hosts->of[args->root] == hierarchy.host;
    int64_t at, n = hierarchy_slice(&hierarchy, args->count, &at);
    struct plan_ref slice = root ? plan_shift(out, at) : plan_scratch(plan, n);
    struct plan_ref have = hierarchy_fold(plan, &hierarchy, in, slice, args->count, root && args->in_place);
    if (hierarchy.carries) {
        struct coll_args part = hierarchy_between(&hierarchy, TUTTI_REDUCE, n);
        part.root = hierarchy.hosts->of[args->root];
        part.in_place = near && (hierarchy.n_local > 1 || args->in_place);
        coll_part(plan, &part, hierarchy.across, have, slice);
    }
    if (near && hierarchy.slices > 1) {
        struct coll_args part = hierarchy_within(&hierarchy, TUTTI_GATHER, n);
        hierarchy_slices(&hierarchy, args->count);
        coll_part(plan, &part, hierarchy.local, slice, out);
    }
    hierarchy_close(&hierarchy);
}

void reduce_hierarchical(struct plan *plan, const struct coll_args *args)
{
    hierarchy_reduce(plan, args, false);
}

void reduce_leaders(struct plan *plan, const struct coll_args *args)
{
    hierarchy_reduce(plan, args, true);
}

/* ---- barrier ---------------------------------------------------------------------------------------------------- */

/* Empty messages to the leader, between the leaders, and back. */
void barrier_leaders(struct plan *plan, const struct coll_args *args)
{
    struct hierarchy hierarchy;
    struct plan_ref nothing = plan_at(PLAN_SCRATCH, 0);
    if (!hierarchy_open(plan, args, true, &hierarchy)) return;
    hierarchy_fold(plan, &hierarchy, nothing, nothing, 0, false);
    if (hierarchy.carries) {
        struct coll_args part = hierarchy_between(&hierarchy, TUTTI_BARRIER, 0);
        coll_part(plan, &part, hierarchy.across, nothing, nothing);
    }
    hierarchy_spread(plan, &hierarchy, nothing, 0);
    hierarchy_close(&hierarchy);
}
