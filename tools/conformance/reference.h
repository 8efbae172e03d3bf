/* The expected result of a reduction, computed serially from all ranks' inputs, and its comparison with the actual one.
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

/* True if `got` is a right result of n inputs, in[rank] each.  Otherwise *at is the first wrong element, and text says
 * what it is and should be. */
bool reference_check(const struct reduction *reduction, const uint8_t *const *in, const uint8_t *got, int64_t count,
                     int64_t *at, char *text, size_t room);

#endif
