/* Reductions on the host's memory, by the rules of tutti_reduce_op (types.h), and these.
 *
 * Integers wrap.  Every bool result is 0 or 1.
 * Floats: every NaN result is the one canonical quiet NaN of its dtype, sign clear (float32 0x7fc00000, float16 0x7e00,
 * bfloat16 0x7fc0, both float8 0x7f), so results do not depend on the order of the two operands, on the compiler or
 * on the processor.  MIN and MAX: NaN if either is NaN; -0.0 < 0.0.
 * 16- and 8-bit floats: each step computes in float32 and rounds once to nearest even.  Beyond the largest finite
 * value float16, bfloat16 and float8_e5m2 give infinity.  float8_e4m3fn has no infinity and saturates: +-448, for
 * infinities too, as OCP's 8-bit floating point specification defines its saturating conversion; only NaN gives NaN.
 * (torch's own cast to float8_e4m3fn makes those NaN.)
 * Complex PRODUCT is (ar*br - ai*bi, ar*bi + ai*br), each operation rounded.
 *
 * dst may be an operand itself, but may not overlap one otherwise.  Pointers need no alignment.  All of it is
 * thread-safe.  The processor's best version of each loop is used; all versions give the same bits.
 */
#ifndef BASE_REDUCE_H
#define BASE_REDUCE_H

#include <tutti/types.h>

#include "base/reduce_fn.h"

/* The loop for an op; that of SUM for AVG and PREMUL_SUM; NULL where the op does not reduce the dtype. */
reduce_fn reduce_find(tutti_dtype dtype, tutti_reduce_op op);

/* PREMUL_SUM's first step: dst = src * factor; floats and complex.  The factor is first rounded to float32, but for
 * float64 and complex128. */
void reduce_scale(tutti_dtype dtype, void *dst, const void *src, int64_t n, double factor);

/* AVG's last step: dst = src / divisor (> 0); all but bool.  Integers truncate toward zero. */
void reduce_average(tutti_dtype dtype, void *dst, const void *src, int64_t n, int64_t divisor);

/* dst = src[0] op src[1] op ..., left to right, n_src >= 1.  SUM and PRODUCT of 16- and 8-bit floats accumulate in
 * float32 and round once.  dst may be any of the sources.  Nothing where op does not reduce dtype. */
void reduce_many(tutti_dtype dtype, tutti_reduce_op op, void *dst, const void *const *src, int n_src, int64_t n);

#endif
