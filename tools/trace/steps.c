#include "trace/steps.h"

#include <stdlib.h>
#include <tutti/types.h>

static int by_place(const void *a, const void *b)
{
    const struct step_part *x = a, *y = b;
    if (x->group != y->group) return x->group < y->group ? -1 : 1;
    if (x->sequence != y->sequence) return x->sequence < y->sequence ? -1 : 1;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

static const tutti_trace_op *op_of(const struct load *load, const struct step_part *part)
{
    return &load->ranks[part->rank].ops[part->op];
}

static int64_t arrival_of(const struct load *load, const struct step_part *part)
{
    return load_arrival_ns(&load->ranks[part->rank], op_of(load, part));
}

static int rank_in_group(const struct load *load, const struct step_part *part)
{
    const tutti_trace_group *group = load_group(&load->ranks[part->rank], op_of(load, part));
    return group != NULL ? group->rank : -1;
}

/* True if `part` needs data of `other` before it can end. */
static bool depends(const struct load *load, const struct step_part *part, const struct step_part *other)
{
    const tutti_trace_op *op = op_of(load, part);
    int own = rank_in_group(load, part), rank = rank_in_group(load, other);
    switch ((tutti_kind)op->kind) {
    case TUTTI_BROADCAST:
    case TUTTI_SCATTER:
        return rank == op->root;
    case TUTTI_REDUCE:
    case TUTTI_GATHER:
        return own == op->root;
    case TUTTI_SCAN:
    case TUTTI_EXSCAN:
        return rank < own;
    default:
        return true;
    }
}

/* True if all ranks of this kind depend on all others, so that the latest arrival is that of everybody. */
static bool is_mutual(int kind)
{
    return kind != TUTTI_BROADCAST && kind != TUTTI_SCATTER && kind != TUTTI_REDUCE && kind != TUTTI_GATHER &&
           kind != TUTTI_SCAN && kind != TUTTI_EXSCAN;
}

/* True if the rank's clock can be compared with that of other hosts. */
static bool is_aligned(const struct load *load, const struct step_part *part)
{
    return load->ranks[part->rank].align.error_ns >= 0;
}

static int64_t latest_needed(const struct load *load, const struct step *step, const struct step_part *part)
{
    int64_t latest = INT64_MIN;
    for (int i = 0; i < step->n; i++)
        if (is_aligned(load, &step->parts[i]) && depends(load, part, &step->parts[i])) {
            int64_t arrival = arrival_of(load, &step->parts[i]);
            if (arrival > latest) latest = arrival;
        }
    return latest;
}

static void set_waits(struct load *load, const struct step *step)
{
    bool mutual = is_mutual(op_of(load, &step->parts[0])->kind);
    int64_t latest = mutual ? latest_needed(load, step, &step->parts[0]) : INT64_MIN;
    for (int i = 0; i < step->n; i++) {
        const struct step_part *part = &step->parts[i];
        if (!is_aligned(load, part)) continue;
        struct load_rank *rank = &load->ranks[part->rank];
        int64_t begin = arrival_of(load, part), end = load_time_ns(rank, rank->ops[part->op].ended);
        int64_t until = mutual ? latest : latest_needed(load, step, part);
        if (until > end) until = end;
        rank->wait_ns[part->op] = until > begin ? until - begin : 0;
    }
}

/* Finds who arrived last. */
static void find_last(const struct load *load, struct step *step)
{
    int64_t last = INT64_MIN, before = INT64_MIN;
    const struct step_part *second = NULL;
    for (int i = 0; i < step->n; i++) {
        const struct step_part *part = &step->parts[i];
        int64_t arrival = arrival_of(load, part);
        if (arrival > last) {
            before = last;
            second = step->last;
            last = arrival;
            step->last = part;
        } else if (arrival > before) {
            before = arrival;
            second = part;
        }
    }
    step->late_ns = second != NULL ? last - before : 0;
    int64_t error = second != NULL ? load_clock_error(&load->ranks[step->last->rank], &load->ranks[second->rank]) : -1;
    if (error < 0 || step->late_ns <= error) step->last = NULL;
}

/* Lists the collectives of all ranks.  Returns their number. */
static size_t list_parts(const struct load *load, struct step_part *parts)
{
    size_t n = 0;
    for (int i = 0; i < load->n; i++)
        for (size_t k = 0; k < load->ranks[i].n_ops; k++) {
            const tutti_trace_op *op = &load->ranks[i].ops[k];
            const tutti_trace_group *group = load_group(&load->ranks[i], op);
            if (op->sequence == 0 || group == NULL || (op->flags & TUTTI_TRACE_FAILED) != 0) continue;
            parts[n++] = (struct step_part){group->id, op->sequence, (uint32_t)i, k};
        }
    return n;
}

bool steps_find(struct load *load, void (*visit)(const struct load *load, const struct step *step, void *argument),
                void *argument)
{
    struct step_part *parts = malloc((load->n_ops + 1) * sizeof *parts);
    if (parts == NULL) return false;
    size_t n = list_parts(load, parts);
    qsort(parts, n, sizeof *parts, by_place);
    for (size_t at = 0, end; at < n; at = end) {
        for (end = at + 1; end < n && parts[end].group == parts[at].group && parts[end].sequence == parts[at].sequence;)
            end++;
        struct step step = {.parts = &parts[at], .n = (int)(end - at)};
        if (step.n < 2) continue;
        set_waits(load, &step);
        find_last(load, &step);
        if (visit != NULL) visit(load, &step, argument);
    }
    free(parts);
    return true;
}
