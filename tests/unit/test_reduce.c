/* Compares every reduction with a slow reference, in every version that this processor runs. */
#include "base/reduce.h"
#include "base/reduce_select.h"
#include "reduce_ref.h"
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
// clang-format on

enum { MAX_BYTES = 16 * 80000 };
static char a[MAX_BYTES], b[MAX_BYTES], got[MAX_BYTES], want[MAX_BYTES];

static void check_same(tutti_dtype dtype, const char *what, const char *version, int64_t n)
{
    size_t width = (size_t)tutti_dtype_bytes(dtype);

    if (memcmp(got, want, (size_t)n * width) == 0) return;
    for (int64_t i = 0; i < n; i++) {
        uint64_t w[4] = {0}, *e[4] = {&w[0], &w[1], &w[2], &w[3]};
        const char *from[4] = {a, b, got, want};
        if (memcmp(got + (size_t)i * width, want + (size_t)i * width, width) == 0) continue;
        for (int k = 0; k < 4; k++) memcpy(e[k], from[k] + (size_t)i * width, width < 8 ? width : 8);
        fail_msg("%s %s (%s) at %lld: 0x%llx, 0x%llx: 0x%llx, not 0x%llx", dtype_name(dtype), what, version,
                 (long long)i, (unsigned long long)w[0], (unsigned long long)w[1], (unsigned long long)w[2],
                 (unsigned long long)w[3]);
    }
}

/* Checks a op b for the first n elements, with every version. */
static void check_op(tutti_dtype dtype, tutti_reduce_op op, int64_t n)
{
    int64_t width = tutti_dtype_bytes(dtype);

    assert_true(n * width <= MAX_BYTES);
    for (int64_t i = 0; i < n; i++) reduce_ref_op(dtype, op, want + i * width, a + i * width, b + i * width);
    for (int v = 0; reduce_version_at(v); v++) {
        reduce_fn fn = reduce_version_at(v)->op[dtype_index(dtype)][op];
        assert_non_null(fn);
        fn(got, a, b, n);
        check_same(dtype, reduce_op_name(op), reduce_version_at(v)->name, n);
    }
}

static void check_ops(tutti_dtype dtype, int64_t n)
{
    for (int op = 0; op < TUTTI_REDUCE_OP_COUNT; op++)
        if (dtype_reduces(dtype, op) && op != TUTTI_AVG && op != TUTTI_PREMUL_SUM) check_op(dtype, op, n);
}

static void test_all_pairs_of_bytes(void **state)
{
    (void)state;
    for (int i = 0; i < 65536; i++) {
        a[i] = (char)(i >> 8);
        b[i] = (char)i;
    }
    for (int i = 0; i < DTYPE_COUNT; i++)
        if (tutti_dtype_bytes(dtype_from_index(i)) == 1) check_ops(dtype_from_index(i), 65536);
}

/* Combines all 65,536 values with some partners each: zeros, subnormals, ones, limits, infinities, NaNs, limits of
 * integers. */
static void test_all_16_bit_values(void **state)
{
    static const uint16_t partners[] = {0x0000, 0x8000, 0x0001, 0x8001, 0x03ff, 0x0400, 0x3c00, 0xbc00, 0x3f80,
                                        0xbf80, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7f7f, 0xff7f, 0x7f80, 0xff80,
                                        0x7c01, 0xfe00, 0x7fff, 0xffff, 0x1001, 0x5a5a, 0x0080, 0x8007};

    (void)state;
    for (size_t k = 0; k < sizeof partners / sizeof partners[0]; k++) {
        for (int i = 0; i < 65536; i++) {
            uint16_t value = (uint16_t)i;
            memcpy(a + 2 * i, &value, 2);
            memcpy(b + 2 * i, &partners[k], 2);
        }
        for (int i = 0; i < DTYPE_COUNT; i++)
            if (tutti_dtype_bytes(dtype_from_index(i)) == 2) check_ops(dtype_from_index(i), 65536);
    }
}

/* Random bits are mostly far apart.  A second round gives floats such close exponents that sums round and cancel. */
static void test_random_pairs(void **state)
{
    (void)state;
    for (int i = 0; i < DTYPE_COUNT; i++) {
        tutti_dtype dtype = dtype_from_index(i), part = reduce_ref_part(dtype);
        int64_t n = 40000, width = tutti_dtype_bytes(dtype), parts = n * width / tutti_dtype_bytes(part);
        reduce_ref_fill(a, (size_t)(n * width));
        reduce_ref_fill(b, (size_t)(n * width));
        check_ops(dtype, n);
        if (!dtype_reduces(dtype, TUTTI_PREMUL_SUM)) continue;
        for (int64_t k = 0; k < parts; k++) {
            double x = ldexp((double)(int64_t)reduce_ref_random(), -60),
                   y = ldexp((double)(int64_t)reduce_ref_random(), -61);
            reduce_ref_put(part, a + k * tutti_dtype_bytes(part), x);
            reduce_ref_put(part, b + k * tutti_dtype_bytes(part), y);
        }
        check_ops(dtype, n);
    }
}

/* Combines each limit with each. */
static void check_edges(tutti_dtype dtype, const uint64_t *edges, int count)
{
    tutti_dtype part = reduce_ref_part(dtype);
    int64_t width = tutti_dtype_bytes(part), pairs = (int64_t)count * count;

    for (int i = 0; i < count; i++)
        for (int j = 0; j < count; j++) {
            memcpy(a + (i * count + j) * width, &edges[i], (size_t)width);
            memcpy(b + (i * count + j) * width, &edges[j], (size_t)width);
        }
    check_ops(dtype, pairs * width / tutti_dtype_bytes(dtype));
}

static void test_edges(void **state)
{
    static const uint64_t ints[] = {0,          1,          2,          0x7f,       0x80,       0xff,
                                    0x7fff,     0x8000,     0xffff,     0x7fffffff, 0x80000000, 0xffffffff,
                                    INT64_MAX,  1ull << 63, UINT64_MAX, 0xfffffffe, 0x8001,     (1ull << 63) | 1,
                                    0x10000001, 0xfffe};
    static const uint64_t f32[] = {0,          0x80000000, 1,          0x80000001, 0x007fffff, 0x00800000,
                                   0x3f800000, 0xbf800000, 0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000,
                                   0x7fc00000, 0xffc00000, 0x7f800001, 0xff812345, 0x34000000, 0x33800000};
    static const uint64_t f64[] = {0,
                                   1ull << 63,
                                   1,
                                   (1ull << 63) | 1,
                                   0x000fffffffffffff,
                                   0x0010000000000000,
                                   0x3ff0000000000000,
                                   0xbff0000000000000,
                                   0x7fefffffffffffff,
                                   0xffefffffffffffff,
                                   0x7ff0000000000000,
                                   0xfff0000000000000,
                                   0x7ff8000000000000,
                                   0xfff8000000000000,
                                   0x7ff0000000000001,
                                   0xfff0000012345678,
                                   0x3cb0000000000000,
                                   0x3ca0000000000000};

    (void)state;
    for (int i = DTYPE_INT8; i <= DTYPE_UINT64; i++) check_edges(dtype_from_index(i), ints, 20);
    check_edges(TUTTI_FLOAT32, f32, 18);
    check_edges(TUTTI_COMPLEX64, f32, 18);
    check_edges(TUTTI_FLOAT64, f64, 18);
    check_edges(TUTTI_COMPLEX128, f64, 18);
}

/* A few results computed by hand check the reference itself. */
static void test_by_hand(void **state)
{
    static const struct {
        tutti_dtype dtype;
        tutti_reduce_op op;
        uint32_t a, b, want;
    } rows[] = {
        {TUTTI_FLOAT8_E4M3FN, TUTTI_SUM, 0x7e, 0x7e, 0x7e},     /* 448 + 448 saturates */
        {TUTTI_FLOAT8_E4M3FN, TUTTI_PRODUCT, 0xfe, 0x7e, 0xfe}, /* -448 * 448 */
        {TUTTI_FLOAT8_E4M3FN, TUTTI_SUM, 0x7e, 0x58, 0x7e},     /* 448 + 16: the tie below 480, which does not exist */
        {TUTTI_FLOAT8_E4M3FN, TUTTI_SUM, 0x7e, 0xff, 0x7f},     /* NaN */
        {TUTTI_FLOAT8_E4M3FN, TUTTI_SUM, 0x01, 0x01, 0x02},     /* 2^-9 + 2^-9 */
        {TUTTI_FLOAT8_E4M3FN, TUTTI_MIN, 0x00, 0x80, 0x80},     /* 0.0, -0.0 */
        {TUTTI_FLOAT8_E5M2, TUTTI_SUM, 0x7b, 0x7b, 0x7c},       /* 57344 + 57344: infinity */
        {TUTTI_FLOAT8_E5M2, TUTTI_SUM, 0x7b, 0x68, 0x7b},       /* 57344 + 2048 is below the tie */
        {TUTTI_FLOAT8_E5M2, TUTTI_SUM, 0x7b, 0x6c, 0x7c},       /* 57344 + 4096: the tie goes to infinity */
        {TUTTI_FLOAT8_E5M2, TUTTI_SUM, 0x7c, 0xfc, 0x7f},       /* inf - inf */
        {TUTTI_FLOAT16, TUTTI_SUM, 0x3c00, 0x1000, 0x3c00},     /* 1 + 2^-11: the tie to even, below */
        {TUTTI_FLOAT16, TUTTI_SUM, 0x3c01, 0x1000, 0x3c02},     /* and above */
        {TUTTI_FLOAT16, TUTTI_SUM, 0x7bff, 0x4c00, 0x7c00},     /* 65504 + 16: infinity */
        {TUTTI_FLOAT16, TUTTI_SUM, 0x7bff, 0x4bff, 0x7bff},     /* a little less: finite */
        {TUTTI_FLOAT16, TUTTI_PRODUCT, 0x0400, 0x3800, 0x0200}, /* 2^-14 / 2: subnormal */
        {TUTTI_FLOAT16, TUTTI_MAX, 0xfe01, 0x3c00, 0x7e00},     /* NaN */
        {TUTTI_BFLOAT16, TUTTI_SUM, 0x3f80, 0x3b80, 0x3f80},    /* 1 + 2^-8: the tie */
        {TUTTI_BFLOAT16, TUTTI_SUM, 0x3f81, 0x3b80, 0x3f82},
        {TUTTI_BFLOAT16, TUTTI_SUM, 0x7f7f, 0x7f7f, 0x7f80},
        {TUTTI_FLOAT32, TUTTI_MIN, 0x80000000, 0x00000000, 0x80000000}, /* -0.0, 0.0 */
        {TUTTI_FLOAT32, TUTTI_MAX, 0x80000000, 0x00000000, 0x00000000},
        {TUTTI_FLOAT32, TUTTI_MIN, 0x3f800000, 0xffc12345, 0x7fc00000},
        {TUTTI_FLOAT32, TUTTI_SUM, 0x7f800000, 0xff800000, 0x7fc00000}, /* x86 would give 0xffc00000 */
        {TUTTI_UINT16, TUTTI_PRODUCT, 0xffff, 0xffff, 0x0001},
        {TUTTI_INT16, TUTTI_PRODUCT, 0x8000, 0x8000, 0x0000},
        {TUTTI_INT32, TUTTI_SUM, 0x7fffffff, 1, 0x80000000},
        {TUTTI_INT8, TUTTI_MIN, 0x80, 0x7f, 0x80},
        {TUTTI_UINT8, TUTTI_MIN, 0x80, 0x7f, 0x7f},
        {TUTTI_BOOL, TUTTI_SUM, 1, 1, 1},
        {TUTTI_BOOL, TUTTI_PRODUCT, 1, 0, 0},
        {TUTTI_BOOL, TUTTI_BXOR, 1, 1, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        size_t width = (size_t)tutti_dtype_bytes(rows[i].dtype);
        memcpy(a, &rows[i].a, width);
        memcpy(b, &rows[i].b, width);
        memcpy(want, &rows[i].want, width);
        reduce_find(rows[i].dtype, rows[i].op)(got, a, b, 1);
        check_same(rows[i].dtype, reduce_op_name(rows[i].op), "best", 1);
        reduce_find(rows[i].dtype, rows[i].op)(got, b, a, 1);
        check_same(rows[i].dtype, reduce_op_name(rows[i].op), "best, turned round", 1);
    }
}

/* The naive formula recovers no infinity from NaNs. */
static void test_complex_product_is_the_naive_one(void **state)
{
    const float x[2] = {INFINITY, 0}, y[2] = {1, NAN};
    float z[2];

    (void)state;
    reduce_find(TUTTI_COMPLEX64, TUTTI_PRODUCT)(z, x, y, 1);
    assert_true(isnan(z[0]) && isnan(z[1]));
}

static void test_find(void **state)
{
    (void)state;
    for (int i = 0; i < DTYPE_COUNT; i++)
        for (int op = 0; op < TUTTI_REDUCE_OP_COUNT; op++) {
            tutti_dtype dtype = dtype_from_index(i);
            assert_int_equal(reduce_find(dtype, op) != NULL, dtype_reduces(dtype, op));
            if (dtype_reduces(dtype, op) && (op == TUTTI_AVG || op == TUTTI_PREMUL_SUM))
                assert_ptr_equal(reduce_find(dtype, op), reduce_find(dtype, TUTTI_SUM));
        }
    assert_null(reduce_find((tutti_dtype)0x0310, TUTTI_SUM));
    assert_null(reduce_find(TUTTI_FLOAT32, TUTTI_REDUCE_OP_COUNT));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_find),
        cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_complex_product_is_the_naive_one),
        cmocka_unit_test(test_edges),
        cmocka_unit_test(test_all_pairs_of_bytes),
        cmocka_unit_test(test_all_16_bit_values),
        cmocka_unit_test(test_random_pairs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
