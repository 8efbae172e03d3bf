#include "gradients.h"

#include "../example.h"

/* True if the gradient is in the model's own memory, on CPU. */
static bool in_place(const struct gradients *gradients, int i)
{
    return gradients->parameter[i].gradient.data == gradients->model->parameter[i].gradient;
}

void gradients_init(struct gradients *gradients, const struct model *model, tutti_dtype dtype, int bucket_kib)
{
    bool cpu = tutti_get_device(NULL).type == TUTTI_CPU;
    int64_t bytes = (int64_t)bucket_kib * 1024;
    tutti_reducer_opts opts = {.bucket_bytes = bytes, .first_bucket_bytes = bytes};
    if (dtype != TUTTI_FLOAT32) opts.compress = dtype;
    gradients->model = model;
    for (int i = 0; i < model->n; i++) {
        const struct parameter *parameter = &model->parameter[i];
        gradients->parameter[i] = (tutti_parameter){.name = parameter->name,
                                                    .value = tutti_view(parameter->value, cpu ? parameter->numel : 0),
                                                    .gradient = cpu ? tutti_view(parameter->gradient, parameter->numel)
                                                                    : ZEROS(float, parameter->numel)};
    }
    TUTTI_CHECK(tutti_reducer_create(gradients->parameter, model->n, &opts, &gradients->reducer));
}

void gradients_free(struct gradients *gradients)
{
    tutti_reducer_destroy(gradients->reducer);
    for (int i = 0; i < gradients->model->n; i++)
        if (!in_place(gradients, i)) tensor_free(gradients->parameter[i].gradient);
}

void gradients_ready(void *context, int i)
{
    struct gradients *gradients = context;
    if (!in_place(gradients, i)) tensor_set(gradients->parameter[i].gradient, gradients->model->parameter[i].gradient);
    TUTTI_CHECK(tutti_reducer_ready(gradients->reducer, i));
}

void gradients_wait(struct gradients *gradients)
{
    TUTTI_CHECK(tutti_reducer_wait(gradients->reducer));
    for (int i = 0; i < gradients->model->n; i++)
        if (!in_place(gradients, i))
            tensor_get(gradients->model->parameter[i].gradient, gradients->parameter[i].gradient);
}
