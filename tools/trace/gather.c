/* Gathers the figures of a report. */
#include <stdlib.h>

#include "trace/report.h"

enum { KINDS = 256, CLASSES = 65 };

static int class_of(uint64_t bytes)
{
    int class = 0;
    while (class < 64 && bytes > 0 && (class == 0 || UINT64_C(1) << (class - 1) < bytes)) class ++;
    return class;
}

static void count_step(const struct load *load, const struct step *step, void *argument)
{
    struct report *report = argument;
    (void)load;
    report->n_steps++;
    for (int i = 0; i < step->n; i++) report->ranks[step->parts[i].rank].n_steps++;
    if (step->last == NULL) return;
    struct report_rank *rank = &report->ranks[step->last->rank];
    report->n_known++;
    rank->n_last++;
    rank->late_ns += (double)step->late_ns;
    if (step->late_ns > rank->most_ns) rank->most_ns = step->late_ns;
}

static void count_op(struct report_row *row, const struct load_rank *rank, size_t i)
{
    const tutti_trace_op *op = &rank->ops[i];
    row->n++;
    row->total_ns += (double)(load_time_ns(rank, op->ended) - load_time_ns(rank, op->issued));
    row->wait_ns += (double)rank->wait_ns[i];
    if (op->sequence > 0) row->reduce_ns += op->reduce_ns;
    row->by_thread += (op->flags & TUTTI_TRACE_BY_THREAD) != 0;
    row->failed += (op->flags & TUTTI_TRACE_FAILED) != 0;
}

static void gather_rows(const struct load *load, struct report_row (*all)[CLASSES])
{
    for (int i = 0; i < load->n; i++)
        for (size_t k = 0; k < load->ranks[i].n_ops; k++) {
            const tutti_trace_op *op = &load->ranks[i].ops[k];
            count_op(&all[op->kind][class_of(op->bytes)], &load->ranks[i], k);
        }
}

static void keep_rows(struct report *report, struct report_row (*all)[CLASSES])
{
    for (int kind = 0; kind < KINDS; kind++)
        for (int class = 0; class < CLASSES; class ++) {
            if (all[kind][class].n == 0) continue;
            struct report_row *row = &report->rows[report->n_rows++];
            *row = all[kind][class];
            row->kind = kind;
            row->bytes = class == 0 ? 0 : UINT64_C(1) << (class - 1);
        }
}

bool report_gather(struct load *load, struct report *report)
{
    struct report_row(*all)[CLASSES] = calloc(KINDS, sizeof *all);
    *report = (struct report){.ranks = calloc((size_t)load->n, sizeof *report->ranks),
                              .rows = calloc((size_t)KINDS * CLASSES, sizeof *report->rows)};
    bool good = all != NULL && report->ranks != NULL && report->rows != NULL && steps_find(load, count_step, report) &&
                messages_find(load);
    if (good) {
        gather_rows(load, all);
        keep_rows(report, all);
    }
    free(all);
    return good;
}

void report_free(struct report *report)
{
    free(report->ranks);
    free(report->rows);
}
