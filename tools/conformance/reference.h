/* Computes the expected result of a reduction serially from all ranks' inputs, and compares the actual result with it.
 */
#ifndef CONFORMANCE_REFERENCE_H
#define CONFORMANCE_REFERENCE_H

#include <tutti/types.h>

#include "conformance/input.h"

struct reduction {
    tutti_dtype dtype;
    tutti_reduce_op op;
    enum input input;
    double factor;
    int n; /* number of ranks */
};

/* True if `got` is a correct result of the n inputs in[rank].  Otherwise sets *at to the first wrong element and `text`
 * to its actual and expected value. */
bool reference_check(const struct reduction *reduction, const uint8_t *const *in, const uint8_t *got, int64_t count,
                     int64_t *at, char *text, size_t capacity);

#endif
