/* The timing loop and its statistics.
 *
 * One iteration is run on fresh data and checked; then come warm-up iterations, a quarter of the time asked for; then
 * the timed loop: back to back, no barrier inside, a stamp of the monotonic clock after each.  Their number follows
 * from the warm-up, is the same on every rank and at most ITERATIONS_MAX.  After the loop the data are checked again.
 * Each figure is the largest of the ranks' own.  A round trip counts as two messages.
 */
#ifndef BENCH_MEASURE_H
#define BENCH_MEASURE_H

#include "bench/ops.h"

struct result {
    double us;   /* the median iteration */
    double mean; /* the loop's time over its iterations: the sustained rate, also if ranks run ahead of each other */
    double min, p95;
    int iterations;
    int64_t wrong; /* elements, over all ranks and both checks */
};

/* Measures for about `milliseconds`.  Returns TUTTI_ERR_UNSUPPORTED, alike on all ranks, if the operation is not
 * available.  Ends the program with a message on any other error. */
int measure(const struct bench_case *c, double milliseconds, struct result *result);

#endif
