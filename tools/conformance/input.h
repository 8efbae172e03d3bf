/* The ranks' inputs.  Every element follows from the seed, the rank, the block and its index, so each rank can compute
 * the inputs of all others. */
#ifndef CONFORMANCE_INPUT_H
#define CONFORMANCE_INPUT_H

#include <tutti/types.h>

enum input {
    INPUT_BITS = 0, /* any bits, for operations that only move data */
    INPUT_EXACT,    /* for reductions whose result does not depend on the order: any integers, and floats that are never
                       rounded */
    INPUT_ROUNDED,  /* floats that are rounded in every step */
    INPUT_SPECIAL,  /* NaN, infinities, both zeros, the largest numbers */
    INPUTS
};

extern const char *const input_names[INPUTS];

uint64_t input_mix(uint64_t a, uint64_t b);

/* What elements are for. */
struct input_use {
    enum input input;
    tutti_dtype dtype;
    tutti_reduce_op op;
    int ranks; /* number of ranks of the collective */
};

/* Sets a rank's block of `count` elements. */
void input_fill(uint64_t seed, struct input_use use, int rank, int block, int64_t count, void *out);

/* Sets a rank's block of bytes, as INPUT_BITS does. */
void input_fill_bytes(uint64_t seed, int rank, int block, int64_t bytes, void *out);

#endif
