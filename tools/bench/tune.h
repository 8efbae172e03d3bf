/* --tune: which algorithm is the fastest at which size, measured, as a file for TUTTI_TUNING. */
#ifndef BENCH_TUNE_H
#define BENCH_TUNE_H

#include "bench/options.h"

/* Measures; rank 0 prints and writes the file, in which rows for other backends, ranks and hosts stay as they are.
 * Whether all results were right and the file is there. */
bool tune(const struct options *options,
          struct bench_case (*make_case)(const struct options *options, const struct bench_op *op, int64_t bytes));

#endif
