/* 16- and 8-bit floats to float32 and back, and the two operations with a number: PREMUL_SUM's factor and AVG's
 * divisor. */
#include "base/minifloat.h"
#include "base/reduce.h"
#include "base/reduce_select.h"
#include "reduce_ref.h"
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
// clang-format on

static const tutti_dtype small[] = {TUTTI_FLOAT16, TUTTI_BFLOAT16, TUTTI_FLOAT8_E4M3FN, TUTTI_FLOAT8_E5M2};

#define EACH_SMALL(dtype)                                                                                              \
    for (size_t s_ = 0; s_ < 4; s_++)                                                                                  \
        for (tutti_dtype dtype = small[s_]; dtype; dtype = (tutti_dtype)0)
#define EACH_VERSION(version)                                                                                          \
    for (int v_ = 0; reduce_version_at(v_); v_++)                                                                      \
        for (const struct reduce_version *version = reduce_version_at(v_); version; version = NULL)

static int codes_of(tutti_dtype dtype)
{
    return 1 << (tutti_dtype_bytes(dtype) * 8);
}

/* Writes code k of dtype to memory. */
static void put_code(tutti_dtype dtype, void *base, int64_t k, unsigned code)
{
    memcpy((char *)base + k * tutti_dtype_bytes(dtype), &code, (size_t)tutti_dtype_bytes(dtype));
}

static unsigned get_code(tutti_dtype dtype, const void *base, int64_t k)
{
    unsigned code = 0;

    memcpy(&code, (const char *)base + k * tutti_dtype_bytes(dtype), (size_t)tutti_dtype_bytes(dtype));
    return code;
}

static void test_every_value_widens_exactly_and_comes_back(void **state)
{
    static char codes[2 * 65536], back[2 * 65536];
    static float wide[65536];

    (void)state;
    EACH_SMALL(dtype) EACH_VERSION(version)
    {
        struct reduce_ref_format *f = reduce_ref_format(dtype);
        int n = codes_of(dtype);
        for (int i = 0; i < n; i++) put_code(dtype, codes, i, (unsigned)i);
        version->widen[dtype_index(dtype)](wide, codes, n);
        version->narrow[dtype_index(dtype)](back, wide, n);
        for (int i = 0; i < n; i++) {
            double value = reduce_ref_decode(f, (unsigned)i);
            if (isnan(value)) {
                assert_true(isnan(wide[i]));
                assert_int_equal(get_code(dtype, back, i), f->nan);
            } else {
                assert_true((double)wide[i] == value && !signbit(wide[i]) == !signbit(value));
                assert_int_equal(get_code(dtype, back, i), i);
            }
        }
    }
}

/* Takes around each code its value, the midpoint to the next, and the float32 next to either, in both signs. */
static void test_narrowing_rounds_to_nearest_even(void **state)
{
    static float wide[12 * 32768];
    static char codes[2 * 12 * 32768];

    (void)state;
    EACH_SMALL(dtype) EACH_VERSION(version)
    {
        struct reduce_ref_format *f = reduce_ref_format(dtype);
        int n = 0;
        for (unsigned code = 0; code < f->infinity; code++) {
            float value = (float)f->value[code], middle = (float)((f->value[code] + f->value[code + 1]) / 2);
            float near[6] = {value,  nextafterf(value, INFINITY),  nextafterf(value, -INFINITY),
                             middle, nextafterf(middle, INFINITY), nextafterf(middle, -INFINITY)};
            for (int i = 0; i < 6; i++) {
                wide[n++] = near[i];
                wide[n++] = -near[i];
            }
        }
        version->narrow[dtype_index(dtype)](codes, wide, n);
        for (int i = 0; i < n; i++)
            if (get_code(dtype, codes, i) != reduce_ref_encode(f, (double)wide[i]))
                fail_msg("%s (%s): %a gives 0x%x, not 0x%x", dtype_name(dtype), version->name, (double)wide[i],
                         get_code(dtype, codes, i), reduce_ref_encode(f, (double)wide[i]));
    }
}

static void test_narrowing_any_float(void **state)
{
    enum { N = 400000 };
    static float wide[N];
    static char codes[2 * N];

    (void)state;
    reduce_ref_fill(wide, sizeof wide);
    EACH_SMALL(dtype) EACH_VERSION(version)
    {
        version->narrow[dtype_index(dtype)](codes, wide, N);
        for (int i = 0; i < N; i++)
            assert_int_equal(get_code(dtype, codes, i), reduce_ref_encode(reduce_ref_format(dtype), (double)wide[i]));
    }
}

/* Values beyond the largest finite one become infinity, or saturate if the dtype has none. */
static void test_overflow(void **state)
{
    static const struct {
        float value;
        unsigned e4m3fn, e5m2, f16, b16;
    } rows[] = {
        {448, 0x7e, 0x5f, 0x5f00, 0x43e0},      {464, 0x7e, 0x5f, 0x5f40, 0x43e8},
        {465, 0x7e, 0x5f, 0x5f44, 0x43e8},      {480, 0x7e, 0x60, 0x5f80, 0x43f0},
        {57344, 0x7e, 0x7b, 0x7b00, 0x4760},    {61439, 0x7e, 0x7b, 0x7b80, 0x4770},
        {61440, 0x7e, 0x7c, 0x7b80, 0x4770},    {65519, 0x7e, 0x7c, 0x7bff, 0x4780},
        {65520, 0x7e, 0x7c, 0x7c00, 0x4780},    {3e38f, 0x7e, 0x7c, 0x7c00, 0x7f62},
        {INFINITY, 0x7e, 0x7c, 0x7c00, 0x7f80}, {0x1.fffffep127f, 0x7e, 0x7c, 0x7c00, 0x7f80},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        float both[2] = {rows[i].value, -rows[i].value};
        unsigned want[4] = {rows[i].f16, rows[i].b16, rows[i].e4m3fn, rows[i].e5m2};
        for (int k = 0; k < 4; k++) EACH_VERSION(version)
            {
                char codes[4];
                version->narrow[dtype_index(small[k])](codes, both, 2);
                assert_int_equal(get_code(small[k], codes, 0), want[k]);
                assert_int_equal(get_code(small[k], codes, 1), want[k] | (unsigned)codes_of(small[k]) / 2);
            }
    }
}

/* ---- scale and average ------------------------------------------------------------------------------------------ */

enum { ELEMENTS = 20000 };
static char src[16 * ELEMENTS], got[16 * ELEMENTS], want[16 * ELEMENTS];

static void check(tutti_dtype dtype, const char *what, const char *version, double by)
{
    int64_t width = tutti_dtype_bytes(dtype);

    for (int64_t i = 0; i < ELEMENTS; i++)
        if (memcmp(got + i * width, want + i * width, (size_t)width) != 0)
            fail_msg("%s %s by %g (%s) differs at %lld", dtype_name(dtype), what, by, version, (long long)i);
}

/* Computes the reference for an array of floats, or of complex numbers' parts. */
static void ref_scale(tutti_dtype dtype, double by, bool divides)
{
    tutti_dtype part = reduce_ref_part(dtype);
    int64_t width = tutti_dtype_bytes(part), n = ELEMENTS * tutti_dtype_bytes(dtype) / width;

    for (int64_t i = 0; i < n; i++) {
        double x = reduce_ref_get(part, src + i * width);
        volatile double wide = divides ? x / by : x * by;
        volatile float narrow = divides ? (float)x / (float)by : (float)x * (float)by;
        reduce_ref_put(part, want + i * width, part == TUTTI_FLOAT64 ? wide : (double)narrow);
    }
}

static void test_scale(void **state)
{
    static const double factors[] = {1, 0, -0.5, 0.1, 3, 1e30, 1e-30, 1e300, INFINITY, NAN};

    (void)state;
    for (int d = 0; d < DTYPE_COUNT; d++) {
        tutti_dtype dtype = dtype_from_index(d);
        if (!dtype_reduces(dtype, TUTTI_PREMUL_SUM)) continue;
        reduce_ref_fill(src, sizeof src);
        for (size_t k = 0; k < sizeof factors / sizeof factors[0]; k++) {
            ref_scale(dtype, factors[k], false);
            EACH_VERSION(version)
            {
                version->scale[d](got, src, ELEMENTS, factors[k]);
                check(dtype, "scaled", version->name, factors[k]);
            }
            memcpy(got, src, sizeof got);
            reduce_scale(dtype, got, got, ELEMENTS, factors[k]); /* in place */
            check(dtype, "scaled in place", "best", factors[k]);
        }
    }
}

static void test_average(void **state)
{
    static const int64_t divisors[] = {1, 2, 3, 5, 6, 7, 8, 100, 255, 32768, 65537, INT32_MAX};

    (void)state;
    for (int d = 0; d < DTYPE_COUNT; d++) {
        tutti_dtype dtype = dtype_from_index(d);
        int64_t width = tutti_dtype_bytes(dtype);
        bool integer = d <= DTYPE_UINT64;
        if (!dtype_reduces(dtype, TUTTI_AVG)) continue;
        reduce_ref_fill(src, sizeof src);
        for (int64_t i = 0; integer && i < 4000; i++) src[i * width + width - 1] = (char)(0x7f + i % 3); /* edges */
        for (size_t k = 0; k < sizeof divisors / sizeof divisors[0]; k++) {
            if (!integer) ref_scale(dtype, (double)divisors[k], true);
            for (int64_t i = 0; integer && i < ELEMENTS; i++) {
                __int128 quotient = reduce_ref_integer(dtype, src + i * width) / divisors[k];
                memcpy(want + i * width, &quotient, (size_t)width);
            }
            EACH_VERSION(version)
            {
                version->average[d](got, src, ELEMENTS, divisors[k]);
                check(dtype, "divided", version->name, (double)divisors[k]);
            }
            memcpy(got, src, sizeof got);
            reduce_average(dtype, got, got, ELEMENTS, divisors[k]);
            check(dtype, "divided in place", "best", (double)divisors[k]);
        }
    }
}

/* Multiples of the divisor and their neighbours, for which a rounded quotient could be one too large. */
static void test_average_truncates(void **state)
{
    (void)state;
    for (int64_t divisor = 1; divisor < 3000; divisor += 7) {
        int32_t x[6], y[6];
        uint32_t z[6], w[6];
        for (int i = 0; i < 2; i++) {
            uint32_t top = i ? UINT32_MAX : 1000000007, m = (uint32_t)(top / divisor * divisor);
            for (int k = 0; k < 3; k++) {
                z[3 * i + k] = m - 1 + (uint32_t)k;
                x[3 * i + k] = -(int32_t)(z[3 * i + k] >> 1);
            }
        }
        EACH_VERSION(version)
        {
            version->average[DTYPE_INT32](y, x, 6, divisor);
            version->average[DTYPE_UINT32](w, z, 6, divisor);
            for (int i = 0; i < 6; i++) {
                assert_true(y[i] == x[i] / divisor);
                assert_true(w[i] == z[i] / divisor);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_value_widens_exactly_and_comes_back),
        cmocka_unit_test(test_narrowing_rounds_to_nearest_even),
        cmocka_unit_test(test_narrowing_any_float),
        cmocka_unit_test(test_overflow),
        cmocka_unit_test(test_scale),
        cmocka_unit_test(test_average),
        cmocka_unit_test(test_average_truncates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
