/* One version of the reduction loops: the same source (reduce_template.h), compiled for one instruction set.  Private
 * to reduce*.c and its tests. */
#ifndef BASE_REDUCE_VERSION_H
#define BASE_REDUCE_VERSION_H

#include "base/dtype.h"
#include "base/reduce_fn.h"

struct reduce_version {
    const char *name;
    reduce_fn op[DTYPE_COUNT][TUTTI_REDUCE_OP_COUNT]; /* NULL for AVG and PREMUL_SUM, which use SUM's */
    void (*scale[DTYPE_COUNT])(void *dst, const void *src, int64_t n, double factor);
    void (*average[DTYPE_COUNT])(void *dst, const void *src, int64_t n, int64_t divisor);

    /* Convert 16- and 8-bit floats to float32 and back. */
    void (*widen[DTYPE_COUNT])(float *dst, const void *src, int64_t n);
    void (*narrow[DTYPE_COUNT])(void *dst, const float *src, int64_t n);
};

extern const struct reduce_version reduce_base;
#if defined(__x86_64__)
extern const struct reduce_version reduce_avx2, reduce_avx512;
#endif

/* Returns the index-th version that this processor can run, slowest first, or NULL after the last. */
const struct reduce_version *reduce_version_at(int index);

#endif
