#include "blocks.h"

#include <string.h>

#include "loops.h"

enum { CHUNK = 16 * BLOCKS_NUMEL, SCALE_NAN = 255, SCALE_BIAS = 127, SCALE_LEAST = 1 };

struct blocks blocks_of(int64_t numel, int parts)
{
    int64_t blocks = (numel + BLOCKS_NUMEL - 1) / BLOCKS_NUMEL;
    return (struct blocks){numel, (blocks + parts - 1) / parts, parts};
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- one block --------------------------------------------------------------------------------------------- */

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Returns the biased exponent of the smallest power of two by which the block must be divided to be at most 448, which
 * is 1.75 times 2^8. */
static uint8_t find_scale(const float *x, int n)
{
    int32_t bits = loops_select()->largest_bits(x, n), exponent = bits >> 23;
    if (exponent == 0xff) return SCALE_NAN;
    int scale = exponent - 8 + ((bits & 0x7fffff) > 0x600000);
    return (uint8_t)(scale < SCALE_LEAST ? SCALE_LEAST : scale);
}

/* Returns 2^-scale and 2^scale.  That of SCALE_NAN is a NaN. */
static float shrinking_factor(uint8_t scale)
{
    return scale == SCALE_NAN ? 0 : float_of((uint32_t)(2 * SCALE_BIAS - scale) << 23);
}

static float growing_factor(uint8_t scale)
{
    return float_of(scale == SCALE_NAN ? 0x7fc00000 : (uint32_t)scale << 23);
}

/* ---- runs of blocks in one part ---------------------------------------------------------------------------- */

/* Returns the places of a block of a part. */
static const uint8_t *scale_at(struct blocks shape, const uint8_t *encoded, int64_t block)
{
    return encoded + block / shape.per_part * blocks_part_bytes(shape) + block % shape.per_part;
}

static const uint8_t *data_at(struct blocks shape, const uint8_t *encoded, int64_t block)
{
    return encoded + block / shape.per_part * blocks_part_bytes(shape) + shape.per_part +
           block % shape.per_part * BLOCKS_NUMEL;
}

/* Encodes up to CHUNK elements of whole blocks, which it changes. */
static void encode_run(float *x, int n, uint8_t *scale, uint8_t *data)
{
    for (int at = 0; at < n; at += BLOCKS_NUMEL) {
        int numel = (int)least(n - at, BLOCKS_NUMEL);
        *scale = find_scale(x + at, numel);
        loops_select()->multiply(x + at, numel, shrinking_factor(*scale++));
    }
    tutti_cast(tutti_tensor_of(data, n, TUTTI_FLOAT8_E4M3FN), tutti_tensor_of(x, n, TUTTI_FLOAT32));
}

/* Decodes up to CHUNK elements.  The first one is element `skip` of its block. */
static void decode_run(const uint8_t *scale, const uint8_t *data, int skip, float *x, int n)
{
    tutti_cast(tutti_tensor_of(x, n, TUTTI_FLOAT32), tutti_tensor_of(data + skip, n, TUTTI_FLOAT8_E4M3FN));
    for (int at = 0; at < n;) {
        int numel = (int)least(n - at, BLOCKS_NUMEL - skip);
        loops_select()->multiply(x + at, numel, growing_factor(*scale++));
        at += numel;
        skip = 0;
    }
}

/* Returns how many of n elements from begin on are in one part and fit a chunk that ends with a block. */
static int run_numel(struct blocks shape, int64_t begin, int64_t n)
{
    int64_t part_numel = shape.per_part * BLOCKS_NUMEL;
    int64_t left = least(part_numel - begin % part_numel, CHUNK - begin % BLOCKS_NUMEL);
    return (int)least(left, n);
}

static tutti_tensor part_of(tutti_tensor tensor, int64_t begin, int64_t numel)
{
    return tutti_tensor_of((char *)tensor.data + begin * tutti_dtype_bytes(tensor.dtype), numel, tensor.dtype);
}

/* Clears what follows the last element: the rest of its block, and the blocks that make all parts equal.  Otherwise old
 * bytes there would join the block's sum, and a NaN among them would spoil it. */
static void clear_rest(struct blocks shape, uint8_t *encoded)
{
    int64_t end = shape.per_part * shape.parts * BLOCKS_NUMEL;
    for (int64_t at = shape.numel, n; at < end; at += n) {
        int64_t skip = at % BLOCKS_NUMEL;
        n = BLOCKS_NUMEL - skip;
        memset((uint8_t *)data_at(shape, encoded, at / BLOCKS_NUMEL) + skip, 0, (size_t)n);
        if (skip == 0) *(uint8_t *)scale_at(shape, encoded, at / BLOCKS_NUMEL) = 0;
    }
}

void blocks_encode(struct blocks shape, tutti_tensor from, uint8_t *encoded)
{
    float x[CHUNK];
    clear_rest(shape, encoded);
    for (int64_t at = 0, n; at < shape.numel; at += n) {
        n = run_numel(shape, at, shape.numel - at);
        tutti_cast(tutti_view(x, n), part_of(from, at, n));
        encode_run(x, (int)n, (uint8_t *)scale_at(shape, encoded, at / BLOCKS_NUMEL),
                   (uint8_t *)data_at(shape, encoded, at / BLOCKS_NUMEL));
    }
}

void blocks_decode(struct blocks shape, const uint8_t *encoded, int64_t begin, tutti_tensor to)
{
    float x[CHUNK];
    for (int64_t at = 0, n; at < to.numel; at += n) {
        int64_t block = (begin + at) / BLOCKS_NUMEL;
        tutti_tensor out = part_of(to, at, n = run_numel(shape, begin + at, to.numel - at));
        bool is_direct = to.dtype == TUTTI_FLOAT32 && (uintptr_t)out.data % sizeof *x == 0;
        decode_run(scale_at(shape, encoded, block), data_at(shape, encoded, block), (int)((begin + at) % BLOCKS_NUMEL),
                   is_direct ? out.data : x, (int)n);
        if (!is_direct) tutti_cast(out, tutti_view(x, n));
    }
}

/* Adds a run of all ranks' parts, from a block on. */
static void sum_run(struct blocks shape, const uint8_t *parts, int64_t block, float *total, int n)
{
    float x[CHUNK];
    memset(total, 0, (size_t)n * sizeof *total);
    for (int k = 0; k < shape.parts; k++) {
        const uint8_t *part = parts + k * blocks_part_bytes(shape);
        decode_run(part + block, part + shape.per_part + block * BLOCKS_NUMEL, 0, x, n);
        loops_select()->add(total, x, n);
    }
}

void blocks_sum(struct blocks shape, const uint8_t *parts, uint8_t *sum, blocks_loss loss, void *context)
{
    float total[CHUNK], wanted[CHUNK], kept[CHUNK], lost[CHUNK];
    for (int64_t at = 0; at < shape.per_part; at += CHUNK / BLOCKS_NUMEL) {
        int n = (int)least(shape.per_part - at, CHUNK / BLOCKS_NUMEL) * BLOCKS_NUMEL;
        uint8_t *scale = sum + at, *data = sum + shape.per_part + at * BLOCKS_NUMEL;
        sum_run(shape, parts, at, total, n);
        memcpy(wanted, total, (size_t)n * sizeof *wanted);
        encode_run(total, n, scale, data);
        if (loss == NULL) continue;
        decode_run(scale, data, 0, kept, n);
        loops_select()->keep_lost(lost, wanted, kept, n);
        loss(context, at * BLOCKS_NUMEL, lost, n);
    }
}
