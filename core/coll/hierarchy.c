/* Collectives without blocks over several hosts.  Each runs a part within each host, a part between hosts, and another
 * part within each host. */
#include "hierarchy.h"

#include <stdlib.h>

/* ---- positions -------------------------------------------------------------------------------------------------- */

int hierarchy_ranks(const struct hierarchy *hierarchy, int host)
{
    return hierarchy->hosts->begin[host + 1] - hierarchy->hosts->begin[host];
}

static bool contains_root(const struct hierarchy *hierarchy, int host)
{
    const struct coll_args *args = hierarchy->args;
    return (args->kind == TUTTI_BROADCAST || args->kind == TUTTI_REDUCE) && hierarchy->hosts->of[args->root] == host;
}

int hierarchy_rank(const struct hierarchy *hierarchy, int host, int index)
{
    const int *ranks = hierarchy->hosts->rank + hierarchy->hosts->begin[host];
    int shift = 0;
    while (contains_root(hierarchy, host) && ranks[shift] != hierarchy->args->root) shift++;
    return ranks[ring_rank(index, shift, hierarchy_ranks(hierarchy, host))];
}

int hierarchy_leader(const struct hierarchy *hierarchy, int host, int lane)
{
    return (int)((int64_t)lane * hierarchy_ranks(hierarchy, host) / hierarchy->slices);
}

static void locate_rank(struct hierarchy *hierarchy)
{
    const struct coll_hosts *hosts = hierarchy->hosts;
    hierarchy->host = hosts->of[hierarchy->args->rank];
    hierarchy->n_local = hierarchy_ranks(hierarchy, hierarchy->host);
    for (int index = 0; index < hierarchy->n_local; index++) {
        hierarchy->local[index] = hierarchy_rank(hierarchy, hierarchy->host, index);
        if (hierarchy->local[index] == hierarchy->args->rank) hierarchy->index = index;
    }
    while (hierarchy_leader(hierarchy, hierarchy->host, hierarchy->lane + 1) <= hierarchy->index) hierarchy->lane++;
    hierarchy->is_leader = hierarchy_leader(hierarchy, hierarchy->host, hierarchy->lane) == hierarchy->index;
    for (int host = 0; host < hosts->n; host++)
        hierarchy->across[host] = hierarchy_rank(hierarchy, host, hierarchy_leader(hierarchy, host, hierarchy->lane));
}

/* Returns a table with all ranks on one host, for backends that do not report hosts. */
static struct coll_hosts *assume_one_host(int size)
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
    if (!args->hosts) hierarchy->hosts = hierarchy->own = assume_one_host(args->size);
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
    locate_rank(hierarchy);
    return true;
}

void hierarchy_close(struct hierarchy *hierarchy)
{
    free(hierarchy->count);
    free(hierarchy->own);
}

/* ---- parts ------------------------------------------------------------------------------------------------------ */

static struct coll_args init_part(const struct hierarchy *hierarchy, tutti_kind kind, int64_t count)
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
    struct coll_args part = init_part(hierarchy, kind, count);
    part.rank = hierarchy->index;
    part.size = hierarchy->n_local;
    return part;
}

struct coll_args hierarchy_between(const struct hierarchy *hierarchy, tutti_kind kind, int64_t count)
{
    struct coll_args part = init_part(hierarchy, kind, count);
    part.rank = hierarchy->host;
    part.size = hierarchy->hosts->n;
    part.lanes = hierarchy->slices;
    part.average = hierarchy->args->average;
    return part;
}

void hierarchy_slices(struct hierarchy *hierarchy, int64_t numel)
{
    int64_t at = 0;
    for (int index = 0, i = 0; index < hierarchy->n_local; index++) {
        bool is_leader = i < hierarchy->slices && hierarchy_leader(hierarchy, hierarchy->host, i) == index;
        hierarchy->at[index] = at;
        hierarchy->count[index] = is_leader ? ring_chunk_numel(numel, hierarchy->slices, i++) : 0;
        at += hierarchy->count[index];
    }
}

/* Returns the size of this rank's slice of numel elements and its offset; 0 if this rank is not a leader. */
static int64_t find_own_slice(const struct hierarchy *hierarchy, int64_t numel, int64_t *at)
{
    *at = ring_chunk_at(numel, hierarchy->slices, hierarchy->lane + !hierarchy->is_leader);
    return hierarchy->is_leader ? ring_chunk_numel(numel, hierarchy->slices, hierarchy->lane) : 0;
}

/* Reduces `in` of the host's ranks; each leader's slice goes to its `to`.  Returns the location of the result, which is
 * `in` for a rank that is alone on its host. */
static struct plan_ref reduce_within(struct plan *plan, struct hierarchy *hierarchy, struct plan_ref in,
                                     struct plan_ref to, int64_t numel, bool in_place)
{
    int64_t at, n = find_own_slice(hierarchy, numel, &at);
    if (hierarchy->n_local == 1) return in;
    bool one = hierarchy->slices == 1;
    struct coll_args part = hierarchy_within(hierarchy, one ? TUTTI_REDUCE : TUTTI_REDUCE_SCATTER, one ? numel : n);
    part.in_place = in_place;
    hierarchy_slices(hierarchy, numel);
    coll_part(plan, &part, hierarchy->local, in, to);
    return to;
}

/* Distributes one slice per leader to all ranks of the host. */
static void gather_within(struct plan *plan, struct hierarchy *hierarchy, struct plan_ref data, int64_t numel)
{
    int64_t at, n = find_own_slice(hierarchy, numel, &at);
    bool one = hierarchy->slices == 1;
    struct coll_args part = hierarchy_within(hierarchy, one ? TUTTI_BROADCAST : TUTTI_ALL_GATHER, one ? numel : n);
    hierarchy_slices(hierarchy, numel);
    coll_part(plan, &part, hierarchy->local, plan_shift(data, at), data);
}

/* ---- all_reduce ------------------------------------------------------------------------------------------------- */

static void append_all_reduce(struct plan *plan, const struct coll_args *args, bool one)
{
    struct hierarchy hierarchy;
    struct plan_ref in = plan_at(PLAN_IN(0), 0), out = plan_at(PLAN_OUT(0), 0);
    if (!hierarchy_open(plan, args, one, &hierarchy)) return;
    int64_t at, n = find_own_slice(&hierarchy, args->count, &at);
    struct plan_ref slice = plan_shift(out, at);
    struct plan_ref partial = reduce_within(plan, &hierarchy, in, slice, args->count, args->in_place);
    if (hierarchy.is_leader) {
        struct coll_args part = hierarchy_between(&hierarchy, TUTTI_ALL_REDUCE, n);
        part.in_place = args->in_place || hierarchy.n_local > 1;
        coll_part(plan, &part, hierarchy.across, partial, slice);
    }
    gather_within(plan, &hierarchy, out, args->count);
    hierarchy_close(&hierarchy);
}

void all_reduce_hierarchical(struct plan *plan, const struct coll_args *args)
{
    append_all_reduce(plan, args, false);
}

void all_reduce_leaders(struct plan *plan, const struct coll_args *args)
{
    append_all_reduce(plan, args, true);
}

/* ---- broadcast -------------------------------------------------------------------------------------------------- */

/* Broadcasts first on root's host, so that its leaders have their slices.  They then send them to the other hosts. */
static void append_broadcast(struct plan *plan, const struct coll_args *args, bool one)
{
    struct hierarchy hierarchy;
    struct plan_ref data = plan_at(PLAN_OUT(0), 0);
    if (!hierarchy_open(plan, args, one, &hierarchy)) return;
    int64_t at, n = find_own_slice(&hierarchy, args->count, &at);
    int from = hierarchy.hosts->of[args->root];
    if (hierarchy.host == from) {
        struct coll_args part = hierarchy_within(&hierarchy, TUTTI_BROADCAST, args->count);
        coll_part(plan, &part, hierarchy.local, data, data);
    }
    if (hierarchy.is_leader) {
        struct coll_args part = hierarchy_between(&hierarchy, TUTTI_BROADCAST, n);
        part.root = from;
        coll_part(plan, &part, hierarchy.across, plan_shift(data, at), plan_shift(data, at));
    }
    if (hierarchy.host != from) gather_within(plan, &hierarchy, data, args->count);
    hierarchy_close(&hierarchy);
}

void broadcast_hierarchical(struct plan *plan, const struct coll_args *args)
{
    append_broadcast(plan, args, false);
}

void broadcast_leaders(struct plan *plan, const struct coll_args *args)
{
    append_broadcast(plan, args, true);
}

/* ---- reduce ----------------------------------------------------------------------------------------------------- */

/* Reduces to the leaders on root's host, from which root gathers the slices.  All ranks but root sum in scratch, of the
 * size of a slice. */
static void append_reduce(struct plan *plan, const struct coll_args *args, bool one)
{
    struct hierarchy hierarchy;
    struct plan_ref in = plan_at(PLAN_IN(0), 0), out = plan_at(PLAN_OUT(0), 0);
    if (!hierarchy_open(plan, args, one, &hierarchy)) return;
    bool root = args->rank == args->root, near = hierarchy.hosts->of[args->root] == hierarchy.host;
    int64_t at, n = find_own_slice(&hierarchy, args->count, &at);
    struct plan_ref slice = root ? plan_shift(out, at) : plan_scratch(plan, n);
    struct plan_ref partial = reduce_within(plan, &hierarchy, in, slice, args->count, root && args->in_place);
    if (hierarchy.is_leader) {
        struct coll_args part = hierarchy_between(&hierarchy, TUTTI_REDUCE, n);
        part.root = hierarchy.hosts->of[args->root];
        part.in_place = near && (hierarchy.n_local > 1 || args->in_place);
        coll_part(plan, &part, hierarchy.across, partial, slice);
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
    append_reduce(plan, args, false);
}

void reduce_leaders(struct plan *plan, const struct coll_args *args)
{
    append_reduce(plan, args, true);
}

/* ---- barrier ---------------------------------------------------------------------------------------------------- */

/* Sends empty messages to the leader, between the leaders, and back. */
void barrier_leaders(struct plan *plan, const struct coll_args *args)
{
    struct hierarchy hierarchy;
    struct plan_ref nothing = plan_at(PLAN_SCRATCH, 0);
    if (!hierarchy_open(plan, args, true, &hierarchy)) return;
    reduce_within(plan, &hierarchy, nothing, nothing, 0, false);
    if (hierarchy.is_leader) {
        struct coll_args part = hierarchy_between(&hierarchy, TUTTI_BARRIER, 0);
        coll_part(plan, &part, hierarchy.across, nothing, nothing);
    }
    gather_within(plan, &hierarchy, nothing, 0);
    hierarchy_close(&hierarchy);
}
