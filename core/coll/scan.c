/* Scan: reduces IN(0) of ranks 0 to r into OUT(0) of rank r.  An exclusive scan omits rank r's own contribution, so
 * rank 0 has no output. */
#include "parts.h"

/* Scratch of one piece: two partial sums and two received ones.  They are used in turn, so that one is sent while the
 * next is computed. */
struct scan_slot {
    struct plan_ref partial[2], arrival[2];
};

static struct scan_slot locate_slot(struct coll_slots slots, int64_t j, int64_t numel)
{
    struct plan_ref first = coll_slot(slots, j);
    return (struct scan_slot){{first, plan_shift(first, numel)},
                              {plan_shift(first, 2 * numel), plan_shift(first, 3 * numel)}};
}

/* Appends recursive doubling.  Before the round of `bit`, a rank's partial sum covers up to `bit` ranks that end with
 * itself.  It sends this sum to the rank `bit` further, and adds the one of the rank `bit` before. */
static void append_scan_rounds(struct plan *plan, const struct coll_args *args, struct plan_ref in, struct plan_ref out,
                               struct scan_slot slot, int64_t numel)
{
    struct plan_ref partial = in;
    for (int bit = 1, round = 0; bit < args->size; bit *= 2, round++) {
        if (args->rank + bit < args->size) plan_send(plan, args->rank + bit, partial, numel);
        if (args->rank < bit) continue; /* the partial sum is complete */
        struct plan_ref sum = args->rank < 2 * bit ? out : slot.partial[round % 2];
        plan_recv_reduce(plan, args->rank - bit, sum, partial, numel);
        partial = sum;
    }
}

/* Computes two sums: `partial` includes this rank's contribution and is sent to other ranks, `out` omits it. */
static void append_exscan_rounds(struct plan *plan, const struct coll_args *args, struct plan_ref in,
                                 struct plan_ref out, struct scan_slot slot, int64_t numel)
{
    struct plan_ref partial = in;
    for (int bit = 1, round = 0; bit < args->size; bit *= 2, round++) {
        if (args->rank + bit < args->size) plan_send(plan, args->rank + bit, partial, numel);
        if (args->rank < bit) continue;
        bool direct = bit == 1 && !args->in_place; /* in place, out still holds the own contribution */
        struct plan_ref arrival = direct ? out : slot.arrival[round % 2];
        plan_recv(plan, args->rank - bit, arrival, numel);
        if (args->rank + 2 * bit < args->size) {
            plan_reduce(plan, slot.partial[round % 2], arrival, partial, numel);
            partial = slot.partial[round % 2];
        }
        if (bit > 1)
            plan_reduce(plan, out, arrival, out, numel);
        else
            plan_copy(plan, out, arrival, numel);
    }
}

static void append_doubling(struct plan *plan, const struct coll_args *args, bool exclusive)
{
    int64_t piece = ring_min(args->segment, args->count);
    struct coll_slots slots = coll_slots(plan, args->count, args->segment, args->rank > 0 ? 4 * piece : 0);
    for (int64_t j = 0; j < ring_segments(args->count, args->segment); j++) {
        int64_t at = j * args->segment, n = ring_segment_numel(args->count, args->segment, j);
        struct plan_ref in = plan_at(PLAN_IN(0), at), out = plan_at(PLAN_OUT(0), at);
        struct scan_slot slot = locate_slot(slots, j, piece);
        if (args->rank == 0 && !exclusive) plan_copy(plan, out, in, n);
        if (exclusive)
            append_exscan_rounds(plan, args, in, out, slot, n);
        else
            append_scan_rounds(plan, args, in, out, slot, n);
    }
}

void scan_recursive_doubling(struct plan *plan, const struct coll_args *args)
{
    append_doubling(plan, args, false);
}

void exscan_recursive_doubling(struct plan *plan, const struct coll_args *args)
{
    append_doubling(plan, args, true);
}

/* Passes partial sums from rank to rank; each rank adds its own data.  This causes the least traffic of all, for
 * messages of many segments. */
void scan_chain(struct plan *plan, const struct coll_args *args)
{
    for (int64_t j = 0; j < ring_segments(args->count, args->segment); j++) {
        int64_t at = j * args->segment, n = ring_segment_numel(args->count, args->segment, j);
        struct plan_ref in = plan_at(PLAN_IN(0), at), out = plan_at(PLAN_OUT(0), at);
        if (args->rank > 0)
            plan_recv_reduce(plan, args->rank - 1, out, in, n);
        else
            plan_copy(plan, out, in, n);
        if (args->rank + 1 < args->size) plan_send(plan, args->rank + 1, args->rank > 0 ? out : in, n);
    }
}

void exscan_chain(struct plan *plan, const struct coll_args *args)
{
    bool last = args->rank + 1 == args->size, direct = last || !args->in_place;
    int64_t piece = args->rank > 0 ? ring_min(args->segment, args->count) : 0;
    struct coll_slots slots = coll_slots(plan, args->count, args->segment, 2 * piece);
    for (int64_t j = 0; j < ring_segments(args->count, args->segment); j++) {
        int64_t at = j * args->segment, n = ring_segment_numel(args->count, args->segment, j);
        struct plan_ref in = plan_at(PLAN_IN(0), at), out = plan_at(PLAN_OUT(0), at);
        struct plan_ref sum = args->rank > 0 ? coll_slot(slots, j) : in;
        struct plan_ref arrival = direct ? out : plan_shift(sum, piece);
        if (args->rank > 0) plan_recv(plan, args->rank - 1, arrival, n);
        if (args->rank > 0 && !last) plan_reduce(plan, sum, arrival, in, n);
        if (!last) plan_send(plan, args->rank + 1, sum, n);
        if (args->rank > 0) plan_copy(plan, out, arrival, n);
    }
}
