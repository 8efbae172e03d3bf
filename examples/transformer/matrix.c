#include "matrix.h"

#include <stdint.h>
#include <stdlib.h>

enum { LANES = 8, VECTORS = 2, TILE_ROWS = 4, TILE_COLUMNS = LANES * VECTORS, DEPTH = 256 };

/* Eight floats.  Without AVX the compiler uses two vectors of four. */
typedef float vector __attribute__((vector_size(LANES * sizeof(float)), aligned(sizeof(float)), may_alias));

#define ALWAYS_INLINE static inline __attribute__((always_inline))

struct matrix matrix_of(const float *data, int rows, int columns, int row)
{
    return (struct matrix){(float *)(uintptr_t)data, rows, columns, row, 1};
}

struct matrix matrix_transposed(struct matrix x)
{
    return (struct matrix){x.data, x.columns, x.rows, x.column, x.row};
}

/* Adds to a tile of `rows` rows of out, from `depth` columns of x.  The sums are in registers. */
ALWAYS_INLINE void add_tile(float *out, int out_row, struct matrix x, const float *y, int y_row, int rows, int depth)
{
    vector sum[TILE_ROWS][VECTORS];
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < VECTORS; v++) sum[i][v] = *(const vector *)(out + i * out_row + v * LANES);
    for (int k = 0; k < depth; k++, y += y_row) {
#pragma GCC unroll 4
        for (int i = 0; i < rows; i++) {
            float factor = x.data[i * x.row + k * x.column];
            for (int v = 0; v < VECTORS; v++) sum[i][v] += factor * *(const vector *)(y + v * LANES);
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < VECTORS; v++) *(vector *)(out + i * out_row + v * LANES) = sum[i][v];
}

/* Adds x y to out.  A panel of y, DEPTH rows and one tile wide, stays in the cache while all rows of x pass it. */
ALWAYS_INLINE void add_product(struct matrix out, struct matrix x, struct matrix y)
{
    for (int k = 0; k < y.rows; k += DEPTH)
        for (int j = 0; j < out.columns; j += TILE_COLUMNS) {
            int depth = y.rows - k < DEPTH ? y.rows - k : DEPTH, i = 0;
            const float *panel = y.data + k * y.row + j;
            struct matrix left = x;
            left.data += k * x.column;
            for (; i + TILE_ROWS <= out.rows; i += TILE_ROWS, left.data += TILE_ROWS * x.row)
                add_tile(out.data + i * out.row + j, out.row, left, panel, y.row, TILE_ROWS, depth);
            for (; i < out.rows; i++, left.data += x.row)
                add_tile(out.data + i * out.row + j, out.row, left, panel, y.row, 1, depth);
        }
}

#ifdef __x86_64__
__attribute__((target("avx2,fma"))) static void add_product_avx2(struct matrix out, struct matrix x, struct matrix y)
{
    add_product(out, x, y);
}
#endif

static void add_product_plain(struct matrix out, struct matrix x, struct matrix y)
{
    add_product(out, x, y);
}

/* Copies a matrix so that its rows are contiguous. */
static struct matrix pack(struct matrix x)
{
    float *memory = malloc((size_t)x.rows * (size_t)x.columns * sizeof *memory);
    struct matrix copy = {memory, x.rows, x.columns, x.columns, 1};
    if (!copy.data) abort();
    for (int j = 0; j < x.columns; j++)
        for (int i = 0; i < x.rows; i++) copy.data[i * copy.row + j] = x.data[i * x.row + j * x.column];
    return copy;
}

void matrix_add_product(struct matrix out, struct matrix x, struct matrix y)
{
    struct matrix right = y.column == 1 ? y : pack(y);
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        add_product_avx2(out, x, right);
    else
#endif
        add_product_plain(out, x, right);
    if (right.data != y.data) free(right.data);
}
