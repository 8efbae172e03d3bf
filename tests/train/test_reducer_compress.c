/* The reducer's compression and hooks: results are near the average, alike on all ranks, and send fewer bytes. */
#include <math.h>

#include "blocks.h"
#include "train/reducer_model.h"

/* ---- blocks of float8 -------------------------------------------------------------------------------------- */

enum { ELEMENTS = 5000 };

/* Fills x with values of very different sizes, by block. */
static void fill(float *x, int n)
{
    unsigned state = 1;
    for (int i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = ((float)(state >> 8) / (1 << 23) - 1) * ldexpf(1, i / BLOCKS_NUMEL * 13 % 200 - 100);
    }
}

static float largest_of_block(const float *x, int n, int i)
{
    float largest = 0;
    for (int k = i / BLOCKS_NUMEL * BLOCKS_NUMEL; k < n && k / BLOCKS_NUMEL == i / BLOCKS_NUMEL; k++)
        largest = fmaxf(largest, fabsf(x[k]));
    return largest;
}

/* An element loses at most half of its last of 4 bits, or half of the block's smallest step. */
static void assert_near(const float *decoded, const float *x, int n)
{
    for (int i = 0; i < n; i++) {
        float lost = fabsf(decoded[i] - x[i]);
        if (lost > fabsf(x[i]) / 16 && lost > largest_of_block(x, n, i) / 224 / 1024)
            fail_msg("element %d of %d: %g became %g", i, n, (double)x[i], (double)decoded[i]);
    }
}

static void test_blocks(void **state)
{
    static const int sizes[] = {0, 1, 255, 256, 257, 1000, 4096, ELEMENTS};
    float x[ELEMENTS], decoded[ELEMENTS], part[ELEMENTS];
    double wide[ELEMENTS];
    (void)state;
    fill(x, ELEMENTS);
    for (int i = 0; i < ELEMENTS; i++) wide[i] = (double)x[i];
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
        for (int parts = 1; parts <= 5; parts++) {
            struct blocks shape = blocks_of(sizes[k], parts);
            size_t bytes = (size_t)(blocks_part_bytes(shape) * parts);
            uint8_t *encoded = calloc(1, bytes + 1), *again = calloc(1, bytes + 1);
            assert_true(encoded != NULL && again != NULL);
            memset(again, 0x7f, bytes); /* a NaN as an element */
            blocks_encode(shape, tutti_view(x, sizes[k]), encoded);
            blocks_encode(shape, tutti_view(wide, sizes[k]), again);
            assert_memory_equal(encoded, again, bytes);
            blocks_decode(shape, encoded, 0, tutti_view(decoded, sizes[k]));
            assert_near(decoded, x, sizes[k]);
            for (int at = 0; at < sizes[k]; at += 377) { /* any piece decodes alike */
                int n = sizes[k] - at < 600 ? sizes[k] - at : 600;
                blocks_decode(shape, encoded, at, tutti_view(part, n));
                assert_memory_equal(part, decoded + at, (size_t)n * sizeof *part);
            }
            free(encoded);
            free(again);
        }
}

static void test_special_blocks(void **state)
{
    static const float values[] = {0, 1e-38f, 3e38f, 448, 449, 1, INFINITY, NAN};
    float x[BLOCKS_NUMEL] = {0}, decoded[BLOCKS_NUMEL];
    struct blocks shape = blocks_of(BLOCKS_NUMEL, 1);
    uint8_t encoded[BLOCKS_BYTES];
    (void)state;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        x[7] = values[i];
        blocks_encode(shape, tutti_view(x, BLOCKS_NUMEL), encoded);
        blocks_decode(shape, encoded, 0, tutti_view(decoded, BLOCKS_NUMEL));
        if (isfinite(values[i]))
            assert_near(decoded, x, BLOCKS_NUMEL);
        else
            for (int k = 0; k < BLOCKS_NUMEL; k++) assert_true(isnan(decoded[k]));
    }
}

/* ---- over ranks -------------------------------------------------------------------------------------------- */

/* True if the gradient is within a fraction of the largest average, and has the same bits on all ranks. */
static bool is_near(tutti_group *group, tutti_reducer *reducer, int iteration, int i, int size, double tolerance)
{
    const float *x = tutti_reducer_gradient(reducer, i).data;
    float least[NUMEL_MOST], most[NUMEL_MOST];
    double largest = (double)model_element(iteration, i, size, model_numel[i]);
    for (int j = 0; j < model_numel[i]; j++) {
        double wanted = (double)model_element(iteration, i, 0, j) + (size - 1) / 2.0;
        if (fabs((double)x[j] - wanted) <= tolerance * largest) continue;
        fprintf(stderr, "gradient %d[%d] is %g, not %g\n", i, j, (double)x[j], wanted);
        return false;
    }
    memcpy(least, x, (size_t)model_numel[i] * sizeof *x);
    memcpy(most, x, (size_t)model_numel[i] * sizeof *x);
    return tutti_all_reduce(tutti_view(least, model_numel[i]), TUTTI_MIN, tutti_with(.group = group)) == TUTTI_OK &&
           tutti_all_reduce(tutti_view(most, model_numel[i]), TUTTI_MAX, tutti_with(.group = group)) == TUTTI_OK &&
           memcmp(least, most, (size_t)model_numel[i] * sizeof *x) == 0;
}

static int run_compressed(tutti_group *group, int rank, int size, void *argument)
{
    struct model *model;
    tutti_reducer *reducer;
    tutti_reducer_opts opts = *(const tutti_reducer_opts *)argument;
    double tolerance = opts.compress == TUTTI_FLOAT8_E4M3FN ? 0.14 : opts.compress == TUTTI_FLOAT16 ? 2e-3 : 0.016;
    EXPECT(model_make_reducer(group, rank, opts, &model, &reducer) == TUTTI_OK);
    for (int k = 0; k < 3; k++) {
        RUN(model_report_all_but(group, reducer, k, opts.find_unused ? 2 : -1));
        EXPECT(tutti_reducer_wait(reducer) == TUTTI_OK);
        for (int i = 0; i < LAYERS; i++)
            if (!opts.find_unused || i != 2) EXPECT(is_near(group, reducer, k, i, size, tolerance));
    }
    int64_t numel = 300 + 1 + 700 + 64 + 257, bytes = tutti_reducer_bytes(reducer) / 3;
    if (opts.compress == TUTTI_FLOAT8_E4M3FN)
        EXPECT(bytes >= numel && bytes < numel + BLOCKS_BYTES * size * 4); /* of 3 or 4 buckets */
    else
        EXPECT(bytes == 2 * numel);
    tutti_reducer_destroy(reducer);
    free(model);
    return 0;
}

static void test_compression(void **state)
{
    static const tutti_dtype dtypes[] = {TUTTI_BFLOAT16, TUTTI_FLOAT16, TUTTI_FLOAT8_E4M3FN};
    (void)state;
    for (int i = 0; i < 3; i++)
        for (int flags = 0; flags < 8; flags++) {
            tutti_reducer_opts opts = {.compress = dtypes[i],
                                       .gradient_as_bucket_view = (flags & 1) != 0,
                                       .move_views = (flags & 1) != 0,
                                       .find_unused = (flags & 2) != 0,
                                       .error_feedback = (flags & 4) != 0};
            ranks_run(3, run_compressed, &opts);
            if (flags == 0) ranks_run(1, run_compressed, &opts);
        }
}

/* The same gradient in each iteration: what is lost comes later, so that the mean over iterations is nearly exact. */
static int run_feedback(tutti_group *group, int rank, int size, void *argument)
{
    enum { N = 700, ITERATIONS = 16 };
    tutti_reducer_opts opts = *(const tutti_reducer_opts *)argument;
    float gradient[N];
    /* bfloat16 is also rounded in the all_reduce, which is not fed back */
    double bound = opts.compress == TUTTI_BFLOAT16 ? 0.75 : 0.25;
    double sum[N] = {0}, error[2];
    (void)size;
    opts.group = group;
    for (int feedback = 0; feedback < 2; feedback++) {
        tutti_reducer *reducer;
        opts.error_feedback = feedback == 1;
        tutti_parameter one = {"one", {0}, tutti_view(gradient, N)};
        EXPECT(tutti_reducer_create(&one, 1, &opts, &reducer) == TUTTI_OK);
        memset(sum, 0, sizeof sum);
        for (int k = 0; k < ITERATIONS; k++) {
            for (int j = 0; j < N; j++) gradient[j] = 1 + (float)j / 977 + (float)rank / 97;
            EXPECT(tutti_reducer_ready(reducer, 0) == TUTTI_OK && tutti_reducer_wait(reducer) == TUTTI_OK);
            for (int j = 0; j < N; j++) sum[j] += (double)gradient[j] / ITERATIONS;
        }
        error[feedback] = 0;
        for (int j = 0; j < N; j++) error[feedback] += fabs(sum[j] - (1 + j / 977.0 + (size - 1) / 2.0 / 97)) / N;
        tutti_reducer_destroy(reducer);
    }
    if (error[1] > error[0] * bound) fprintf(stderr, "error %g without feedback, %g with\n", error[0], error[1]);
    EXPECT(error[1] <= error[0] * bound);
    return 0;
}

static void test_feedback(void **state)
{
    static const tutti_reducer_opts opts[] = {{.compress = TUTTI_BFLOAT16}, {.compress = TUTTI_FLOAT8_E4M3FN}};
    (void)state;
    for (int i = 0; i < 2; i++) ranks_run(2, run_feedback, (void *)(uintptr_t)&opts[i]);
}

/* Large gradients: float16 would overflow in the sum.  One that overflows by itself does not spoil the next ones.  A
 * NaN arrives on all ranks, and is gone in the next iteration. */
static int run_extremes(tutti_group *group, int rank, int size, void *argument)
{
    static const tutti_dtype dtypes[] = {TUTTI_BFLOAT16, TUTTI_FLOAT16, TUTTI_FLOAT8_E4M3FN};
    (void)size, (void)argument;
    for (int i = 0; i < 3; i++) {
        double gradient[3];
        tutti_reducer *reducer;
        tutti_reducer_opts opts = {.group = group, .compress = dtypes[i], .error_feedback = true};
        tutti_parameter one = {"one", {0}, tutti_view(gradient, 3)};
        EXPECT(tutti_reducer_create(&one, 1, &opts, &reducer) == TUTTI_OK);
        for (int k = 0; k < 5; k++) {
            gradient[0] = 40000;
            gradient[1] = k == 0 ? 1e30 : 1;
            gradient[2] = k == 2 && rank == 1 ? NAN : 2;
            EXPECT(tutti_reducer_ready(reducer, 0) == TUTTI_OK && tutti_reducer_wait(reducer) == TUTTI_OK);
            if (k == 1) EXPECT(fabs(gradient[0] - 40000) < 3000 || dtypes[i] != TUTTI_FLOAT16);
            if (k % 2 == 1) EXPECT(isfinite(gradient[0]) && isfinite(gradient[1]) && isfinite(gradient[2]));
            if (k == 2) EXPECT(isnan(gradient[2]));
        }
        tutti_reducer_destroy(reducer);
    }
    return 0;
}

/* The sum of all ranks exceeds float16 when one rank has joined, too. */
static int run_large_sum(tutti_group *group, int rank, int size, void *argument)
{
    float gradient[2] = {40000, -60000};
    tutti_reducer *reducer;
    tutti_reducer_opts opts = {
        .group = group, .compress = TUTTI_FLOAT16, .join = true, .divide_by_active = true, .no_broadcast = true};
    tutti_parameter one = {"one", {0}, tutti_view(gradient, 2)};
    (void)argument;
    EXPECT(tutti_reducer_create(&one, 1, &opts, &reducer) == TUTTI_OK);
    for (int k = 0; k < 2; k++) {
        if (k == 1 && rank == size - 1) continue;
        EXPECT(tutti_reducer_ready(reducer, 0) == TUTTI_OK && tutti_reducer_wait(reducer) == TUTTI_OK);
        EXPECT(fabsf(gradient[0] - 40000) < 100 && fabsf(gradient[1] + 60000) < 150);
    }
    EXPECT(tutti_reducer_join(reducer) == TUTTI_OK);
    tutti_reducer_destroy(reducer);
    return 0;
}

static int run_joined(tutti_group *group, int rank, int size, void *argument)
{
    struct model *model;
    tutti_reducer *reducer;
    tutti_reducer_opts opts = *(const tutti_reducer_opts *)argument;
    EXPECT(model_make_reducer(group, rank, opts, &model, &reducer) == TUTTI_OK);
    for (int k = 0; k < 2 * rank; k++) {
        RUN(model_report_all_but(group, reducer, k, -1));
        EXPECT(tutti_reducer_wait(reducer) == TUTTI_OK);
        int first = k / 2 + 1;
        double mean =
            (double)(size - first) * (double)model_element(k, 5, 0, 200) + (size - first) * (size - 1 + first) / 2.0;
        const float *x = tutti_reducer_gradient(reducer, 5).data;
        EXPECT(fabs((double)x[200] - mean / (size - first)) < 0.14 * mean);
    }
    EXPECT(tutti_reducer_join(reducer) == TUTTI_OK);
    tutti_reducer_destroy(reducer);
    free(model);
    return 0;
}

/* Unaligned gradients, and dtypes that are not compressed beside those that are. */
static int run_mixed(tutti_group *group, int rank, int size, void *argument)
{
    enum { N = 500 };
    char *memory = calloc(1, 4 * 8 * N + 8);
    tutti_reducer *reducer;
    tutti_reducer_opts opts = *(const tutti_reducer_opts *)argument;
    EXPECT(memory != NULL);
    opts.group = group;
    opts.bucket_bytes = opts.first_bucket_bytes = 1;
    tutti_parameter list[] = {{"a", {0}, tutti_tensor_of(memory + 1, N, TUTTI_FLOAT32)},
                              {"b", {0}, tutti_tensor_of(memory + 8 * N + 1, N, TUTTI_INT64)},
                              {"c", {0}, tutti_tensor_of(memory + 16 * N + 1, N, TUTTI_FLOAT64)},
                              {"d", {0}, tutti_tensor_of(memory + 24 * N + 1, 2, TUTTI_FLOAT32)}};
    EXPECT(tutti_reducer_create(list, 4, &opts, &reducer) == TUTTI_OK);
    for (int k = 0; k < 3; k++) {
        float a = (float)rank;
        int64_t b = 10 * rank;
        double c = 2.0 * rank;
        for (int i = 0; i < N; i++) {
            memcpy(memory + 1 + i * 4, &a, sizeof a);
            memcpy(memory + 8 * N + 1 + i * 8, &b, sizeof b);
            memcpy(memory + 16 * N + 1 + i * 8, &c, sizeof c);
        }
        for (int i = 0; i < 4; i++) EXPECT(tutti_reducer_ready(reducer, (i + rank) % 4) == TUTTI_OK);
        EXPECT(tutti_reducer_wait(reducer) == TUTTI_OK);
        memcpy(&a, memory + 1 + (N - 1) * 4, sizeof a);
        memcpy(&b, memory + 8 * N + 1 + (N - 1) * 8, sizeof b);
        memcpy(&c, memory + 16 * N + 1 + (N - 1) * 8, sizeof c);
        EXPECT(a == (float)(size - 1) / 2 && b == 5 * (size - 1) && c == size - 1);
    }
    tutti_reducer_destroy(reducer);
    free(memory);
    return 0;
}

static void test_mixed(void **state)
{
    static const tutti_reducer_opts opts[] = {{.compress = TUTTI_BFLOAT16}, {.compress = TUTTI_FLOAT8_E4M3FN}, {0}};
    (void)state;
    for (int i = 0; i < 3; i++) ranks_run(3, run_mixed, (void *)(uintptr_t)&opts[i]);
}

static void test_ends(void **state)
{
    static const tutti_reducer_opts opts[] = {
        {.compress = TUTTI_BFLOAT16, .join = true, .divide_by_active = true, .error_feedback = true},
        {.compress = TUTTI_FLOAT8_E4M3FN, .join = true, .divide_by_active = true, .error_feedback = true}};
    (void)state;
    ranks_run(2, run_extremes, NULL);
    ranks_run(4, run_large_sum, NULL);
    for (int i = 0; i < 2; i++) ranks_run(3, run_joined, (void *)(uintptr_t)&opts[i]);
}

/* ---- hooks ------------------------------------------------------------------------------------------------- */

/* An all_reduce in two phases, over buckets padded to a multiple of the ranks. */
struct halves {
    int calls[3], generation;
    bool fails;
    float memory[LAYERS][2048];
};

static int reduce_in_halves(tutti_bucket *bucket, int phase, void *argument, tutti_work **work)
{
    struct halves *halves = argument;
    float *memory = halves->memory[bucket->index];
    int size = tutti_get_world_size(bucket->group), rank = tutti_get_rank(bucket->group);
    int64_t part = (bucket->tensor.numel + size - 1) / size;
    tutti_tensor whole = tutti_view(memory, part * size), own = tutti_view(memory + part * rank, part);
    tutti_opts opts = {.group = bucket->group, .async_op = work, .timeout_ms = bucket->timeout_ms};
    halves->calls[phase]++;
    halves->generation = bucket->generation;
    if (halves->fails && phase == 1) return tutti_set_error(TUTTI_ERR_SYSTEM, "the hook had a bad day");
    if (phase == 0) {
        memset(memory, 0, sizeof halves->memory[0]);
        memcpy(memory, bucket->tensor.data, (size_t)bucket->tensor.numel * sizeof *memory);
        return tutti_reduce_scatter_tensor(own, whole, TUTTI_SUM, &opts);
    }
    if (phase == 1) return tutti_all_gather_into_tensor(whole, own, &opts);
    memcpy(bucket->tensor.data, memory, (size_t)bucket->tensor.numel * sizeof *memory);
    return TUTTI_OK;
}

static int run_hook(tutti_group *group, int rank, int size, void *argument)
{
    struct model *model;
    tutti_reducer *reducer;
    struct halves *halves = calloc(1, sizeof *halves);
    EXPECT(halves != NULL);
    tutti_reducer_opts opts = {.hook = reduce_in_halves, .hook_argument = halves, .hook_phases = 2};
    EXPECT(model_make_reducer(group, rank, opts, &model, &reducer) == TUTTI_OK);
    for (int k = 0; k < 3; k++) RUN(model_iterate(group, reducer, k, rank, size, size));
    EXPECT(halves->calls[0] >= 9 && halves->calls[1] == halves->calls[0] && halves->calls[2] == halves->calls[0]);
    EXPECT(halves->generation == 1 && tutti_reducer_bytes(reducer) == 0);
    if (argument != NULL) { /* it fails on the last rank, and so on all */
        halves->fails = rank == size - 1;
        for (int i = 0; i < LAYERS; i++) tutti_reducer_ready(reducer, i);
        int status = tutti_reducer_wait(reducer);
        EXPECT(status == (halves->fails ? TUTTI_ERR_SYSTEM : TUTTI_ERR_ABORTED) && error_has("the hook had a bad day"));
    }
    tutti_reducer_destroy(reducer);
    free(model);
    free(halves);
    return 0;
}

/* Starts an operation in its last phase, against its contract, and fails if it has an argument. */
static int start_late(tutti_bucket *bucket, int phase, void *argument, tutti_work **work)
{
    tutti_opts opts = {.group = bucket->group, .async_op = work, .timeout_ms = bucket->timeout_ms};
    if (phase == 0) return TUTTI_OK;
    int status = tutti_all_reduce(bucket->tensor, TUTTI_SUM, &opts);
    return argument != NULL ? tutti_set_error(TUTTI_ERR_SYSTEM, "the last phase failed") : status;
}

static int run_late(tutti_group *group, int rank, int size, void *argument)
{
    struct model *model;
    tutti_reducer *reducer;
    tutti_reducer_opts opts = {.hook = start_late, .hook_argument = argument};
    EXPECT(model_make_reducer(group, rank, opts, &model, &reducer) == TUTTI_OK);
    if (argument == NULL) RUN(model_iterate(group, reducer, 0, rank, size, size));
    for (int i = 0; i < LAYERS && argument != NULL; i++) EXPECT(tutti_reducer_ready(reducer, i) == TUTTI_OK);
    if (argument != NULL) EXPECT(tutti_reducer_wait(reducer) < 0 && error_has("the last phase failed"));
    tutti_reducer_destroy(reducer);
    free(model);
    return 0;
}

static void test_hook(void **state)
{
    (void)state;
    ranks_run(2, run_late, NULL);
    ranks_run(2, run_late, "fails");
    ranks_run(1, run_hook, NULL);
    ranks_run(3, run_hook, "fails");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_blocks),      cmocka_unit_test(test_special_blocks),
                                       cmocka_unit_test(test_compression), cmocka_unit_test(test_feedback),
                                       cmocka_unit_test(test_mixed),       cmocka_unit_test(test_ends),
                                       cmocka_unit_test(test_hook)};
    ranks_setup();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
