/* Prints the output of rank 0. */
#ifndef BENCH_REPORT_H
#define BENCH_REPORT_H

#include "bench/measure.h"
#include "bench/options.h"

/* Returns the stream for CSV.  Under tutti-run, which may prefix each line with a rank, that is TUTTI_STDOUT_FD, the
 * launcher's own stdout. */
FILE *report_csv(void);

void report_begin(const struct options *options, int ranks);

/* Prints a case and its figures.  If `result` is NULL, prints why the case is not supported. */
void report_case(const struct options *options, const struct bench_case *c, const struct result *result,
                 const char *reason);

#endif
