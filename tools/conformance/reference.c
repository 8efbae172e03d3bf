#include "conformance/reference.h"

#include <complex.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "conformance/number.h"

/* ---- integers and bool ----------------------------------------------------------------------------------------- */

/* Returns an element, extended to 64 bits with its sign. */
static uint64_t integer_get(tutti_dtype dtype, const uint8_t *p)
{
    int bits = (int)tutti_dtype_bytes(dtype) * 8;
    uint64_t raw = 0, sign = UINT64_C(1) << (bits - 1);
    memcpy(&raw, p, (size_t)bits / 8);
    return number_is_signed(dtype) ? (raw ^ sign) - sign : raw;
}

static uint64_t wrap(tutti_dtype dtype, uint64_t value)
{
    return integer_get(dtype, (const uint8_t *)&value);
}

static bool is_less(tutti_dtype dtype, uint64_t a, uint64_t b)
{
    return number_is_signed(dtype) ? (int64_t)a < (int64_t)b : a < b;
}

static uint64_t integer_divided(tutti_dtype dtype, uint64_t sum, int n)
{
    return number_is_signed(dtype) ? (uint64_t)((int64_t)sum / n) : sum / (uint64_t)n;
}

static uint64_t integer_step(tutti_dtype dtype, tutti_reduce_op op, uint64_t a, uint64_t b)
{
    switch (op) {
    case TUTTI_PRODUCT:
        return a * b;
    case TUTTI_MIN:
        return is_less(dtype, a, b) ? a : b;
    case TUTTI_MAX:
        return is_less(dtype, a, b) ? b : a;
    case TUTTI_BAND:
        return a & b;
    case TUTTI_BOR:
        return a | b;
    case TUTTI_BXOR:
        return a ^ b;
    default:
        return a + b;
    }
}

static bool integer_right(const struct reduction *r, const uint8_t *const *in, const uint8_t *got, int64_t at,
                          char *text, size_t capacity)
{
    int64_t bytes = tutti_dtype_bytes(r->dtype);
    uint64_t expected = integer_get(r->dtype, in[0] + at * bytes), found = integer_get(r->dtype, got + at * bytes);
    for (int i = 1; i < r->n; i++)
        expected = wrap(r->dtype, integer_step(r->dtype, r->op, expected, integer_get(r->dtype, in[i] + at * bytes)));
    if (r->op == TUTTI_AVG) expected = integer_divided(r->dtype, expected, r->n);
    if (found == expected) return true;
    snprintf(text, capacity, "is 0x%" PRIx64 ", should be 0x%" PRIx64, found, expected);
    return false;
}

static bool bool_right(const struct reduction *r, const uint8_t *const *in, const uint8_t *got, int64_t at, char *text,
                       size_t capacity)
{
    int ones = 0;
    for (int i = 0; i < r->n; i++) ones += in[i][at];
    bool all = r->op == TUTTI_PRODUCT || r->op == TUTTI_MIN || r->op == TUTTI_BAND;
    int expected = r->op == TUTTI_BXOR ? ones & 1 : all ? ones == r->n : ones > 0;
    if (got[at] == expected) return true;
    snprintf(text, capacity, "is %d, should be %d", got[at], expected);
    return false;
}

/* ---- floats ------------------------------------------------------------------------------------------------------ */

/* Returns a op b, rounded as one step of the dtype's arithmetic. */
static double float_step(tutti_dtype dtype, tutti_reduce_op op, double a, double b)
{
    volatile float narrow;
    volatile double wide;
    uint64_t element = 0;
    if (op == TUTTI_MIN || op == TUTTI_MAX) {
        if (isnan(a) || isnan(b)) return (double)NAN;
        bool a_is_less = a < b || (a == b && signbit(a));
        return a_is_less == (op == TUTTI_MIN) ? a : b;
    }
    wide = op == TUTTI_PRODUCT ? a * b : a + b;
    if (dtype == TUTTI_FLOAT64) return wide;
    narrow = op == TUTTI_PRODUCT ? (float)a * (float)b : (float)a + (float)b;
    number_put(dtype, &element, (double)narrow);
    return number_get(dtype, &element);
}

static double divided(tutti_dtype dtype, double sum, int n)
{
    volatile float narrow = (float)sum / (float)n;
    uint64_t element = 0;
    if (dtype == TUTTI_FLOAT64) return sum / n;
    number_put(dtype, &element, (double)narrow);
    return number_get(dtype, &element);
}

/* Returns the maximum distance of a result from the exact one if every step rounds, or 0 if it must be exact.  Each
 * step may cost a unit in the last place: for sums that of the sum of magnitudes, for products that of the result. */
static double slack(const struct reduction *r, const double *value, double *exact)
{
    double sum = value[0], product = value[0], sizes = fabs(value[0]), ulp = ldexp(1, -number_digits(r->dtype));
    if (r->input != INPUT_ROUNDED || r->n <= 2 || r->op == TUTTI_MIN || r->op == TUTTI_MAX) return 0;
    for (int i = 1; i < r->n; i++) sum += value[i], product *= value[i], sizes += fabs(value[i]);
    *exact = r->op == TUTTI_PRODUCT ? product : sum;
    if (r->op == TUTTI_PRODUCT) return 1.5 * r->n * ulp * fabs(product) + 32 * r->n * number_least(r->dtype);
    return 1.2 * r->n * ulp * sizes;
}

static bool same(double a, double b, bool zeros)
{
    if (isnan(a) || isnan(b)) return isnan(a) && isnan(b);
    return a == b && (!zeros || signbit(a) == signbit(b));
}

static bool float_right(const struct reduction *r, const uint8_t *const *in, const uint8_t *got, int64_t at, char *text,
                        size_t capacity)
{
    int64_t bytes = tutti_dtype_bytes(r->dtype);
    double value[64], found = number_get(r->dtype, got + at * bytes), exact = 0;
    uint64_t element = 0;
    for (int i = 0; i < r->n; i++) {
        value[i] = number_get(r->dtype, in[i] + at * bytes);
        if (r->op != TUTTI_PREMUL_SUM) continue;
        number_put(r->dtype, &element, value[i] * r->factor); /* exact, because of the inputs and the factor */
        value[i] = number_get(r->dtype, &element);
    }
    double expected = value[0], tolerance = slack(r, value, &exact);
    for (int i = 1; i < r->n; i++) expected = float_step(r->dtype, r->op, expected, value[i]);
    if (r->op == TUTTI_AVG) expected = divided(r->dtype, expected, r->n);
    if (tolerance > 0) {
        if (fabs(found - exact) <= tolerance) return true;
        snprintf(text, capacity, "is %.17g, should be %.17g, within %.3g", found, exact, tolerance);
        return false;
    }
    if (same(found, expected, true)) return true;
    snprintf(text, capacity, "is %.17g, should be %.17g", found, expected);
    return false;
}

static bool complex_right(const struct reduction *r, const uint8_t *const *in, const uint8_t *got, int64_t at,
                          char *text, size_t capacity)
{
    tutti_dtype part = number_part(r->dtype);
    int64_t bytes = tutti_dtype_bytes(part);
    double re = 0, im = 0;
    for (int i = 0; i < r->n; i++) {
        double a = number_get(part, in[i] + 2 * at * bytes), b = number_get(part, in[i] + (2 * at + 1) * bytes),
               old = re;
        if (r->op == TUTTI_PREMUL_SUM) a *= r->factor, b *= r->factor;
        bool product = r->op == TUTTI_PRODUCT && i > 0;
        re = product ? re * a - im * b : re + a;
        im = product ? old * b + im * a : im + b;
    }
    if (r->op == TUTTI_AVG) re = divided(part, re, r->n), im = divided(part, im, r->n);
    double got_re = number_get(part, got + 2 * at * bytes), got_im = number_get(part, got + (2 * at + 1) * bytes);
    if (same(re, got_re, false) && same(im, got_im, false)) return true; /* the signs of zeros depend on the order */
    snprintf(text, capacity, "is %.17g%+.17gi, should be %.17g%+.17gi", got_re, got_im, re, im);
    return false;
}

bool reference_check(const struct reduction *r, const uint8_t *const *in, const uint8_t *got, int64_t count,
                     int64_t *at, char *text, size_t capacity)
{
    bool (*right)(const struct reduction *, const uint8_t *const *, const uint8_t *, int64_t, char *, size_t) =
        r->dtype == TUTTI_BOOL        ? bool_right
        : number_is_integer(r->dtype) ? integer_right
        : number_is_complex(r->dtype) ? complex_right
                                      : float_right;
    for (*at = 0; *at < count; ++*at)
        if (!right(r, in, got, *at, text, capacity)) return false;
    return true;
}
