/* All-reduce in which four ranks at a time exchange their sums: half as many rounds as recursive doubling, with three
 * messages each (Ruefenacht, Bull, Booth, "Generalisation of recursive doubling for allreduce", 2017).
 *
 * All four add in the order of their positions, so every rank gets the same bits.  Ranks beyond a power of two are
 * folded, and a last round of two remains if the power is an odd one. */
#include "parts.h"

enum { WAYS = 4 };

/* Adds x[0] + .. + x[ways - 1] in this order into out, which is x[own] or another buffer.  Until x[own] is added, the
 * sum is in x[0]: out may still be x[own]. */
static void append_sum(struct plan *plan, const struct plan_ref *x, int ways, int own, struct plan_ref out,
                       int64_t numel)
{
    struct plan_ref sum = x[0];
    for (int i = 1; i < ways; i++) {
        struct plan_ref to = i >= own ? out : x[0];
        plan_reduce(plan, to, sum, x[i], numel);
        sum = to;
    }
}

/* Returns how many corners exchange in the round that begins with this bit. */
static int ways_of(const struct coll_cube *cube, int bit)
{
    return cube->fold.corners / bit >= WAYS ? WAYS : 2;
}

/* Exchanges among the corners that differ only in the bits of `bit` * (ways - 1). */
static void append_exchange(struct plan *plan, const struct coll_cube *cube, int bit, struct plan_ref own,
                            struct plan_ref out, struct plan_ref slot, int64_t numel)
{
    int ways = ways_of(cube, bit), at = cube->corner / bit % ways, first = cube->corner - at * bit;
    struct plan_ref x[WAYS];
    for (int i = 1; i < ways; i++) /* each begins with another one */
        plan_send(plan, coll_cube_rank(cube, first + (at + i) % ways * bit), own, numel);
    for (int i = 0; i < ways; i++) {
        x[i] = i == at ? own : slot;
        if (i == at) continue;
        plan_recv(plan, coll_cube_rank(cube, first + i * bit), x[i], numel);
        slot = plan_shift(slot, numel);
    }
    append_sum(plan, x, ways, at, out, numel);
}

static void append_multiplying(struct plan *plan, const struct coll_cube *cube, const struct coll_sums *sums)
{
    struct plan_ref own = sums->own;
    for (int bit = 1; bit < cube->fold.corners; bit *= ways_of(cube, bit)) {
        append_exchange(plan, cube, bit, own, sums->out, sums->slot, sums->numel);
        own = sums->out;
    }
}

void all_reduce_recursive_multiplying(struct plan *plan, const struct coll_args *args)
{
    coll_cube_all_reduce(plan, args, WAYS - 1, append_multiplying);
}
