#include "base/reduce.h"
#include "base/reduce_select.h"
#include <assert.h>
#include <string.h>

enum { WIDE = 512 };         /* elements of one of the two float32 blocks */
enum { BLOCK_BYTES = 4096 }; /* size of the accumulators: fits the first-level cache and a small stack */

reduce_fn reduce_find(tutti_dtype dtype, tutti_reduce_op op)
{
    int index = dtype_index(dtype);
    if (index < 0 || (unsigned)op >= TUTTI_REDUCE_OP_COUNT) return NULL;
    return reduce_version_best()->op[index][op];
}

void reduce_scale(tutti_dtype dtype, void *dst, const void *src, int64_t n, double factor)
{
    assert(dtype_reduces(dtype, TUTTI_PREMUL_SUM));
    reduce_version_best()->scale[dtype_index(dtype)](dst, src, n, factor);
}

void reduce_average(tutti_dtype dtype, void *dst, const void *src, int64_t n, int64_t divisor)
{
    assert(dtype_reduces(dtype, TUTTI_AVG) && divisor > 0);
    reduce_version_best()->average[dtype_index(dtype)](dst, src, n, divisor);
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

    reduce_version_best()->widen[index](sum, at(src[0], offset), n);
    for (int i = 1; i < n_src; i++) {
        reduce_version_best()->widen[index](next, at(src[i], offset), n);
        op(sum, sum, next, n);
    }
    reduce_version_best()->narrow[index]((char *)dst + offset, sum, n);
}

/* Reduces one block of more than two sources.  Only the last step writes dst, because dst may be any source. */
static void reduce_plain(reduce_fn op, void *dst, const void *const *src, int n_src, int64_t offset, int64_t n)
{
    char sum[BLOCK_BYTES];

    op(sum, at(src[0], offset), at(src[1], offset), n);
    for (int i = 2; i < n_src - 1; i++) op(sum, sum, at(src[i], offset), n);
    op((char *)dst + offset, sum, at(src[n_src - 1], offset), n);
}

/* Does reduce_many's work for other numbers of sources than two.  fn: the op's loop. */
static __attribute__((noinline)) void reduce_blocks(tutti_dtype dtype, tutti_reduce_op op, reduce_fn fn, void *dst,
                                                    const void *const *src, int n_src, int64_t n)
{
    int64_t width = tutti_dtype_bytes(dtype);
    bool rounds = reduce_version_best()->widen[dtype_index(dtype)] && op != TUTTI_MIN && op != TUTTI_MAX;
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

void reduce_many(tutti_dtype dtype, tutti_reduce_op op, void *dst, const void *const *src, int n_src, int64_t n)
{
    reduce_fn fn = reduce_find(dtype, op);
    if (fn == NULL || n_src < 1) return;
    if (n_src == 2) /* groups of two use it for each small operation */
        fn(dst, src[0], src[1], n);
    else
        reduce_blocks(dtype, op, fn, dst, src, n_src, n);
}
