#include "base/reduce.h"
#include "base/reduce_version.h"
#include <assert.h>
#include <stdatomic.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

enum { WIDE = 512 };         /* elements of one of the two float32 blocks */
enum { BLOCK_BYTES = 4096 }; /* size of the accumulators: fits the first-level cache and a small stack */

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
static const struct reduce_version *select_version(void)
{
    static _Atomic(const struct reduce_version *) chosen;
    const struct reduce_version *version = atomic_load_explicit(&chosen, memory_order_relaxed);

    if (!version) {
        for (int i = 0; reduce_version_at(i); i++) version = reduce_version_at(i);
        atomic_store_explicit(&chosen, version, memory_order_relaxed);
    }
    return version;
}

reduce_fn reduce_find(tutti_dtype dtype, tutti_reduce_op op)
{
    if (!dtype_reduces(dtype, op)) return NULL;
    return select_version()->op[dtype_index(dtype)][tutti_reduce_op_pairwise(op)];
}

void reduce_scale(tutti_dtype dtype, void *dst, const void *src, int64_t n, double factor)
{
    assert(dtype_reduces(dtype, TUTTI_PREMUL_SUM));
    select_version()->scale[dtype_index(dtype)](dst, src, n, factor);
}

void reduce_average(tutti_dtype dtype, void *dst, const void *src, int64_t n, int64_t divisor)
{
    assert(dtype_reduces(dtype, TUTTI_AVG) && divisor > 0);
    select_version()->average[dtype_index(dtype)](dst, src, n, divisor);
}

/* ---- many sources ------------------------------------------------------------------------------------------ */

static const void *at(const void *p, int64_t bytes)
{
    return (const char *)p + bytes;
}

/* Reduces one block, accumulated in float32. */
static void reduce_wide(tutti_dtype dtype, reduce_fn op, void *dst, const void *const *src, int n_src, int64_t offset,
                        int64_t n)
{
    float sum[WIDE], next[WIDE];
    int index = dtype_index(dtype);

    select_version()->widen[index](sum, at(src[0], offset), n);
    for (int i = 1; i < n_src; i++) {
        select_version()->widen[index](next, at(src[i], offset), n);
        op(sum, sum, next, n);
    }
    select_version()->narrow[index]((char *)dst + offset, sum, n);
}

/* Reduces one block of more than two sources.  Only the last step writes dst, because dst may be any source. */
static void reduce_plain(reduce_fn op, void *dst, const void *const *src, int n_src, int64_t offset, int64_t n)
{
    char sum[BLOCK_BYTES];

    op(sum, at(src[0], offset), at(src[1], offset), n);
    for (int i = 2; i < n_src - 1; i++) op(sum, sum, at(src[i], offset), n);
    op((char *)dst + offset, sum, at(src[n_src - 1], offset), n);
}

void reduce_many(tutti_dtype dtype, tutti_reduce_op op, void *dst, const void *const *src, int n_src, int64_t n)
{
    reduce_fn fn = reduce_find(dtype, op);
    if (fn == NULL || n_src < 1) return;
    if (n_src == 2) { /* fast path: groups of two use it for each small operation */
        fn(dst, src[0], src[1], n);
        return;
    }
    int64_t width = tutti_dtype_bytes(dtype);
    bool rounds = select_version()->widen[dtype_index(dtype)] && op != TUTTI_MIN && op != TUTTI_MAX;
    int64_t block = rounds ? WIDE : BLOCK_BYTES / width;
    if (n_src == 1) {
        if (dst != src[0] && n > 0) memcpy(dst, src[0], (size_t)(n * width));
        return;
    }
    if (rounds) fn = reduce_find(TUTTI_FLOAT32, op);
    for (int64_t i = 0; i < n; i += block) {
        int64_t now = n - i < block ? n - i : block;

        if (rounds)
            reduce_wide(dtype, fn, dst, src, n_src, i * width, now);
        else
            reduce_plain(fn, dst, src, n_src, i * width, now);
    }
}
