/* A reference for reductions: one element at a time, and in another way than the library.  Integers are computed in 128
 * bits.  Small floats are looked up in a table of all codes.  The reverse is a search for the nearest code. */
#ifndef TESTS_REDUCE_REF_H
#define TESTS_REDUCE_REF_H

#include <complex.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"

struct reduce_ref_format {
    tutti_dtype dtype;
    int exponent, mantissa, bias;
    unsigned infinity, greatest, nan; /* infinity is the code that follows the greatest finite one */
    bool saturates;
    double *value; /* of each positive code, as if there were no infinity and no NaN */
};

/* Return a small float's format, the value of a code, and the code nearest to a value. */
struct reduce_ref_format *reduce_ref_format(tutti_dtype dtype);
double reduce_ref_decode(const struct reduce_ref_format *f, unsigned code);
unsigned reduce_ref_encode(const struct reduce_ref_format *f, double x);

bool reduce_ref_is_float(tutti_dtype dtype);

/* Read and write one real number of any dtype. */
double reduce_ref_get(tutti_dtype dtype, const void *p);
void reduce_ref_put(tutti_dtype dtype, void *p, double x);
__int128 reduce_ref_integer(tutti_dtype dtype, const void *p);

/* Returns x op y in the dtype's arithmetic, not yet rounded to the dtype: float64's for float64, float32's otherwise.
 */
double reduce_ref_float(tutti_dtype dtype, tutti_reduce_op op, double x, double y);

/* Returns the dtype of a complex number's parts, or the dtype itself. */
tutti_dtype reduce_ref_part(tutti_dtype dtype);

/* Computes one element: dst = a op b. */
void reduce_ref_op(tutti_dtype dtype, tutti_reduce_op op, void *dst, const void *a, const void *b);

/* Return random bits, or fill memory with them, the same on every run. */
uint64_t reduce_ref_random(void);
void reduce_ref_fill(void *p, size_t bytes);

#endif
