/* How the loops of reduce_template.h and cast_template.h are written: plain C over elements in memory, for the compiler
 * to vectorise.
 *
 * No iteration may depend on another.  EACH states that: the compiler's own check takes equal pointers for an overlap
 * and would run the most frequent call as scalar code. */
#ifndef BASE_LOOPS_H
#define BASE_LOOPS_H

#include "base/minifloat.h"

#ifdef __clang__
#pragma STDC FP_CONTRACT OFF
#pragma clang diagnostic ignored "-Wpass-failed" /* without optimisation or with sanitizers, loops stay scalar */
#define EACH _Pragma("clang loop vectorize(assume_safety)") for (int64_t i = 0; i < n; i++)
#else
#define EACH _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++)
#endif

/* Elements in memory, at any address and of any declared type. */
#define UNALIGNED(type, name) typedef type name __attribute__((aligned(1), may_alias))
UNALIGNED(int8_t, i8);
UNALIGNED(int16_t, i16);
UNALIGNED(int32_t, i32);
UNALIGNED(int64_t, i64);
UNALIGNED(uint8_t, u8);
UNALIGNED(uint16_t, u16);
UNALIGNED(uint32_t, u32);
UNALIGNED(uint64_t, u64);
UNALIGNED(float, f32);
UNALIGNED(double, f64);

/* Make every NaN the canonical one. */
MINIFLOAT_FN float f32_clean(float x)
{
    return x == x ? x : minifloat_value(0x7fc00000);
}

MINIFLOAT_FN double f64_clean(double x)
{
    const uint64_t nan = 0x7ff8000000000000;
    double quiet;

    memcpy(&quiet, &nan, sizeof quiet);
    return x == x ? x : quiet;
}

#endif
