/* All-to-all: copies input block j of rank i to output block i of rank j. */
#include "parts.h"

/* In place, received data would overwrite data that has not been sent yet, so the input is copied to `aside` first. */
static struct plan_ref find_input(const struct coll_args *args, struct plan_ref aside, int block)
{
    if (!args->in_place) return coll_in(args, block);
    return plan_shift(aside, ring_sum(args->in.count, block));
}

void all_to_all_pairwise(struct plan *plan, const struct coll_args *args)
{
    int size = args->size, rank = args->rank;
    struct plan_ref aside = args->in_place ? coll_copy_input(plan, args) : plan_scratch(plan, 0);
    for (int i = 1; i < size; i++) {
        int to = ring_rank(rank, i, size), from = ring_rank(rank, -i, size);
        coll_send_block(plan, args, to, find_input(args, aside, to), args->in.count[to]);
        coll_recv_block(plan, args, from, coll_out(args, from), args->out.count[from]);
    }
    coll_copy(plan, args, coll_out(args, rank), find_input(args, aside, rank), args->in.count[rank]);
}

/* State of Bruck's algorithm.  The block for the rank at distance i travels in the rounds whose bit is set in i.  Each
 * round has one box for departing and one for arriving blocks, with one position for each i that has its bit. */
struct bruck {
    const struct coll_args *args;
    struct plan_ref aside, boxes;
    int64_t box; /* elements of one box */
};

/* Returns how many of 0 .. i - 1 have the bit, which is the position of i in the box. */
static int find_position(int i, int bit)
{
    int rest = i % (2 * bit) - bit;
    return i / (2 * bit) * bit + (rest > 0 ? rest : 0);
}

static struct plan_ref locate_box(const struct bruck *bruck, int bit, bool arriving)
{
    return plan_shift(bruck->boxes, (2 * __builtin_ctz((unsigned)bit) + arriving) * bruck->box);
}

/* Returns the location of the block for distance i before the round of `bit`: its latest round put it there. */
static struct plan_ref locate_block(const struct bruck *bruck, int i, int bit)
{
    int passed = i & (bit - 1);
    if (passed == 0) return find_input(bruck->args, bruck->aside, ring_rank(bruck->args->rank, i, bruck->args->size));
    int latest = tree_power(passed);
    return plan_shift(locate_box(bruck, latest, true), find_position(i, latest) * bruck->args->count);
}

static void append_round(struct plan *plan, const struct bruck *bruck, int bit)
{
    const struct coll_args *args = bruck->args;
    int size = args->size;
    struct plan_ref leaving = locate_box(bruck, bit, false);
    int64_t total = find_position(size, bit) * args->count;
    for (int i = bit; i < size; i++) {
        if (i & bit)
            plan_copy(plan, plan_shift(leaving, find_position(i, bit) * args->count), locate_block(bruck, i, bit),
                      args->count);
    }
    coll_send(plan, args, ring_rank(args->rank, bit, size), leaving, total);
    coll_recv(plan, args, ring_rank(args->rank, -bit, size), locate_box(bruck, bit, true), total);
}

void all_to_all_bruck(struct plan *plan, const struct coll_args *args)
{
    int size = args->size, over = tree_bit(0, size); /* the lowest bit that no distance has */
    struct bruck bruck = {.args = args, .box = (int64_t)(size / 2 + 1) * args->count};
    if (args->in_place) bruck.aside = coll_copy_input(plan, args);
    bruck.boxes = plan_scratch(plan, 2 * __builtin_ctz((unsigned)over) * bruck.box);
    for (int bit = 1; bit < size; bit *= 2) append_round(plan, &bruck, bit);
    for (int i = 0; i < size; i++)
        plan_copy(plan, coll_out(args, ring_rank(args->rank, -i, size)), locate_block(&bruck, i, over), args->count);
}
