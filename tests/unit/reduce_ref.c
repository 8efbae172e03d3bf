#include "reduce_ref.h"

#include "base/reduce_version.h"

/* ---- small floats -------------------------------------------------------------------------------------------- */

struct reduce_ref_format *reduce_ref_format(tutti_dtype dtype)
{
    static struct reduce_ref_format formats[] = {
        {TUTTI_FLOAT16, 5, 10, 15, 0x7c00, 0x7bff, 0x7e00, false, NULL},
        {TUTTI_BFLOAT16, 8, 7, 127, 0x7f80, 0x7f7f, 0x7fc0, false, NULL},
        {TUTTI_FLOAT8_E5M2, 5, 2, 15, 0x7c, 0x7b, 0x7f, false, NULL},
        {TUTTI_FLOAT8_E4M3FN, 4, 3, 7, 0x7f, 0x7e, 0x7f, true, NULL},
    };

    for (size_t i = 0; i < 4; i++) {
        struct reduce_ref_format *f = &formats[i];
        if (f->dtype != dtype) continue;
        if (!f->value) {
            int codes = 1 << (f->exponent + f->mantissa);
            f->value = malloc((size_t)codes * sizeof *f->value);
            for (int code = 0; code < codes; code++) {
                int e = code >> f->mantissa, m = code & ((1 << f->mantissa) - 1);
                f->value[code] = e == 0 ? ldexp(m, 1 - f->bias - f->mantissa)
                                        : ldexp((1 << f->mantissa) + m, e - f->bias - f->mantissa);
            }
        }
        return f;
    }
    return NULL;
}

double reduce_ref_decode(const struct reduce_ref_format *f, unsigned code)
{
    unsigned top = 1u << (f->exponent + f->mantissa), magnitude = code & (top - 1);
    double value = f->value[magnitude];

    if (magnitude > f->greatest) value = magnitude == f->infinity && !f->saturates ? (double)INFINITY : (double)NAN;
    return code & top ? -value : value;
}

unsigned reduce_ref_encode(const struct reduce_ref_format *f, double x)
{
    unsigned sign = signbit(x) ? 1u << (f->exponent + f->mantissa) : 0, low = 0, high = f->infinity;
    double size = fabs(x);

    if (isnan(x)) return f->nan;
    if (size >= f->value[high]) low = high;
    while (high - low > 1) {
        unsigned middle = (low + high) / 2;
        if (f->value[middle] <= size)
            low = middle;
        else
            high = middle;
    }
    if (low < f->infinity) {
        double below = size - f->value[low], above = f->value[high] - size; /* both exact */
        if (above < below || (above == below && (low & 1))) low = high;
    }
    if (f->saturates && low > f->greatest) low = f->greatest;
    return sign | low;
}

/* ---- numbers of any dtype ------------------------------------------------------------------------------------ */

bool reduce_ref_is_float(tutti_dtype dtype)
{
    return dtype_reduces(dtype, TUTTI_PREMUL_SUM) && dtype_reduces(dtype, TUTTI_MIN);
}

double reduce_ref_get(tutti_dtype dtype, const void *p)
{
    float f;
    double d;
    unsigned code = 0;

    if (dtype == TUTTI_FLOAT64) return memcpy(&d, p, 8), d;
    if (dtype == TUTTI_FLOAT32) return memcpy(&f, p, 4), (double)f;
    memcpy(&code, p, (size_t)tutti_dtype_bytes(dtype));
    return reduce_ref_decode(reduce_ref_format(dtype), code);
}

void reduce_ref_put(tutti_dtype dtype, void *p, double x)
{
    uint64_t nan64 = 0x7ff8000000000000;
    uint32_t nan32 = 0x7fc00000;
    float f = (float)x;

    if (dtype == TUTTI_FLOAT64) {
        memcpy(p, isnan(x) ? (void *)&nan64 : (void *)&x, 8);
    } else if (dtype == TUTTI_FLOAT32) {
        memcpy(p, isnan(x) ? (void *)&nan32 : (void *)&f, 4);
    } else {
        unsigned code = reduce_ref_encode(reduce_ref_format(dtype), x);
        memcpy(p, &code, (size_t)tutti_dtype_bytes(dtype));
    }
}

double reduce_ref_float(tutti_dtype dtype, tutti_reduce_op op, double x, double y)
{
    volatile float narrow;
    volatile double wide;

    if (op == TUTTI_MIN || op == TUTTI_MAX) {
        bool first = x == y ? !!signbit(x) : x < y; /* is x the lesser one? */
        if (isnan(x) || isnan(y)) return (double)NAN;
        return first == (op == TUTTI_MIN) ? x : y;
    }
    wide = op == TUTTI_SUM ? x + y : x * y;
    if (dtype == TUTTI_FLOAT64) return wide;
    narrow = op == TUTTI_SUM ? (float)x + (float)y : (float)x * (float)y;
    return (double)narrow;
}

__int128 reduce_ref_integer(tutti_dtype dtype, const void *p)
{
    int64_t bits = tutti_dtype_bytes(dtype) * 8;
    uint64_t raw = 0;

    memcpy(&raw, p, (size_t)bits / 8);
    if (dtype <= TUTTI_INT64 && raw >> (bits - 1)) return (__int128)raw - ((__int128)1 << bits);
    return raw;
}

static __int128 reduce_integers(tutti_reduce_op op, __int128 x, __int128 y)
{
    switch (op) {
    case TUTTI_SUM:
        return x + y;
    case TUTTI_PRODUCT:
        return (__int128)((unsigned __int128)x * (unsigned __int128)y);
    case TUTTI_MIN:
        return x < y ? x : y;
    case TUTTI_MAX:
        return x < y ? y : x;
    case TUTTI_BAND:
        return x & y;
    case TUTTI_BOR:
        return x | y;
    case TUTTI_BXOR:
        return x ^ y;
    default:
        abort();
    }
}

static bool reduce_bools(tutti_reduce_op op, bool x, bool y)
{
    switch (op) {
    case TUTTI_SUM:
    case TUTTI_MAX:
    case TUTTI_BOR:
        return x || y;
    case TUTTI_BXOR:
        return x != y;
    default:
        return x && y;
    }
}

static void reduce_complex(tutti_dtype part, tutti_reduce_op op, char *dst, const char *a, const char *b)
{
    int64_t half = tutti_dtype_bytes(part);
    double ar = reduce_ref_get(part, a), ai = reduce_ref_get(part, a + half), br = reduce_ref_get(part, b),
           bi = reduce_ref_get(part, b + half);

    if (op == TUTTI_SUM) {
        reduce_ref_put(part, dst, reduce_ref_float(part, TUTTI_SUM, ar, br));
        reduce_ref_put(part, dst + half, reduce_ref_float(part, TUTTI_SUM, ai, bi));
    } else {
        double rr = reduce_ref_float(part, TUTTI_PRODUCT, ar, br), ii = reduce_ref_float(part, TUTTI_PRODUCT, ai, bi);
        double ri = reduce_ref_float(part, TUTTI_PRODUCT, ar, bi), ir = reduce_ref_float(part, TUTTI_PRODUCT, ai, br);
        reduce_ref_put(part, dst, reduce_ref_float(part, TUTTI_SUM, rr, -ii));
        reduce_ref_put(part, dst + half, reduce_ref_float(part, TUTTI_SUM, ri, ir));
    }
}

tutti_dtype reduce_ref_part(tutti_dtype dtype)
{
    if (dtype == TUTTI_COMPLEX64) return TUTTI_FLOAT32;
    return dtype == TUTTI_COMPLEX128 ? TUTTI_FLOAT64 : dtype;
}

void reduce_ref_op(tutti_dtype dtype, tutti_reduce_op op, void *dst, const void *a, const void *b)
{
    if (reduce_ref_is_float(dtype)) {
        reduce_ref_put(dtype, dst, reduce_ref_float(dtype, op, reduce_ref_get(dtype, a), reduce_ref_get(dtype, b)));
    } else if (reduce_ref_part(dtype) != dtype) {
        reduce_complex(reduce_ref_part(dtype), op, dst, a, b);
    } else if (dtype == TUTTI_BOOL) {
        *(uint8_t *)dst = reduce_bools(op, *(const uint8_t *)a != 0, *(const uint8_t *)b != 0);
    } else {
        __int128 result = reduce_integers(op, reduce_ref_integer(dtype, a), reduce_ref_integer(dtype, b));
        memcpy(dst, &result, (size_t)tutti_dtype_bytes(dtype)); /* the low bytes: wrapped */
    }
}

/* ---- input ------------------------------------------------------------------------------------------------------ */

uint64_t reduce_ref_random(void)
{
    static uint64_t state = 0x9e3779b97f4a7c15;

    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

void reduce_ref_fill(void *p, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) ((uint8_t *)p)[i] = (uint8_t)(reduce_ref_random() >> 32);
}
