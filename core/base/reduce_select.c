#include "base/reduce_select.h"
#include <stdatomic.h>
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

/* Selects the version at the first use.  Two threads may both select, and select the same.  The versions are constant,
 * so relaxed accesses suffice. */
const struct reduce_version *reduce_version_best(void)
{
    static _Atomic(const struct reduce_version *) chosen;
    const struct reduce_version *version = atomic_load_explicit(&chosen, memory_order_relaxed);

    if (!version) {
        for (int i = 0; reduce_version_at(i); i++) version = reduce_version_at(i);
        atomic_store_explicit(&chosen, version, memory_order_relaxed);
    }
    return version;
}
