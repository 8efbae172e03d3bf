/* The reduction loops for x86-64 with AVX-512 (F, BW, DQ, VL). */
#if defined(__x86_64__)
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,f16c"))),                  \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,f16c")
#pragma GCC optimize("fp-contract=off", "no-trapping-math")
#endif

#include "base/cast_x86.h"

#define HALF_LANES 16
typedef __m512 half_vector;

static inline half_vector half_load(const void *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256(p));
}

static inline half_vector half_clean(half_vector x)
{
    __m512 nan = _mm512_castsi512_ps(_mm512_set1_epi32(0x7fc00000));

    return _mm512_mask_mov_ps(x, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), nan);
}

static inline void half_store(void *p, half_vector x)
{
    _mm256_storeu_si256(p, _mm512_cvtps_ph(half_clean(x), _MM_FROUND_TO_NEAREST_INT));
}

#define VERSION avx512
#include "base/reduce_template.h"

#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#else
typedef int reduce_avx512_is_for_x86; /* ISO C forbids an empty translation unit */
#endif
