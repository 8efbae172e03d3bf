/* One step of a power iteration finds the columns P that the gradients M of all ranks share most: P = M Q, summed over
 * the ranks and made orthonormal; then Q = M' P, summed.  P Q' is near the sum of the gradients.  What it lacks of this
 * rank's gradient is added to the next one. */
#include "powersgd.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "digits.h"

static float *floats(int64_t n)
{
    float *memory = calloc((size_t)n + 1, sizeof *memory);
    if (!memory) abort();
    return memory;
}

void powersgd_add(struct powersgd *state, int parameter, int rows, int columns)
{
    struct powersgd_matrix *matrix = &state->matrix[parameter];
    uint64_t seed = 7 + (uint64_t)parameter; /* the same on all ranks */
    *matrix = (struct powersgd_matrix){rows, columns, floats((int64_t)rows * columns),
                                       floats((int64_t)columns * state->rank)};
    for (int i = 0; i < columns * state->rank; i++) matrix->q[i] = (float)digits_random(&seed, 2001) / 1000 - 1;
}

void powersgd_free(struct powersgd *state)
{
    for (int i = 0; i < POWERSGD_PARAMETERS_MAX; i++) {
        free(state->matrix[i].wanted);
        free(state->matrix[i].q);
        free(state->p[i]);
        free(state->q[i]);
    }
}

/* Computes P = M Q. */
static void multiply(const struct powersgd_matrix *m, int rank, float *p)
{
    memset(p, 0, (size_t)m->rows * (size_t)rank * sizeof *p);
    for (int i = 0; i < m->rows; i++)
        for (int j = 0; j < m->columns; j++)
            for (int k = 0; k < rank; k++) p[i * rank + k] += m->wanted[i * m->columns + j] * m->q[j * rank + k];
}

/* Computes Q = M' P. */
static void multiply_transposed(const struct powersgd_matrix *m, int rank, const float *p, float *q)
{
    memset(q, 0, (size_t)m->columns * (size_t)rank * sizeof *q);
    for (int i = 0; i < m->rows; i++)
        for (int j = 0; j < m->columns; j++)
            for (int k = 0; k < rank; k++) q[j * rank + k] += m->wanted[i * m->columns + j] * p[i * rank + k];
}

/* Makes the columns orthonormal, by Gram and Schmidt.  All ranks compute the same bits. */
static void orthonormalize(float *p, int rows, int rank)
{
    for (int k = 0; k < rank; k++)
        for (int other = 0; other <= k; other++) {
            float product = 0, factor;
            for (int i = 0; i < rows; i++) product += p[i * rank + k] * p[i * rank + other];
            factor = other < k ? product : 1 - 1 / sqrtf(product + 1e-12f);
            for (int i = 0; i < rows; i++) p[i * rank + k] -= factor * p[i * rank + other];
        }
}

/* Stores P Q', which is the sum over the ranks, and keeps what this rank's share of it lacks. */
static void decompress(struct powersgd_matrix *m, int rank, int world, const float *p, float *sum)
{
    for (int i = 0; i < m->rows; i++)
        for (int j = 0; j < m->columns; j++) {
            float x = 0;
            for (int k = 0; k < rank; k++) x += p[i * rank + k] * m->q[j * rank + k];
            sum[i * m->columns + j] = x;
            m->wanted[i * m->columns + j] -= x / (float)world;
        }
}

/* Runs one phase for a parameter, whose parts of the bucket and of the messages are given. */
static void run_phase(const struct powersgd *state, struct powersgd_matrix *m, int phase, int world, float *gradient,
                      float *p, float *q)
{
    size_t q_bytes = (size_t)m->columns * (size_t)state->rank * sizeof *q;
    if (phase == 0) {
        for (int i = 0; i < m->rows * m->columns; i++) m->wanted[i] += gradient[i];
        multiply(m, state->rank, p);
    } else if (phase == 1) {
        orthonormalize(p, m->rows, state->rank);
        multiply_transposed(m, state->rank, p, q);
    } else {
        memcpy(m->q, q, q_bytes);
        decompress(m, state->rank, world, p, gradient);
    }
}

/* Allocates a bucket's messages.  The buckets may change after the first iteration, but not their parameters' sizes. */
static void allocate(struct powersgd *state, int index)
{
    int64_t rows = 0, columns = 0;
    for (int i = 0; i < POWERSGD_PARAMETERS_MAX; i++) {
        rows += state->matrix[i].rows;
        columns += state->matrix[i].columns;
    }
    state->p[index] = floats(rows * state->rank);
    state->q[index] = floats(columns * state->rank);
}

int powersgd_hook(tutti_bucket *bucket, int phase, void *argument, tutti_work **work)
{
    struct powersgd *state = argument;
    int64_t p = 0, q = 0;
    if (!state->p[bucket->index]) allocate(state, bucket->index);
    for (int k = 0; k < bucket->n; k++) {
        struct powersgd_matrix *m = &state->matrix[bucket->parameter[k]];
        run_phase(state, m, phase, tutti_get_world_size(bucket->group),
                  (float *)bucket->tensor.data + bucket->offset[k], state->p[bucket->index] + p,
                  state->q[bucket->index] + q);
        p += m->rows * state->rank;
        q += m->columns * state->rank;
    }
    if (phase == POWERSGD_PHASES) return TUTTI_OK;
    tutti_tensor message = phase == 0 ? tutti_view(state->p[bucket->index], p) : tutti_view(state->q[bucket->index], q);
    tutti_opts opts = {.group = bucket->group, .async_op = work, .timeout_ms = bucket->timeout_ms};
    state->bytes += message.numel * (int64_t)sizeof(float);
    return tutti_all_reduce(message, TUTTI_SUM, &opts);
}
