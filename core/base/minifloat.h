/* 16- and 8-bit floats to float32 and back, without branches, so that a loop over them becomes vector code.
 *
 * Narrowing rounds to nearest even; NaN becomes the canonical NaN.  The hardware's conversions (F16C) agree with these
 * on every value but NaN payloads.  AVX512_BF16's do not, because it flushes subnormals: it is not used.
 */
#ifndef BASE_MINIFLOAT_H
#define BASE_MINIFLOAT_H

#include <stdint.h>
#include <string.h>

#define MINIFLOAT_FN static inline __attribute__((always_inline, unused))

MINIFLOAT_FN uint32_t minifloat_bits(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits;
}

MINIFLOAT_FN float minifloat_value(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

/* A format: its numbers of exponent and mantissa bits, and three magnitudes.  `nan` is the canonical NaN, `top` the
 * largest magnitude that is not NaN (infinity, or else the largest finite value), and `special` the smallest one that
 * is not finite. */
struct minifloat {
    int exponent, mantissa;
    int32_t nan, top, special;
};

#define MINIFLOAT_FLOAT16 ((struct minifloat){5, 10, 0x7e00, 0x7c00, 0x7c00})
#define MINIFLOAT_E5M2 ((struct minifloat){5, 2, 0x7f, 0x7c, 0x7c})
#define MINIFLOAT_E4M3FN ((struct minifloat){4, 3, 0x7f, 0x7e, 0x7f})

/* All of these are constants after inlining. */
MINIFLOAT_FN int minifloat_rebias(struct minifloat format)
{
    return 127 - ((1 << (format.exponent - 1)) - 1);
}

MINIFLOAT_FN float minifloat_widen(struct minifloat format, uint32_t bits)
{
    int width = 1 + format.exponent + format.mantissa, rebias = minifloat_rebias(format);
    int32_t magnitude = (int32_t)(bits & ((1u << (width - 1)) - 1));
    uint32_t sign = (bits >> (width - 1)) << 31;
    uint32_t normal = ((uint32_t)magnitude << (23 - format.mantissa)) + ((uint32_t)rebias << 23);
    float ulp = minifloat_value((uint32_t)(rebias + 1 - format.mantissa) << 23); /* last place of a subnormal */
    uint32_t subnormal = minifloat_bits((float)magnitude * ulp);
    uint32_t wide = magnitude < (1 << format.mantissa) ? subnormal : normal;

    wide = magnitude >= format.special ? 0x7f800000u : wide;
    wide = magnitude > format.top ? 0x7fc00000u : wide;
    return minifloat_value(sign | wide);
}

MINIFLOAT_FN uint32_t minifloat_narrow(struct minifloat format, float value)
{
    int width = 1 + format.exponent + format.mantissa, rebias = minifloat_rebias(format), cut = 23 - format.mantissa;
    uint32_t bits = minifloat_bits(value), sign = (bits >> 31) << (width - 1), magnitude = bits & 0x7fffffffu;
    uint32_t half_less = (1u << (cut - 1)) - 1, odd = (magnitude >> cut) & 1;
    int32_t normal = (int32_t)(((magnitude + half_less + odd) >> cut) - ((uint32_t)rebias << format.mantissa));

    /* Added to a power of two whose last place is a subnormal's ulp, the sum's low bits are the rounded subnormal. */
    uint32_t shift = (uint32_t)(rebias + 1 + cut) << 23;
    int32_t subnormal = (int32_t)(minifloat_bits(minifloat_value(magnitude) + minifloat_value(shift)) - shift);
    int32_t result = (int32_t)magnitude < ((rebias + 1) << 23) ? subnormal : normal;

    result = result > format.top ? format.top : result; /* infinity, or saturation */
    result = (int32_t)magnitude > 0x7f800000 ? format.nan : result;
    return (int32_t)magnitude > 0x7f800000 ? (uint32_t)result : sign | (uint32_t)result;
}

MINIFLOAT_FN float minifloat_widen_bfloat16(uint16_t bits)
{
    return minifloat_value((uint32_t)bits << 16);
}

MINIFLOAT_FN uint16_t minifloat_narrow_bfloat16(float value)
{
    uint32_t bits = minifloat_bits(value), rounded = (bits + 0x7fffu + ((bits >> 16) & 1)) >> 16;

    return (uint16_t)((int32_t)(bits & 0x7fffffffu) > 0x7f800000 ? 0x7fc0u : rounded);
}

#endif
