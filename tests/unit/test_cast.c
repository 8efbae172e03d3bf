/* Conversions between all floating dtypes: every version of the loops against the reference, which searches the nearest
 * value in a table of all codes.  The results are equal bit by bit. */
#include "base/cast.h"
#include "base/reduce_select.h"
#include "reduce_ref.h"
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <tutti/tutti.h>
// clang-format on

static const tutti_dtype dtypes[] = {TUTTI_FLOAT16, TUTTI_BFLOAT16,      TUTTI_FLOAT32,
                                     TUTTI_FLOAT64, TUTTI_FLOAT8_E4M3FN, TUTTI_FLOAT8_E5M2};

#define EACH_DTYPE(dtype)                                                                                              \
    for (size_t dtype##_ = 0; dtype##_ < 6; dtype##_++)                                                                \
        for (tutti_dtype dtype = dtypes[dtype##_]; dtype; dtype = (tutti_dtype)0)
#define EACH_VERSION(version)                                                                                          \
    for (int v_ = 0; reduce_version_at(v_); v_++)                                                                      \
        for (const struct reduce_version *version = reduce_version_at(v_); version; version = NULL)

enum { MOST = 1 << 19 };
static char in[8 * MOST + 1], got[8 * MOST + 1], want[8 * MOST];
static double inputs[MOST];

/* Compares every version with the reference, on n elements at `from`. */
static void check(tutti_dtype to, tutti_dtype from, const void *values, int64_t n)
{
    int64_t width = tutti_dtype_bytes(to), step = tutti_dtype_bytes(from);

    for (int64_t i = 0; i < n; i++)
        reduce_ref_put(to, want + i * width, reduce_ref_get(from, (const char *)values + i * step));
    EACH_VERSION(version)
    {
        cast_by_version(version, to, got, from, values, n);
        for (int64_t i = 0; i < n; i++)
            if (memcmp(got + i * width, want + i * width, (size_t)width) != 0)
                fail_msg("%s to %s (%s): %a differs", dtype_name(from), dtype_name(to), version->name,
                         reduce_ref_get(from, (const char *)values + i * step));
    }
}

static void check_all(tutti_dtype from, const void *values, int64_t n)
{
    EACH_DTYPE(to)
    {
        if (to != from) check(to, from, values, n);
    }
}

static void test_every_small_value(void **state)
{
    (void)state;
    EACH_DTYPE(from)
    {
        int64_t width = tutti_dtype_bytes(from), codes = width == 1 ? 256 : 65536;
        if (width > 2) continue;
        for (int64_t i = 0; i < codes; i++) memcpy(in + i * width, &i, (size_t)width); /* little-endian */
        check_all(from, in, codes);
    }
}

/* Adds a number and what lies next to it, in both signs.  The neighbours in float64 are closer than float32's last
 * place: rounding them to float32 first gives the number itself. */
static int64_t add_around(int64_t n, double x)
{
    double near[] = {x, nextafter(x, INFINITY), nextafter(x, -INFINITY), x * (1 + 0x1p-26), x * (1 - 0x1p-26)};

    for (size_t i = 0; i < sizeof near / sizeof near[0]; i++) {
        inputs[n++] = near[i];
        inputs[n++] = -near[i];
    }
    return n;
}

static void check_inputs(int64_t n)
{
    check_all(TUTTI_FLOAT64, inputs, n);
    for (int64_t i = 0; i < n; i++) reduce_ref_put(TUTTI_FLOAT32, in + 4 * i, inputs[i]);
    check_all(TUTTI_FLOAT32, in, n);
}

/* Takes the values of each small dtype and the midpoints between them, where double rounding would show. */
static void test_values_and_midpoints(void **state)
{
    (void)state;
    EACH_DTYPE(dtype)
    {
        struct reduce_ref_format *f = reduce_ref_format(dtype);
        int64_t n = 0;
        if (!f) continue;
        for (unsigned code = 0; code < f->infinity; code++) {
            n = add_around(n, (f->value[code] + f->value[code + 1]) / 2);
            if (code % 8 == 0) n = add_around(n, f->value[code]);
            if (n > MOST - 20) {
                check_inputs(n);
                n = 0;
            }
        }
        check_inputs(n);
    }
}

/* float64 beyond float32's range and precision at both ends. */
static void test_special_values(void **state)
{
    static const double rows[] = {0,
                                  INFINITY,
                                  NAN,
                                  0x1p-149,
                                  0x1p-150,
                                  0x1p-133,
                                  0x1p-134,
                                  0x1.8p-134,
                                  0x1p-1074,
                                  0x1p-1022,
                                  0x1p-126,
                                  0x1.fffffep127,
                                  0x1.ffffffp127,
                                  0x1p128,
                                  0x1p1023,
                                  0x1.fep127,
                                  0x1.ffp127,
                                  0x1.fffp127,
                                  448,
                                  464,
                                  57344,
                                  61440,
                                  65504,
                                  65520};
    int64_t n = 0;
    uint64_t nan[] = {0x7ff0000000000001, 0xfff0000000000001, 0x7ff8000000000001, 0xffffffffffffffff};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) n = add_around(n, rows[i]);
    memcpy(inputs + n, nan, sizeof nan);
    check_inputs(n + 4);
}

static void test_random_values(void **state)
{
    enum { N = 100000 };

    (void)state;
    reduce_ref_fill(in, sizeof in);
    check_all(TUTTI_FLOAT32, in, N);
    check_all(TUTTI_FLOAT64, in, N);
    for (int64_t i = 0; i < N; i++) {
        int exponent = (int)(reduce_ref_random() % 320) - 160;
        inputs[i] = ldexp((double)(int64_t)reduce_ref_random(), exponent - 63);
    }
    check_all(TUTTI_FLOAT64, inputs, N);
}

/* Lengths around vectors and blocks, at odd addresses, with nothing written beyond the end. */
static void test_lengths(void **state)
{
    (void)state;
    reduce_ref_fill(in, 8 * 1100 + 1);
    EACH_DTYPE(to)
    EACH_DTYPE(from)
    {
        int64_t width = tutti_dtype_bytes(to);
        cast_elements(to, want, from, in + 1, 1100);
        for (int64_t n = 0; n < 1100; n += n < 40 ? 1 : 211) {
            memset(got, 0x55, sizeof want);
            cast_elements(to, got + 1, from, in + 1, n);
            assert_memory_equal(got + 1, want, n * width);
            assert_int_equal(got[1 + n * width], 0x55);
        }
    }
}

static void test_in_place(void **state)
{
    enum { N = 3001 };

    (void)state;
    EACH_DTYPE(to)
    EACH_DTYPE(from)
    {
        if (tutti_dtype_bytes(to) > tutti_dtype_bytes(from)) continue;
        reduce_ref_fill(in, sizeof(double) * N);
        cast_elements(to, want, from, in, N);
        assert_int_equal(tutti_cast(tutti_tensor_of(in, N, to), tutti_tensor_of(in, N, from)), TUTTI_OK);
        assert_memory_equal(in, want, N * tutti_dtype_bytes(to));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_small_value), cmocka_unit_test(test_values_and_midpoints),
        cmocka_unit_test(test_special_values),    cmocka_unit_test(test_random_values),
        cmocka_unit_test(test_lengths),           cmocka_unit_test(test_in_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
