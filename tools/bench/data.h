/* What the ranks send, what must arrive, and how many elements did not. */
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
    int active, idle; /* so many of the ranks are active at an element; the others have idle there */
    double imaginary; /* of complex numbers: the imaginary part is the real one times this */
};

/* The factor of PREMUL_SUM. */
#define DATA_FACTOR 2.0

/* reduces: the data of an operation that reduces; else reduce_op does not matter. */
struct data data_make(const struct dtype *dtype, tutti_reduce_op reduce_op, bool reduces, int ranks, uint32_t seed);

/* Elements [0, n) of rank. */
void data_fill(const struct data *data, int rank, tutti_tensor tensor);

/* How many elements of tensor are not rank's, or not the reduction of all ranks', from element first on. */
int64_t data_wrong_copy(const struct data *data, int rank, int64_t first, tutti_tensor tensor);
int64_t data_wrong_reduced(const struct data *data, int64_t first, tutti_tensor tensor);

#endif
