/* What rank 0 prints. */
#ifndef BENCH_REPORT_H
#define BENCH_REPORT_H

#include "bench/measure.h"
#include "bench/options.h"

void report_begin(const struct options *options, int ranks);

/* A case and its figures; result NULL: not supported, for the reason given. */
void report_case(const struct options *options, const struct bench_case *c, const struct result *result,
                 const char *reason);

#endif
