/* Reduce-scatter and all-reduce in circulant graphs: the fewest rounds and the fewest bytes at once, for any number of
 * ranks (Traeff, "Optimal, Non-pipelined Reduce-scatter and Allreduce Algorithms", 2024).
 *
 * Rank r sees the blocks in the order r, r + 1, ..: its own is number 0.  The distance is halved each round, rounded
 * up, from all ranks to 1.  In a round with `far` blocks a rank sends the upper ones, from number `near` on, to the
 * rank that is `near` further, and adds those that it receives to its lower ones. */
#include "parts.h"

static int halve(int far)
{
    return (far + 1) / 2;
}

/* Consecutive blocks of one buffer, in order of rank. */
struct ring_of_blocks {
    const int64_t *count; /* their elements; NULL: they are the chunks of numel elements */
    int64_t numel;
    int size, rank;
};

/* Returns where a block begins. */
static int64_t block_at(const struct ring_of_blocks *blocks, int block)
{
    return blocks->count == NULL ? ring_chunk_at(blocks->numel, blocks->size, block) : ring_sum(blocks->count, block);
}

/* Finds the numbers first .. first + n - 1, which may pass the end of the buffer.  Returns the first of at most two
 * ranges if `part` is 0, else the second.  Its length may be 0. */
static int64_t find_range(const struct ring_of_blocks *blocks, int first, int n, int part, int64_t *numel)
{
    int from = (blocks->rank + first) % blocks->size, to = from + n;
    int within = to < blocks->size ? to : blocks->size;
    if (part == 1) {
        *numel = block_at(blocks, to - within);
        return 0;
    }
    int64_t at = block_at(blocks, from);
    *numel = block_at(blocks, within) - at;
    return at;
}

/* True if this part of a range carries a message.  A range without elements is one empty message. */
static bool has_part(const struct ring_of_blocks *blocks, int first, int n, int part)
{
    return part == 0 || (blocks->rank + first) % blocks->size + n > blocks->size;
}

/* Sends the upper numbers from `in` or `acc`, and reduces what arrives into the lower ones of acc. */
static void append_reduce_round(struct plan *plan, const struct coll_args *args, const struct ring_of_blocks *blocks,
                                int far, struct plan_ref in, struct plan_ref acc)
{
    int size = blocks->size, near = halve(far), n = far - near;
    for (int part = 0; part < 2; part++) {
        int64_t numel, at = find_range(blocks, near, n, part, &numel);
        if (has_part(blocks, near, n, part))
            coll_send(plan, args, ring_rank(blocks->rank, near, size), plan_shift(in, at), numel);
        at = find_range(blocks, 0, n, part, &numel);
        if (has_part(blocks, 0, n, part))
            coll_recv_reduce(plan, args, ring_rank(blocks->rank, -near, size), plan_shift(acc, at), plan_shift(in, at),
                             numel);
    }
}

/* Reduces `in` of all ranks, so that acc has this rank's own block.  The other blocks of acc are partial sums. */
static void append_reduce_scatter(struct plan *plan, const struct coll_args *args, const struct ring_of_blocks *blocks,
                                  struct plan_ref in, struct plan_ref acc)
{
    int64_t numel;
    for (int far = blocks->size; far > 1; far = halve(far)) {
        append_reduce_round(plan, args, blocks, far, in, acc);
        if (far == blocks->size && far % 2 == 1) { /* the middle block has not been added to */
            int64_t at = find_range(blocks, far / 2, 1, 0, &numel);
            plan_copy(plan, plan_shift(acc, at), plan_shift(in, at), numel);
        }
        in = acc;
    }
}

/* Runs the rounds in reverse: each sends the lower numbers back and receives the upper ones. */
static void append_all_gather(struct plan *plan, const struct coll_args *args, const struct ring_of_blocks *blocks,
                              int far, struct plan_ref data)
{
    int size = blocks->size, near = halve(far), n = far - near;
    if (far <= 1) return;
    append_all_gather(plan, args, blocks, near, data);
    for (int part = 0; part < 2; part++) {
        int64_t numel, at = find_range(blocks, 0, n, part, &numel);
        if (has_part(blocks, 0, n, part))
            coll_send(plan, args, ring_rank(blocks->rank, -near, size), plan_shift(data, at), numel);
        at = find_range(blocks, near, n, part, &numel);
        if (has_part(blocks, near, n, part))
            coll_recv(plan, args, ring_rank(blocks->rank, near, size), plan_shift(data, at), numel);
    }
}

void reduce_scatter_circulant(struct plan *plan, const struct coll_args *args)
{
    const struct ring_of_blocks blocks = {args->in.count, 0, args->size, args->rank};
    int64_t total = block_at(&blocks, args->size), n = args->in.count[args->rank];
    struct plan_ref in = coll_flat_input(plan, args), acc = plan_scratch(plan, total);
    append_reduce_scatter(plan, args, &blocks, in, acc);
    struct plan_ref own = plan_shift(acc, block_at(&blocks, args->rank));
    if (args->average) plan_average(plan, own, own, n);
    plan_copy(plan, plan_at(PLAN_OUT(0), 0), own, n);
}

void all_reduce_circulant(struct plan *plan, const struct coll_args *args)
{
    const struct ring_of_blocks blocks = {NULL, args->count, args->size, args->rank};
    struct plan_ref out = plan_at(PLAN_OUT(0), 0), own = plan_shift(out, block_at(&blocks, args->rank));
    append_reduce_scatter(plan, args, &blocks, plan_at(PLAN_IN(0), 0), out);
    if (args->average) plan_average(plan, own, own, ring_chunk_numel(args->count, args->size, args->rank));
    append_all_gather(plan, args, &blocks, args->size, out);
}
