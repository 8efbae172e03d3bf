#include "conformance/number.h"

#include <math.h>
#include <string.h>

const tutti_dtype number_dtypes[DTYPES] = {
#define VALUE(dtype, class, name) TUTTI_##dtype,
    TUTTI_DTYPES(VALUE)
#undef VALUE
};

/* The IEEE-like formats: exponent bits and stored mantissa bits. */
static const struct format {
    tutti_dtype dtype;
    int exponent, mantissa;
    bool infinity;
    double greatest;
} formats[] = {
    {TUTTI_FLOAT16, 5, 10, true, 65504},
    {TUTTI_BFLOAT16, 8, 7, true, 0x1.fep127},
    {TUTTI_FLOAT8_E5M2, 5, 2, true, 57344},
    {TUTTI_FLOAT8_E4M3FN, 4, 3, false, 448},
};

static const struct format *format_of(tutti_dtype dtype)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (formats[i].dtype == dtype) return &formats[i];
    return NULL;
}

bool number_is_float(tutti_dtype dtype)
{
    return dtype == TUTTI_FLOAT32 || dtype == TUTTI_FLOAT64 || format_of(dtype) != NULL;
}

bool number_is_complex(tutti_dtype dtype)
{
    return dtype == TUTTI_COMPLEX64 || dtype == TUTTI_COMPLEX128;
}

bool number_is_integer(tutti_dtype dtype)
{
    return dtype >> 8 <= 1;
}

bool number_is_signed(tutti_dtype dtype)
{
    return dtype >> 8 == 0;
}

bool number_has_infinity(tutti_dtype dtype)
{
    return number_is_float(dtype) && dtype != TUTTI_FLOAT8_E4M3FN;
}

tutti_dtype number_part(tutti_dtype dtype)
{
    if (dtype == TUTTI_COMPLEX64) return TUTTI_FLOAT32;
    return dtype == TUTTI_COMPLEX128 ? TUTTI_FLOAT64 : dtype;
}

int number_digits(tutti_dtype dtype)
{
    if (dtype == TUTTI_FLOAT32) return 24;
    if (dtype == TUTTI_FLOAT64) return 53;
    return format_of(dtype)->mantissa + 1;
}

static int bias_of(const struct format *format)
{
    return (1 << (format->exponent - 1)) - 1;
}

double number_least(tutti_dtype dtype)
{
    if (dtype == TUTTI_FLOAT32) return 0x1p-149;
    if (dtype == TUTTI_FLOAT64) return 0x1p-1074;
    const struct format *format = format_of(dtype);
    return ldexp(1, 1 - bias_of(format) - format->mantissa);
}

static double small_get(const struct format *format, unsigned code)
{
    int top = format->exponent + format->mantissa, bias = bias_of(format);
    unsigned mantissa = code & ((1u << format->mantissa) - 1);
    int exponent = (int)(code >> format->mantissa) & ((1 << format->exponent) - 1);
    bool negative = code >> top & 1, highest = exponent == (1 << format->exponent) - 1;
    double value;
    if (highest && format->infinity)
        value = mantissa == 0 ? (double)INFINITY : (double)NAN;
    else if (highest && mantissa == (1u << format->mantissa) - 1)
        value = (double)NAN;
    else if (exponent == 0)
        value = ldexp(mantissa, 1 - bias - format->mantissa);
    else
        value = ldexp(mantissa + (1u << format->mantissa), exponent - bias - format->mantissa);
    return negative ? -value : value;
}

static unsigned small_put(const struct format *format, double value)
{
    int bias = bias_of(format), lowest = 1 - bias;
    unsigned sign = signbit(value) ? 1u << (format->exponent + format->mantissa) : 0;
    unsigned top_exponent = ((1u << format->exponent) - 1) << format->mantissa;
    if (isnan(value))
        return top_exponent | (format->infinity ? 1u << (format->mantissa - 1) : (1u << format->mantissa) - 1);
    double size = fabs(value);
    if (size == 0) return sign;
    int exponent = isinf(size) ? lowest : ilogb(size);
    if (exponent < lowest) exponent = lowest;
    if (!isinf(size)) size = ldexp(rint(ldexp(size, format->mantissa - exponent)), exponent - format->mantissa);
    if (size > format->greatest) {
        if (format->infinity) return sign | top_exponent;
        size = format->greatest; /* float8_e4m3fn saturates */
    }
    if (size == 0) return sign;
    exponent = ilogb(size);
    if (exponent < lowest) return sign | (unsigned)ldexp(size, format->mantissa - lowest);
    unsigned whole = (unsigned)ldexp(size, format->mantissa - exponent);
    return sign | (((unsigned)(exponent + bias) << format->mantissa) + whole - (1u << format->mantissa));
}

double number_get(tutti_dtype dtype, const void *element)
{
    float narrow;
    double wide;
    uint16_t half;
    if (dtype == TUTTI_FLOAT32) return memcpy(&narrow, element, 4), (double)narrow;
    if (dtype == TUTTI_FLOAT64) return memcpy(&wide, element, 8), wide;
    if (tutti_dtype_bytes(dtype) == 2) return memcpy(&half, element, 2), small_get(format_of(dtype), half);
    return small_get(format_of(dtype), *(const uint8_t *)element);
}

void number_put(tutti_dtype dtype, void *element, double value)
{
    float narrow = (float)value;
    if (dtype == TUTTI_FLOAT32) {
        memcpy(element, &narrow, 4);
    } else if (dtype == TUTTI_FLOAT64) {
        memcpy(element, &value, 8);
    } else {
        unsigned code = small_put(format_of(dtype), value);
        uint16_t half = (uint16_t)code;
        uint8_t quarter = (uint8_t)code;
        if (tutti_dtype_bytes(dtype) == 2)
            memcpy(element, &half, 2);
        else
            memcpy(element, &quarter, 1);
    }
}

bool number_reduces(tutti_dtype dtype, tutti_reduce_op op)
{
    bool integer = number_is_integer(dtype), logical = dtype == TUTTI_BOOL;
    switch (op) {
    case TUTTI_MIN:
    case TUTTI_MAX:
        return !number_is_complex(dtype);
    case TUTTI_AVG:
        return !logical;
    case TUTTI_PREMUL_SUM:
        return !integer && !logical;
    case TUTTI_BAND:
    case TUTTI_BOR:
    case TUTTI_BXOR:
        return integer || logical;
    default:
        return true;
    }
}
