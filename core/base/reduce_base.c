/* The reduction loops for any processor of the architecture. */
#ifndef __clang__
#pragma GCC optimize("fp-contract=off", "no-trapping-math")
#endif
#if defined(__aarch64__) && defined(__ARM_NEON) /* these processors convert float16 in hardware */
#include <arm_neon.h>
#include <string.h>

#define HALF_LANES 4
typedef float32x4_t half_vector;

static inline half_vector half_load(const void *p)
{
    float16x4_t x;

    memcpy(&x, p, sizeof x);
    return vcvt_f32_f16(x);
}

static inline half_vector half_clean(half_vector x)
{
    return vbslq_f32(vceqq_f32(x, x), x, vreinterpretq_f32_u32(vdupq_n_u32(0x7fc00000)));
}

static inline void half_store(void *p, half_vector x)
{
    float16x4_t narrow = vcvt_f16_f32(half_clean(x));

    memcpy(p, &narrow, sizeof narrow);
}
#endif

#define VERSION base
#include "base/reduce_template.h"
