/* The elements that ranks send, the expected results, and the count of wrong elements. */
#ifndef BENCH_DATA_H
#define BENCH_DATA_H

#include "bench/dtype.h"

/* Element i of rank r is a whole number that follows from i, r and the seed.  It is so small that every reduction over
 * all ranks is exact in the dtype, and the order of reduction does not change the result. */
struct data {
    const struct dtype *dtype;
    tutti_reduce_op reduce_op;
    uint32_t seed;
    int ranks;
    int low, range;   /* an active rank's element is in [low, low + range) */
    int active, idle; /* `active` ranks are active at an element; the others have `idle` there */
    double imaginary; /* a complex number's imaginary part is its real part times this */
};

/* The factor for PREMUL_SUM. */
#define DATA_FACTOR 2.0

/* Returns the data of an operation.  Ignores reduce_op unless the operation `reduces`. */
struct data data_make(const struct dtype *dtype, tutti_reduce_op reduce_op, bool reduces, int ranks, uint32_t seed);

/* Fills the tensor with a rank's elements, from element 0 on. */
void data_fill(const struct data *data, int rank, tutti_tensor tensor);

/* Return how many elements of the tensor are wrong.  They must be the rank's elements, or the reduction of all ranks',
 * from element `first` on. */
int64_t data_wrong_copy(const struct data *data, int rank, int64_t first, tutti_tensor tensor);
int64_t data_wrong_reduced(const struct data *data, int64_t first, tutti_tensor tensor);

#endif
