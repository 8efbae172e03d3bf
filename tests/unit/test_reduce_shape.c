/* Length, alignment, a dst equal to an operand, and the number of sources change no bit of any result. */
#include "base/reduce.h"
#include "base/reduce_select.h"
#include "reduce_ref.h"
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
// clang-format on

enum { LARGE = 100003, CAPACITY = 16 * LARGE + 64, MOST = 5 };
static char a[CAPACITY], b[CAPACITY], c[CAPACITY], want[CAPACITY], in[MOST][CAPACITY];

static bool is_step(tutti_dtype dtype, tutti_reduce_op op)
{
    return dtype_reduces(dtype, op) && op != TUTTI_AVG && op != TUTTI_PREMUL_SUM;
}

#define EACH_STEP(dtype, op)                                                                                           \
    for (int d_ = 0; d_ < DTYPE_COUNT; d_++)                                                                           \
        for (tutti_dtype dtype = dtype_from_index(d_); dtype; dtype = (tutti_dtype)0)                                  \
            for (int op = 0; op < TUTTI_REDUCE_OP_COUNT; op++)                                                         \
                if (is_step(dtype, op))

/* Makes one call at odd addresses, with guard bytes on either side of dst. dst is c, a or b by turns. */
static void check_shape(reduce_fn fn, tutti_dtype dtype, int64_t n, int shift, int alias)
{
    int64_t bytes = n * tutti_dtype_bytes(dtype);
    char *x = a + 32 + shift, *y = b + 32 + 3 * shift, *dst = alias == 1 ? x : alias == 2 ? y : c + 32 + 7 * shift;

    memcpy(x, in[0], (size_t)bytes);
    memcpy(y, in[1], (size_t)bytes);
    memset(dst - 8, 0x5a, 8);
    memset(dst + bytes, 0x5a, 8);
    fn(dst, x, y, n);
    assert_memory_equal(dst, want, (size_t)bytes);
    for (int i = 0; i < 8; i++) assert_true(dst[i - 8] == 0x5a && dst[bytes + i] == 0x5a);
    if (dst != x) assert_memory_equal(x, in[0], (size_t)bytes);
    if (dst != y) assert_memory_equal(y, in[1], (size_t)bytes);
}

static void test_lengths_alignments_aliases(void **state)
{
    (void)state;
    reduce_ref_fill(in, sizeof in);
    EACH_STEP(dtype, op)
    {
        int64_t width = tutti_dtype_bytes(dtype);
        for (int64_t i = 0; i < 68; i++)
            reduce_ref_op(dtype, op, want + i * width, in[0] + i * width, in[1] + i * width);
        for (int v = 0; reduce_version_at(v); v++)
            for (int64_t n = 0; n < 68; n++)
                for (int shift = 0; shift < 4; shift++)
                    for (int alias = 0; alias < 3; alias++)
                        check_shape(reduce_version_at(v)->op[dtype_index(dtype)][op], dtype, n, shift, alias);
    }
}

static void test_dst_is_both(void **state)
{
    (void)state;
    reduce_ref_fill(in, sizeof in);
    EACH_STEP(dtype, op)
    {
        int64_t width = tutti_dtype_bytes(dtype), n = 1000;
        for (int64_t i = 0; i < n; i++)
            reduce_ref_op(dtype, op, want + i * width, in[0] + i * width, in[0] + i * width);
        for (int v = 0; reduce_version_at(v); v++) {
            memcpy(a + 1, in[0], (size_t)(n * width));
            reduce_version_at(v)->op[dtype_index(dtype)][op](a + 1, a + 1, a + 1, n);
            assert_memory_equal(a + 1, want, (size_t)(n * width));
        }
    }
}

static void test_large_and_equal_in_all_versions(void **state)
{
    (void)state;
    reduce_ref_fill(in, sizeof in);
    EACH_STEP(dtype, op)
    {
        reduce_base.op[dtype_index(dtype)][op](want, in[0], in[1], LARGE);
        for (int v = 0; reduce_version_at(v); v++)
            for (int alias = 0; alias < 3; alias++)
                check_shape(reduce_version_at(v)->op[dtype_index(dtype)][op], dtype, LARGE, 1, alias);
    }
}

/* NaNs of any payload and infinities give the same bits in either order of the operands. */
static void test_order_of_operands_does_not_matter(void **state)
{
    (void)state;
    reduce_ref_fill(in, sizeof in);
    for (int64_t i = 0; i < LARGE; i += 3) { /* every third float32 and float64 special */
        memset(in[0] + 8 * i + 6, i & 1 ? 0xff : 0x7f, 2);
        memset(in[1] + 8 * (i + i % 2) + 2, 0xff, 2);
    }
    EACH_STEP(dtype, op)
    {
        for (int v = 0; reduce_version_at(v); v++) {
            reduce_fn fn = reduce_version_at(v)->op[dtype_index(dtype)][op];
            fn(a, in[0], in[1], 50000);
            fn(b, in[1], in[0], 50000);
            assert_memory_equal(a, b, (size_t)(50000 * tutti_dtype_bytes(dtype)));
        }
    }
}

/* ---- many ------------------------------------------------------------------------------------------------------- */

/* Reduces from left to right.  Small floats are summed in float32 and rounded at the end. */
static void ref_many(tutti_dtype dtype, tutti_reduce_op op, int n_src, int64_t n)
{
    int64_t width = tutti_dtype_bytes(dtype);
    bool rounds_late = reduce_ref_is_float(dtype) && width < 4;

    for (int64_t i = 0; i < n; i++) {
        char *to = want + i * width;
        double sum = rounds_late ? reduce_ref_get(dtype, in[0] + i * width) : 0;
        memcpy(to, in[0] + i * width, (size_t)width);
        for (int k = 1; k < n_src; k++)
            if (rounds_late)
                sum = reduce_ref_float(dtype, op, sum, reduce_ref_get(dtype, in[k] + i * width));
            else
                reduce_ref_op(dtype, op, to, to, in[k] + i * width);
        if (rounds_late && n_src > 1) reduce_ref_put(dtype, to, sum);
    }
}

static void check_many(tutti_dtype dtype, tutti_reduce_op op, int n_src, int64_t n)
{
    size_t bytes = (size_t)(n * tutti_dtype_bytes(dtype));
    const void *src[MOST];

    ref_many(dtype, op, n_src, n);
    for (int i = 0; i < n_src; i++) src[i] = in[i];
    memset(c + bytes, 0x5a, 8);
    reduce_many(dtype, op, c, src, n_src, n);
    assert_memory_equal(c, want, bytes);
    for (int i = 0; i < 8; i++) assert_true(c[bytes + (size_t)i] == 0x5a);
    for (int i = 0; i < n_src; i++) { /* dst is source i */
        memcpy(a, in[i], bytes);
        src[i] = a;
        reduce_many(dtype, op, a, src, n_src, n);
        assert_memory_equal(a, want, bytes);
        src[i] = in[i];
    }
}

static void test_many(void **state)
{
    static const int64_t lengths[] = {0, 1, 67, 2048, 2049, 9001};

    (void)state;
    reduce_ref_fill(in, sizeof in);
    EACH_STEP(dtype, op)
    for (int n_src = 1; n_src <= MOST; n_src++)
        for (size_t k = 0; k < sizeof lengths / sizeof lengths[0]; k++) check_many(dtype, op, n_src, lengths[k]);
}

/* 2048 + 1 + 1 in float16: 2048 if each step rounds, 2050 if the sum rounds once. */
static void test_many_rounds_once(void **state)
{
    const uint16_t x = 0x6800, one = 0x3c00;
    const void *src[] = {&x, &one, &one};
    uint16_t sum;

    (void)state;
    reduce_many(TUTTI_FLOAT16, TUTTI_SUM, &sum, src, 3, 1);
    assert_int_equal(sum, 0x6801);
    reduce_many(TUTTI_FLOAT16, TUTTI_AVG, &sum, src, 3, 1); /* equals SUM, because the division is a separate step */
    assert_int_equal(sum, 0x6801);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lengths_alignments_aliases),
        cmocka_unit_test(test_dst_is_both),
        cmocka_unit_test(test_large_and_equal_in_all_versions),
        cmocka_unit_test(test_order_of_operands_does_not_matter),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_many_rounds_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
