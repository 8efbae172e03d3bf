/* Broadcast: copies OUT(0) of root to OUT(0) of all ranks. */
#include "parts.h"

void coll_tree_broadcast(struct plan *plan, const struct coll_args *args, int root, struct plan_ref data, int64_t numel)
{
    int v = tree_virtual(args->rank, root, args->size), bit = tree_bit(v, args->size);
    if (v != 0) plan_recv(plan, tree_real(v - bit, root, args->size), data, numel);
    for (bit /= 2; bit > 0; bit /= 2) {
        if (v + bit < args->size) plan_send(plan, tree_real(v + bit, root, args->size), data, numel);
    }
}

void broadcast_binomial(struct plan *plan, const struct coll_args *args)
{
    for (int64_t j = 0; j < ring_segments(args->count, args->segment); j++)
        coll_tree_broadcast(plan, args, args->root, plan_at(PLAN_OUT(0), j * args->segment),
                            ring_segment_numel(args->count, args->segment, j));
}

/* Passes segments from rank to rank.  Each rank receives and sends the data once, which gives the highest bandwidth for
 * messages of many segments. */
void broadcast_chain(struct plan *plan, const struct coll_args *args)
{
    int size = args->size, v = tree_virtual(args->rank, args->root, size);
    for (int64_t j = 0; j < ring_segments(args->count, args->segment); j++) {
        struct plan_ref data = plan_at(PLAN_OUT(0), j * args->segment);
        int64_t n = ring_segment_numel(args->count, args->segment, j);
        if (v > 0) plan_recv(plan, ring_rank(args->rank, -1, size), data, n);
        if (v < size - 1) plan_send(plan, ring_rank(args->rank, 1, size), data, n);
    }
}

/* Sends every segment from root to each rank.  The other ranks do not depend on each other, but root sends all the
 * data. */
void broadcast_linear(struct plan *plan, const struct coll_args *args)
{
    int size = args->size;
    for (int64_t j = 0; j < ring_segments(args->count, args->segment); j++) {
        struct plan_ref data = plan_at(PLAN_OUT(0), j * args->segment);
        int64_t n = ring_segment_numel(args->count, args->segment, j);
        if (args->rank != args->root) plan_recv(plan, args->root, data, n);
        for (int i = 1; i < size && args->rank == args->root; i++)
            plan_send(plan, ring_rank(args->root, i, size), data, n);
    }
}

/* Returns the location of consecutive chunks and sets *n to their number of elements.  There are as many chunks as
 * ranks. */
static struct plan_ref locate_chunks(const struct coll_args *args, struct plan_ref data, int64_t numel, int first,
                                     int chunks, int64_t *n)
{
    int64_t at = ring_chunk_at(numel, args->size, first);
    *n = ring_chunk_at(numel, args->size, first + chunks) - at;
    return plan_shift(data, at);
}

/* Scatters down a binomial tree: each child gets the chunks of its own subtree. */
static void append_scatter(struct plan *plan, const struct coll_args *args, struct plan_ref data, int64_t numel)
{
    int size = args->size, v = tree_virtual(args->rank, args->root, size), bit = tree_bit(v, size);
    int64_t n;
    if (v != 0) {
        struct plan_ref mine = locate_chunks(args, data, numel, v, tree_span(v, size), &n);
        coll_recv(plan, args, tree_real(v - bit, args->root, size), mine, n);
    }
    for (bit /= 2; bit > 0; bit /= 2) {
        if (v + bit >= size) continue;
        struct plan_ref theirs = locate_chunks(args, data, numel, v + bit, tree_span(v + bit, size), &n);
        coll_send(plan, args, tree_real(v + bit, args->root, size), theirs, n);
    }
}

/* True if the scatter has already sent this chunk to v. */
static bool was_scattered(const struct coll_args *args, int v, int chunk)
{
    return chunk >= v && chunk < v + tree_span(v, args->size);
}

/* All-gathers in a ring, without the chunks that the receiver has. */
static void append_ring_gather(struct plan *plan, const struct coll_args *args, struct plan_ref data, int64_t numel)
{
    int size = args->size, v = tree_virtual(args->rank, args->root, size);
    int next = ring_rank(v, 1, size);
    for (int round = 0; round < size - 1; round++) {
        int64_t n;
        int out = ring_rank(v, -round, size), in = ring_rank(v, -round - 1, size);
        if (!was_scattered(args, next, out)) {
            struct plan_ref held = locate_chunks(args, data, numel, out, 1, &n);
            coll_send(plan, args, tree_real(next, args->root, size), held, n);
        }
        if (!was_scattered(args, v, in)) {
            struct plan_ref wanted = locate_chunks(args, data, numel, in, 1, &n);
            coll_recv(plan, args, ring_rank(args->rank, -1, size), wanted, n);
        }
    }
}

void broadcast_scatter_allgather(struct plan *plan, const struct coll_args *args)
{
    int64_t piece = ring_times(args->segment, args->size);
    for (int64_t j = 0; j < ring_segments(args->count, piece); j++) {
        struct plan_ref data = plan_at(PLAN_OUT(0), j * piece);
        int64_t n = ring_segment_numel(args->count, piece, j);
        append_scatter(plan, args, data, n);
        append_ring_gather(plan, args, data, n);
    }
}
