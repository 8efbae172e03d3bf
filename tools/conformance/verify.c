/* Checks the input and output of a collective after the call. */
#include <stdlib.h>
#include <string.h>

#include "conformance/collective.h"
#include "conformance/number.h"
#include "conformance/reference.h"

/* Returns a factor that keeps exact inputs exact. */
double collective_factor(const struct spec *spec)
{
    return spec->op == TUTTI_PREMUL_SUM ? -0.5 : 0;
}

/* Finds the rank and input block that become this rank's output block k, or for a reduction rank q's contribution. */
static void source(const struct spec *spec, const struct operands *x, int k, int q, int *from, int *block)
{
    static const struct {
        char from, block; /* k: the output block's number, r: root, q: each rank, m: this rank, 0: the first */
    } table[] = {
        [BROADCAST] = {'r', '0'}, [ALL_REDUCE] = {'q', '0'}, [REDUCE] = {'q', '0'},         [ALL_GATHER] = {'k', '0'},
        [GATHER] = {'k', '0'},    [SCATTER] = {'r', 'm'},    [REDUCE_SCATTER] = {'q', 'm'}, [ALL_TO_ALL] = {'k', 'm'},
        [SCAN] = {'q', '0'},      [EXSCAN] = {'q', '0'},
    };
    char f = table[forms[spec->form].pattern].from, b = table[forms[spec->form].pattern].block;
    *from = f == 'r' ? x->root : f == 'k' ? k : q;
    *block = b == 'm' ? x->me : 0;
}

static uint8_t *input_of(struct rank *rank, const struct spec *spec, const struct operands *x, int k, int q)
{
    int64_t count = x->out.count[k];
    int from, block;
    uint8_t *input = malloc((size_t)(count * tutti_dtype_bytes(spec->dtype)) + 1);
    if (input == NULL) abort();
    source(spec, x, k, q, &from, &block);
    struct input_use use = {(enum input)spec->input, spec->dtype, spec->op, x->n};
    input_fill(rank->seed, use, from, block, count, input);
    return input;
}

static enum verdict verify_moved(struct rank *rank, const struct spec *spec, const struct operands *x, int k)
{
    int64_t bytes = tutti_dtype_bytes(spec->dtype), total = x->out.count[k] * bytes, at = 0;
    uint8_t *expected = input_of(rank, spec, x, k, 0);
    enum verdict verdict = PASSED;
    if (total > 0 && memcmp(expected, x->out.block[k], (size_t)total) != 0) {
        while (expected[at] == x->out.block[k][at]) at++;
        verdict = rank_fail(
            rank, "output block %d of %d: element %lld of %lld is wrong%s", k, x->out.n, (long long)(at / bytes),
            (long long)x->out.count[k],
            buffer_is_junk(x->out.block[k] + at, (size_t)(total - at)) ? "; nothing was written from there on" : "");
    }
    free(expected);
    return verdict;
}

static enum verdict verify_reduced(struct rank *rank, const struct spec *spec, const struct operands *x)
{
    enum pattern pattern = forms[spec->form].pattern;
    int n = pattern == SCAN ? x->me + 1 : pattern == EXSCAN ? x->me : x->n; /* number of contributions */
    struct reduction reduction = {spec->dtype, spec->op, (enum input)spec->input, collective_factor(spec), n};
    uint8_t *inputs[RANKS_MAX] = {NULL};
    char text[160];
    int64_t at = 0;
    for (int q = 0; q < n; q++) inputs[q] = input_of(rank, spec, x, 0, q);
    bool right = reference_check(&reduction, (const uint8_t *const *)inputs, x->out.block[0], x->out.count[0], &at,
                                 text, sizeof text);
    for (int q = 0; q < n; q++) free(inputs[q]);
    if (right) return PASSED;
    return rank_fail(rank, "element %lld of %lld %s", (long long)at, (long long)x->out.count[0], text);
}

static bool is_output(const struct operands *x, const uint8_t *block)
{
    for (int k = 0; k < x->out.n; k++)
        if (x->out.block[k] == block) return true;
    return false;
}

static enum verdict verify_inputs(struct rank *rank, const struct spec *spec, const struct operands *x)
{
    const uint8_t *before = x->before;
    for (int k = 0; k < x->in.n; k++) {
        size_t bytes = (size_t)(x->in.count[k] * tutti_dtype_bytes(spec->dtype));
        if (bytes > 0 && !is_output(x, x->in.block[k]) && memcmp(before, x->in.block[k], bytes) != 0)
            return rank_fail(rank, "the call changed input block %d of %d", k, x->in.n);
        before += bytes;
    }
    return PASSED;
}

static enum verdict verify_canaries(struct rank *rank, const struct side *side, const char *name)
{
    for (int i = 0; i < side->n_buffers; i++)
        if (!buffer_intact(&side->buffer[i]))
            return rank_fail(rank, "the call wrote beside %s tensor %d of %d", name, i, side->n_buffers);
    return PASSED;
}

enum verdict collective_verify(struct rank *rank, const struct spec *spec, const struct operands *x)
{
    enum verdict verdict = PASSED;
    if (form_reduces(&forms[spec->form])) {
        if (x->out.n > 0) verdict = verify_reduced(rank, spec, x);
    } else {
        for (int k = 0; k < x->out.n && verdict == PASSED; k++) verdict = verify_moved(rank, spec, x, k);
    }
    if (verdict == PASSED) verdict = verify_inputs(rank, spec, x);
    if (verdict == PASSED) verdict = verify_canaries(rank, &x->in, "input");
    if (verdict == PASSED) verdict = verify_canaries(rank, &x->out, "output");
    return verdict;
}
