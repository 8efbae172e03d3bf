#include "base/reduce_select.h"
#include <stddef.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

static const struct reduce_version *const versions[] = {
    &reduce_base,
#if defined(__x86_64__)
    &reduce_avx2,
    &reduce_avx512,
#endif
};

#if defined(__x86_64__)
/* True if the processor has F16C, which __builtin_cpu_supports of older compilers does not know. */
static bool has_f16c(void)
{
    unsigned a, b, c, d;

    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
#endif

static bool runs_here(const struct reduce_version *version)
{
#if defined(__x86_64__)
    if (version == &reduce_avx2) return __builtin_cpu_supports("avx2") && has_f16c();
    if (version == &reduce_avx512)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#endif
    return version == &reduce_base;
}

const struct reduce_version *reduce_version_at(int index)
{
    int usable = 0;

    for (size_t i = 0; i < sizeof versions / sizeof versions[0]; i++)
        if (runs_here(versions[i]) && usable++ == index) return versions[i];
    return NULL;
}

static const struct reduce_version *best = &reduce_base;

/* Runs when the library is loaded, so that no reduction has to look whether it has been done. */
static __attribute__((constructor)) void choose_best(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
#endif
    for (int i = 0; reduce_version_at(i) != NULL; i++) best = reduce_version_at(i);
}

const struct reduce_version *reduce_version_best(void)
{
    return best;
}
