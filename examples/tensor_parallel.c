/* Tensor parallelism: the block Y = gelu(X A) B, whose hidden columns are split over the ranks (Shoeybi et al.,
 * Megatron-LM).  A rank has some columns of A and the same rows of B, so gelu needs no communication:
 *
 *     forward    Y  = sum over ranks of gelu(X A_r) B_r        one all_reduce
 *     backward   dX = sum over ranks of dU_r A_r^T             one all_reduce, of the gradient of X
 *
 * Gradients of A_r and B_r stay where they are.
 *
 *     tutti-run -n 4 build/examples/tensor_parallel [tcp|mpi|nccl]
 *
 * The block is in host memory; with nccl the sums are on the GPU.
 */
#include "example.h"

#include <math.h>

enum { ROWS = 32, WIDTH = 48, HIDDEN = 192, SLICE = ROWS * WIDTH };

/* Columns [first, first + n) of the hidden layer. */
struct block {
    int first, n;
    float *a, *b;      /* [WIDTH][n], [n][WIDTH] */
    float *da, *db;    /* their gradients */
    float *u, *hidden; /* [ROWS][n]: X A, and gelu of it */
};

static struct block block_new(int first, int end)
{
    int n = end - first;
    struct block block = {.first = first, .n = n, .u = floats(ROWS * n), .hidden = floats(ROWS * n)};
    float **matrix[] = {&block.a, &block.b, &block.da, &block.db};
    for (int i = 0; i < 4; i++) *matrix[i] = floats(WIDTH * n);
    for (int k = 0; k < WIDTH; k++)
        for (int j = 0; j < n; j++) {
            block.a[k * n + j] = 0.2f * noise(1, k * HIDDEN + first + j);
            block.b[j * WIDTH + k] = 0.1f * noise(2, (first + j) * WIDTH + k);
        }
    return block;
}

static void block_free(struct block *block)
{
    float *const memory[] = {block->a, block->b, block->da, block->db, block->u, block->hidden};
    for (int i = 0; i < 6; i++) free(memory[i]);
}

/* A matrix or its transpose: element [i][k] is at data[i * row + k * column]. */
struct matrix {
    float *data;
    int row, column;
};

static struct matrix plain(float *data, int columns)
{
    return (struct matrix){data, columns, 1};
}

static struct matrix transposed(float *data, int columns)
{
    return (struct matrix){data, 1, columns};
}

/* Adds the product of x and y to out.  size: rows of x, columns of x, columns of y. */
static void multiply(struct matrix out, struct matrix x, struct matrix y, const int size[3])
{
    for (int i = 0; i < size[0]; i++)
        for (int k = 0; k < size[1]; k++)
            for (int j = 0; j < size[2]; j++)
                out.data[i * out.row + j * out.column] +=
                    x.data[i * x.row + k * x.column] * y.data[k * y.row + j * y.column];
}

static float gelu(float u)
{
    return 0.5f * u * (1 + erff(u * (float)M_SQRT1_2));
}

static float gelu_slope(float u)
{
    return 0.5f * (1 + erff(u * (float)M_SQRT1_2)) + u * expf(-0.5f * u * u) * 0.39894228f; /* 1 / sqrt(2 pi) */
}

/* Computes this block's part of Y: the sum of all blocks' parts is Y. */
static void forward(struct block *block, float *x, float *y)
{
    int n = block->n;
    multiply(plain(block->u, n), plain(x, WIDTH), plain(block->a, n), (int[]){ROWS, WIDTH, n});
    for (int i = 0; i < ROWS * n; i++) block->hidden[i] = gelu(block->u[i]);
    multiply(plain(y, WIDTH), plain(block->hidden, n), plain(block->b, WIDTH), (int[]){ROWS, n, WIDTH});
}

/* Computes the gradients of A and B from that of Y, and this block's part of that of X. */
static void backward(struct block *block, float *x, float *dy, float *dx)
{
    int n = block->n;
    float *du = floats(ROWS * n);
    multiply(plain(block->db, WIDTH), transposed(block->hidden, n), plain(dy, WIDTH), (int[]){n, ROWS, WIDTH});
    multiply(plain(du, n), plain(dy, WIDTH), transposed(block->b, WIDTH), (int[]){ROWS, WIDTH, n});
    for (int i = 0; i < ROWS * n; i++) du[i] *= gelu_slope(block->u[i]);
    multiply(plain(block->da, n), transposed(x, WIDTH), plain(du, n), (int[]){WIDTH, ROWS, n});
    multiply(plain(dx, WIDTH), plain(du, n), transposed(block->a, n), (int[]){ROWS, n, WIDTH});
    free(du);
}

/* Replaces the values by their sum over all ranks. */
static void sum_over_ranks(float *values, int n)
{
    tutti_tensor x = tensor_new(values, n, TUTTI_FLOAT32);
    TUTTI_CHECK(tutti_all_reduce(x, TUTTI_SUM, NULL));
    tensor_get(values, x);
    tensor_free(x);
}

/* Returns the largest difference of a block's gradients from the same columns of the whole one. */
static float compare_gradients(const struct block *block, const struct block *whole)
{
    float largest = largest_difference(block->db, whole->db + block->first * WIDTH, block->n * WIDTH);
    for (int k = 0; k < WIDTH; k++)
        largest = fmaxf(largest,
                        largest_difference(block->da + k * block->n, whole->da + k * HIDDEN + block->first, block->n));
    return largest;
}

int main(int argc, char **argv)
{
    TUTTI_CHECK(tutti_init_process_group(argc > 1 ? argv[1] : "tcp", NULL));
    int rank = tutti_get_rank(NULL), world = tutti_get_world_size(NULL);
    struct block mine = block_new(first_of(HIDDEN, rank, world), first_of(HIDDEN, rank + 1, world));
    float x[SLICE], dy[SLICE], y[SLICE] = {0}, dx[SLICE] = {0};
    for (int i = 0; i < SLICE; i++) { /* all ranks have the same X and gradient of Y */
        x[i] = noise(3, i);
        dy[i] = noise(4, i);
    }

    forward(&mine, x, y);
    sum_over_ranks(y, SLICE);
    backward(&mine, x, dy, dx);
    sum_over_ranks(dx, SLICE);

    struct block whole = block_new(0, HIDDEN);
    float right_y[SLICE] = {0}, right_dx[SLICE] = {0};
    forward(&whole, x, right_y);
    backward(&whole, x, dy, right_dx);
    float difference = fmaxf(largest_difference(y, right_y, SLICE), largest_difference(dx, right_dx, SLICE));
    difference = fmaxf(difference, compare_gradients(&mine, &whole));
    bool same = difference < 1e-4f;
    printf("Rank %d has %d of %d weights; Y and gradients differ from the unsplit block's by at most %.1e: %s\n", rank,
           2 * WIDTH * mine.n, 2 * WIDTH * HIDDEN, (double)difference, same ? "right" : "WRONG");

    block_free(&mine);
    block_free(&whole);
    TUTTI_CHECK(tutti_destroy_process_group(NULL));
    return same ? 0 : 1;
}
