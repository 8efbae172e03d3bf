/* Hypercubes: recursive halving and doubling, the two halves of Rabenseifner's algorithms, and the part of an
 * all-reduce that folds ranks.
 *
 * A window is a range of consecutive chunks, one chunk per corner.  It starts with all chunks.  Each round halves it,
 * or doubles it on the way back, between the two corners that differ in one bit. */
#include "parts.h"

static struct plan_ref find_window(const struct coll_cube *cube, struct plan_ref data, int64_t numel, int first,
                                   int chunks, int64_t *window)
{
    int64_t at = ring_chunk_at(numel, cube->fold.corners, first);
    *window = ring_chunk_at(numel, cube->fold.corners, first + chunks) - at;
    return plan_shift(data, at);
}

static void halve_window(struct plan *plan, const struct coll_args *args, const struct coll_cube *cube, int bit,
                         struct plan_ref in, struct plan_ref acc, int64_t numel)
{
    int first = cube->corner & ~(2 * bit - 1); /* start of the window that both corners have */
    int mine = cube->corner & bit, peer = coll_cube_rank(cube, cube->corner ^ bit);
    int64_t n;
    struct plan_ref sent = find_window(cube, in, numel, first + (mine ^ bit), bit, &n);
    coll_send(plan, args, peer, sent, n);
    struct plan_ref kept = find_window(cube, in, numel, first + mine, bit, &n);
    coll_recv_reduce(plan, args, peer, find_window(cube, acc, numel, first + mine, bit, &n), kept, n);
}

void coll_cube_reduce_scatter(struct plan *plan, const struct coll_args *args, const struct coll_cube *cube,
                              struct plan_ref in, struct plan_ref acc, int64_t numel)
{
    if (cube->corner < 0) {
        coll_send(plan, args, coll_cube_partner(cube), in, numel);
        return;
    }
    if (tree_has_folded(cube->fold, cube->v)) {
        coll_recv_reduce(plan, args, coll_cube_partner(cube), acc, in, numel);
        in = acc;
    }
    for (int bit = cube->fold.corners / 2; bit > 0; bit /= 2) {
        halve_window(plan, args, cube, bit, in, acc, numel);
        in = acc;
    }
    int64_t n;
    struct plan_ref result = find_window(cube, acc, numel, cube->corner, 1, &n);
    if (args->average) plan_average(plan, result, result, n);
}

void coll_cube_all_gather(struct plan *plan, const struct coll_args *args, const struct coll_cube *cube,
                          struct plan_ref data, int64_t numel)
{
    if (cube->corner < 0) {
        coll_recv(plan, args, coll_cube_partner(cube), data, numel);
        return;
    }
    for (int bit = 1; bit < cube->fold.corners; bit *= 2) {
        int mine = cube->corner & ~(bit - 1), peer = coll_cube_rank(cube, cube->corner ^ bit);
        int64_t n;
        struct plan_ref held = find_window(cube, data, numel, mine, bit, &n);
        coll_send(plan, args, peer, held, n);
        struct plan_ref missing = find_window(cube, data, numel, mine ^ bit, bit, &n);
        coll_recv(plan, args, peer, missing, n);
    }
    if (tree_has_folded(cube->fold, cube->v)) coll_send(plan, args, coll_cube_partner(cube), data, numel);
}

static void append_all_reduce(struct plan *plan, const struct coll_args *args, const struct coll_cube *cube,
                              struct coll_sums *sums, coll_rounds *rounds)
{
    if (cube->corner < 0) {
        plan_send(plan, coll_cube_partner(cube), sums->own, sums->numel);
        plan_recv(plan, coll_cube_partner(cube), sums->out, sums->numel);
        return;
    }
    bool has_folded = tree_has_folded(cube->fold, cube->v);
    if (has_folded) {
        plan_recv_reduce(plan, coll_cube_partner(cube), sums->out, sums->own, sums->numel);
        sums->own = sums->out;
        sums->in_place = true;
    }
    rounds(plan, cube, sums);
    if (args->average) plan_average(plan, sums->out, sums->out, sums->numel);
    if (has_folded) plan_send(plan, coll_cube_partner(cube), sums->out, sums->numel);
}

void coll_cube_all_reduce(struct plan *plan, const struct coll_args *args, int slot_pieces, coll_rounds *rounds)
{
    struct coll_cube cube = coll_cube(args, 0);
    int64_t piece = ring_min(args->segment, args->count);
    struct coll_slots slots = coll_slots(plan, args->count, args->segment, slot_pieces * piece);
    for (int64_t j = 0; j < ring_segments(args->count, args->segment); j++) {
        int64_t at = j * args->segment;
        struct coll_sums sums = {.own = plan_at(PLAN_IN(0), at),
                                 .out = plan_at(PLAN_OUT(0), at),
                                 .slot = coll_slot(slots, j),
                                 .in_place = args->in_place,
                                 .numel = ring_segment_numel(args->count, args->segment, j)};
        append_all_reduce(plan, args, &cube, &sums, rounds);
    }
}

void coll_cube_gather(struct plan *plan, const struct coll_args *args, const struct coll_cube *cube,
                      struct plan_ref data, int64_t numel)
{
    for (int bit = 1; cube->corner >= 0 && bit < cube->fold.corners; bit *= 2) {
        int64_t n;
        if (cube->corner & bit) {
            struct plan_ref held = find_window(cube, data, numel, cube->corner, bit, &n);
            coll_send(plan, args, coll_cube_rank(cube, cube->corner ^ bit), held, n);
            return;
        }
        struct plan_ref missing = find_window(cube, data, numel, cube->corner + bit, bit, &n);
        coll_recv(plan, args, coll_cube_rank(cube, cube->corner ^ bit), missing, n);
    }
}
