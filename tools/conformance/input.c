#include "conformance/input.h"

#include <math.h>
#include <string.h>

#include "conformance/number.h"

const char *const input_names[INPUTS] = {"bits", "exact", "rounded", "special"};

uint64_t input_mix(uint64_t a, uint64_t b)
{
    uint64_t x = a + UINT64_C(0x9e3779b97f4a7c15) * (b + 1);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* True if a rank's element is not 0 in sums that must be exact.  The largest magnitude of exact_float times 16 fits the
 * format's digits, and times 8 those of float8_e5m2, so of more ranks only some take part in each element's sum. */
static bool takes_part(const struct input_use *use, int rank, uint64_t element)
{
    int most = number_digits(use->dtype) > 3 ? 16 : 8, groups = (use->ranks + most - 1) / most;
    bool sums = use->op == TUTTI_SUM || use->op == TUTTI_AVG || use->op == TUTTI_PREMUL_SUM;
    return !sums || groups <= 1 || rank % groups == (int)(element % (uint64_t)groups);
}

/* Returns a value whose reductions are exact: see takes_part. */
static double exact_float(tutti_dtype dtype, tutti_reduce_op op, uint64_t random)
{
    if (op == TUTTI_PRODUCT) { /* powers of two, as often above 1 as below */
        static const double factors[] = {1, -1, 1, 2, 0.5, -2, -0.5, 1};
        return dtype == TUTTI_FLOAT8_E4M3FN || dtype == TUTTI_FLOAT8_E5M2 ? factors[random % 3] * (random & 64 ? 2 : 1)
                                                                          : factors[random % 8];
    }
    int digits = number_digits(dtype);
    int64_t most = digits <= 4 ? 1 : (int64_t)1 << (digits - 5);
    if (digits == 53) most = (int64_t)1 << 40;
    int64_t value = (int64_t)(random % (uint64_t)(2 * most + 1)) - most;
    return (double)value * (digits > 4 ? 0.25 : 1);
}

static double rounded_float(tutti_dtype dtype, tutti_reduce_op op, uint64_t random)
{
    double unit = (double)(random >> 11) * 0x1p-53; /* in [0, 1) */
    double sign = random & 1 ? -1 : 1;
    if (op == TUTTI_PRODUCT) return sign * (0.75 + 0.75 * unit);
    return sign * unit * (dtype == TUTTI_FLOAT8_E4M3FN ? 24 : 1000) * (random & 2 ? 1 : 0.01);
}

static double special_float(tutti_dtype dtype, tutti_reduce_op op, uint64_t random)
{
    bool infinite = number_has_infinity(dtype);
    switch (random % 16) {
    case 0:
        return (double)NAN;
    case 1:
        return infinite ? (double)INFINITY : 1;
    case 2:
        return infinite ? -(double)INFINITY : -1;
    case 3:
    case 4:
    case 5:
        return 0.0;
    case 6:
    case 7:
    case 8:
        return -0.0;
    default:
        if (op == TUTTI_MIN || op == TUTTI_MAX) return (random & 512 ? 1 : -1) * ldexp(1, (int)(random >> 16 & 7));
        return random & 512 ? 1 : -0.0;
    }
}

static void fill_floats(uint64_t seed, struct input_use use, int rank, int64_t n, uint8_t *out, bool complex)
{
    tutti_dtype dtype = use.dtype;
    tutti_reduce_op op = use.op;
    int64_t bytes = tutti_dtype_bytes(dtype);
    for (int64_t i = 0; i < n; i++) {
        uint64_t random = input_mix(seed, (uint64_t)i);
        double value = 0;
        if (complex && op == TUTTI_PRODUCT) /* Gaussian integers, whose products stay small */
            value = (double)(random % 3) - 1;
        else if (use.input == INPUT_SPECIAL)
            value = special_float(dtype, op, random);
        else if (use.input == INPUT_ROUNDED)
            value = rounded_float(dtype, op, random);
        else if (takes_part(&use, rank, (uint64_t)i))
            value = exact_float(dtype, op, random);
        number_put(dtype, out + i * bytes, value);
    }
}

static void fill_bits(uint64_t seed, int64_t bytes, uint8_t *out)
{
    for (int64_t i = 0; i < bytes; i += 8) {
        uint64_t random = input_mix(seed, (uint64_t)i);
        memcpy(out + i, &random, bytes - i < 8 ? (size_t)(bytes - i) : 8);
    }
}

/* Makes values that are mostly true if the op needs all to be true, and mostly false if it needs one.  Otherwise nearly
 * all results would be alike. */
static void fill_bools(uint64_t seed, tutti_reduce_op op, int64_t n, uint8_t *out)
{
    bool all = op == TUTTI_PRODUCT || op == TUTTI_MIN || op == TUTTI_BAND;
    for (int64_t i = 0; i < n; i++) {
        unsigned random = (unsigned)input_mix(seed, (uint64_t)i) & 7;
        out[i] = op == TUTTI_BXOR ? random & 1 : all ? random != 0 : random == 0;
    }
}

static uint64_t seed_of_block(uint64_t seed, int rank, int block)
{
    return input_mix(input_mix(seed, (uint64_t)rank), (uint64_t)block);
}

void input_fill(uint64_t seed, struct input_use use, int rank, int block, int64_t count, void *out)
{
    seed = seed_of_block(seed, rank, block);
    if (use.dtype == TUTTI_BOOL)
        fill_bools(seed, use.op, count, out);
    else if (use.input == INPUT_BITS || number_is_integer(use.dtype))
        fill_bits(seed, count * tutti_dtype_bytes(use.dtype), out);
    else {
        bool complex = number_is_complex(use.dtype);
        if (complex) use.dtype = number_part(use.dtype);
        fill_floats(seed, use, rank, complex ? 2 * count : count, out, complex);
    }
}

void input_fill_bytes(uint64_t seed, int rank, int block, int64_t bytes, void *out)
{
    fill_bits(seed_of_block(seed, rank, block), bytes, out);
}
