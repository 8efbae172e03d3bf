/* One version of the loops of reductions and conversions: the same source (reduce_template.h, cast_template.h),
 * compiled for one instruction set.  Private to reduce*.c, cast.c and their tests. */
#ifndef BASE_REDUCE_VERSION_H
#define BASE_REDUCE_VERSION_H

#include "base/dtype.h"
#include "base/reduce_fn.h"

/* Converts n elements.  dst does not overlap src. */
typedef void (*cast_fn)(void *restrict dst, const void *restrict src, int64_t n);

struct reduce_version {
    const char *name;
    reduce_fn op[DTYPE_COUNT][TUTTI_REDUCE_OP_COUNT]; /* see reduce_find */
    void (*scale[DTYPE_COUNT])(void *dst, const void *src, int64_t n, double factor);
    void (*average[DTYPE_COUNT])(void *dst, const void *src, int64_t n, int64_t divisor);

    /* Convert 16- and 8-bit floats to float32 and back. */
    cast_fn widen[DTYPE_COUNT], narrow[DTYPE_COUNT];

    /* Convert between two small dtypes, [to][from], where that is faster than by way of float32.  Else NULL. */
    cast_fn direct[DTYPE_COUNT][DTYPE_COUNT];

    cast_fn shorten; /* float64 to a float32 that narrows as the float64 would, with one rounding */
    cast_fn float32_of_float64, float64_of_float32;
};

extern const struct reduce_version reduce_base;
#if defined(__x86_64__)
extern const struct reduce_version reduce_avx2, reduce_avx512;
#endif

#endif
