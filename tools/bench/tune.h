/* --tune: measures which algorithm is the fastest for each size, and writes a file for TUTTI_TUNING. */
#ifndef BENCH_TUNE_H
#define BENCH_TUNE_H

#include "bench/options.h"

/* Measures all cases.  Rank 0 prints and writes the file, and keeps its rows for other backends, ranks and hosts.
 * Returns false if a result was wrong or the file was not written. */
bool tune(const struct options *options, bench_case_maker *make_case);

#endif
