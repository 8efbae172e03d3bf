/* --regret: how much slower the automatic choice is than the best algorithm or path of each case. */
#ifndef BENCH_REGRET_H
#define BENCH_REGRET_H

#include "bench/options.h"

/* Measures all cases.  Rank 0 prints a line for each that has a choice, and a summary.  Returns false if a result was
 * wrong. */
bool regret(const struct options *options, bench_case_maker *make_case);

#endif
