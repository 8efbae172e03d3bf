#include "layers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "matrix.h"

void linear_forward(const struct linear *linear, const float *x, float *y, int rows)
{
    int in = linear->in, out = linear->out;
    if (!linear->bias) memset(y, 0, (size_t)rows * (size_t)out * sizeof *y);
    for (int r = 0; r < rows && linear->bias; r++)
        memcpy(y + (size_t)r * (size_t)out, linear->bias->value, (size_t)out * sizeof *y);
    matrix_add_product(matrix_of(y, rows, out, out), matrix_of(x, rows, in, in),
                       matrix_of(linear->weight->value, in, out, out));
}

void linear_backward(const struct linear *linear, const float *x, const float *dy, float *dx, int rows)
{
    int in = linear->in, out = linear->out;
    struct matrix dy_matrix = matrix_of(dy, rows, out, out);
    for (int r = 0; r < rows && linear->bias; r++)
        for (int i = 0; i < out; i++) linear->bias->gradient[i] += dy[r * out + i];
    matrix_add_product(matrix_of(linear->weight->gradient, in, out, out), matrix_transposed(matrix_of(x, rows, in, in)),
                       dy_matrix);
    memset(dx, 0, (size_t)rows * (size_t)in * sizeof *dx);
    matrix_add_product(matrix_of(dx, rows, in, in), dy_matrix,
                       matrix_transposed(matrix_of(linear->weight->value, in, out, out)));
}

void norm_forward(const struct norm *norm, const float *x, float *normal, float *inverse, float *y, int rows)
{
    int n = norm->width;
    for (int r = 0; r < rows; r++, x += n, normal += n, y += n) {
        float mean = 0, variance = 0;
        for (int i = 0; i < n; i++) mean += x[i] / (float)n;
        for (int i = 0; i < n; i++) variance += (x[i] - mean) * (x[i] - mean) / (float)n;
        inverse[r] = 1 / sqrtf(variance + 1e-5f);
        for (int i = 0; i < n; i++) {
            normal[i] = (x[i] - mean) * inverse[r];
            y[i] = normal[i] * norm->scale->value[i] + norm->shift->value[i];
        }
    }
}

void norm_backward(const struct norm *norm, const float *normal, const float *inverse, const float *dy, float *dx,
                   int rows)
{
    int n = norm->width;
    const float *scale = norm->scale->value;
    for (int r = 0; r < rows; r++, normal += n, dy += n, dx += n) {
        float mean = 0, along = 0; /* of the gradient of normal: its mean, and its component along normal */
        for (int i = 0; i < n; i++) {
            norm->scale->gradient[i] += dy[i] * normal[i];
            norm->shift->gradient[i] += dy[i];
            mean += dy[i] * scale[i] / (float)n;
            along += dy[i] * scale[i] * normal[i] / (float)n;
        }
        for (int i = 0; i < n; i++) dx[i] += inverse[r] * (dy[i] * scale[i] - mean - normal[i] * along);
    }
}

/* ---- attention ---------------------------------------------------------------------------------------------- */

/* One head of one sequence: matrices in the memory of all. */
struct head {
    struct matrix query, key, value; /* [context][width / heads] */
    struct matrix weight;            /* [context][context] */
    struct matrix y;                 /* [context][width / heads] */
};

static struct head find_head(const struct attention *a, int i, const float *qkv, const float *weight, const float *y)
{
    int t = a->context, w = a->width, width = w / a->heads, sequence = i / a->heads, at = i % a->heads * width;
    const float *first = qkv + (size_t)sequence * (size_t)t * 3 * (size_t)w + at;
    return (struct head){matrix_of(first, t, width, 3 * w), matrix_of(first + w, t, width, 3 * w),
                         matrix_of(first + 2 * w, t, width, 3 * w),
                         matrix_of(weight + (size_t)i * (size_t)t * (size_t)t, t, t, t),
                         matrix_of(y + (size_t)sequence * (size_t)t * (size_t)w + at, t, width, w)};
}

/* Replaces each row's scores up to the diagonal by their softmax, and those after it by 0. */
static void causal_softmax(struct matrix x, float scale)
{
    for (int i = 0; i < x.rows; i++) {
        float *row = x.data + i * x.row, largest = row[0], sum = 0;
        for (int j = 1; j <= i; j++) largest = fmaxf(largest, row[j]);
        for (int j = 0; j <= i; j++) sum += row[j] = expf((row[j] - largest) * scale);
        for (int j = 0; j < x.columns; j++) row[j] = j <= i ? row[j] / sum : 0;
    }
}

/* Replaces the gradient of the softmax by that of the scores. */
static void causal_softmax_backward(struct matrix weight, struct matrix gradient, float scale)
{
    for (int i = 0; i < weight.rows; i++) {
        const float *row = weight.data + i * weight.row;
        float *out = gradient.data + i * gradient.row, sum = 0;
        for (int j = 0; j <= i; j++) sum += row[j] * out[j];
        for (int j = 0; j < weight.columns; j++) out[j] = scale * row[j] * (out[j] - sum);
    }
}

static float score_scale(const struct attention *attention)
{
    return 1 / sqrtf((float)(attention->width / attention->heads));
}

void attention_forward(const struct attention *attention, const float *qkv, float *weight, float *y)
{
    size_t t = (size_t)attention->context, rows = (size_t)attention->batch * t;
    memset(weight, 0, rows * (size_t)attention->heads * t * sizeof *weight);
    memset(y, 0, rows * (size_t)attention->width * sizeof *y);
    for (int i = 0; i < attention->batch * attention->heads; i++) {
        struct head head = find_head(attention, i, qkv, weight, y);
        matrix_add_product(head.weight, head.query, matrix_transposed(head.key));
        causal_softmax(head.weight, score_scale(attention));
        matrix_add_product(head.y, head.weight, head.value);
    }
}

void attention_backward(const struct attention *attention, const float *qkv, const float *weight, const float *dy,
                        float *dqkv)
{
    int t = attention->context;
    float *scores = malloc((size_t)t * (size_t)t * sizeof *scores);
    if (!scores) abort();
    memset(dqkv, 0, (size_t)attention->batch * (size_t)t * 3 * (size_t)attention->width * sizeof *dqkv);
    for (int i = 0; i < attention->batch * attention->heads; i++) {
        struct head head = find_head(attention, i, qkv, weight, dy),
                    gradient = find_head(attention, i, dqkv, scores, dy);
        gradient.weight = matrix_of(scores, t, t, t);
        memset(scores, 0, (size_t)t * (size_t)t * sizeof *scores);
        matrix_add_product(gradient.weight, head.y, matrix_transposed(head.value));
        matrix_add_product(gradient.value, matrix_transposed(head.weight), head.y);
        causal_softmax_backward(head.weight, gradient.weight, score_scale(attention));
        matrix_add_product(gradient.query, gradient.weight, head.key);
        matrix_add_product(gradient.key, matrix_transposed(gradient.weight), head.query);
    }
    free(scores);
}

/* ---- one value or one row at a time ------------------------------------------------------------------------- */

/* GELU by tanh, 0.5 x (1 + tanh(u)), is x times the logistic function of 2 u. */
static const float gelu_factor = 0.79788456f, gelu_cubic = 0.044715f; /* sqrt(2 / pi), and Hendrycks and Gimpel's */

static float logistic(float x)
{
    return 1 / (1 + expf(-2 * gelu_factor * (x + gelu_cubic * x * x * x)));
}

void gelu_forward(const float *x, float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) y[i] = x[i] * logistic(x[i]);
}

void gelu_backward(const float *x, float *gradient, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        float part = logistic(x[i]), slope = 2 * gelu_factor * (1 + 3 * gelu_cubic * x[i] * x[i]);
        gradient[i] *= part + x[i] * part * (1 - part) * slope;
    }
}

double cross_entropy(const float *logits, const uint8_t *target, float *dlogits, int rows, int classes, float scale)
{
    double loss = 0;
    for (int r = 0; r < rows; r++, logits += classes, dlogits += classes) {
        float largest = logits[0], sum = 0;
        for (int i = 1; i < classes; i++) largest = fmaxf(largest, logits[i]);
        for (int i = 0; i < classes; i++) sum += dlogits[i] = expf(logits[i] - largest);
        for (int i = 0; i < classes; i++) dlogits[i] *= scale / sum;
        dlogits[target[r]] -= scale;
        loss += (double)(logf(sum) + largest - logits[target[r]]);
    }
    return loss;
}
