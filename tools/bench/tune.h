/* --tune: measures which algorithm is the fastest at which size, and writes a file for TUTTI_TUNING. */
#ifndef BENCH_TUNE_H
#define BENCH_TUNE_H

#include "bench/options.h"

/* Measures; rank 0 prints and writes the file, in which rows for other backends, ranks and hosts stay as they are.
 * Returns false if a result was wrong or the file was not written. */
bool tune(const struct options *options,
          struct bench_case (*make_case)(const struct options *options, const struct bench_op *op, int64_t bytes));

#endif
