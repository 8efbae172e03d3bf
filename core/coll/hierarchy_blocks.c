/* Collectives with a block a rank over several hosts.
 *
 * They work on an area in which the blocks of a host's ranks lie one behind the other, host by host: the flat tensor
 * itself where the ranks are numbered so, else scratch.  A host's region is cut between blocks: slice i of it is the
 * blocks from its carrier's on to the next carrier's, so on a host of fewer ranks than slices some are empty.
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

/* Where slice i of a host's region begins; with i = slices where the region ends. */
static int64_t blocks_at(const struct hierarchy *hierarchy, const struct coll_blocks *blocks, int host, int slice)
{
    int place = hierarchy_carrier(hierarchy, host, slice);
    if (place < hierarchy_ranks(hierarchy, host)) return hierarchy->block[hierarchy_rank(hierarchy, host, place)];
    int last = hierarchy_rank(hierarchy, host, place - 1);
    return hierarchy->block[last] + blocks->count[last];
}

/* Fills count and at with what this host's places carry of a host's region, for a part within this one.  This rank's
 * is the result. */
static int64_t blocks_within(struct hierarchy *hierarchy, const struct coll_blocks *blocks, int host)
{
    for (int place = 0; place < hierarchy->n_local; place++) {
        hierarchy->at[place] = blocks_at(hierarchy, blocks, host, hierarchy_first(hierarchy, place));
        hierarchy->count[place] =
            blocks_at(hierarchy, blocks, host, hierarchy_first(hierarchy, place + 1)) - hierarchy->at[place];
    }
    return hierarchy->count[hierarchy->place];
}

/* The same with a slice of all hosts, for a part between its carriers.  alone: what this rank carries lies one behind
 * the other, not in the area. */
static int64_t blocks_between(struct hierarchy *hierarchy, const struct coll_blocks *blocks, int slice, bool alone)
{
    int64_t end = 0;
    for (int host = 0; host < hierarchy->hosts->n; host++) {
        int64_t first = blocks_at(hierarchy, blocks, host, hierarchy->first), at;
        hierarchy->at[host] = at = blocks_at(hierarchy, blocks, host, slice);
        hierarchy->count[host] = blocks_at(hierarchy, blocks, host, slice + 1) - at;
        if (alone) hierarchy->at[host] = end + at - first;
        end += blocks_at(hierarchy, blocks, host, hierarchy->next) - first;
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

/* The other hosts' regions, from what this one's ranks carry of them to all of its ranks. */
static void blocks_spread(struct plan *plan, struct hierarchy *hierarchy, struct area area, int64_t total)
{
    const struct coll_blocks *out = &hierarchy->args->out;
    if (hierarchy->slices == 1) {
        int64_t own = blocks_at(hierarchy, out, hierarchy->host, 0);
        int64_t end = blocks_at(hierarchy, out, hierarchy->host, 1);
        if (hierarchy->host > 0) blocks_broadcast(plan, hierarchy, area.at, own);
        if (hierarchy->host < hierarchy->hosts->n - 1)
            blocks_broadcast(plan, hierarchy, plan_shift(area.at, end), total - end);
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
    for (int slice = hierarchy.first; slice < hierarchy.next; slice++) {
        int64_t n = blocks_between(&hierarchy, &args->out, slice, false);
        struct coll_args part = hierarchy_between(&hierarchy, TUTTI_ALL_GATHER, n);
        hierarchy_across(&hierarchy, slice);
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

/* What this rank carries of all hosts' regions, reduced over this host's ranks, one behind the other: where it begins.
 */
static struct plan_ref blocks_fold(struct plan *plan, struct hierarchy *hierarchy, struct area area, int64_t total)
{
    const struct coll_blocks *in = &hierarchy->args->in;
    int64_t carried = 0;
    if (hierarchy->n_local == 1) return area.at; /* it has them all, and nobody to sum with */
    for (int host = 0; host < hierarchy->hosts->n; host++) carried += blocks_within(hierarchy, in, host);
    struct plan_ref sums = plan_scratch(plan, carried), to = sums;
    if (hierarchy->slices == 1) {
        struct coll_args part = hierarchy_within(hierarchy, TUTTI_REDUCE, total);
        part.in_place = false;
        coll_part(plan, &part, hierarchy->local, area.at, sums);
        return sums;
    }
    for (int host = 0; host < hierarchy->hosts->n; host++) {
        int64_t n = blocks_within(hierarchy, in, host);
        struct coll_args part = hierarchy_within(hierarchy, TUTTI_REDUCE_SCATTER, n);
        part.in_place = false;
        coll_part(plan, &part, hierarchy->local, area.at, to);
        to = plan_shift(to, n);
    }
    return sums;
}

/* The host's blocks, from the leader who carries them all. */
static void blocks_hand_out(struct plan *plan, struct hierarchy *hierarchy, struct plan_ref result)
{
    const struct coll_args *args = hierarchy->args;
    struct coll_args part = hierarchy_within(hierarchy, TUTTI_SCATTER, args->count);
    int64_t end = 0;
    part.even = args->even;
    for (int place = 0; place < hierarchy->n_local; place++) {
        hierarchy->at[place] = end;
        end += hierarchy->count[place] = args->in.count[hierarchy->local[place]];
    }
    coll_part(plan, &part, hierarchy->local, result, plan_at(PLAN_OUT(0), 0));
}

static void blocks_reduce_scatter(struct plan *plan, const struct coll_args *args, bool one)
{
    struct hierarchy hierarchy;
    if (!hierarchy_open(plan, args, one, &hierarchy)) return;
    struct area area = blocks_open(plan, &hierarchy, &args->in, plan_at(PLAN_IN(0), 0));
    struct plan_ref result = plan_at(PLAN_OUT(0), 0);
    int64_t total = 0;
    for (int i = 0; i < args->size; i++) {
        if (!area.direct) plan_copy(plan, plan_shift(area.at, hierarchy.block[i]), coll_in(args, i), args->in.count[i]);
        total += args->in.count[i];
    }
    struct plan_ref sums = blocks_fold(plan, &hierarchy, area, total);
    int64_t own = blocks_within(&hierarchy, &args->in, hierarchy.host), end = 0;
    if (own > args->count) result = plan_scratch(plan, own); /* a leader has the others' blocks, too */
    for (int slice = hierarchy.first; slice < hierarchy.next; slice++) {
        int64_t n = blocks_between(&hierarchy, &args->in, slice, true);
        struct coll_args part = hierarchy_between(&hierarchy, TUTTI_REDUCE_SCATTER, n);
        part.in_place = args->in_place && area.direct && hierarchy.n_local == 1;
        hierarchy_across(&hierarchy, slice);
        coll_part(plan, &part, hierarchy.across, sums, plan_shift(result, end));
        end += n;
    }
    if (hierarchy.slices == 1) blocks_hand_out(plan, &hierarchy, result);
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
