/* The figures of `tutti-trace report`, gathered from the files of all ranks. */
#ifndef TRACE_REPORT_H
#define TRACE_REPORT_H

#include <stdio.h>

#include "trace/messages.h"
#include "trace/steps.h"

/* How often a rank was the last to arrive, and how much later than the last but one. */
struct report_rank {
    int64_t n_last, n_steps, most_ns;
    double late_ns; /* sum; n_steps: collectives of two or more ranks that it took part in */
};

/* The operations of one kind, and of sizes in [bytes / 2, bytes], of all ranks. */
struct report_row {
    int kind;
    uint64_t bytes; /* the upper end, a power of two; 0: no data */
    int64_t n, by_thread, failed;
    double total_ns, wait_ns, reduce_ns; /* sums */
};

struct report {
    struct report_rank *ranks; /* as load.ranks */
    struct report_row *rows;   /* by kind, then size */
    int n_rows;
    int64_t n_steps, n_known; /* collectives, and those in which the clocks tell who was last */
};

bool report_gather(struct load *load, struct report *report);
void report_free(struct report *report);

/* Draws the rows and the ranks as SVG.  Returns false with errno set. */
bool report_draw(const struct load *load, const struct report *report, const char *path);

#endif
