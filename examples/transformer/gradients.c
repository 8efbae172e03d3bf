#include "gradients.h"

#include "../example.h"

struct gradients gradients_new(struct model *model, tutti_dtype dtype)
{
    struct gradients gradients = {model, tensor_new(NULL, model->numel, dtype), NULL};
    if (dtype == TUTTI_BFLOAT16) gradients.half = (uint16_t *)floats((model->numel + 1) / 2);
    return gradients;
}

void gradients_free(struct gradients *gradients)
{
    tensor_free(gradients->sent);
    free(gradients->half);
}

/* Rounds to nearest even. */
static void to_bfloat16(uint16_t *out, const float *in, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &in[i], sizeof bits);
        out[i] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
}

static void from_bfloat16(float *out, const uint16_t *in, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = (uint32_t)in[i] << 16;
        memcpy(&out[i], &bits, sizeof bits);
    }
}

void gradients_ready(void *gradients, int parameter)
{
    (void)gradients; /* all of them are sent at the end */
    (void)parameter;
}

void gradients_wait(struct gradients *gradients)
{
    struct model *model = gradients->model;
    uint16_t *half = gradients->half;
    if (half) to_bfloat16(half, model->gradient, model->numel);
    tensor_set(gradients->sent, half ? (void *)half : model->gradient);
    TUTTI_CHECK(tutti_all_reduce(gradients->sent, TUTTI_AVG, NULL));
    tensor_get(half ? (void *)half : model->gradient, gradients->sent);
    if (half) from_bfloat16(model->gradient, half, model->numel);
}
