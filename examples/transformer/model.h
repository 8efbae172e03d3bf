/* A small GPT: token and position embeddings, blocks of attention and a GELU layer, and a linear head.  Plain C;
 * nothing here is distributed.
 *
 * The parameters are a list in the order of the forward pass.  The backward pass reports each one whose gradient is
 * complete, from the last to the first, so that a program can send it while the pass continues. */
#ifndef MODEL_H
#define MODEL_H

#include <stdint.h>

#include "layers.h"

enum { MODEL_LAYERS_MAX = 16, MODEL_PARAMETERS_MAX = 12 * MODEL_LAYERS_MAX + 5 };

struct block {
    struct norm norm1, norm2;
    struct linear qkv, projection, up, down;
    /* what the backward pass needs of the forward pass */
    float *normal1, *inverse1, *y1, *qkv_y, *weight, *attended, *middle, *normal2, *inverse2, *y2, *up_y, *gelu_y;
    float *y; /* the block's output */
};

struct model {
    /* set by the caller.  width is a multiple of 16 heads, context and symbols are multiples of 16 */
    int layers, heads, width, context, symbols, batch_max;

    int n;                                            /* parameters */
    struct parameter parameter[MODEL_PARAMETERS_MAX]; /* their values and gradients are parts of the arrays below */
    int64_t numel;
    float *value, *gradient;

    struct parameter *token, *position;
    struct block block[MODEL_LAYERS_MAX];
    struct norm norm;
    struct linear head;
    float *x, *normal, *inverse, *y, *logits, *dlogits;
    float *dx, *d_width, *d_wide; /* gradients of activations: of the residual, and two for parts of a block */
};

/* Called when the gradient of a parameter is complete. */
typedef void model_report(void *context, int parameter);

/* Allocates the model, with the same values everywhere. */
void model_init(struct model *model);
void model_free(struct model *model);

/* Computes the logits of `batch` sequences; input is [batch][context]. */
void model_forward(struct model *model, const uint8_t *input, int batch);

/* Returns the sum of the losses of the last forward pass, and computes the gradients of `scale` times the sum.  report
 * may be NULL. */
double model_backward(struct model *model, const uint8_t *input, const uint8_t *target, int batch, float scale,
                      model_report *report, void *context);

/* Adam, with its running means of gradients and their squares. */
struct adam {
    float rate;
    int step;
    float *mean, *square;
};

void adam_init(struct adam *adam, int64_t numel, float rate);
void adam_free(struct adam *adam);
void adam_step(struct adam *adam, float *value, const float *gradient, int64_t n);

#endif
