/* The timing loop and its statistics.
 *
 * First it runs one iteration on fresh data and checks the result.  Then it warms up for a quarter of the requested
 * time.  Then it runs the timed loop: iterations follow each other without a barrier, and it reads the monotonic clock
 * after each.  Their number follows from the warm-up, is the same on every rank and at most ITERATIONS_MAX.  After the
 * loop it checks the data again.  Each figure is the largest of all ranks.  A round trip counts as two messages.
 */
#ifndef BENCH_MEASURE_H
#define BENCH_MEASURE_H

#include "bench/ops.h"

struct result {
    double us;   /* median time of an iteration */
    double mean; /* the loop's time divided by its iterations: valid even if ranks run ahead of each other */
    double min, p95;
    int iterations;
    int64_t wrong; /* wrong elements, over all ranks and both checks */
};

/* Measures a case for about `milliseconds`.  Returns TUTTI_OK or, alike on all ranks, TUTTI_ERR_UNSUPPORTED.  Ends the
 * program with a message on any other error. */
int measure(const struct bench_case *c, double milliseconds, struct result *result);

#endif
