/* The loops that convert between float32 and the other floating dtypes, included once by each reduce_<version>.c
 * (reduce_template.h).  dst does not overlap src.  Every NaN becomes the canonical one of the result's dtype. */
#include "base/loops.h"
#include "base/minifloat.h"
#include <string.h>

#define B16_WIDEN(x) minifloat_widen_bfloat16(x)
#define B16_NARROW(x) minifloat_narrow_bfloat16(x)
#define F16_WIDEN(x) minifloat_widen(MINIFLOAT_FLOAT16, x)
#define F16_NARROW(x) minifloat_narrow(MINIFLOAT_FLOAT16, x)
#define E4M3FN_WIDEN(x) minifloat_widen(MINIFLOAT_E4M3FN, x)
#define E4M3FN_NARROW(x) minifloat_narrow(MINIFLOAT_E4M3FN, x)
#define E5M2_WIDEN(x) minifloat_widen(MINIFLOAT_E5M2, x)
#define E5M2_NARROW(x) minifloat_narrow(MINIFLOAT_E5M2, x)

#define CONVERT(name, to, from, expression)                                                                            \
    static void name(void *restrict dst, const void *restrict src, int64_t n)                                          \
    {                                                                                                                  \
        to *d = dst;                                                                                                   \
        const from *s = src;                                                                                           \
        EACH d[i] = (to)(expression);                                                                                  \
    }
#define WIDEN_AND_NARROW(name, stored, WIDEN, NARROW)                                                                  \
    CONVERT(name##_widen, f32, stored, f32_clean(WIDEN(s[i])))                                                         \
    CONVERT(name##_narrow, stored, f32, NARROW(s[i]))

WIDEN_AND_NARROW(b16, u16, B16_WIDEN, B16_NARROW)

/* Converts vectors of LANES elements in hardware, the rest in software. */
#define BY_LANES(name, to, from, LANES)                                                                                \
    static void name(void *restrict dst, const void *restrict src, int64_t n)                                          \
    {                                                                                                                  \
        to *d = dst;                                                                                                   \
        const from *s = src;                                                                                           \
        int64_t i = 0;                                                                                                 \
        for (; i + LANES <= n; i += LANES) name##_lanes(d + i, s + i);                                                 \
        name##_rest(d + i, s + i, n - i);                                                                              \
    }
#define WIDEN_AND_NARROW_LANES(name, stored, WIDEN, NARROW, LANES)                                                     \
    CONVERT(name##_widen_rest, f32, stored, f32_clean(WIDEN(s[i])))                                                    \
    CONVERT(name##_narrow_rest, stored, f32, NARROW(s[i]))                                                             \
    BY_LANES(name##_widen, f32, stored, LANES)                                                                         \
    BY_LANES(name##_narrow, stored, f32, LANES)

#ifdef HALF_LANES
MINIFLOAT_FN void f16_widen_lanes(void *to, const void *from)
{
    half_vector wide = half_clean(half_load(from));

    memcpy(to, &wide, sizeof wide);
}

MINIFLOAT_FN void f16_narrow_lanes(void *to, const void *from)
{
    half_vector wide;

    memcpy(&wide, from, sizeof wide);
    half_store(to, wide);
}

WIDEN_AND_NARROW_LANES(f16, u16, F16_WIDEN, F16_NARROW, HALF_LANES)
#else
WIDEN_AND_NARROW(f16, u16, F16_WIDEN, F16_NARROW)
#endif

#ifdef BYTE_LANES
WIDEN_AND_NARROW_LANES(e4m3fn, u8, E4M3FN_WIDEN, E4M3FN_NARROW, BYTE_LANES)
WIDEN_AND_NARROW_LANES(e5m2, u8, E5M2_WIDEN, E5M2_NARROW, BYTE_LANES)

/* Converts between two small dtypes without float32 values in memory. */
#define DIRECT(name, to, from, WIDEN, NARROW, LANES)                                                                   \
    CONVERT(name##_rest, to, from, NARROW(f32_clean(WIDEN(s[i]))))                                                     \
    BY_LANES(name, to, from, LANES)
DIRECT(f16_to_e4m3fn, u8, u16, F16_WIDEN, E4M3FN_NARROW, BYTE_LANES)
DIRECT(f16_to_e5m2, u8, u16, F16_WIDEN, E5M2_NARROW, BYTE_LANES)
DIRECT(b16_to_e4m3fn, u8, u16, B16_WIDEN, E4M3FN_NARROW, BYTE_LANES)
DIRECT(b16_to_e5m2, u8, u16, B16_WIDEN, E5M2_NARROW, BYTE_LANES)
DIRECT(e4m3fn_to_b16, u16, u8, E4M3FN_WIDEN, B16_NARROW, BYTE_LANES)
DIRECT(e4m3fn_to_f16, u16, u8, E4M3FN_WIDEN, F16_NARROW, BYTE_LANES)
DIRECT(e5m2_to_b16, u16, u8, E5M2_WIDEN, B16_NARROW, BYTE_LANES)
DIRECT(e4m3fn_to_e5m2, u8, u8, E4M3FN_WIDEN, E5M2_NARROW, CODE_LANES)
DIRECT(e5m2_to_e4m3fn, u8, u8, E5M2_WIDEN, E4M3FN_NARROW, CODE_LANES)
#else
WIDEN_AND_NARROW(e4m3fn, u8, E4M3FN_WIDEN, E4M3FN_NARROW)
WIDEN_AND_NARROW(e5m2, u8, E5M2_WIDEN, E5M2_NARROW)
#endif

/* ---- float64 ------------------------------------------------------------------------------------------------- */

/* Rounds to 14 significant bits, to odd: an inexact result is the neighbour with an odd last bit, so it never is the
 * midpoint of two values of fewer than 13 bits.  Narrowing it then gives what narrowing the original would.  float32
 * holds 14 bits of every value from 2^-134 on, which is half of bfloat16's smallest; smaller ones narrow to zero. */
MINIFLOAT_FN double f64_round_to_odd(double x)
{
    const uint64_t last = (uint64_t)1 << 39;
    uint64_t bits;

    memcpy(&bits, &x, sizeof bits);
    bits = (bits & -last) | ((bits & (last - 1)) != 0 ? last : 0);
    memcpy(&x, &bits, sizeof bits);
    return x;
}

CONVERT(f64_shorten, f32, f64, f64_round_to_odd(s[i]))
CONVERT(f64_to_f32, f32, f64, f32_clean((float)s[i]))
CONVERT(f32_to_f64, f64, f32, f64_clean((double)s[i]))
