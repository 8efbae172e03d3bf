/* The reducer: ranks that run out of batches, what is refused, and failures. */
#include "train/reducer_model.h"

/* ---- join -------------------------------------------------------------------------------------------------- */

/* Rank r makes 2 r iterations; rank 0 none.  Then all ranks join. */
static int run_join(tutti_group *group, int rank, int size, void *argument)
{
    struct model *model;
    tutti_reducer *reducer;
    tutti_reducer_opts opts = *(const tutti_reducer_opts *)argument;
    opts.join = true;
    EXPECT(model_make_reducer(group, rank, opts, &model, &reducer) == TUTTI_OK);
    for (int k = 0; k < 2 * rank; k++) {
        int active = size - (k / 2 + 1); /* ranks k / 2 + 1 .. size - 1 */
        RUN(model_report_all_but(group, reducer, k, -1));
        EXPECT(tutti_reducer_wait(reducer) == TUTTI_OK);
        for (int i = 0; i < LAYERS; i++) {
            const float *x = tutti_reducer_gradient(reducer, i).data;
            for (int j = 0; j < model_numel[i]; j++) {
                double expected = 0, divisor = opts.sum ? 1 : opts.divide_by_active ? active : size;
                for (int r = size - active; r < size; r++) expected += (double)model_element(k, i, r, j) / divisor;
                EXPECT((double)x[j] - expected < 1e-3 && expected - (double)x[j] < 1e-3);
            }
        }
    }
    for (int i = 0; i < LAYERS; i++)
        for (int j = 0; j < model_numel[i]; j++) model->value[i][j] = (float)(rank * 7 + i);
    EXPECT(tutti_reducer_join(reducer) == TUTTI_OK);
    for (int i = 0; i < LAYERS; i++)
        for (int j = 0; j < model_numel[i]; j++) EXPECT(model->value[i][j] == (float)((size - 1) * 7 + i));
    RUN(model_iterate(group, reducer, 5, rank, size, opts.sum ? 1 : size)); /* another epoch */
    EXPECT(tutti_reducer_join(reducer) == TUTTI_OK);
    tutti_reducer_destroy(reducer);
    free(model);
    return 0;
}

static void test_join(void **state)
{
    static const tutti_reducer_opts opts[] = {{0},
                                              {.divide_by_active = true},
                                              {.sum = true, .find_unused = true},
                                              {.gradient_as_bucket_view = true, .move_views = true}};
    (void)state;
    for (int i = 0; i < 4; i++) ranks_run(4, run_join, (void *)(uintptr_t)&opts[i]);
}

/* ---- what is refused --------------------------------------------------------------------------------------- */

/* Makes a reducer whose list or options differ on the last rank; all ranks get the message. */
static int run_mismatch(tutti_group *group, int rank, int size, void *argument)
{
    struct model *model = model_make(rank);
    tutti_reducer *reducer = NULL;
    tutti_reducer_opts opts = {.group = group};
    const tutti_parameter given = model->list[2];
    (void)argument;
    static const char *const words[] = {
        "parameter 2 differs: rank 0 has 'layer2' with gradient float32[700] and value float32[700], this one has "
        "'other' with",
        "parameter 2 differs: rank 0 has 'layer2' with gradient float32[700] and value float32[700], this one has "
        "'layer2' with gradient float32[699]",
        "with gradient int32[700] and value",
        "parameter 5 differs: rank 0 has 'layer5' with gradient float32[257] and value float32[257], this one has no "
        "parameter",
        "options differ: rank 0 has options bucket_bytes 26214400,",
    };
    for (int k = 0; k < 5; k++) {
        bool differs = rank == size - 1;
        model->list[2] = given;
        opts.bucket_bytes = differs && k == 4 ? 100 : 0;
        if (differs && k == 0) model->list[2].name = "other";
        if (differs && k == 1) model->list[2].gradient.numel--;
        if (differs && k == 2) model->list[2].gradient.dtype = TUTTI_INT32;
        EXPECT(tutti_reducer_create(model->list, LAYERS - (differs && k == 3), &opts, &reducer) == TUTTI_ERR_MISMATCH);
        EXPECT(error_has(words[k]) && error_has("rank 2: ") && reducer == NULL);
    }
    for (int i = 0; i < LAYERS; i++) EXPECT(model_numel[i] == 0 || model->value[i][0] == (float)(1000 * rank + i));
    free(model);
    return 0;
}

static void test_mismatch(void **state)
{
    (void)state;
    ranks_run(3, run_mismatch, NULL);
}

/* Refused on rank 1, and so on all ranks. */
static int refuse_list(tutti_group *group, tutti_parameter *list, int n, tutti_reducer_opts opts, const char *word)
{
    tutti_reducer *reducer = NULL;
    opts.group = group;
    EXPECT(tutti_reducer_create(list, n, &opts, &reducer) < 0 && error_has(word) && reducer == NULL);
    return 0;
}

static int run_refusals(tutti_group *group, int rank, int size, void *argument)
{
    struct model *model = model_make(rank);
    tutti_parameter bad[2] = {model->list[0], model->list[2]};
    tutti_reducer_opts none = {0};
    bool wrong = rank == 1;
    (void)size, (void)argument;
    RUN(refuse_list(group, wrong ? NULL : bad, 2, none, "rank 1: the list is (nil) with 2 parameters"));
    RUN(refuse_list(group, bad, wrong ? 0 : 2, none, "with 0 parameters; pass 1 to"));
    if (wrong) bad[1].gradient.data = NULL;
    RUN(refuse_list(group, bad, 2, none, "rank 1: gradient 'layer2' is NULL; pass its memory"));
    bad[1] = model->list[2];
    if (wrong) bad[1].gradient.dtype = TUTTI_BOOL;
    RUN(refuse_list(group, bad, 2, none, "gradient 'layer2' has dtype bool, which cannot be averaged"));
    if (wrong) bad[1].gradient.dtype = (tutti_dtype)77;
    RUN(refuse_list(group, bad, 2, none, "rank 1: gradient 'layer2' has dtype ?"));
    bad[1] = model->list[2];
    if (wrong) bad[1].gradient.numel = -4;
    RUN(refuse_list(group, bad, 2, none, "gradient 'layer2' has -4 elements"));
    bad[1] = model->list[2];
    bad[1].gradient.device.type = TUTTI_CUDA;
    none.join = true;
    RUN(refuse_list(group, bad, 2, none, "gradient 'layer2' is on CUDA, where join is not available"));
    none.join = false;
    RUN(refuse_list(group, bad, 2, none, "gradient 'layer2' is on CUDA, but the group (cpu:"));
    bad[1].gradient.device.type = 5;
    RUN(refuse_list(group, bad, 2, none, "gradient 'layer2' is on device type 5"));
    bad[1] = model->list[2];
    if (wrong) bad[1].value.data = NULL;
    RUN(refuse_list(group, bad, 2, none, "rank 1: value 'layer2' is NULL"));
    bad[1] = model->list[2];
    if (wrong) bad[1].value.device.type = TUTTI_CUDA;
    RUN(refuse_list(group, bad, 2, none, "rank 1: value 'layer2' is on CUDA, but the group (cpu:"));
    bad[1] = model->list[2];
    none.timeout_ms = wrong ? -1 : 0;
    RUN(refuse_list(group, bad, 2, none, "rank 1: timeout_ms is -1; it must not be negative"));
    none.timeout_ms = 0;
    none.gradient_as_bucket_view = true;
    if (wrong) bad[1].gradient.numel = INT64_MAX / 64;
    RUN(refuse_list(group, bad, 2, none, "rank 1: the gradients together exceed any memory"));
    bad[1].gradient.numel = (int64_t)1 << 46; /* more than the address space */
    RUN(refuse_list(group, bad, 2, none, "rank 0: cannot allocate buckets of 28147497671"));
    bad[1] = model->list[2];
    free(model);
    return 0;
}

static int run_option_refusals(tutti_group *group, int rank, int size, void *argument)
{
    static const struct {
        tutti_reducer_opts opts;
        const char *word;
    } cases[] = {
        {{.bucket_bytes = -1}, "bucket_bytes or first_bucket_bytes is negative"},
        {{.compress = TUTTI_INT8}, "compress takes bfloat16, float16 or float8_e4m3fn"},
        {{.error_feedback = true}, "error_feedback needs compress"},
        {{.divide_by_active = true}, "divide_by_active needs join"},
        {{.divide_by_active = true, .join = true, .sum = true}, "divide_by_active and sum exclude each other"},
        {{.move_views = true}, "move_views needs gradient_as_bucket_view"},
        {{.hook_phases = -1}, "hook_phases is outside"},
    };
    struct model *model = model_make(rank);
    (void)size, (void)argument;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        RUN(refuse_list(group, model->list, LAYERS, cases[i].opts, cases[i].word));
    free(model);
    return 0;
}

/* Reports that are refused change nothing. */
static int run_bad_reports(tutti_group *group, int rank, int size, void *argument)
{
    struct model *model;
    tutti_reducer *reducer;
    (void)argument;
    EXPECT(model_make_reducer(group, rank, (tutti_reducer_opts){0}, &model, &reducer) == TUTTI_OK);
    EXPECT(tutti_reducer_join(reducer) == TUTTI_ERR_INVALID_ARGUMENT && error_has("set join in the options"));
    EXPECT(tutti_reducer_gradient(reducer, LAYERS).numel == -1);
    for (int i = 0; i < LAYERS; i++) {
        model_set_gradient(reducer, 1, i, rank);
        EXPECT(tutti_reducer_ready(reducer, i) == TUTTI_OK);
        EXPECT(tutti_reducer_ready(reducer, i / 2) == TUTTI_ERR_INVALID_ARGUMENT && error_has("was reported twice"));
    }
    EXPECT(tutti_reducer_ready(reducer, 6) == TUTTI_ERR_INVALID_ARGUMENT &&
           error_has("no parameter 6; the list has 0 to 5"));
    EXPECT(tutti_reducer_ready(reducer, -1) == TUTTI_ERR_INVALID_ARGUMENT);
    EXPECT(tutti_reducer_skip(reducer, 0) == TUTTI_ERR_INVALID_ARGUMENT && error_has("needs find_unused"));
    EXPECT(tutti_reducer_wait(reducer) == TUTTI_OK);
    for (int i = 0; i < LAYERS; i++) EXPECT(model_is_average(reducer, 1, i, size, size));
    tutti_reducer_destroy(reducer);
    free(model);
    return 0;
}

static void test_refusals(void **state)
{
    tutti_reducer *reducer;
    tutti_parameter one = {"one", {0}, {0}};
    (void)state;
    ranks_run(2, run_refusals, NULL);
    ranks_run(2, run_option_refusals, NULL);
    ranks_run(2, run_bad_reports, NULL);
    assert_int_equal(tutti_reducer_create(&one, 1, NULL, &reducer), TUTTI_ERR_INVALID_ARGUMENT);
    assert_true(error_has("there is no default group"));
    assert_int_equal(tutti_reducer_create(&one, 1, NULL, NULL), TUTTI_ERR_INVALID_ARGUMENT);
    assert_true(error_has("pass where to store it"));
    tutti_reducer_destroy(NULL);
}

/* The last rank aborts the group in the middle of an iteration. */
static int run_abort(tutti_group *group, int rank, int size, void *argument)
{
    struct model *model;
    tutti_reducer *reducer;
    (void)argument;
    EXPECT(model_make_reducer(group, rank, (tutti_reducer_opts){0}, &model, &reducer) == TUTTI_OK);
    RUN(model_iterate(group, reducer, 0, rank, size, size));
    EXPECT(tutti_barrier(tutti_with(.group = group)) == TUTTI_OK); /* all have ended that iteration */
    for (int i = 0; i < LAYERS / 2; i++) {
        model_set_gradient(reducer, 1, i, rank);
        tutti_reducer_ready(reducer, i);
    }
    if (rank == size - 1) EXPECT(tutti_abort(group, "the loss is not a number") == TUTTI_OK);
    for (int i = LAYERS / 2; i < LAYERS; i++) {
        model_set_gradient(reducer, 1, i, rank);
        tutti_reducer_ready(reducer, i);
    }
    for (int k = 0; k < 2; k++)
        EXPECT(tutti_reducer_wait(reducer) == TUTTI_ERR_ABORTED && error_has("is not a number"));
    for (int j = 0; j < model_numel[2]; j++) EXPECT(model->gradient[2][j] == model_element(1, 2, rank, j));
    tutti_reducer_destroy(reducer);
    free(model);
    return 0;
}

/* A reducer that is destroyed in the middle of an iteration does not wait for ranks that never come. */
static int run_destroy(tutti_group *group, int rank, int size, void *argument)
{
    struct model *model;
    tutti_reducer *reducer;
    (void)size, (void)argument;
    EXPECT(model_make_reducer(group, rank, (tutti_reducer_opts){0}, &model, &reducer) == TUTTI_OK);
    if (rank == 0)
        for (int i = 0; i < LAYERS; i++) EXPECT(tutti_reducer_ready(reducer, i) == TUTTI_OK);
    tutti_reducer_destroy(reducer);
    free(model);
    return 0;
}

static void test_failures(void **state)
{
    (void)state;
    ranks_run(3, run_abort, NULL);
    ranks_run(2, run_destroy, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_join), cmocka_unit_test(test_mismatch),
                                       cmocka_unit_test(test_refusals), cmocka_unit_test(test_failures)};
    ranks_setup();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
