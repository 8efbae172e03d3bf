/* Loops over floats, in a version for the processor. */
#ifndef TRAIN_LOOPS_H
#define TRAIN_LOOPS_H

#include <stdint.h>

struct loops {
    /* Returns the largest magnitude as bits of a float, which compare like the floats.  At least that of infinity if
     * one element is not finite. */
    int32_t (*largest_bits)(const float *x, int n);
    void (*multiply)(float *x, int n, float factor);
    void (*add)(float *sum, const float *x, int n);
    /* Stores wanted - sent, or 0 where that is not finite. */
    void (*keep_lost)(float *lost, const float *wanted, const float *sent, int n);
};

const struct loops *loops_select(void);

#endif
