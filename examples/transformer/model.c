#include "model.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static float *zeros(int64_t n)
{
    float *memory = calloc((size_t)n + 1, sizeof *memory);
    if (!memory) abort();
    return memory;
}

/* ---- parameters --------------------------------------------------------------------------------------------- */

__attribute__((format(printf, 3, 4))) static struct parameter *add(struct model *model, int64_t numel,
                                                                   const char *format, ...)
{
    struct parameter *parameter = &model->parameter[model->n++];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(parameter->name, sizeof parameter->name, format, arguments);
    va_end(arguments);
    parameter->numel = numel;
    model->numel += numel;
    return parameter;
}

static struct norm add_norm(struct model *model, const char *name, int layer)
{
    struct parameter *scale = add(model, model->width, "%s%d.scale", name, layer);
    return (struct norm){scale, add(model, model->width, "%s%d.shift", name, layer), model->width};
}

static struct linear add_linear(struct model *model, const char *name, int layer, int in, int out)
{
    struct parameter *weight = add(model, (int64_t)in * out, "%s%d.weight", name, layer);
    return (struct linear){weight, add(model, out, "%s%d.bias", name, layer), in, out};
}

static void add_parameters(struct model *model)
{
    int width = model->width;
    model->n = 0;
    model->numel = 0;
    model->token = add(model, (int64_t)model->symbols * width, "token");
    model->position = add(model, (int64_t)model->context * width, "position");
    for (int i = 0; i < model->layers; i++) {
        struct block *block = &model->block[i];
        block->norm1 = add_norm(model, "attention_norm", i);
        block->qkv = add_linear(model, "qkv", i, width, 3 * width);
        block->projection = add_linear(model, "projection", i, width, width);
        block->norm2 = add_norm(model, "norm", i);
        block->up = add_linear(model, "up", i, width, 4 * width);
        block->down = add_linear(model, "down", i, 4 * width, width);
    }
    model->norm = add_norm(model, "norm", model->layers);
    model->head = (struct linear){add(model, (int64_t)width * model->symbols, "head"), NULL, width, model->symbols};
}

/* Fills a parameter with numbers from [-limit, limit): the same ones everywhere (xorshift64*). */
static void fill(struct parameter *parameter, float limit, uint64_t *state)
{
    for (int64_t i = 0; i < parameter->numel; i++) {
        *state ^= *state >> 12;
        *state ^= *state << 25;
        *state ^= *state >> 27;
        parameter->value[i] = limit * ((float)((*state * 0x2545f4914f6cdd1d) >> 40) / (1 << 23) - 1);
    }
}

static void fill_linear(struct linear *linear, float factor, uint64_t *state)
{
    fill(linear->weight, factor * sqrtf(3 / (float)linear->in), state);
}

static void fill_ones(struct norm *norm)
{
    for (int i = 0; i < norm->width; i++) norm->scale->value[i] = 1;
}

/* Sets the initial values.  The last layers of each branch are smaller, so that the sum of all keeps its size. */
static void fill_parameters(struct model *model)
{
    uint64_t state = 20260101;
    float branch = 1 / sqrtf(2 * (float)model->layers);
    fill(model->token, 0.2f, &state);
    fill(model->position, 0.2f, &state);
    for (int i = 0; i < model->layers; i++) {
        struct block *block = &model->block[i];
        fill_ones(&block->norm1);
        fill_ones(&block->norm2);
        fill_linear(&block->qkv, 1, &state);
        fill_linear(&block->projection, branch, &state);
        fill_linear(&block->up, 1, &state);
        fill_linear(&block->down, branch, &state);
    }
    fill_ones(&model->norm);
    fill_linear(&model->head, 0.5f, &state);
}

/* ---- memory ------------------------------------------------------------------------------------------------- */

static void allocate_block(const struct model *model, struct block *block)
{
    int64_t rows = (int64_t)model->batch_max * model->context, wide = rows * model->width;
    float **one[] = {&block->normal1, &block->y1, &block->attended, &block->middle,
                     &block->normal2, &block->y2, &block->y};
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) *one[i] = zeros(wide);
    block->inverse1 = zeros(rows);
    block->inverse2 = zeros(rows);
    block->qkv_y = zeros(3 * wide);
    block->weight = zeros(rows * model->heads * model->context);
    block->up_y = zeros(4 * wide);
    block->gelu_y = zeros(4 * wide);
}

static void free_block(struct block *block)
{
    float *const memory[] = {block->normal1,  block->inverse1, block->y1,      block->qkv_y,    block->weight,
                             block->attended, block->middle,   block->normal2, block->inverse2, block->y2,
                             block->up_y,     block->gelu_y,   block->y};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++) free(memory[i]);
}

void model_init(struct model *model)
{
    int64_t rows = (int64_t)model->batch_max * model->context, wide = rows * model->width, at = 0;
    add_parameters(model);
    model->value = zeros(model->numel);
    model->gradient = zeros(model->numel);
    for (int i = 0; i < model->n; at += model->parameter[i++].numel) {
        model->parameter[i].value = model->value + at;
        model->parameter[i].gradient = model->gradient + at;
    }
    fill_parameters(model);

    for (int i = 0; i < model->layers; i++) allocate_block(model, &model->block[i]);
    float **one[] = {&model->x, &model->normal, &model->y, &model->dx, &model->d_width};
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) *one[i] = zeros(wide);
    model->inverse = zeros(rows);
    model->d_wide = zeros(4 * wide);
    model->logits = zeros(rows * model->symbols);
    model->dlogits = zeros(rows * model->symbols);
}

void model_free(struct model *model)
{
    float *const memory[] = {model->value, model->gradient, model->x,      model->normal, model->inverse, model->y,
                             model->dx,    model->d_width,  model->d_wide, model->logits, model->dlogits};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++) free(memory[i]);
    for (int i = 0; i < model->layers; i++) free_block(&model->block[i]);
}

/* ---- forward ------------------------------------------------------------------------------------------------ */

static void add_to(float *out, const float *x, const float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) out[i] = x[i] + y[i];
}

static struct attention attention_of(const struct model *model, int batch)
{
    return (struct attention){batch, model->context, model->heads, model->width};
}

/* Computes middle = x + projection(attention(norm1(x))), then y = middle + down(gelu(up(norm2(middle)))). */
static void block_forward(struct model *model, struct block *block, const float *x, int batch)
{
    int rows = batch * model->context;
    struct attention attention = attention_of(model, batch);
    norm_forward(&block->norm1, x, block->normal1, block->inverse1, block->y1, rows);
    linear_forward(&block->qkv, block->y1, block->qkv_y, rows);
    attention_forward(&attention, block->qkv_y, block->weight, block->attended);
    linear_forward(&block->projection, block->attended, block->middle, rows);
    add_to(block->middle, block->middle, x, (int64_t)rows * model->width);

    norm_forward(&block->norm2, block->middle, block->normal2, block->inverse2, block->y2, rows);
    linear_forward(&block->up, block->y2, block->up_y, rows);
    gelu_forward(block->up_y, block->gelu_y, (int64_t)rows * block->up.out);
    linear_forward(&block->down, block->gelu_y, block->y, rows);
    add_to(block->y, block->y, block->middle, (int64_t)rows * model->width);
}

void model_forward(struct model *model, const uint8_t *input, int batch)
{
    int rows = batch * model->context, width = model->width;
    const float *x = model->x;
    for (int r = 0; r < rows; r++)
        add_to(model->x + r * width, model->token->value + input[r] * width,
               model->position->value + r % model->context * width, width);
    for (int i = 0; i < model->layers; x = model->block[i++].y) block_forward(model, &model->block[i], x, batch);
    norm_forward(&model->norm, x, model->normal, model->inverse, model->y, rows);
    linear_forward(&model->head, model->y, model->logits, rows);
}

/* ---- backward ----------------------------------------------------------------------------------------------- */

/* Who wants to know which gradients are complete. */
struct reporter {
    const struct model *model;
    model_report *report;
    void *context;
};

/* Reports two parameters, the later one first.  The later one may be NULL. */
static void tell(const struct reporter *reporter, const struct parameter *earlier, const struct parameter *later)
{
    const struct parameter *first = reporter->model->parameter;
    if (!reporter->report) return;
    if (later) reporter->report(reporter->context, (int)(later - first));
    reporter->report(reporter->context, (int)(earlier - first));
}

/* Replaces the gradient of the block's output, in dx, by that of its input. */
static void block_backward(struct model *model, struct block *block, int batch, const struct reporter *reporter)
{
    int rows = batch * model->context;
    struct attention attention = attention_of(model, batch);
    linear_backward(&block->down, block->gelu_y, model->dx, model->d_wide, rows);
    tell(reporter, block->down.weight, block->down.bias);
    gelu_backward(block->up_y, model->d_wide, (int64_t)rows * block->up.out);
    linear_backward(&block->up, block->y2, model->d_wide, model->d_width, rows);
    tell(reporter, block->up.weight, block->up.bias);
    norm_backward(&block->norm2, block->normal2, block->inverse2, model->d_width, model->dx, rows);
    tell(reporter, block->norm2.scale, block->norm2.shift);

    linear_backward(&block->projection, block->attended, model->dx, model->d_width, rows);
    tell(reporter, block->projection.weight, block->projection.bias);
    attention_backward(&attention, block->qkv_y, block->weight, model->d_width, model->d_wide);
    linear_backward(&block->qkv, block->y1, model->d_wide, model->d_width, rows);
    tell(reporter, block->qkv.weight, block->qkv.bias);
    norm_backward(&block->norm1, block->normal1, block->inverse1, model->d_width, model->dx, rows);
    tell(reporter, block->norm1.scale, block->norm1.shift);
}

double model_backward(struct model *model, const uint8_t *input, const uint8_t *target, int batch, float scale,
                      model_report *report, void *context)
{
    int rows = batch * model->context, width = model->width;
    struct reporter reporter = {model, report, context};
    memset(model->gradient, 0, (size_t)model->numel * sizeof *model->gradient);
    double loss = cross_entropy(model->logits, target, model->dlogits, rows, model->symbols, scale);
    linear_backward(&model->head, model->y, model->dlogits, model->d_width, rows);
    tell(&reporter, model->head.weight, NULL);
    memset(model->dx, 0, (size_t)rows * (size_t)width * sizeof *model->dx);
    norm_backward(&model->norm, model->normal, model->inverse, model->d_width, model->dx, rows);
    tell(&reporter, model->norm.scale, model->norm.shift);
    for (int i = model->layers - 1; i >= 0; i--) block_backward(model, &model->block[i], batch, &reporter);
    for (int r = 0; r < rows; r++) {
        float *token = model->token->gradient + input[r] * width;
        float *position = model->position->gradient + r % model->context * width;
        add_to(token, token, model->dx + r * width, width);
        add_to(position, position, model->dx + r * width, width);
    }
    tell(&reporter, model->token, model->position);
    return loss;
}

/* ---- Adam --------------------------------------------------------------------------------------------------- */

void adam_init(struct adam *adam, int64_t numel, float rate)
{
    *adam = (struct adam){rate, 0, zeros(numel), zeros(numel)};
}

void adam_free(struct adam *adam)
{
    free(adam->mean);
    free(adam->square);
}

void adam_step(struct adam *adam, float *value, const float *gradient, int64_t n)
{
    const float beta1 = 0.9f, beta2 = 0.99f, epsilon = 1e-6f;
    adam->step++;
    float warm_up = fminf((float)adam->step / 20, 1), rate = adam->rate * warm_up;
    float mean_scale = 1 / (1 - powf(beta1, (float)adam->step)), scale = 1 / (1 - powf(beta2, (float)adam->step));
    for (int64_t i = 0; i < n; i++) {
        adam->mean[i] += (1 - beta1) * (gradient[i] - adam->mean[i]);
        adam->square[i] += (1 - beta2) * (gradient[i] * gradient[i] - adam->square[i]);
        value[i] -= rate * adam->mean[i] * mean_scale / (sqrtf(adam->square[i] * scale) + epsilon);
    }
}
