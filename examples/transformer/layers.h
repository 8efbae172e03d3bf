/* The layers of a transformer, forward and backward, in float32.  Nothing here is distributed.
 *
 * A backward function gets the gradient of its output, named d..., and adds to the gradients of its parameters.
 * Activations are [row][width]; a row is one position of one sequence. */
#ifndef LAYERS_H
#define LAYERS_H

#include <stdint.h>

struct parameter {
    char name[32];
    int64_t numel;
    float *value, *gradient;
};

/* y = x weight + bias.  weight is [in][out]; bias may be NULL. */
struct linear {
    struct parameter *weight, *bias;
    int in, out;
};

void linear_forward(const struct linear *linear, const float *x, float *y, int rows);

/* Sets dx. */
void linear_backward(const struct linear *linear, const float *x, const float *dy, float *dx, int rows);

/* Layer normalization: y = normal scale + shift.  normal is x less its mean, times `inverse`, the inverse of its
 * deviation.  The caller keeps both for the backward pass. */
struct norm {
    struct parameter *scale, *shift;
    int width;
};

void norm_forward(const struct norm *norm, const float *x, float *normal, float *inverse, float *y, int rows);

/* Adds to dx. */
void norm_backward(const struct norm *norm, const float *normal, const float *inverse, const float *dy, float *dx,
                   int rows);

/* Causal self-attention: a position attends to itself and those before it, in each head by itself. */
struct attention {
    int batch, context, heads, width;
};

/* qkv is [row][3][head][width / heads].  Keeps the softmax in `weight`, [batch][head][context][context]. */
void attention_forward(const struct attention *attention, const float *qkv, float *weight, float *y);

/* Sets dqkv. */
void attention_backward(const struct attention *attention, const float *qkv, const float *weight, const float *dy,
                        float *dqkv);

/* GELU, in the approximation by tanh. */
void gelu_forward(const float *x, float *y, int64_t n);

/* Replaces the gradient of the output by that of the input. */
void gelu_backward(const float *x, float *gradient, int64_t n);

/* Returns the sum of the rows' cross entropies after softmax, and sets dlogits to `scale` times its gradient. */
double cross_entropy(const float *logits, const uint8_t *target, float *dlogits, int rows, int classes, float scale);

#endif
