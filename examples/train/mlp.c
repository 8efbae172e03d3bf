#include "mlp.h"

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

int64_t mlp_layer_numel(const struct mlp *net, int layer)
{
    return (int64_t)(net->size[layer] + 1) * net->size[layer + 1];
}

void mlp_init(struct mlp *net, int rows, uint64_t seed)
{
    net->numel = 0;
    for (int i = net->layers - 1; i >= 0; i--) {
        net->begin[i] = net->numel;
        net->numel += mlp_layer_numel(net, i);
    }
    net->value = floats(net->numel);
    net->gradient = floats(net->numel);
    net->velocity = floats(net->numel);
    for (int i = 0; i <= net->layers; i++) {
        net->active[i] = floats((int64_t)rows * net->size[i]);
        net->error[i] = floats((int64_t)rows * net->size[i]);
    }
    for (int i = 0; i < net->layers; i++) { /* He initialization of the weights; biases are 0 */
        float *weight = net->value + net->begin[i], limit = sqrtf(6.0f / (float)net->size[i]);
        for (int k = 0; k < net->size[i] * net->size[i + 1]; k++)
            weight[k] = limit * ((float)digits_random(&seed, 1 << 20) / (1 << 19) - 1);
    }
}

void mlp_free(struct mlp *net)
{
    free(net->value);
    free(net->gradient);
    free(net->velocity);
    for (int i = 0; i <= net->layers; i++) {
        free(net->active[i]);
        free(net->error[i]);
    }
}

void mlp_forward(struct mlp *net, int rows)
{
    for (int layer = 0; layer < net->layers; layer++) {
        int n_in = net->size[layer], n_out = net->size[layer + 1];
        const float *weight = net->value + net->begin[layer], *bias = weight + n_in * n_out;
        for (int r = 0; r < rows; r++) {
            const float *in = net->active[layer] + r * n_in;
            float *out = net->active[layer + 1] + r * n_out;
            memcpy(out, bias, (size_t)n_out * sizeof *out);
            for (int k = 0; k < n_in; k++)
                for (int j = 0; j < n_out; j++) out[j] += in[k] * weight[k * n_out + j];
            for (int j = 0; j < n_out && layer < net->layers - 1; j++) out[j] = fmaxf(out[j], 0);
        }
    }
}

int mlp_guess(const struct mlp *net, int row)
{
    int n = net->size[net->layers], best = 0;
    const float *out = net->active[net->layers] + row * n;
    for (int j = 1; j < n; j++)
        if (out[j] > out[best]) best = j;
    return best;
}

double mlp_loss(struct mlp *net, const int *label, int first, int rows, float scale)
{
    int n = net->size[net->layers];
    double loss = 0;
    for (int r = first; r < first + rows; r++) {
        const float *out = net->active[net->layers] + r * n;
        float *error = net->error[net->layers] + r * n, largest = out[mlp_guess(net, r)], sum = 0;
        for (int j = 0; j < n; j++) sum += error[j] = expf(out[j] - largest);
        for (int j = 0; j < n; j++) error[j] *= scale / sum;
        error[label[r]] -= scale;
        loss += (double)(logf(sum) + largest - out[label[r]]);
    }
    return loss;
}

void mlp_backward(struct mlp *net, int layer, int first, int rows, float *gradient)
{
    int n_in = net->size[layer], n_out = net->size[layer + 1];
    const float *weight = net->value + net->begin[layer];
    float *weight_gradient = gradient, *bias_gradient = gradient + n_in * n_out;
    memset(gradient, 0, (size_t)mlp_layer_numel(net, layer) * sizeof *gradient);
    for (int r = first; r < first + rows; r++) {
        const float *in = net->active[layer] + r * n_in, *error = net->error[layer + 1] + r * n_out;
        float *error_in = net->error[layer] + r * n_in;
        for (int j = 0; j < n_out; j++) bias_gradient[j] += error[j];
        for (int k = 0; k < n_in; k++) {
            float sum = 0;
            for (int j = 0; j < n_out; j++) weight_gradient[k * n_out + j] += in[k] * error[j];
            for (int j = 0; j < n_out && layer > 0; j++) sum += weight[k * n_out + j] * error[j];
            error_in[k] = in[k] > 0 ? sum : 0; /* the derivative of ReLU */
        }
    }
}

void mlp_step(struct mlp *net, float rate, float momentum)
{
    for (int64_t i = 0; i < net->numel; i++) {
        net->velocity[i] = momentum * net->velocity[i] + net->gradient[i];
        net->value[i] -= rate * net->velocity[i];
    }
}
