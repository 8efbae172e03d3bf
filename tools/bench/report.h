/* Prints the output of rank 0. */
#ifndef BENCH_REPORT_H
#define BENCH_REPORT_H

#include "bench/measure.h"
#include "bench/options.h"

void report_begin(const struct options *options, int ranks);

/* Prints a case and its figures.  If `result` is NULL, prints why the case is not supported. */
void report_case(const struct options *options, const struct bench_case *c, const struct result *result,
                 const char *reason);

/* Returns the algorithm bandwidth of a case in GB/s. */
double report_bandwidth(const struct bench_case *c, const struct result *result);

/* Writes the document of --json.  Returns false after a message. */
bool report_end(const struct options *options);

#endif
