/* float8 to and from the other small floats and float32, 16 elements at once, for x86-64 with AVX2 and F16C.
 *
 * The float8 formats are those of "FP8 Formats for Deep Learning" (Micikevicius et al., 2022).  Widening uses the
 * processor's float16.  A float8_e5m2 is the high byte of a float16.  A float8_e4m3fn is the top of a float16 that is
 * 2^8 times smaller, with equal biased exponents, so subnormals match as well. */
#ifndef BASE_CAST_X86_H
#define BASE_CAST_X86_H

#include <immintrin.h>
#include <stdint.h>

#define CAST_X86_FN static inline __attribute__((always_inline))

#define BYTE_LANES 16

/* Sixteen values. */
struct floats {
    __m256 low, high;
};

/* A format: its bits of mantissa, the exponent of its smallest normal value, and the first magnitude beyond which all
 * give the same. */
struct bytes_format {
    int mantissa, least;
    float top;
};

#define BYTES_E4M3FN ((struct bytes_format){3, -6, 448.0f})
#define BYTES_E5M2 ((struct bytes_format){2, -14, 65536.0f})

/* Returns the codes of eight magnitudes, and -1 for NaN.  The sum with a power of two, whose last place is the
 * result's, has the rounded mantissa in its low bits.  Below the smallest normal value that place is the subnormals'.
 */
CAST_X86_FN __m256i codes_of(__m256 value, struct bytes_format format)
{
    __m256i infinity = _mm256_set1_epi32(0x7f800000), least = _mm256_set1_epi32((127 + format.least) << 23);
    __m256i magnitude = _mm256_and_si256(_mm256_castps_si256(value), _mm256_set1_epi32(0x7fffffff));
    __m256i is_nan = _mm256_cmpgt_epi32(magnitude, infinity);
    __m256 size = _mm256_min_ps(_mm256_castsi256_ps(magnitude), _mm256_set1_ps(format.top));
    __m256i exponent = _mm256_max_epi32(_mm256_and_si256(_mm256_castps_si256(size), infinity), least);
    __m256i place = _mm256_add_epi32(exponent, _mm256_set1_epi32((23 - format.mantissa) << 23));
    __m256i sum = _mm256_castps_si256(_mm256_add_ps(size, _mm256_castsi256_ps(place)));
    __m256i steps = _mm256_srli_epi32(_mm256_sub_epi32(exponent, least), 23 - format.mantissa);

    return _mm256_or_si256(_mm256_add_epi32(_mm256_sub_epi32(sum, place), steps), is_nan);
}

/* ---- 16 elements to values --------------------------------------------------------------------------------------- */

CAST_X86_FN __m256 widen_clean(__m128i halves, float scale)
{
    __m256 wide = _mm256_mul_ps(_mm256_cvtph_ps(halves), _mm256_set1_ps(scale));
    __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000));

    return _mm256_blendv_ps(wide, nan, _mm256_cmp_ps(wide, wide, _CMP_UNORD_Q));
}

CAST_X86_FN struct floats floats_of_halves(__m256i halves, float scale)
{
    return (struct floats){widen_clean(_mm256_castsi256_si128(halves), scale),
                           widen_clean(_mm256_extracti128_si256(halves, 1), scale)};
}

CAST_X86_FN struct floats e5m2_load(const void *from)
{
    return floats_of_halves(_mm256_slli_epi16(_mm256_cvtepu8_epi16(_mm_loadu_si128(from)), 8), 1);
}

CAST_X86_FN struct floats e4m3fn_load(const void *from)
{
    __m256i code = _mm256_cvtepu8_epi16(_mm_loadu_si128(from));
    __m256i magnitude = _mm256_and_si256(code, _mm256_set1_epi16(0x7f));
    __m256i sign = _mm256_slli_epi16(_mm256_xor_si256(code, magnitude), 8);
    __m256i nan = _mm256_cmpeq_epi16(magnitude, _mm256_set1_epi16(0x7f));

    return floats_of_halves(_mm256_or_si256(_mm256_or_si256(_mm256_slli_epi16(magnitude, 7), sign), nan), 256);
}

CAST_X86_FN struct floats f16_load(const void *from)
{
    const __m128i *halves = from;

    return (struct floats){_mm256_cvtph_ps(_mm_loadu_si128(halves)), _mm256_cvtph_ps(_mm_loadu_si128(halves + 1))};
}

CAST_X86_FN struct floats b16_load(const void *from)
{
    const __m128i *halves = from;
    __m256i low = _mm256_cvtepu16_epi32(_mm_loadu_si128(halves));
    __m256i high = _mm256_cvtepu16_epi32(_mm_loadu_si128(halves + 1));

    return (struct floats){_mm256_castsi256_ps(_mm256_slli_epi32(low, 16)),
                           _mm256_castsi256_ps(_mm256_slli_epi32(high, 16))};
}

CAST_X86_FN struct floats f32_load(const void *from)
{
    return (struct floats){_mm256_loadu_ps(from), _mm256_loadu_ps((const float *)from + 8)};
}

/* ---- values to 16 elements --------------------------------------------------------------------------------------- */

CAST_X86_FN void store_codes(void *to, struct floats values, struct bytes_format format)
{
    __m256i code = _mm256_packs_epi32(codes_of(values.low, format), codes_of(values.high, format));
    __m256i sign = _mm256_packs_epi32(_mm256_castps_si256(values.low), _mm256_castps_si256(values.high));
    __m256i with_sign = _mm256_or_si256(code, _mm256_and_si256(_mm256_srai_epi16(sign, 8), _mm256_set1_epi16(0x80)));
    __m256i byte = _mm256_blendv_epi8(with_sign, _mm256_set1_epi16(0x7f), code);
    __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 0, 4, 1, 5); /* packing works on each half */
    __m256i packed = _mm256_permutevar8x32_epi32(_mm256_packus_epi16(byte, byte), order);

    _mm_storeu_si128(to, _mm256_castsi256_si128(packed));
}

CAST_X86_FN void e5m2_store(void *to, struct floats values)
{
    store_codes(to, values, BYTES_E5M2);
}

CAST_X86_FN void e4m3fn_store(void *to, struct floats values)
{
    store_codes(to, values, BYTES_E4M3FN);
}

/* Takes values that bfloat16 represents: those of a float8. */
CAST_X86_FN void b16_store(void *to, struct floats values)
{
    __m256i low = _mm256_srli_epi32(_mm256_castps_si256(values.low), 16);
    __m256i high = _mm256_srli_epi32(_mm256_castps_si256(values.high), 16);

    _mm256_storeu_si256(to, _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xd8));
}

/* Takes values without NaN but the canonical one. */
CAST_X86_FN void f16_store(void *to, struct floats values)
{
    __m128i *halves = to;

    _mm_storeu_si128(halves, _mm256_cvtps_ph(values.low, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128(halves + 1, _mm256_cvtps_ph(values.high, _MM_FROUND_TO_NEAREST_INT));
}

CAST_X86_FN void f32_store(void *to, struct floats values)
{
    _mm256_storeu_ps(to, values.low);
    _mm256_storeu_ps((float *)to + 8, values.high);
}

/* ---- one to the other -------------------------------------------------------------------------------------------- */

#define LANES(name, to_kind, from_kind)                                                                                \
    CAST_X86_FN void name##_lanes(void *to, const void *from)                                                          \
    {                                                                                                                  \
        to_kind##_store(to, from_kind##_load(from));                                                                   \
    }
LANES(e5m2_widen, f32, e5m2)
LANES(e5m2_narrow, e5m2, f32)
LANES(e4m3fn_widen, f32, e4m3fn)
LANES(e4m3fn_narrow, e4m3fn, f32)
LANES(f16_to_e4m3fn, e4m3fn, f16)
LANES(b16_to_e4m3fn, e4m3fn, b16)
LANES(b16_to_e5m2, e5m2, b16)
LANES(e4m3fn_to_b16, b16, e4m3fn)
LANES(e5m2_to_b16, b16, e5m2)
LANES(e4m3fn_to_f16, f16, e4m3fn)

/* Rounds float16 to its high byte. */
CAST_X86_FN void f16_to_e5m2_lanes(void *to, const void *from)
{
    __m256i code = _mm256_loadu_si256(from), magnitude = _mm256_and_si256(code, _mm256_set1_epi16(0x7fff));
    __m256i odd = _mm256_and_si256(_mm256_srli_epi16(magnitude, 8), _mm256_set1_epi16(1));
    __m256i sum = _mm256_add_epi16(_mm256_add_epi16(magnitude, odd), _mm256_set1_epi16(0x7f));
    __m256i is_nan = _mm256_cmpgt_epi16(magnitude, _mm256_set1_epi16(0x7c00));
    __m256i sign = _mm256_xor_si256(code, magnitude), nan = _mm256_set1_epi16(0x7f00);
    __m256i high = _mm256_srli_epi16(_mm256_blendv_epi8(_mm256_or_si256(sum, sign), nan, is_nan), 8);

    _mm_storeu_si128(to, _mm_packus_epi16(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1)));
}

/* ---- one float8 to the other: 32 elements, as integers ----------------------------------------------------------- */

#define CODE_LANES 32

/* Stores magnitudes with the codes' signs, or NaN. */
CAST_X86_FN void store_magnitudes(void *to, __m256i magnitude, __m256i code, __m256i is_nan)
{
    __m256i sign = _mm256_and_si256(code, _mm256_set1_epi8(-128));

    _mm256_storeu_si256(to, _mm256_blendv_epi8(_mm256_or_si256(magnitude, sign), _mm256_set1_epi8(0x7f), is_nan));
}

/* Normal values gain 8 in the exponent and lose a bit.  Subnormal ones become normal. */
CAST_X86_FN void e4m3fn_to_e5m2_lanes(void *to, const void *from)
{
    __m256i code = _mm256_loadu_si256(from), magnitude = _mm256_and_si256(code, _mm256_set1_epi8(0x7f));
    __m256i odd = _mm256_and_si256(_mm256_srli_epi16(magnitude, 1), _mm256_set1_epi8(1));
    __m256i sum = _mm256_add_epi8(_mm256_add_epi8(magnitude, odd), _mm256_set1_epi8(8 << 3));
    __m256i normal = _mm256_and_si256(_mm256_srli_epi16(sum, 1), _mm256_set1_epi8(0x7f));
    __m128i table = _mm_setr_epi8(0, 24, 28, 30, 32, 33, 34, 35, 0, 0, 0, 0, 0, 0, 0, 0);
    __m256i subnormal = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), magnitude);
    __m256i is_subnormal = _mm256_cmpgt_epi8(_mm256_set1_epi8(8), magnitude);
    __m256i is_nan = _mm256_cmpeq_epi8(magnitude, _mm256_set1_epi8(0x7f));

    store_magnitudes(to, _mm256_blendv_epi8(normal, subnormal, is_subnormal), code, is_nan);
}

/* The opposite.  Codes below 36 are subnormal in float8_e4m3fn, those up to 20 round to zero. */
CAST_X86_FN void e5m2_to_e4m3fn_lanes(void *to, const void *from)
{
    __m256i code = _mm256_loadu_si256(from), magnitude = _mm256_and_si256(code, _mm256_set1_epi8(0x7f));
    __m256i finite = _mm256_min_epu8(magnitude, _mm256_set1_epi8(95)); /* 448, the largest value */
    __m256i normal = _mm256_sub_epi8(_mm256_add_epi8(finite, finite), _mm256_set1_epi8(8 << 3));
    __m128i table = _mm_setr_epi8(0, 1, 1, 1, 1, 1, 2, 2, 2, 2, 3, 4, 4, 5, 6, 7);
    __m256i above = _mm256_subs_epu8(magnitude, _mm256_set1_epi8(20));
    __m256i subnormal = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), above);
    __m256i is_subnormal = _mm256_cmpgt_epi8(_mm256_set1_epi8(36), magnitude);
    __m256i is_nan = _mm256_cmpgt_epi8(magnitude, _mm256_set1_epi8(0x7c));

    store_magnitudes(to, _mm256_blendv_epi8(normal, subnormal, is_subnormal), code, is_nan);
}

#endif
