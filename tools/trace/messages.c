#include "trace/messages.h"

#include <stdlib.h>
#include <tutti/types.h>

/* One side of a message. */
struct side {
    uint64_t group;
    int32_t from, to, tag; /* ranks in the group */
    bool receives, failed;
    uint32_t rank; /* index in load.ranks */
    uint64_t issued;
    uint64_t op; /* index in the rank's ops */
};

/* A path is what keeps messages in order: sender, receiver and tag. */
static int by_path(const struct side *a, const struct side *b)
{
    if (a->group != b->group) return a->group < b->group ? -1 : 1;
    if (a->from != b->from) return a->from < b->from ? -1 : 1;
    if (a->to != b->to) return a->to < b->to ? -1 : 1;
    return (a->tag > b->tag) - (a->tag < b->tag);
}

static int by_place(const void *a, const void *b)
{
    const struct side *x = a, *y = b;
    int path = by_path(x, y);
    if (path != 0) return path;
    if (x->receives != y->receives) return x->receives ? 1 : -1;
    if (x->issued != y->issued) return x->issued < y->issued ? -1 : 1;
    return (x->op > y->op) - (x->op < y->op);
}

/* Lists the sides of all messages.  Returns their number. */
static size_t list_sides(const struct load *load, struct side *sides)
{
    size_t n = 0;
    for (int i = 0; i < load->n; i++)
        for (size_t k = 0; k < load->ranks[i].n_ops; k++) {
            const tutti_trace_op *op = &load->ranks[i].ops[k];
            const tutti_trace_group *group = load_group(&load->ranks[i], op);
            bool receives = op->kind == TUTTI_RECV;
            if (group == NULL || op->root < 0 || (op->kind != TUTTI_SEND && !receives)) continue;
            sides[n++] = (struct side){.group = group->id,
                                       .from = receives ? op->root : group->rank,
                                       .to = receives ? group->rank : op->root,
                                       .tag = op->tag,
                                       .receives = receives,
                                       .failed = (op->flags & TUTTI_TRACE_FAILED) != 0,
                                       .rank = (uint32_t)i,
                                       .issued = op->issued,
                                       .op = k};
        }
    return n;
}

static void set_wait(const struct load *load, const struct side *side, int64_t until, bool counts_late)
{
    const struct load_rank *rank = &load->ranks[side->rank];
    const tutti_trace_op *op = &rank->ops[side->op];
    int64_t begin = load_arrival_ns(rank, op), end = load_time_ns(rank, op->ended);
    if (until > end) until = counts_late ? end : begin;
    rank->wait_ns[side->op] = until > begin ? until - begin : 0;
}

static void match(const struct load *load, const struct side *send, const struct side *receive)
{
    const struct load_rank *from = &load->ranks[send->rank], *to = &load->ranks[receive->rank];
    int64_t sent = load_arrival_ns(from, &from->ops[send->op]), asked = load_arrival_ns(to, &to->ops[receive->op]);
    int64_t error = load_clock_error(from, to);
    if (error < 0) return;
    set_wait(load, receive, sent - error, true);
    set_wait(load, send, asked - error, false);
}

/* Matches the messages of one path: the sends, then the receives.  Which message a failed side belongs to is not known,
 * so those after it are left out. */
static void match_path(const struct load *load, const struct side *sides, size_t n)
{
    size_t sends = 0;
    while (sends < n && !sides[sends].receives) sends++;
    for (size_t i = 0; i < sends && sends + i < n; i++) {
        if (sides[i].failed || sides[sends + i].failed) return;
        match(load, &sides[i], &sides[sends + i]);
    }
}

bool messages_find(struct load *load)
{
    struct side *sides = malloc((load->n_ops + 1) * sizeof *sides);
    if (sides == NULL) return false;
    size_t n = list_sides(load, sides);
    qsort(sides, n, sizeof *sides, by_place);
    for (size_t at = 0, end; at < n; at = end) {
        for (end = at + 1; end < n && by_path(&sides[at], &sides[end]) == 0;) end++;
        match_path(load, &sides[at], end - at);
    }
    free(sides);
    return true;
}
