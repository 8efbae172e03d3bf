/* Collectives with one block per rank over several hosts.
 *
 * They work on an area in which the blocks of a host's ranks are consecutive, host by host: the flat tensor itself if
 * the ranks are numbered in that order, else scratch.  A host's region is cut between lanes, so each slice of it is the
 * blocks of one lane, and its leader needs no other rank of the host for it. */
#include "hierarchy.h"

struct area {
    struct plan_ref at;
    bool direct; /* the area is the tensor itself; hosts are in the order of their first ranks, so blocks are too */
};

static struct area open_area(struct plan *plan, struct hierarchy *hierarchy, const struct coll_blocks *blocks,
                             struct plan_ref flat)
{
    struct area area = {flat, !blocks->list && hierarchy->hosts->in_order};
    int64_t at = 0;
    for (int i = 0; i < hierarchy->args->size; i++) {
        int rank = hierarchy->hosts->rank[i];
        hierarchy->block[rank] = at;
        at += blocks->count[rank];
    }
    if (!area.direct) area.at = plan_scratch(plan, at);
    return area;
}

/* Returns the offset of lane i of a host in the area; for i = slices the end of the host's region. */
static int64_t lane_offset(const struct hierarchy *hierarchy, const struct coll_blocks *blocks, int host, int lane)
{
    int index = hierarchy_leader(hierarchy, host, lane);
    if (index < hierarchy_ranks(hierarchy, host)) return hierarchy->block[hierarchy_rank(hierarchy, host, index)];
    int last = hierarchy_rank(hierarchy, host, index - 1);
    return hierarchy->block[last] + blocks->count[last];
}

/* Returns the size of slice i of a host's region, and its offset. */
static int64_t find_slice(const struct hierarchy *hierarchy, const struct coll_blocks *blocks, int host, int lane,
                          int64_t *at)
{
    *at = lane_offset(hierarchy, blocks, host, lane);
    return lane_offset(hierarchy, blocks, host, lane + 1) - *at;
}

/* Fills count and at with a host's slices, for a part within this host in which only leaders have a block.  Returns the
 * size of this rank's slice. */
static int64_t set_slices_within(struct hierarchy *hierarchy, const struct coll_blocks *blocks, int host)
{
    int64_t end = lane_offset(hierarchy, blocks, host, 0);
    for (int index = 0, i = 0; index < hierarchy->n_local; index++) {
        hierarchy->at[index] = end;
        hierarchy->count[index] = 0;
        if (i == hierarchy->slices || hierarchy_leader(hierarchy, hierarchy->host, i) != index) continue;
        hierarchy->count[index] = find_slice(hierarchy, blocks, host, i++, &hierarchy->at[index]);
        end += hierarchy->count[index];
    }
    return hierarchy->count[hierarchy->index];
}

/* Does the same for a part between this lane's leaders.  alone: these slices are consecutive, not in the area. */
static int64_t set_slices_between(struct hierarchy *hierarchy, const struct coll_blocks *blocks, bool alone)
{
    int64_t end = 0;
    for (int host = 0; host < hierarchy->hosts->n; host++) {
        hierarchy->count[host] = find_slice(hierarchy, blocks, host, hierarchy->lane, &hierarchy->at[host]);
        if (alone) hierarchy->at[host] = end;
        end += hierarchy->count[host];
    }
    return hierarchy->count[hierarchy->host];
}

/* ---- all_gather ------------------------------------------------------------------------------------------------- */

/* Gathers the blocks of the host's ranks on all of them. */
static void gather_own_host(struct plan *plan, struct hierarchy *hierarchy, struct area area)
{
    const struct coll_args *args = hierarchy->args;
    struct coll_args part = hierarchy_within(hierarchy, TUTTI_ALL_GATHER, args->count);
    part.even = args->even;
    for (int index = 0; index < hierarchy->n_local; index++) {
        hierarchy->count[index] = args->out.count[hierarchy->local[index]];
        hierarchy->at[index] = hierarchy->block[hierarchy->local[index]];
    }
    coll_part(plan, &part, hierarchy->local, plan_at(PLAN_IN(0), 0), area.at);
}

/* Broadcasts consecutive regions from the leader. */
static void broadcast_within(struct plan *plan, struct hierarchy *hierarchy, struct plan_ref data, int64_t numel)
{
    struct coll_args part = hierarchy_within(hierarchy, TUTTI_BROADCAST, numel);
    coll_part(plan, &part, hierarchy->local, data, data);
}

/* Distributes the other hosts' regions to all ranks of this host.  The host's leaders hold slices of them. */
static void gather_other_hosts(struct plan *plan, struct hierarchy *hierarchy, struct area area, int64_t total)
{
    const struct coll_blocks *out = &hierarchy->args->out;
    if (hierarchy->slices == 1) {
        int64_t own, n = find_slice(hierarchy, out, hierarchy->host, 0, &own);
        if (hierarchy->host > 0) broadcast_within(plan, hierarchy, area.at, own);
        if (hierarchy->host < hierarchy->hosts->n - 1)
            broadcast_within(plan, hierarchy, plan_shift(area.at, own + n), total - own - n);
        return;
    }
    for (int host = 0; host < hierarchy->hosts->n; host++) {
        if (host == hierarchy->host) continue;
        int64_t n = set_slices_within(hierarchy, out, host);
        struct coll_args part = hierarchy_within(hierarchy, TUTTI_ALL_GATHER, n);
        coll_part(plan, &part, hierarchy->local, plan_shift(area.at, hierarchy->at[hierarchy->index]), area.at);
    }
}

static void append_all_gather(struct plan *plan, const struct coll_args *args, bool one)
{
    struct hierarchy hierarchy;
    if (!hierarchy_open(plan, args, one, &hierarchy)) return;
    struct area area = open_area(plan, &hierarchy, &args->out, plan_at(PLAN_OUT(0), 0));
    int64_t total = ring_sum(args->out.count, args->size);
    gather_own_host(plan, &hierarchy, area);
    if (hierarchy.is_leader) {
        int64_t n = set_slices_between(&hierarchy, &args->out, false);
        struct coll_args part = hierarchy_between(&hierarchy, TUTTI_ALL_GATHER, n);
        coll_part(plan, &part, hierarchy.across, plan_shift(area.at, hierarchy.at[hierarchy.host]), area.at);
    }
    gather_other_hosts(plan, &hierarchy, area, total);
    for (int i = 0; i < args->size && !area.direct; i++)
        plan_copy(plan, coll_out(args, i),
                  i == args->rank ? plan_at(PLAN_IN(0), 0) : plan_shift(area.at, hierarchy.block[i]),
                  args->out.count[i]);
    hierarchy_close(&hierarchy);
}

void all_gather_hierarchical(struct plan *plan, const struct coll_args *args)
{
    append_all_gather(plan, args, false);
}

void all_gather_leaders(struct plan *plan, const struct coll_args *args)
{
    append_all_gather(plan, args, true);
}

/* ---- reduce_scatter --------------------------------------------------------------------------------------------- */

/* Reduces this lane's slices of all hosts over the ranks of this host.  Returns the location of the consecutive
 * results.  Each host begins with the slices of the next one, so that the hosts do not all send to the same host. */
static struct plan_ref reduce_within(struct plan *plan, struct hierarchy *hierarchy, struct area area, int64_t total)
{
    const struct coll_blocks *in = &hierarchy->args->in;
    int64_t at, end = 0, next = 0;
    int n_hosts = hierarchy->hosts->n;
    if (hierarchy->n_local == 1) return area.at; /* the only rank of the host has its input already */
    if (hierarchy->slices == 1) {
        struct plan_ref sums = plan_scratch(plan, hierarchy->is_leader ? total : 0);
        struct coll_args part = hierarchy_within(hierarchy, TUTTI_REDUCE, total);
        part.in_place = false;
        coll_part(plan, &part, hierarchy->local, area.at, sums);
        return sums;
    }
    for (int host = 0; host < n_hosts && hierarchy->is_leader; host++) {
        end += find_slice(hierarchy, in, host, hierarchy->lane, &at);
        if (host == hierarchy->host) next = end;
    }
    struct plan_ref sums = plan_scratch(plan, end), to = plan_shift(sums, next);
    for (int i = 1; i <= n_hosts; i++) {
        int host = (hierarchy->host + i) % n_hosts;
        if (host == 0) to = sums;
        int64_t n = set_slices_within(hierarchy, in, host);
        struct coll_args part = hierarchy_within(hierarchy, TUTTI_REDUCE_SCATTER, n);
        part.in_place = false;
        coll_part(plan, &part, hierarchy->local, area.at, to);
        to = plan_shift(to, n);
    }
    return sums;
}

/* Scatters the result of this rank's lane from its leader. */
static void scatter_result(struct plan *plan, struct hierarchy *hierarchy, struct plan_ref slice)
{
    const struct coll_args *args = hierarchy->args;
    int first = hierarchy_leader(hierarchy, hierarchy->host, hierarchy->lane);
    struct coll_args part = hierarchy_within(hierarchy, TUTTI_SCATTER, args->count);
    part.rank = hierarchy->index - first;
    part.size = hierarchy_leader(hierarchy, hierarchy->host, hierarchy->lane + 1) - first;
    part.even = args->even;
    int64_t end = 0;
    for (int i = 0; i < part.size; i++) {
        hierarchy->at[i] = end;
        end += hierarchy->count[i] = args->in.count[hierarchy->local[first + i]];
    }
    coll_part(plan, &part, hierarchy->local + first, slice, plan_at(PLAN_OUT(0), 0));
}

static void append_reduce_scatter(struct plan *plan, const struct coll_args *args, bool one)
{
    struct hierarchy hierarchy;
    if (!hierarchy_open(plan, args, one, &hierarchy)) return;
    struct area area = open_area(plan, &hierarchy, &args->in, plan_at(PLAN_IN(0), 0));
    struct plan_ref slice = plan_at(PLAN_OUT(0), 0);
    for (int i = 0; i < args->size && !area.direct; i++)
        plan_copy(plan, plan_shift(area.at, hierarchy.block[i]), coll_in(args, i), args->in.count[i]);
    struct plan_ref sums = reduce_within(plan, &hierarchy, area, ring_sum(args->in.count, args->size));
    if (hierarchy.is_leader) {
        int64_t n = set_slices_between(&hierarchy, &args->in, true);
        struct coll_args part = hierarchy_between(&hierarchy, TUTTI_REDUCE_SCATTER, n);
        part.in_place = args->in_place && area.direct && hierarchy.n_local == 1;
        if (n > args->count) slice = plan_scratch(plan, n); /* includes the blocks of the lane's other ranks */
        coll_part(plan, &part, hierarchy.across, sums, slice);
    }
    scatter_result(plan, &hierarchy, slice);
    hierarchy_close(&hierarchy);
}

void reduce_scatter_hierarchical(struct plan *plan, const struct coll_args *args)
{
    append_reduce_scatter(plan, args, false);
}

void reduce_scatter_leaders(struct plan *plan, const struct coll_args *args)
{
    append_reduce_scatter(plan, args, true);
}
