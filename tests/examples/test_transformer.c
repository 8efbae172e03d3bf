/* The transformer of examples/transformer: its gradients against finite differences, and the order of its reports. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "../../examples/transformer/matrix.h"
#include "../../examples/transformer/model.h"

enum { BATCH = 2, CONTEXT = 16, SYMBOLS = 16, ROWS = BATCH * CONTEXT };

static uint8_t input[ROWS], target[ROWS];

static int make(void **state)
{
    static struct model model;
    model = (struct model){
        .layers = 2, .heads = 2, .width = 32, .context = CONTEXT, .symbols = SYMBOLS, .batch_max = BATCH};
    model_init(&model);
    for (int i = 0; i < ROWS; i++) {
        input[i] = (uint8_t)(i * 7 % 11);
        target[i] = (uint8_t)(i * 5 % 13);
    }
    /* scales of 1 and biases of 0 could hide that they are left out */
    for (int i = 0; i < model.n; i++)
        for (int k = 0; k < model.parameter[i].numel; k++)
            model.parameter[i].value[k] += 0.2f * sinf((float)(k * 3 + i));
    *state = &model;
    return 0;
}

static int end(void **state)
{
    model_free(*state);
    return 0;
}

static double loss_of(struct model *model)
{
    static float unused[ROWS * SYMBOLS];
    model_forward(model, input, BATCH);
    return cross_entropy(model->logits, target, unused, ROWS, SYMBOLS, 1);
}

/* Returns the slope of the loss along a direction, which has the parameter's size. */
static double slope(struct model *model, struct parameter *parameter, const float *direction, float step)
{
    float before[parameter->numel];
    double loss[2];
    memcpy(before, parameter->value, sizeof before);
    for (int side = 0; side < 2; side++) {
        for (int i = 0; i < parameter->numel; i++)
            parameter->value[i] = before[i] + (side == 0 ? -step : step) * direction[i];
        loss[side] = loss_of(model);
    }
    memcpy(parameter->value, before, sizeof before);
    return (loss[1] - loss[0]) / (2 * (double)step);
}

/* Compares the slope along a direction of length 1 with what the gradient says. */
static void assert_slope(struct model *model, int index, const float *direction)
{
    struct parameter *parameter = &model->parameter[index];
    double expected = 0, found = slope(model, parameter, direction, 0.01f);
    for (int i = 0; i < parameter->numel; i++) expected += (double)(parameter->gradient[i] * direction[i]);
    if (fabs(found - expected) > 0.01 * fabs(expected) + 0.004)
        fail_msg("%s: the loss changes by %g, the gradient says %g", parameter->name, found, expected);
}

/* Checks each parameter along its gradient, and along several others, which single elements and signs dominate. */
static void gradients_are_slopes(void **state)
{
    struct model *model = *state;
    model_forward(model, input, BATCH);
    model_backward(model, input, target, BATCH, 1, NULL, NULL);
    for (int i = 0; i < model->n; i++) {
        struct parameter *parameter = &model->parameter[i];
        int n = (int)parameter->numel;
        float direction[n], length = 0;
        for (int k = 0; k < n; k++) length += parameter->gradient[k] * parameter->gradient[k];
        assert_true(isfinite(length));
        for (int k = 0; k < n; k++) direction[k] = parameter->gradient[k] / (sqrtf(length) + 1e-9f);
        assert_slope(model, i, direction);
        for (int k = 0; k < n; k++) direction[k] *= k % 3 == 0 ? 1 : -1;
        assert_slope(model, i, direction);
        memset(direction, 0, sizeof direction);
        for (int k = 0; k < 4; k++) {
            direction[k * 37 % n] = 1;
            assert_slope(model, i, direction);
            direction[k * 37 % n] = 0;
        }
    }
}

static void count_report(void *context, int parameter)
{
    int *next = context;
    if (parameter == *next - 1) --*next; /* else it stays above 0 */
}

/* Each parameter is reported once, from the last to the first, and the scale multiplies the gradient. */
static void reports_in_reverse(void **state)
{
    struct model *model = *state;
    int next = model->n;
    float first;
    double loss = loss_of(model);
    assert_float_equal(model_backward(model, input, target, BATCH, 1, count_report, &next), loss, 1e-9);
    assert_int_equal(next, 0);
    first = model->head.weight->gradient[3];
    loss_of(model);
    model_backward(model, input, target, BATCH, 0.5f, NULL, NULL);
    assert_float_equal(model->head.weight->gradient[3], first / 2, 1e-5);
}

/* A position does not see those after it. */
static void attention_is_causal(void **state)
{
    struct model *model = *state;
    float before[CONTEXT * SYMBOLS];
    uint8_t kept = input[CONTEXT - 1];
    model_forward(model, input, 1);
    memcpy(before, model->logits, sizeof before);
    input[CONTEXT - 1] = (uint8_t)(kept + 1);
    model_forward(model, input, 1);
    input[CONTEXT - 1] = kept;
    assert_memory_equal(before, model->logits, sizeof *before * (CONTEXT - 1) * SYMBOLS);
    assert_memory_not_equal(before + (CONTEXT - 1) * SYMBOLS, model->logits + (CONTEXT - 1) * SYMBOLS,
                            sizeof *before * SYMBOLS);
}

/* Products of shapes that do not fill tiles and panels, with transposed operands. */
static void products(void **state)
{
    static float x[7 * 300], y[300 * 32], out[7 * 32];
    (void)state;
    for (int i = 0; i < 7 * 300; i++) x[i] = (float)(i % 9 - 4);
    for (int i = 0; i < 300 * 32; i++) y[i] = (float)(i % 7 - 3);
    for (int t = 0; t < 4; t++) {
        struct matrix a = t & 1 ? matrix_transposed(matrix_of(x, 300, 7, 7)) : matrix_of(x, 7, 300, 300);
        struct matrix b = t & 2 ? matrix_transposed(matrix_of(y, 32, 300, 300)) : matrix_of(y, 300, 32, 32);
        for (int i = 0; i < 7 * 32; i++) out[i] = 1;
        matrix_add_product(matrix_of(out, 7, 32, 32), a, b);
        for (int i = 0; i < 7 * 32; i++) {
            float sum = 1;
            for (int k = 0; k < 300; k++)
                sum += a.data[i / 32 * a.row + k * a.column] * b.data[k * b.row + i % 32 * b.column];
            assert_float_equal(out[i], sum, 0);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(gradients_are_slopes, make, end),
                                       cmocka_unit_test_setup_teardown(reports_in_reverse, make, end),
                                       cmocka_unit_test_setup_teardown(attention_is_causal, make, end),
                                       cmocka_unit_test(products)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
