/* Conversions between floating dtypes in host memory.
 *
 * Each rounds once, to nearest even.  Beyond the largest finite value the result is infinity, or +-448 for
 * float8_e4m3fn.  Every NaN becomes the canonical quiet NaN (reduce.h).  Equal dtypes are copied as they are.
 * All versions of the loops give the same bits.  Pointers need no alignment. */
#ifndef BASE_CAST_H
#define BASE_CAST_H

#include <tutti/types.h>

/* True if casts exist from and to the dtype. */
bool cast_possible(tutti_dtype dtype);

/* Converts n elements of two dtypes for which casts exist.  dst may equal src if its elements are not larger, but must
 * not overlap it otherwise. */
void cast_elements(tutti_dtype to, void *dst, tutti_dtype from, const void *src, int64_t n);

/* The same with one version of the loops, for tests. */
struct reduce_version;
void cast_by_version(const struct reduce_version *version, tutti_dtype to, void *dst, tutti_dtype from, const void *src,
                     int64_t n);

#endif
