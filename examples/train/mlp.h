/* The network of train.c: a multi-layer perceptron with ReLU, softmax cross entropy, and SGD with momentum.  Plain C;
 * nothing here is distributed.
 *
 * Values and gradients are in one array each, last layer first.  The backward pass fills the gradients in this order,
 * so a bucket of several layers is contiguous memory.
 */
#ifndef MLP_H
#define MLP_H

#include <stdint.h>

enum { MLP_LAYERS_MAX = 8 };

struct mlp {
    int layers;
    int size[MLP_LAYERS_MAX + 1];  /* inputs, hidden .., outputs */
    int64_t begin[MLP_LAYERS_MAX]; /* offset of a layer's weights [in][out] and biases [out] in the arrays below */
    int64_t numel;                 /* length of the next three arrays */
    float *value, *gradient, *velocity;
    float *active[MLP_LAYERS_MAX + 1]; /* [row][size]: 0 is the input, `layers` the output */
    float *error[MLP_LAYERS_MAX + 1];  /* [row][size]: gradient of the loss with respect to active */
};

/* Returns the number of a layer's weights and biases. */
int64_t mlp_layer_numel(const struct mlp *net, int layer);

/* Allocates the arrays.  The caller has set net->layers and net->size.  `rows` is the largest batch. */
void mlp_init(struct mlp *net, int rows, uint64_t seed);

void mlp_free(struct mlp *net);

/* Computes active[layers] from active[0], for `rows` rows. */
void mlp_forward(struct mlp *net, int rows);

/* Returns the index of the row's largest output. */
int mlp_guess(const struct mlp *net, int row);

/* Returns the sum of some rows' losses (cross entropy after softmax), and fills their part of error[layers] with
 * `scale` times its gradient. */
double mlp_loss(struct mlp *net, const int *label, int first, int rows, float scale);

/* Runs the backward pass of one layer for some of the rows, last layer first.  Stores their part of the layer's
 * gradient. */
void mlp_backward(struct mlp *net, int layer, int first, int rows, float *gradient);

/* Updates the values: SGD with momentum. */
void mlp_step(struct mlp *net, float rate, float momentum);

#endif
