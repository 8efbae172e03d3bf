/* float8 to float32 and back, 16 elements at once, for x86-64 with AVX2 and F16C.
 *
 * Widening uses the processor's float16.  A float8_e5m2 is the high byte of a float16.  A float8_e4m3fn is the top of a
 * float16 that is 2^8 times smaller, with equal biased exponents, so subnormals match as well. */
#ifndef BASE_CAST_X86_H
#define BASE_CAST_X86_H

#include <immintrin.h>
#include <stdint.h>

#define CAST_X86_FN static inline __attribute__((always_inline))

#define BYTE_LANES 16

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

CAST_X86_FN void narrow_lanes(void *to, const void *from, struct bytes_format format)
{
    __m256 low = _mm256_loadu_ps(from), high = _mm256_loadu_ps((const float *)from + 8);
    __m256i code = _mm256_packs_epi32(codes_of(low, format), codes_of(high, format));
    __m256i sign = _mm256_packs_epi32(_mm256_castps_si256(low), _mm256_castps_si256(high));
    __m256i with_sign = _mm256_or_si256(code, _mm256_and_si256(_mm256_srai_epi16(sign, 8), _mm256_set1_epi16(0x80)));
    __m256i byte = _mm256_blendv_epi8(with_sign, _mm256_set1_epi16(0x7f), code);
    __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 0, 4, 1, 5); /* packing works on each half */
    __m256i packed = _mm256_permutevar8x32_epi32(_mm256_packus_epi16(byte, byte), order);

    _mm_storeu_si128(to, _mm256_castsi256_si128(packed));
}

CAST_X86_FN void store_widened(float *to, __m128i halves, float scale)
{
    __m256 wide = _mm256_mul_ps(_mm256_cvtph_ps(halves), _mm256_set1_ps(scale));
    __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000));

    _mm256_storeu_ps(to, _mm256_blendv_ps(wide, nan, _mm256_cmp_ps(wide, wide, _CMP_UNORD_Q)));
}

CAST_X86_FN void store_floats(void *to, __m256i halves, float scale)
{
    store_widened(to, _mm256_castsi256_si128(halves), scale);
    store_widened((float *)to + 8, _mm256_extracti128_si256(halves, 1), scale);
}

CAST_X86_FN void e5m2_widen_lanes(void *to, const void *from)
{
    store_floats(to, _mm256_slli_epi16(_mm256_cvtepu8_epi16(_mm_loadu_si128(from)), 8), 1);
}

CAST_X86_FN void e5m2_narrow_lanes(void *to, const void *from)
{
    narrow_lanes(to, from, BYTES_E5M2);
}

CAST_X86_FN void e4m3fn_widen_lanes(void *to, const void *from)
{
    __m256i code = _mm256_cvtepu8_epi16(_mm_loadu_si128(from));
    __m256i magnitude = _mm256_and_si256(code, _mm256_set1_epi16(0x7f));
    __m256i sign = _mm256_slli_epi16(_mm256_xor_si256(code, magnitude), 8);
    __m256i nan = _mm256_cmpeq_epi16(magnitude, _mm256_set1_epi16(0x7f));

    store_floats(to, _mm256_or_si256(_mm256_or_si256(_mm256_slli_epi16(magnitude, 7), sign), nan), 256);
}

CAST_X86_FN void e4m3fn_narrow_lanes(void *to, const void *from)
{
    narrow_lanes(to, from, BYTES_E4M3FN);
}

#endif
