/* The elements that ranks send, the expected results, and the number of elements that are wrong. */
#ifndef BENCH_DATA_H
#define BENCH_DATA_H

#include "bench/dtype.h"

/* Element i of rank r is a whole number that follows from i, r and the seed: small enough that every reduction over
 * all ranks is exact in the dtype, so that any order of adding gives the same bits. */
struct data {
    const struct dtype *dtype;
    tutti_reduce_op reduce_op;
    uint32_t seed;
    int ranks;
    int low, range;   /* an active rank's element is in [low, low + range) */
    int active, idle; /* number of ranks that are active at an element; the others have `idle` there */
    double imaginary; /* of complex numbers: the imaginary part is the real part times this */
};

/* The factor of PREMUL_SUM. */
#define DATA_FACTOR 2.0

/* reduces: the data of an operation that reduces; otherwise reduce_op is ignored */
struct data data_make(const struct dtype *dtype, tutti_reduce_op reduce_op, bool reduces, int ranks, uint32_t seed);

/* Fills in elements [0, n) of a rank. */
void data_fill(const struct data *data, int rank, tutti_tensor tensor);

/* Returns how many elements of tensor, from element `first` on, are not the rank's, or not the reduction of all ranks'.
 */
int64_t data_wrong_copy(const struct data *data, int rank, int64_t first, tutti_tensor tensor);
int64_t data_wrong_reduced(const struct data *data, int64_t first, tutti_tensor tensor);

#endif
