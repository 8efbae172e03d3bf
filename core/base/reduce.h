/* Reductions in host memory.  They follow the rules of tutti_reduce_op (types.h), and these:
 *
 * - Integers wrap.  Every bool result is 0 or 1.
 * - Floats: every NaN result is the canonical quiet NaN of its dtype, sign clear (float32 0x7fc00000, float16 0x7e00,
 *   bfloat16 0x7fc0, both float8 0x7f).  So results do not depend on the order of the two operands, on the compiler or
 *   on the processor.  MIN and MAX: NaN if either is NaN; -0.0 < 0.0.
 * - 16- and 8-bit floats: each step computes in float32 and rounds once to nearest even.  Beyond the largest finite
 *   value float16, bfloat16 and float8_e5m2 give infinity.  float8_e4m3fn has no infinity and saturates: +-448, for
 *   infinities too, as OCP's 8-bit floating point specification defines its saturating conversion; only NaN gives NaN.
 *   (torch's own cast to float8_e4m3fn makes those NaN.)
 * - Complex PRODUCT is (ar*br - ai*bi, ar*bi + ai*br), each operation rounded.
 *
 * dst may be an operand itself, but must not overlap one otherwise.  Pointers need no alignment.  All functions are
 * thread-safe.  They use the fastest version of each loop that the processor supports; all versions give the same
 * bits. */
#ifndef BASE_REDUCE_H
#define BASE_REDUCE_H

#include <tutti/types.h>

#include "base/reduce_fn.h"

/* Returns the loop for an op, which is SUM's for AVG and PREMUL_SUM; NULL if the op does not reduce the dtype. */
reduce_fn reduce_find(tutti_dtype dtype, tutti_reduce_op op);

/* Computes dst = src * factor, the first step of PREMUL_SUM; floats and complex.  The factor is first rounded to
 * float32, except for float64 and complex128. */
void reduce_scale(tutti_dtype dtype, void *dst, const void *src, int64_t n, double factor);

/* Computes dst = src / divisor (> 0), the last step of AVG; all dtypes but bool.  Integers truncate toward zero. */
void reduce_average(tutti_dtype dtype, void *dst, const void *src, int64_t n, int64_t divisor);

/* Computes dst = src[0] op src[1] op ..., left to right, n_src >= 1.  SUM and PRODUCT of 16- and 8-bit floats
 * accumulate in float32 and round once.  dst may be any of the sources.  Does nothing if op does not reduce dtype. */
void reduce_many(tutti_dtype dtype, tutti_reduce_op op, void *dst, const void *const *src, int n_src, int64_t n);

#endif
