/* The reduction loops, included once by each reduce_<version>.c, which selects the instruction set and defines
 *   VERSION           the name of the struct reduce_version that this makes
 *   HALF_LANES        if the set converts float16 in hardware: how many at once, in a half_vector of float32, with
 *                     half_load, half_clean (makes a NaN canonical) and half_store (the same)
 *   BYTE_LANES        if it has vector code for float8: how many at once (cast_x86.h)
 *
 * dst may be a or b itself but never overlaps them otherwise, so no iteration depends on another. */
#include "base/cast_template.h"
#include "base/loops.h"
#include "base/minifloat.h"
#include "base/reduce_version.h"

#define BINARY(name, type, expression)                                                                                 \
    static void name(void *dst, const void *pa, const void *pb, int64_t n)                                             \
    {                                                                                                                  \
        type *d = dst;                                                                                                 \
        const type *a = pa, *b = pb;                                                                                   \
        EACH d[i] = (type)(expression);                                                                                \
    }

/* ---- integers and bool ------------------------------------------------------------------------------------- */

/* `math` is unsigned and at least as wide as int, so no operand is promoted to a signed type that could overflow. */
#define INTEGER(type, math)                                                                                            \
    BINARY(type##_sum, type, (math)a[i] + (math)b[i])                                                                  \
    BINARY(type##_product, type, (math)a[i] * (math)b[i])                                                              \
    BINARY(type##_band, type, a[i] & b[i])                                                                             \
    BINARY(type##_bor, type, a[i] | b[i])                                                                              \
    BINARY(type##_bxor, type, a[i] ^ b[i])

#define ORDERED(type)                                                                                                  \
    BINARY(type##_min, type, a[i] < b[i] ? a[i] : b[i])                                                                \
    BINARY(type##_max, type, a[i] > b[i] ? a[i] : b[i])

INTEGER(u8, uint32_t)
INTEGER(u16, uint32_t)
INTEGER(u32, uint32_t)
INTEGER(u64, uint64_t)
ORDERED(i8)
ORDERED(i16)
ORDERED(i32)
ORDERED(i64)
ORDERED(u8)
ORDERED(u16)
ORDERED(u32)
ORDERED(u64)

BINARY(bool_or, u8, (a[i] | b[i]) != 0)
BINARY(bool_and, u8, (a[i] != 0) & (b[i] != 0))
BINARY(bool_xor, u8, (a[i] != 0) ^ (b[i] != 0))

/* ---- float MIN and MAX --------------------------------------------------------------------------------------- */

/* Flipping the low bits of negative floats puts all floats in the order of signed integers, with -0.0 below 0.0.  The
 * same flip undoes it.  16- and 8-bit floats need no conversion.  `top` is the largest magnitude that is not NaN. */
#define FLOAT_ORDERED(name, stored, word, bits, magnitude, top, nan)                                                   \
    MINIFLOAT_FN word name##_flip(word x)                                                                              \
    {                                                                                                                  \
        return (word)(x ^ ((x >> (bits - 1)) & magnitude));                                                            \
    }                                                                                                                  \
    MINIFLOAT_FN word name##_least(word x, word y)                                                                     \
    {                                                                                                                  \
        word p = name##_flip(x), q = name##_flip(y), r = name##_flip(p < q ? p : q);                                   \
        r = (word)(x & magnitude) > top ? nan : r;                                                                     \
        return (word)(y & magnitude) > top ? nan : r;                                                                  \
    }                                                                                                                  \
    MINIFLOAT_FN word name##_greatest(word x, word y)                                                                  \
    {                                                                                                                  \
        word p = name##_flip(x), q = name##_flip(y), r = name##_flip(p > q ? p : q);                                   \
        r = (word)(x & magnitude) > top ? nan : r;                                                                     \
        return (word)(y & magnitude) > top ? nan : r;                                                                  \
    }                                                                                                                  \
    BINARY(name##_min, stored, name##_least(a[i], b[i]))                                                               \
    BINARY(name##_max, stored, name##_greatest(a[i], b[i]))

FLOAT_ORDERED(f64, i64, int64_t, 64, INT64_MAX, 0x7ff0000000000000, 0x7ff8000000000000)
FLOAT_ORDERED(f32, i32, int32_t, 32, INT32_MAX, 0x7f800000, 0x7fc00000)
FLOAT_ORDERED(f16, i16, int16_t, 16, INT16_MAX, 0x7c00, 0x7e00)
FLOAT_ORDERED(b16, i16, int16_t, 16, INT16_MAX, 0x7f80, 0x7fc0)
FLOAT_ORDERED(e4m3fn, i8, int8_t, 8, INT8_MAX, 0x7e, 0x7f)
FLOAT_ORDERED(e5m2, i8, int8_t, 8, INT8_MAX, 0x7c, 0x7f)

/* ---- floats -------------------------------------------------------------------------------------------------- */

#define FLOAT(type, plain)                                                                                             \
    BINARY(type##_sum, type, type##_clean(a[i] + b[i]))                                                                \
    BINARY(type##_product, type, type##_clean(a[i] * b[i]))                                                            \
    static void type##_scale(void *dst, const void *src, int64_t n, double factor)                                     \
    {                                                                                                                  \
        type *d = dst;                                                                                                 \
        const type *s = src;                                                                                           \
        plain by = (plain)factor;                                                                                      \
        EACH d[i] = type##_clean(s[i] * by);                                                                           \
    }                                                                                                                  \
    static void type##_average(void *dst, const void *src, int64_t n, int64_t divisor)                                 \
    {                                                                                                                  \
        type *d = dst;                                                                                                 \
        const type *s = src;                                                                                           \
        plain by = (plain)divisor;                                                                                     \
        EACH d[i] = type##_clean(s[i] / by);                                                                           \
    }

FLOAT(f32, float)
FLOAT(f64, double)

/* Complex numbers are pairs.  All operations but the product work on each part.  Cleaning rr changes no result, but
 * keeps GCC from fusing products with sums, which its vectoriser does for this shape even if fusing is turned off. */
#define COMPLEX(name, type, plain)                                                                                     \
    static void name##_sum(void *dst, const void *a, const void *b, int64_t n)                                         \
    {                                                                                                                  \
        type##_sum(dst, a, b, 2 * n);                                                                                  \
    }                                                                                                                  \
    static void name##_scale(void *dst, const void *src, int64_t n, double factor)                                     \
    {                                                                                                                  \
        type##_scale(dst, src, 2 * n, factor);                                                                         \
    }                                                                                                                  \
    static void name##_average(void *dst, const void *src, int64_t n, int64_t divisor)                                 \
    {                                                                                                                  \
        type##_average(dst, src, 2 * n, divisor);                                                                      \
    }                                                                                                                  \
    static void name##_product(void *dst, const void *pa, const void *pb, int64_t n)                                   \
    {                                                                                                                  \
        type *d = dst;                                                                                                 \
        const type *a = pa, *b = pb;                                                                                   \
        EACH                                                                                                           \
        {                                                                                                              \
            plain ar = a[2 * i], ai = a[2 * i + 1], br = b[2 * i], bi = b[2 * i + 1];                                  \
            plain rr = type##_clean(ar * br), ii = ai * bi, ri = ar * bi, ir = ai * br;                                \
            d[2 * i] = type##_clean(rr - ii);                                                                          \
            d[2 * i + 1] = type##_clean(ri + ir);                                                                      \
        }                                                                                                              \
    }

COMPLEX(c64, f32, float)
COMPLEX(c128, f64, double)

/* ---- 16- and 8-bit floats: widen, compute in float32, narrow ------------------------------------------------- */

#define SMALL(name, stored, WIDEN, NARROW)                                                                             \
    BINARY(name##_sum, stored, NARROW(WIDEN(a[i]) + WIDEN(b[i])))                                                      \
    BINARY(name##_product, stored, NARROW(WIDEN(a[i]) * WIDEN(b[i])))                                                  \
    static void name##_scale(void *dst, const void *src, int64_t n, double factor)                                     \
    {                                                                                                                  \
        stored *d = dst;                                                                                               \
        const stored *s = src;                                                                                         \
        float by = (float)factor;                                                                                      \
        EACH d[i] = (stored)NARROW(WIDEN(s[i]) * by);                                                                  \
    }                                                                                                                  \
    static void name##_average(void *dst, const void *src, int64_t n, int64_t divisor)                                 \
    {                                                                                                                  \
        stored *d = dst;                                                                                               \
        const stored *s = src;                                                                                         \
        float by = (float)divisor;                                                                                     \
        EACH d[i] = (stored)NARROW(WIDEN(s[i]) / by);                                                                  \
    }

SMALL(b16, u16, B16_WIDEN, B16_NARROW)
SMALL(e4m3fn, u8, E4M3FN_WIDEN, E4M3FN_NARROW)
SMALL(e5m2, u8, E5M2_WIDEN, E5M2_NARROW)

#ifndef HALF_LANES
SMALL(f16, u16, F16_WIDEN, F16_NARROW)
#else

/* The hardware converts whole vectors; the remaining elements are converted in software. */
SMALL(f16_rest, u16, F16_WIDEN, F16_NARROW)

#define HALVES for (; i + HALF_LANES <= n; i += HALF_LANES)

#define HALF_BINARY(name, operator)                                                                                    \
    static void f16_##name(void *dst, const void *pa, const void *pb, int64_t n)                                       \
    {                                                                                                                  \
        u16 *d = dst;                                                                                                  \
        const u16 *a = pa, *b = pb;                                                                                    \
        int64_t i = 0;                                                                                                 \
        HALVES half_store(d + i, half_load(a + i) operator half_load(b + i));                                          \
        f16_rest_##name(d + i, a + i, b + i, n - i);                                                                   \
    }

HALF_BINARY(sum, +)
HALF_BINARY(product, *)

static void f16_scale(void *dst, const void *src, int64_t n, double factor)
{
    u16 *d = dst;
    const u16 *s = src;
    int64_t i = 0;

    HALVES half_store(d + i, half_load(s + i) * (float)factor);
    f16_rest_scale(d + i, s + i, n - i, factor);
}

static void f16_average(void *dst, const void *src, int64_t n, int64_t divisor)
{
    u16 *d = dst;
    const u16 *s = src;
    int64_t i = 0;

    HALVES half_store(d + i, half_load(s + i) / (float)divisor);
    f16_rest_average(d + i, s + i, n - i, divisor);
}
#endif

/* ---- integer averages ---------------------------------------------------------------------------------------- */

/* Vector instructions divide doubles but not integers.  Up to 32 bits that is exact: the distance of a non-integer
 * quotient to the next integer is larger than a double's rounding error. */
#define AVERAGE(name, type, plain)                                                                                     \
    static void name##_average(void *dst, const void *src, int64_t n, int64_t divisor)                                 \
    {                                                                                                                  \
        type *d = dst;                                                                                                 \
        const type *s = src;                                                                                           \
        plain by = (plain)divisor;                                                                                     \
        EACH d[i] = (type)((plain)s[i] / by);                                                                          \
    }

AVERAGE(i8, i8, double)
AVERAGE(i16, i16, double)
AVERAGE(i32, i32, double)
AVERAGE(i64, i64, int64_t)
AVERAGE(u8, u8, double)
AVERAGE(u16, u16, double)
AVERAGE(u32, u32, double)
AVERAGE(u64, u64, uint64_t)

/* ---- the table ----------------------------------------------------------------------------------------------- */

/* Indices are those of dtype_index(), as constants, so that the rows read like the enumeration in types.h.  AVG and
 * PREMUL_SUM have SUM's loops, and ops that do not reduce a dtype (TUTTI_REDUCE_OPS) none. */
#define INTEGER_OPS(unsigned_type, type)                                                                               \
    {                                                                                                                  \
        [TUTTI_SUM] = unsigned_type##_sum, [TUTTI_PRODUCT] = unsigned_type##_product, [TUTTI_MIN] = type##_min,        \
        [TUTTI_MAX] = type##_max, [TUTTI_AVG] = unsigned_type##_sum, [TUTTI_BAND] = unsigned_type##_band,              \
        [TUTTI_BOR] = unsigned_type##_bor, [TUTTI_BXOR] = unsigned_type##_bxor                                         \
    }
#define FLOAT_OPS(type)                                                                                                \
    {                                                                                                                  \
        [TUTTI_SUM] = type##_sum, [TUTTI_PRODUCT] = type##_product, [TUTTI_MIN] = type##_min,                          \
        [TUTTI_MAX] = type##_max, [TUTTI_AVG] = type##_sum, [TUTTI_PREMUL_SUM] = type##_sum                            \
    }
#define COMPLEX_OPS(type)                                                                                              \
    {                                                                                                                  \
        [TUTTI_SUM] = type##_sum, [TUTTI_PRODUCT] = type##_product, [TUTTI_AVG] = type##_sum,                          \
        [TUTTI_PREMUL_SUM] = type##_sum                                                                                \
    }
#define BOOL_OPS                                                                                                       \
    {                                                                                                                  \
        [TUTTI_SUM] = bool_or, [TUTTI_PRODUCT] = bool_and, [TUTTI_MIN] = bool_and, [TUTTI_MAX] = bool_or,              \
        [TUTTI_BAND] = bool_and, [TUTTI_BOR] = bool_or, [TUTTI_BXOR] = bool_xor                                        \
    }

#define NAME_OF(version) #version
#define NAME(version) NAME_OF(version)
#define STRUCT_OF(version) reduce_##version
#define STRUCT(version) STRUCT_OF(version)

const struct reduce_version STRUCT(VERSION) = {
    .name = NAME(VERSION),
    .op =
        {
            [DTYPE_INT8] = INTEGER_OPS(u8, i8),
            [DTYPE_INT16] = INTEGER_OPS(u16, i16),
            [DTYPE_INT32] = INTEGER_OPS(u32, i32),
            [DTYPE_INT64] = INTEGER_OPS(u64, i64),
            [DTYPE_UINT8] = INTEGER_OPS(u8, u8),
            [DTYPE_UINT16] = INTEGER_OPS(u16, u16),
            [DTYPE_UINT32] = INTEGER_OPS(u32, u32),
            [DTYPE_UINT64] = INTEGER_OPS(u64, u64),
            [DTYPE_FLOAT16] = FLOAT_OPS(f16),
            [DTYPE_FLOAT32] = FLOAT_OPS(f32),
            [DTYPE_FLOAT64] = FLOAT_OPS(f64),
            [DTYPE_BFLOAT16] = FLOAT_OPS(b16),
            [DTYPE_COMPLEX64] = COMPLEX_OPS(c64),
            [DTYPE_COMPLEX128] = COMPLEX_OPS(c128),
            [DTYPE_BOOL] = BOOL_OPS,
            [DTYPE_FLOAT8_E4M3FN] = FLOAT_OPS(e4m3fn),
            [DTYPE_FLOAT8_E5M2] = FLOAT_OPS(e5m2),
        },
    .scale =
        {
            [DTYPE_FLOAT16] = f16_scale,
            [DTYPE_FLOAT32] = f32_scale,
            [DTYPE_FLOAT64] = f64_scale,
            [DTYPE_BFLOAT16] = b16_scale,
            [DTYPE_COMPLEX64] = c64_scale,
            [DTYPE_COMPLEX128] = c128_scale,
            [DTYPE_FLOAT8_E4M3FN] = e4m3fn_scale,
            [DTYPE_FLOAT8_E5M2] = e5m2_scale,
        },
    .average =
        {
            [DTYPE_INT8] = i8_average,
            [DTYPE_INT16] = i16_average,
            [DTYPE_INT32] = i32_average,
            [DTYPE_INT64] = i64_average,
            [DTYPE_UINT8] = u8_average,
            [DTYPE_UINT16] = u16_average,
            [DTYPE_UINT32] = u32_average,
            [DTYPE_UINT64] = u64_average,
            [DTYPE_FLOAT16] = f16_average,
            [DTYPE_FLOAT32] = f32_average,
            [DTYPE_FLOAT64] = f64_average,
            [DTYPE_BFLOAT16] = b16_average,
            [DTYPE_COMPLEX64] = c64_average,
            [DTYPE_COMPLEX128] = c128_average,
            [DTYPE_FLOAT8_E4M3FN] = e4m3fn_average,
            [DTYPE_FLOAT8_E5M2] = e5m2_average,
        },
    .widen =
        {
            [DTYPE_FLOAT16] = f16_widen,
            [DTYPE_BFLOAT16] = b16_widen,
            [DTYPE_FLOAT8_E4M3FN] = e4m3fn_widen,
            [DTYPE_FLOAT8_E5M2] = e5m2_widen,
        },
    .narrow =
        {
            [DTYPE_FLOAT16] = f16_narrow,
            [DTYPE_BFLOAT16] = b16_narrow,
            [DTYPE_FLOAT8_E4M3FN] = e4m3fn_narrow,
            [DTYPE_FLOAT8_E5M2] = e5m2_narrow,
        },
#ifdef BYTE_LANES
    .direct =
        {
            [DTYPE_FLOAT8_E4M3FN] = {[DTYPE_FLOAT16] = f16_to_e4m3fn,
                                     [DTYPE_BFLOAT16] = b16_to_e4m3fn,
                                     [DTYPE_FLOAT8_E5M2] = e5m2_to_e4m3fn},
            [DTYPE_FLOAT8_E5M2] =
                {[DTYPE_FLOAT16] = f16_to_e5m2, [DTYPE_BFLOAT16] = b16_to_e5m2, [DTYPE_FLOAT8_E4M3FN] = e4m3fn_to_e5m2},
            [DTYPE_FLOAT16] = {[DTYPE_FLOAT8_E4M3FN] = e4m3fn_to_f16},
            [DTYPE_BFLOAT16] = {[DTYPE_FLOAT8_E4M3FN] = e4m3fn_to_b16, [DTYPE_FLOAT8_E5M2] = e5m2_to_b16},
        },
#endif
    .shorten = f64_shorten,
    .float32_of_float64 = f64_to_f32,
    .float64_of_float32 = f32_to_f64,
};
