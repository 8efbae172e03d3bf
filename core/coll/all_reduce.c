/* All-reduce: reduces IN(0) of all ranks into OUT(0) of each.  Every rank gets the same bits: the result of an element
 * is either computed once and distributed, or by exchanges that compute a + b and b + a in the same tree. */
#include "parts.h"

/* Sends `own` to a peer and sets dst to the sum of own and the peer's data.  dst must not be own: its send would have
 * to complete before the receive may start, and each rank would wait for the other. */
static void exchange_with(struct plan *plan, int peer, struct plan_ref dst, struct plan_ref own, int64_t numel)
{
    plan_send(plan, peer, own, numel);
    plan_recv_reduce(plan, peer, dst, own, numel);
}

/* Does the same if dst is own: receives into a buffer of its own first. */
static void exchange_in_place(struct plan *plan, int peer, struct plan_ref dst, struct plan_ref own,
                              struct plan_ref received, int64_t numel)
{
    plan_send(plan, peer, own, numel);
    plan_recv(plan, peer, received, numel);
    bool is_lower = plan_is_lower(plan, peer);
    plan_reduce(plan, dst, is_lower ? received : own, is_lower ? own : received, numel);
}

static void append_doubling(struct plan *plan, const struct coll_cube *cube, const struct coll_sums *sums)
{
    int corners = cube->fold.corners;
    int64_t numel = sums->numel;
    struct plan_ref own = sums->own, turn[2] = {sums->slot, plan_shift(sums->slot, numel)};
    if (corners == 2 && sums->in_place) {
        exchange_in_place(plan, coll_cube_rank(cube, cube->corner ^ 1), sums->out, own, sums->slot, numel);
        return;
    }
    for (int bit = 1, round = 0; bit < corners; bit *= 2, round++) {
        struct plan_ref dst = 2 * bit < corners ? turn[round % 2] : sums->out;
        exchange_with(plan, coll_cube_rank(cube, cube->corner ^ bit), dst, own, numel);
        own = dst;
    }
}

void all_reduce_recursive_doubling(struct plan *plan, const struct coll_args *args)
{
    coll_cube_all_reduce(plan, args, 2, append_doubling);
}

/* Finds segment j of a chunk.  Returns false if the chunk has fewer segments. */
static bool find_segment(const struct coll_args *args, int chunk, int64_t j, int64_t *at, int64_t *numel)
{
    int64_t whole = ring_chunk_numel(args->count, args->size, chunk);
    if (j >= ring_segments(whole, args->segment)) return false;
    *at = ring_chunk_at(args->count, args->size, chunk) + j * args->segment;
    *numel = ring_segment_numel(whole, args->segment, j);
    return true;
}

/* Appends the first pass, a reduction: round s sends chunk (rank - s) and receives chunk (rank - s - 1). */
static void append_ring_reduce(struct plan *plan, const struct coll_args *args, int64_t j)
{
    int size = args->size, left = ring_rank(args->rank, -1, size), right = ring_rank(args->rank, 1, size);
    int64_t at, n;
    for (int round = 0; round < size - 1; round++) {
        if (find_segment(args, ring_rank(args->rank, -round, size), j, &at, &n))
            plan_send(plan, right, plan_at(round == 0 ? PLAN_IN(0) : PLAN_OUT(0), at), n);
        if (find_segment(args, ring_rank(args->rank, -round - 1, size), j, &at, &n))
            plan_recv_reduce(plan, left, plan_at(PLAN_OUT(0), at), plan_at(PLAN_IN(0), at), n);
    }
    if (args->average && find_segment(args, right, j, &at, &n))
        plan_average(plan, plan_at(PLAN_OUT(0), at), plan_at(PLAN_OUT(0), at), n);
}

/* Appends the second pass, an all-gather.  This rank starts with the result of chunk (rank + 1). */
static void append_ring_gather(struct plan *plan, const struct coll_args *args, int64_t j)
{
    int size = args->size, left = ring_rank(args->rank, -1, size), right = ring_rank(args->rank, 1, size);
    int64_t at, n;
    for (int round = 0; round < size - 1; round++) {
        if (find_segment(args, ring_rank(right, -round, size), j, &at, &n))
            plan_send(plan, right, plan_at(PLAN_OUT(0), at), n);
        if (find_segment(args, ring_rank(args->rank, -round, size), j, &at, &n))
            plan_recv(plan, left, plan_at(PLAN_OUT(0), at), n);
    }
}

void all_reduce_ring(struct plan *plan, const struct coll_args *args)
{
    int64_t largest = ring_chunk_numel(args->count, args->size, 0);
    for (int64_t j = 0; j < ring_segments(largest, args->segment); j++) {
        append_ring_reduce(plan, args, j);
        append_ring_gather(plan, args, j);
    }
}

void all_reduce_rabenseifner(struct plan *plan, const struct coll_args *args)
{
    struct coll_cube cube = coll_cube(args, 0);
    int64_t piece = ring_times(args->segment, cube.fold.corners); /* the shortest message is one segment */
    for (int64_t j = 0; j < ring_segments(args->count, piece); j++) {
        int64_t n = ring_segment_numel(args->count, piece, j);
        struct plan_ref in = plan_at(PLAN_IN(0), j * piece), out = plan_at(PLAN_OUT(0), j * piece);
        coll_cube_reduce_scatter(plan, args, &cube, in, out, n);
        coll_cube_all_gather(plan, args, &cube, out, n);
    }
}

/* Reduces up a tree and broadcasts down it: twice the rounds of recursive doubling, but 2 (size - 1) messages in total
 * instead of size * log size.  If ranks share cores, the number of messages decides. */
void all_reduce_reduce_broadcast(struct plan *plan, const struct coll_args *args)
{
    for (int64_t j = 0; j < ring_segments(args->count, args->segment); j++) {
        int64_t at = j * args->segment, n = ring_segment_numel(args->count, args->segment, j);
        struct plan_ref out = plan_at(PLAN_OUT(0), at);
        coll_tree_reduce(plan, args, 0, plan_at(PLAN_IN(0), at), out, n);
        coll_tree_broadcast(plan, args, 0, out, n);
    }
}
