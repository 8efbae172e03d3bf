/* Collectives with a block a rank over several hosts.
 *
 * They work on an area in which the blocks of a host's ranks lie one behind the other, host by host: the flat tensor
 * itself where the ranks are numbered so, else scratch.  A host's region is cut between flocks, so each slice of it is
 * the blocks of one flock, and its carrier has to do with nobody else within the host for it.
 */
#include "hierarchy.h"

struct area {
    struct plan_ref at;
    bool direct; /* it is the tensor */
};

/* Whether each host's ranks follow each other: hosts are in the order of their first ranks, so then all blocks do. */
static bool blocks_in_order(const struct hierarchy *hierarchy)
{
    for (int i = 0; i < hierarchy->args->size; i++)
        if (hierarchy->hosts->rank[i] != i) return false;
    return true;
}

static struct area blocks_open(struct plan *plan, struct hierarchy *hierarchy, const struct coll_blocks *blocks,
                               struct plan_ref flat)
{
    struct area area = {flat, !blocks->list && blocks_in_order(hierarchy)};
    int64_t at = 0;
    for (int i = 0; i < hierarchy->args->size; i++) {
        int rank = hierarchy->hosts->rank[i];
        hierarchy->block[rank] = at;
        at += blocks->count[rank];
    }
    if (!area.direct) area.at = plan_scratch(plan, at);
    return area;
}

/* The blocks of the flocks before flock i of a host, or with i = slices all of the host's, end there. */
static int64_t blocks_end(const struct hierarchy *hierarchy, const struct coll_blocks *blocks, int host, int flock)
{
    int place = hierarchy_carrier(hierarchy, host, flock);
    if (place < hierarchy_ranks(hierarchy, host)) return hierarchy->block[hierarchy_rank(hierarchy, host, place)];
    int last = hierarchy_rank(hierarchy, host, place - 1);
    return hierarchy->block[last] + blocks->count[last];
}

/* Slice i of a host's region. */
static int64_t blocks_slice(const struct hierarchy *hierarchy, const struct coll_blocks *blocks, int host, int flock,
                            int64_t *at)
{
    *at = blocks_end(hierarchy, blocks, host, flock);
    return blocks_end(hierarchy, blocks, host, flock + 1) - *at;
}

/* Fills count and at with a host's slices, for a part within this one in which only carriers have a block.  This rank's
 * is the result. */
static int64_t blocks_within(struct hierarchy *hierarchy, const struct coll_blocks *blocks, int host)
{
    int64_t end = blocks_end(hierarchy, blocks, host, 0);
    for (int place = 0, i = 0; place < hierarchy->n_local; place++) {
        hierarchy->at[place] = end;
        hierarchy->count[place] = 0;
        if (i == hierarchy->slices || hierarchy_carrier(hierarchy, hierarchy->host, i) != place) continue;
        hierarchy->count[place] = blocks_slice(hierarchy, blocks, host, i++, &hierarchy->at[place]);
        end += hierarchy->count[place];
    }
    return hierarchy->count[hierarchy->place];
}

/* The same for a part between this flock's carriers; alone: these slices lie one behind the other, not in the area. */
static int64_t blocks_between(struct hierarchy *hierarchy, const struct coll_blocks *blocks, bool alone)
{
    int64_t end = 0;
    for (int host = 0; host < hierarchy->hosts->n; host++) {
        hierarchy->count[host] = blocks_slice(hierarchy, blocks, host, hierarchy->flock, &hierarchy->at[host]);
        if (alone) hierarchy->at[host] = end;
        end += hierarchy->count[host];
    }
    return hierarchy->count[hierarchy->host];
}

/* ---- all_gather ------------------------------------------------------------------------------------------------- */

/* The blocks of the host's ranks, to all of them. */
static void blocks_exchange(struct plan *plan, struct hierarchy *hierarchy, struct area area)
{
    const struct coll_args *args = hierarchy->args;
    struct coll_args part = hierarchy_within(hierarchy, TUTTI_ALL_GATHER, args->count);
    part.even = args->even;
    for (int place = 0; place < hierarchy->n_local; place++) {
        hierarchy->count[place] = args->out.count[hierarchy->local[place]];
        hierarchy->at[place] = hierarchy->block[hierarchy->local[place]];
    }
    coll_part(plan, &part, hierarchy->local, plan_at(PLAN_IN(0), 0), area.at);
}

/* A run of regions, from the leader. */
static void blocks_broadcast(struct plan *plan, struct hierarchy *hierarchy, struct plan_ref data, int64_t numel)
{
    struct coll_args part = hierarchy_within(hierarchy, TUTTI_BROADCAST, numel);
    coll_part(plan, &part, hierarchy->local, data, data);
}

/* The other hosts' regions, from slices on this one's carriers to all of its ranks. */
static void blocks_spread(struct plan *plan, struct hierarchy *hierarchy, struct area area, int64_t total)
{
    const struct coll_blocks *out = &hierarchy->args->out;
    if (hierarchy->slices == 1) {
        int64_t own, n = blocks_slice(hierarchy, out, hierarchy->host, 0, &own);
        if (hierarchy->host > 0) blocks_broadcast(plan, hierarchy, area.at, own);
        if (hierarchy->host < hierarchy->hosts->n - 1)
            blocks_broadcast(plan, hierarchy, plan_shift(area.at, own + n), total - own - n);
        return;
    }
    for (int host = 0; host < hierarchy->hosts->n; host++) {
        if (host == hierarchy->host) continue;
        int64_t n = blocks_within(hierarchy, out, host);
        struct coll_args part = hierarchy_within(hierarchy, TUTTI_ALL_GATHER, n);
        coll_part(plan, &part, hierarchy->local, plan_shift(area.at, hierarchy->at[hierarchy->place]), area.at);
    }
}

static void blocks_all_gather(struct plan *plan, const struct coll_args *args, bool one)
{
    struct hierarchy hierarchy;
    if (!hierarchy_open(plan, args, one, &hierarchy)) return;
    struct area area = blocks_open(plan, &hierarchy, &args->out, plan_at(PLAN_OUT(0), 0));
    int64_t total = 0;
    for (int i = 0; i < args->size; i++) total += args->out.count[i];
    blocks_exchange(plan, &hierarchy, area);
    if (hierarchy.carries) {
        int64_t n = blocks_between(&hierarchy, &args->out, false);
        struct coll_args part = hierarchy_between(&hierarchy, TUTTI_ALL_GATHER, n);
        coll_part(plan, &part, hierarchy.across, plan_shift(area.at, hierarchy.at[hierarchy.host]), area.at);
    }
    blocks_spread(plan, &hierarchy, area, total);
    for (int i = 0; i < args->size && !area.direct; i++)
        plan_copy(plan, coll_out(args, i),
                  i == args->rank ? plan_at(PLAN_IN(0), 0) : plan_shift(area.at, hierarchy.block[i]),
                  args->out.count[i]);
    hierarchy_close(&hierarchy);
}

void all_gather_hierarchical(struct plan *plan, const struct coll_args *args)
{
    blocks_all_gather(plan, args, false);
}

void all_gather_leaders(struct plan *plan, const struct coll_args *args)
{
    blocks_all_gather(plan, args, true);
}

/* ---- reduce_scatter --------------------------------------------------------------------------------------------- */

/* This flock's slices of all hosts, reduced over this one's ranks, one behind the other: where they begin. */
static struct plan_ref blocks_fold(struct plan *plan, struct hierarchy *hierarchy, struct area area, int64_t total)
{
    const struct coll_blocks *in = &hierarchy->args->in;
    int64_t at, end = 0;
    if (hierarchy->n_local == 1) return area.at; /* it has them all, and nobody to sum with */
    if (hierarchy->slices == 1) {
        struct plan_ref sums = plan_scratch(plan, hierarchy->carries ? total : 0);
        struct coll_args part = hierarchy_within(hierarchy, TUTTI_REDUCE, total);
        part.in_place = false;
        coll_part(plan, &part, hierarchy->local, area.at, sums);
        return sums;
    }
    for (int host = 0; host < hierarchy->hosts->n && hierarchy->carries; host++)
        end += blocks_slice(hierarchy, in, host, hierarchy->flock, &at);
    struct plan_ref sums = plan_scratch(plan, end), to = sums;
    for (int host = 0; host < hierarchy->hosts->n; host++) {
        int64_t n = blocks_within(hierarchy, in, host);
        struct coll_args part = hierarchy_within(hierarchy, TUTTI_REDUCE_SCATTER, n);
        part.in_place = false;
        coll_part(plan, &part, hierarchy->local, area.at, to);
        to = plan_shift(to, n);
    }
    return sums;
}

/* The result of this rank's flock, from its carrier to the others. */
static void blocks_hand_out(struct plan *plan, struct hierarchy *hierarchy, struct plan_ref slice)
{
    const struct coll_args *args = hierarchy->args;
    int first = hierarchy_carrier(hierarchy, hierarchy->host, hierarchy->flock);
    struct coll_args part = hierarchy_within(hierarchy, TUTTI_SCATTER, args->count);
    part.rank = hierarchy->place - first;
    part.size = hierarchy_carrier(hierarchy, hierarchy->host, hierarchy->flock + 1) - first;
    part.even = args->even;
    int64_t end = 0;
    for (int i = 0; i < part.size; i++) {
        hierarchy->at[i] = end;
        end += hierarchy->count[i] = args->in.count[hierarchy->local[first + i]];
    }
    coll_part(plan, &part, hierarchy->local + first, slice, plan_at(PLAN_OUT(0), 0));
}

static void blocks_reduce_scatter(struct plan *plan, const struct coll_args *args, bool one)
{
    struct hierarchy hierarchy;
    if (!hierarchy_open(plan, args, one, &hierarchy)) return;
    struct area area = blocks_open(plan, &hierarchy, &args->in, plan_at(PLAN_IN(0), 0));
    struct plan_ref slice = plan_at(PLAN_OUT(0), 0);
    int64_t total = 0;
    for (int i = 0; i < args->size; i++) {
        if (!area.direct) plan_copy(plan, plan_shift(area.at, hierarchy.block[i]), coll_in(args, i), args->in.count[i]);
        total += args->in.count[i];
    }
    struct plan_ref sums = blocks_fold(plan, &hierarchy, area, total);
    if (hierarchy.carries) {
        int64_t n = blocks_between(&hierarchy, &args->in, true);
        struct coll_args part = hierarchy_between(&hierarchy, TUTTI_REDUCE_SCATTER, n);
        part.in_place = args->in_place && area.direct && hierarchy.n_local == 1;
        if (n > args->count) slice = plan_scratch(plan, n); /* the others' blocks, too */
        coll_part(plan, &part, hierarchy.across, sums, slice);
    }
    blocks_hand_out(plan, &hierarchy, slice);
    hierarchy_close(&hierarchy);
}

void reduce_scatter_hierarchical(struct plan *plan, const struct coll_args *args)
{
    blocks_reduce_scatter(plan, args, false);
}

void reduce_scatter_leaders(struct plan *plan, const struct coll_args *args)
{
    blocks_reduce_scatter(plan, args, true);
}
