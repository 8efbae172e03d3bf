#include "bench/data.h"
#include "bench/memory.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 256 /* elements of a block, which is on the stack and must be small */, ELEMENT_MAX = 16 };

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

/* Chooses the range of the elements so that the reduction is exact. */
static void data_bound(struct data *data)
{
    int exact = data->dtype->exact;
    switch (data->reduce_op) {
    case TUTTI_SUM:
    case TUTTI_AVG:
    case TUTTI_PREMUL_SUM:
        if (data->reduce_op == TUTTI_PREMUL_SUM) exact /= (int)DATA_FACTOR;
        data->active = smaller(data->ranks, exact);
        data->range = smaller(64, exact / data->active);
        break;
    case TUTTI_PRODUCT:
        data->active = data->idle = 1;
        break;
    default:
        break;
    }
}

struct data data_make(const struct dtype *dtype, tutti_reduce_op reduce_op, bool reduces, int ranks, uint32_t seed)
{
    struct data data = {dtype, reduce_op, seed, ranks, 1, smaller(64, dtype->exact), ranks, 0, -1};
    if (dtype->class == CLASS_BOOL) {
        data.low = 0;
        data.range = 2;
    } else if (reduces) {
        data_bound(&data);
    }
    if (reduces && reduce_op == TUTTI_PRODUCT) data.imaginary = 0;
    return data;
}

/* Computes elements [first, first + n) of a rank. */
static void data_block(const struct data *data, int rank, int64_t first, int n, int32_t *value)
{
    uint32_t start = (uint32_t)rank * 0x85ebca77u + data->seed * 0xc2b2ae3du, range = (uint32_t)data->range;
    for (int i = 0; i < n; i++) {
        uint32_t x = ((uint32_t)first + (uint32_t)i) * 0x9e3779b1u + start;
        x = (x ^ x >> 15) * 0x2c1b3c6du;
        value[i] = data->low + (int32_t)(((x ^ x >> 12) >> 16) * range >> 16);
    }
    if (data->active == data->ranks) return;
    for (int i = 0; i < n; i++)
        if ((first + i + rank) % data->ranks >= data->active) value[i] = data->idle;
}

#define FOLD(expression)                                                                                               \
    for (int i = 0; i < n; i++) a[i] = (expression);                                                                   \
    break

static void fold(tutti_reduce_op op, int32_t *a, const int32_t *b, int n)
{
    switch (op) {
    case TUTTI_PRODUCT:
        FOLD(a[i] * b[i]);
    case TUTTI_MIN:
        FOLD(a[i] < b[i] ? a[i] : b[i]);
    case TUTTI_MAX:
        FOLD(a[i] > b[i] ? a[i] : b[i]);
    case TUTTI_BAND:
        FOLD(a[i] & b[i]);
    case TUTTI_BOR:
        FOLD(a[i] | b[i]);
    case TUTTI_BXOR:
        FOLD(a[i] ^ b[i]);
    default:
        FOLD(a[i] + b[i]);
    }
}

/* Returns the reduction of one element over all ranks. */
static double finish(const struct data *data, int32_t reduced)
{
    if (data->dtype->class == CLASS_BOOL) return reduced != 0;
    if (data->reduce_op == TUTTI_PREMUL_SUM) return reduced * DATA_FACTOR;
    if (data->reduce_op != TUTTI_AVG) return reduced;
    if (data->dtype->class == CLASS_INTEGER) return reduced / data->ranks;
    return (double)reduced / data->ranks;
}

static void reduced_block(const struct data *data, int64_t first, int n, double *value)
{
    int32_t reduced[BLOCK], other[BLOCK];
    data_block(data, 0, first, n, reduced);
    for (int r = 1; r < data->ranks; r++) {
        data_block(data, r, first, n, other);
        fold(data->reduce_op, reduced, other, n);
    }
    for (int i = 0; i < n; i++) value[i] = finish(data, reduced[i]);
}

static void copied_block(const struct data *data, int rank, int64_t first, int n, double *value)
{
    int32_t own[BLOCK];
    data_block(data, rank, first, n, own);
    for (int i = 0; i < n; i++) value[i] = own[i];
}

static tutti_tensor part(tutti_tensor tensor, int64_t first, int n)
{
    tensor.data = (char *)tensor.data + first * tutti_dtype_bytes(tensor.dtype);
    tensor.numel = n;
    return tensor;
}

static int block_length(tutti_tensor tensor, int64_t at)
{
    return tensor.numel - at < BLOCK ? (int)(tensor.numel - at) : BLOCK;
}

void data_fill(const struct data *data, int rank, tutti_tensor tensor)
{
    _Alignas(16) char bytes[BLOCK * ELEMENT_MAX];
    double value[BLOCK];
    for (int64_t at = 0; at < tensor.numel; at += BLOCK) {
        int n = block_length(tensor, at);
        copied_block(data, rank, at, n, value);
        dtype_encode(data->dtype, value, n, data->imaginary, bytes);
        memory_write(part(tensor, at, n), bytes);
    }
}

/* Returns the allowed relative error.  An average of floats may be divided, or multiplied by the inverse, so its last
 * bits may differ.  All other results are exact. */
static double tolerance(const struct data *data, bool reduced)
{
    bool divided = reduced && data->reduce_op == TUTTI_AVG && data->dtype->exponent_bits > 0;
    return divided ? ldexp(1, 1 - data->dtype->mantissa) : 0;
}

static int64_t block_wrong(const struct data *data, const double *value, int n, double allowed, const char *found)
{
    _Alignas(16) char right[BLOCK * ELEMENT_MAX];
    size_t bytes = (size_t)tutti_dtype_bytes(data->dtype->dtype);
    dtype_encode(data->dtype, value, n, data->imaginary, right);
    if (!memcmp(found, right, (size_t)n * bytes)) return 0;
    int64_t wrong = 0;
    for (int i = 0; i < n; i++) {
        if (!memcmp(found + (size_t)i * bytes, right + (size_t)i * bytes, bytes)) continue;
        wrong += allowed == 0 || !(dtype_error(data->dtype, found, i, value[i], data->imaginary) <= allowed);
    }
    return wrong;
}

/* Returns how many elements are wrong.  rank -1: compares with the reduction. */
static int64_t data_wrong(const struct data *data, int rank, int64_t first, tutti_tensor tensor)
{
    _Alignas(16) char found[BLOCK * ELEMENT_MAX];
    double value[BLOCK], allowed = tolerance(data, rank < 0);
    int64_t wrong = 0;
    for (int64_t at = 0; at < tensor.numel; at += BLOCK) {
        int n = block_length(tensor, at);
        if (rank < 0)
            reduced_block(data, first + at, n, value);
        else
            copied_block(data, rank, first + at, n, value);
        memory_read(found, part(tensor, at, n));
        wrong += block_wrong(data, value, n, allowed, found);
    }
    return wrong;
}

int64_t data_wrong_copy(const struct data *data, int rank, int64_t first, tutti_tensor tensor)
{
    return data_wrong(data, rank, first, tensor);
}

int64_t data_wrong_reduced(const struct data *data, int64_t first, tutti_tensor tensor)
{
    return data_wrong(data, -1, first, tensor);
}
