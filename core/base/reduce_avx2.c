/* The reduction loops for x86-64 with AVX2 and F16C. */
#if defined(__x86_64__)
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,f16c")
#pragma GCC optimize("fp-contract=off", "no-trapping-math")
#endif

#include "base/cast_x86.h"

#define HALF_LANES 8
typedef __m256 half_vector;

static inline half_vector half_load(const void *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128(p));
}

static inline half_vector half_clean(half_vector x)
{
    __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000));

    return _mm256_blendv_ps(x, nan, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
}

static inline void half_store(void *p, half_vector x)
{
    _mm_storeu_si128(p, _mm256_cvtps_ph(half_clean(x), _MM_FROUND_TO_NEAREST_INT));
}

#define VERSION avx2
#include "base/reduce_template.h"

#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#else
typedef int reduce_avx2_is_for_x86; /* ISO C forbids an empty translation unit */
#endif
