#include "bench/dtype.h"

#include <math.h>
#include <string.h>
#include <tutti/tutti.h>

static const struct dtype dtypes[] = {
    {TUTTI_BOOL, CLASS_BOOL, 1, 0, 0},
    {TUTTI_INT8, CLASS_INTEGER, 127, 0, 0},
    {TUTTI_INT16, CLASS_INTEGER, 32767, 0, 0},
    {TUTTI_INT32, CLASS_INTEGER, 1 << 24, 0, 0},
    {TUTTI_INT64, CLASS_INTEGER, 1 << 24, 0, 0},
    {TUTTI_UINT8, CLASS_INTEGER, 255, 0, 0},
    {TUTTI_UINT16, CLASS_INTEGER, 65535, 0, 0},
    {TUTTI_UINT32, CLASS_INTEGER, 1 << 24, 0, 0},
    {TUTTI_UINT64, CLASS_INTEGER, 1 << 24, 0, 0},
    {TUTTI_FLOAT16, CLASS_FLOAT, 2048, 5, 10},
    {TUTTI_BFLOAT16, CLASS_FLOAT, 256, 8, 7},
    {TUTTI_FLOAT32, CLASS_FLOAT, 1 << 24, 8, 23},
    {TUTTI_FLOAT64, CLASS_FLOAT, 1 << 24, 11, 52},
    {TUTTI_FLOAT8_E4M3FN, CLASS_FLOAT, 16, 4, 3},
    {TUTTI_FLOAT8_E5M2, CLASS_FLOAT, 8, 5, 2},
    {TUTTI_COMPLEX64, CLASS_COMPLEX, 1 << 24, 8, 23},
    {TUTTI_COMPLEX128, CLASS_COMPLEX, 1 << 24, 11, 52},
};

const struct dtype *dtype_find(const char *name)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (!strcmp(tutti_dtype_name(dtypes[i].dtype), name)) return &dtypes[i];
    return NULL;
}

const char *dtype_names(void)
{
    return
#define NAME(dtype, class, name) " " name
        TUTTI_DTYPES(NAME);
#undef NAME
}

/* Returns the bits of a normal number or 0 in a small format. */
static uint16_t small_encode(const struct dtype *dtype, double value)
{
    int bias = (1 << (dtype->exponent_bits - 1)) - 1, exponent;
    if (value == 0) return 0;
    double fraction = frexp(fabs(value), &exponent); /* in [0.5, 1) */
    int64_t mantissa = (int64_t)nearbyint(ldexp(fraction, dtype->mantissa + 1));
    int64_t bits = ((int64_t)(exponent - 1 + bias) << dtype->mantissa) + mantissa - (1 << dtype->mantissa);
    return (uint16_t)(bits | (int64_t)(value < 0) << (dtype->exponent_bits + dtype->mantissa));
}

static double small_decode(const struct dtype *dtype, uint16_t bits)
{
    int bias = (1 << (dtype->exponent_bits - 1)) - 1;
    int exponent = bits >> dtype->mantissa & ((1 << dtype->exponent_bits) - 1);
    double mantissa = bits & ((1 << dtype->mantissa) - 1);
    double value = exponent ? ldexp(mantissa + (1 << dtype->mantissa), exponent - bias - dtype->mantissa)
                            : ldexp(mantissa, 1 - bias - dtype->mantissa);
    return bits >> (dtype->exponent_bits + dtype->mantissa) & 1 ? -value : value;
}

#define ENCODE(type)                                                                                                   \
    for (int i = 0; i < n; i++) ((type *)memory)[i] = (type)value[i];                                                  \
    break
#define ENCODE_PAIR(type)                                                                                              \
    for (int i = 0; i < n; i++) {                                                                                      \
        ((type *)memory)[2 * i] = (type)value[i];                                                                      \
        ((type *)memory)[2 * i + 1] = (type)(value[i] * imaginary);                                                    \
    }                                                                                                                  \
    break

void dtype_encode(const struct dtype *dtype, const double *value, int n, double imaginary, void *memory)
{
    switch (dtype->dtype) {
    case TUTTI_BOOL:
    case TUTTI_UINT8:
        ENCODE(uint8_t);
    case TUTTI_INT8:
        ENCODE(int8_t);
    case TUTTI_INT16:
        ENCODE(int16_t);
    case TUTTI_INT32:
        ENCODE(int32_t);
    case TUTTI_INT64:
        ENCODE(int64_t);
    case TUTTI_UINT16:
        ENCODE(uint16_t);
    case TUTTI_UINT32:
        ENCODE(uint32_t);
    case TUTTI_UINT64:
        ENCODE(uint64_t);
    case TUTTI_FLOAT32:
        ENCODE(float);
    case TUTTI_FLOAT64:
        ENCODE(double);
    case TUTTI_COMPLEX64:
        ENCODE_PAIR(float);
    case TUTTI_COMPLEX128:
        ENCODE_PAIR(double);
    case TUTTI_FLOAT16:
    case TUTTI_BFLOAT16:
        for (int i = 0; i < n; i++) ((uint16_t *)memory)[i] = small_encode(dtype, value[i]);
        break;
    case TUTTI_FLOAT8_E4M3FN:
    case TUTTI_FLOAT8_E5M2:
        for (int i = 0; i < n; i++) ((uint8_t *)memory)[i] = (uint8_t)small_encode(dtype, value[i]);
        break;
    }
}

/* Returns part i of consecutive floats.  A complex number has two parts. */
static double float_at(const struct dtype *dtype, const void *memory, int i)
{
    switch (dtype->dtype) {
    case TUTTI_FLOAT32:
    case TUTTI_COMPLEX64:
        return (double)((const float *)memory)[i];
    case TUTTI_FLOAT64:
    case TUTTI_COMPLEX128:
        return ((const double *)memory)[i];
    case TUTTI_FLOAT16:
    case TUTTI_BFLOAT16:
        return small_decode(dtype, ((const uint16_t *)memory)[i]);
    default:
        return small_decode(dtype, ((const uint8_t *)memory)[i]);
    }
}

static double relative(double found, double value)
{
    double distance = fabs(found - value);
    return distance == 0 ? 0 : distance / fmax(fabs(value), 1e-30); /* NaN stays NaN */
}

double dtype_error(const struct dtype *dtype, const void *memory, int i, double value, double imaginary)
{
    if (dtype->class != CLASS_COMPLEX) return relative(float_at(dtype, memory, i), value);
    double real = relative(float_at(dtype, memory, 2 * i), value);
    double other = relative(float_at(dtype, memory, 2 * i + 1), value * imaginary);
    return real <= other ? other : real; /* a NaN in either part stays NaN */
}
