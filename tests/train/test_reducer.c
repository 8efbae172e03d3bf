/* The reducer over ranks that are threads: what is averaged, and in which buckets. */
#include <pthread.h>

#include "train/reducer_model.h"

/* Makes a reducer with small buckets, and runs a few iterations. */
static int average(tutti_group *group, int rank, int size, tutti_reducer_opts opts)
{
    struct model *model = model_make(rank);
    tutti_reducer *reducer = NULL;
    opts.group = group;
    EXPECT(tutti_reducer_create(model->list, LAYERS, &opts, &reducer) == TUTTI_OK);
    for (int i = 0; i < LAYERS; i++)
        for (int j = 0; j < model_numel[i]; j++)
            EXPECT(model->value[i][j] == (float)((opts.no_broadcast ? 1000 * rank : 0) + i + j));
    for (int k = 0; k < 4; k++) {
        int line = model_iterate(group, reducer, k, rank, size, opts.sum ? 1 : size);
        if (line != 0) return line;
    }
    tutti_reducer_destroy(reducer);
    free(model);
    return 0;
}

static int run_averages(tutti_group *group, int rank, int size, void *argument)
{
    return average(group, rank, size, *(const tutti_reducer_opts *)argument);
}

static void test_averages(void **state)
{
    static const tutti_reducer_opts opts[] = {
        {.bucket_bytes = 1, .first_bucket_bytes = 1},
        {.bucket_bytes = 1500, .first_bucket_bytes = 256},
        {.sum = true, .no_broadcast = true},
        {.bucket_bytes = 1500, .keep_order = true},
        {.bucket_bytes = 1500, .first_bucket_bytes = 256, .gradient_as_bucket_view = true},
        {.bucket_bytes = 1500, .first_bucket_bytes = 256, .gradient_as_bucket_view = true, .move_views = true},
        {.bucket_bytes = 1500, .first_bucket_bytes = 256, .find_unused = true},
        {.bucket_bytes = 1500, .first_bucket_bytes = 256, .find_unused = true, .gradient_as_bucket_view = true},
        {.bucket_bytes = 1500, .first_bucket_bytes = 256, .join = true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof opts / sizeof *opts; i++)
        for (int size = 1; size <= 4; size += size == 2 ? 2 : 1)
            ranks_run(size, run_averages, (void *)(uintptr_t)&opts[i]);
}

/* ---- gradients that are not reported ----------------------------------------------------------------------- */

/* Nobody reports gradient 2; only rank 0 reports gradient 0. */
static int run_unused(tutti_group *group, int rank, int size, void *argument)
{
    struct model *model;
    tutti_reducer *reducer;
    tutti_reducer_opts opts = *(const tutti_reducer_opts *)argument;
    opts.find_unused = true;
    EXPECT(model_make_reducer(group, rank, opts, &model, &reducer) == TUTTI_OK);
    for (int k = 0; k < 3; k++) {
        for (int i = LAYERS - 1; i >= 0; i--) {
            model_set_gradient(reducer, k, i, rank);
            if (i == 2 || (i == 0 && rank > 0)) {
                if (k == 1) EXPECT(tutti_reducer_skip(reducer, i) == TUTTI_OK);
                continue;
            }
            EXPECT(tutti_reducer_ready(reducer, i) == TUTTI_OK);
        }
        EXPECT(tutti_reducer_wait(reducer) == TUTTI_OK);
        for (int i = 0; i < LAYERS; i++)
            if (i != 2) EXPECT(model_is_average(reducer, k, i, i == 0 ? 1 : size, size));
        const float *left = tutti_reducer_gradient(reducer, 2).data;
        for (int j = 0; j < model_numel[2]; j++) EXPECT(left[j] == model_element(k, 2, rank, j));
    }
    tutti_reducer_destroy(reducer);
    free(model);
    return 0;
}

static void test_unused(void **state)
{
    static const tutti_reducer_opts opts[] = {{0}, {.gradient_as_bucket_view = true, .move_views = true}};
    (void)state;
    for (int i = 0; i < 2; i++) ranks_run(3, run_unused, (void *)(uintptr_t)&opts[i]);
}

/* The last rank misses gradients.  All ranks say so, and go on. */
static int run_missing(tutti_group *group, int rank, int size, void *argument)
{
    struct model *model;
    tutti_reducer *reducer;
    (void)argument;
    EXPECT(model_make_reducer(group, rank, (tutti_reducer_opts){0}, &model, &reducer) == TUTTI_OK);
    for (int missing = 0; missing < LAYERS; missing++) {
        char word[64];
        snprintf(word, sizeof word, "rank %d: not reported in this iteration: 'layer%d';", size - 1, missing);
        RUN(model_report_all_but(group, reducer, missing, rank == size - 1 ? missing : -1));
        model_set_gradient(reducer, missing, missing, rank);
        EXPECT(tutti_reducer_wait(reducer) == TUTTI_ERR_INVALID_ARGUMENT);
        EXPECT(error_has(word));
        for (int i = 0; i < LAYERS; i++) { /* nothing half-done */
            const float *x = tutti_reducer_gradient(reducer, i).data;
            for (int j = 0; j < model_numel[i]; j++) EXPECT(x[j] == model_element(missing, i, rank, j));
        }
    }
    EXPECT(tutti_reducer_wait(reducer) == TUTTI_ERR_INVALID_ARGUMENT);
    EXPECT(error_has(
        "rank 0: not reported in this iteration: 'layer0', 'layer1', 'layer2' and 3 more; report them or set"));
    RUN(model_iterate(group, reducer, 7, rank, size, size));
    tutti_reducer_destroy(reducer);
    free(model);
    return 0;
}

static void test_missing(void **state)
{
    (void)state;
    ranks_run(1, run_missing, NULL);
    ranks_run(3, run_missing, NULL);
}

/* ---- accumulation ------------------------------------------------------------------------------------------ */

/* Two iterations are accumulated, and reduced with the third.  Gradient 1 is computed in the first one only. */
static int run_accumulation(tutti_group *group, int rank, int size, void *argument)
{
    struct model *model;
    tutti_reducer *reducer;
    tutti_reducer_opts opts = {.find_unused = argument != NULL, .gradient_as_bucket_view = argument != NULL};
    EXPECT(model_make_reducer(group, rank, opts, &model, &reducer) == TUTTI_OK);
    for (int k = 0; k < 3; k++) {
        EXPECT(tutti_reducer_set_sync(reducer, k == 2) == TUTTI_OK);
        for (int i = 0; i < LAYERS; i++) {
            if (i == 1 && k > 0 && opts.find_unused) continue;
            float *x = tutti_reducer_gradient(reducer, i).data;
            for (int j = 0; j < model_numel[i]; j++) x[j] += model_element(k, i, rank, j);
            EXPECT(tutti_reducer_ready(reducer, i) == TUTTI_OK);
        }
        EXPECT(tutti_reducer_set_sync(reducer, k != 2) == TUTTI_ERR_INVALID_ARGUMENT && error_has("were reported"));
        EXPECT(tutti_reducer_wait(reducer) == TUTTI_OK);
    }
    for (int i = 0; i < LAYERS; i++) {
        const float *x = tutti_reducer_gradient(reducer, i).data;
        for (int j = 0; j < model_numel[i]; j++) {
            double average = 0;
            for (int r = 0; r < size; r++)
                for (int k = 0; k < (i == 1 && opts.find_unused ? 1 : 3); k++)
                    average += (double)model_element(k, i, r, j) / size;
            EXPECT((double)x[j] - average < 1e-3 && average - (double)x[j] < 1e-3);
        }
    }
    RUN(model_iterate(group, reducer, 3, rank, size, size));
    tutti_reducer_destroy(reducer);
    free(model);
    return 0;
}

static void test_accumulation(void **state)
{
    (void)state;
    ranks_run(3, run_accumulation, NULL);
    ranks_run(3, run_accumulation, "find_unused");
}

/* ---- buckets ----------------------------------------------------------------------------------------------- */

/* Buckets start in reverse order, then in the order of rank 0's reports. */
static int run_rebuild(tutti_group *group, int rank, int size, void *argument)
{
    static const int wanted[2][3][3] = {{{5, -1}, {4, 3, 2}, {1, 0, -1}}, {{0, -1}, {1, 2, -1}, {3, 4, 5}}};
    struct model *model;
    tutti_reducer *reducer;
    (void)size, (void)argument;
    EXPECT(model_make_reducer(group, rank, (tutti_reducer_opts){0}, &model, &reducer) == TUTTI_OK);
    for (int k = 0; k < 2; k++) {
        for (int b = 0; b < 3; b++) {
            const tutti_bucket *bucket = tutti_reducer_bucket(reducer, b);
            EXPECT(bucket != NULL && bucket->index == b && bucket->n_buckets == 3 && bucket->generation == k);
            int64_t at = 0;
            for (int i = 0; i < 3 && wanted[k][b][i] >= 0; i++) {
                EXPECT(i < bucket->n && bucket->parameter[i] == wanted[k][b][i] && bucket->offset[i] == at);
                at += model_numel[wanted[k][b][i]];
            }
            EXPECT(bucket->tensor.numel == at);
        }
        EXPECT(tutti_reducer_bucket(reducer, 3) == NULL && tutti_reducer_bucket(reducer, -1) == NULL);
        for (int i = 0; i < LAYERS; i++) /* rank 0 in the order of the list */
            EXPECT(tutti_reducer_ready(reducer, rank == 0 ? i : LAYERS - 1 - i) == TUTTI_OK);
        EXPECT(tutti_reducer_wait(reducer) == TUTTI_OK);
    }
    EXPECT(tutti_reducer_bytes(reducer) == 2 * 4 * (300 + 1 + 700 + 64 + 257));
    tutti_reducer_destroy(reducer);
    free(model);
    return 0;
}

static void test_rebuild(void **state)
{
    (void)state;
    ranks_run(2, run_rebuild, NULL);
}

/* Gradients of all dtypes are in buckets of their own dtype. */
static int run_dtypes(tutti_group *group, int rank, int size, void *argument)
{
    float a[3] = {1, 2, 3}, b[2];
    double c[5] = {1, 1, 1, 1, 1};
    int64_t d[2] = {10, 20};
    uint16_t e[3] = {0x3f80, 0x4000, 0x4040}; /* 1, 2, 3 */
    float _Complex f[2] = {1, 2};
    tutti_parameter list[] = {{"a", {0}, tutti_view(a, 3)}, {"c", {0}, tutti_view(c, 5)},
                              {"d", {0}, tutti_view(d, 2)}, {"e", {0}, tutti_tensor_of(e, 3, TUTTI_BFLOAT16)},
                              {"b", {0}, tutti_view(b, 2)}, {NULL, {0}, tutti_view(f, 2)}};
    tutti_reducer *reducer;
    (void)argument;
    EXPECT(tutti_reducer_create(list, 6, &(tutti_reducer_opts){.group = group, .sum = true}, &reducer) == TUTTI_OK);
    for (int k = 0; k < 2; k++) {
        b[0] = b[1] = (float)rank;
        for (int i = 0; i < 6; i++) EXPECT(tutti_reducer_ready(reducer, (i + rank) % 6) == TUTTI_OK);
        EXPECT(tutti_reducer_wait(reducer) == TUTTI_OK);
        EXPECT(tutti_reducer_bucket(reducer, 4) != NULL && tutti_reducer_bucket(reducer, 5) == NULL);
        EXPECT(b[1] == (float)(size * (size - 1) / 2));
    }
    EXPECT(a[2] == (float)(3 * size * size) && c[4] == size * size && d[1] == 20 * size * size);
    EXPECT(e[0] == 0x3f80 + 0x100 && f[1] == (float)(2 * size * size)); /* 4 ranks' worth: 2 ranks, twice */
    tutti_reducer_destroy(reducer);
    return 0;
}

/* The index of a CPU device has no meaning, and may differ between the ranks. */
static int run_indices(tutti_group *group, int rank, int size, void *argument)
{
    enum { N = 80 };
    float a[N];
    double b[N];
    tutti_parameter list[N];
    tutti_reducer *reducer;
    (void)argument;
    for (int i = 0; i < N; i++) {
        a[i] = (float)(b[i] = rank + i);
        list[i] = (tutti_parameter){NULL, {0}, i % 2 ? tutti_view(&a[i], 1) : tutti_view(&b[i], 1)};
        list[i].gradient.device.index = rank == 0 ? i : 0;
    }
    EXPECT(tutti_reducer_create(list, N, &(tutti_reducer_opts){.group = group, .sum = true}, &reducer) == TUTTI_OK);
    EXPECT(tutti_reducer_bucket(reducer, 1) != NULL && tutti_reducer_bucket(reducer, 2) == NULL);
    for (int i = 0; i < N; i++) EXPECT(tutti_reducer_ready(reducer, i) == TUTTI_OK);
    EXPECT(tutti_reducer_wait(reducer) == TUTTI_OK);
    for (int i = 0; i < N; i++) {
        double sum = size * i + size * (size - 1) / 2.0;
        EXPECT(i % 2 ? a[i] == (float)sum : b[i] == sum);
    }
    tutti_reducer_destroy(reducer);
    return 0;
}

static void test_dtypes(void **state)
{
    (void)state;
    ranks_run(2, run_dtypes, NULL);
    ranks_run(2, run_indices, NULL);
}

/* ---- threads ----------------------------------------------------------------------------------------------- */

struct reporter {
    pthread_t thread;
    tutti_reducer *reducer;
    int first, rank, iteration, status;
};

static void *report_half(void *argument)
{
    struct reporter *reporter = argument;
    for (int i = reporter->first; i < LAYERS; i += 2) {
        model_set_gradient(reporter->reducer, reporter->iteration, i, reporter->rank);
        int status = tutti_reducer_ready(reporter->reducer, i);
        if (status != TUTTI_OK) reporter->status = status;
    }
    return NULL;
}

static int run_threads(tutti_group *group, int rank, int size, void *argument)
{
    struct model *model;
    tutti_reducer *reducer;
    (void)argument;
    EXPECT(model_make_reducer(group, rank, (tutti_reducer_opts){.bucket_bytes = 1}, &model, &reducer) == TUTTI_OK);
    for (int k = 0; k < 20; k++) {
        struct reporter reporter[2];
        for (int t = 0; t < 2; t++) {
            reporter[t] = (struct reporter){.reducer = reducer, .first = t, .rank = rank, .iteration = k};
            EXPECT(pthread_create(&reporter[t].thread, NULL, report_half, &reporter[t]) == 0);
        }
        for (int t = 0; t < 2; t++) pthread_join(reporter[t].thread, NULL);
        EXPECT(reporter[0].status == TUTTI_OK && reporter[1].status == TUTTI_OK);
        EXPECT(tutti_reducer_wait(reducer) == TUTTI_OK);
        for (int i = 0; i < LAYERS; i++) EXPECT(model_is_average(reducer, k, i, size, size));
    }
    tutti_reducer_destroy(reducer);
    free(model);
    return 0;
}

static void test_threads(void **state)
{
    (void)state;
    ranks_run(2, run_threads, NULL);
}

/* Two reducers with overlapping iterations, in groups of their own. */
static int run_two(tutti_group *group, int rank, int size, void *argument)
{
    struct model *model[2];
    tutti_reducer *reducer[2];
    tutti_group *groups[2];
    int ranks[RANKS_MOST];
    (void)argument;
    for (int i = 0; i < size; i++) ranks[i] = i;
    for (int t = 0; t < 2; t++) {
        tutti_group_opts opts = {.parent = group};
        EXPECT(tutti_new_group(ranks, size, &opts, &groups[t]) == TUTTI_OK);
        EXPECT(model_make_reducer(groups[t], rank, (tutti_reducer_opts){0}, &model[t], &reducer[t]) == TUTTI_OK);
    }
    for (int k = 0; k < 3; k++) {
        int first = (rank + k) % 2; /* the order of calls differs between the ranks */
        for (int i = 0; i < LAYERS; i++)
            for (int t = 0; t < 2; t++) {
                model_set_gradient(reducer[first ^ t], k, i, rank);
                EXPECT(tutti_reducer_ready(reducer[first ^ t], i) == TUTTI_OK);
            }
        for (int t = 0; t < 2; t++) EXPECT(tutti_reducer_wait(reducer[t]) == TUTTI_OK);
        for (int i = 0; i < LAYERS; i++) EXPECT(model_is_average(reducer[1], k, i, size, size));
    }
    for (int t = 0; t < 2; t++) {
        tutti_reducer_destroy(reducer[t]);
        EXPECT(tutti_destroy_process_group(groups[t]) == TUTTI_OK);
        free(model[t]);
    }
    return 0;
}

static void test_two_reducers(void **state)
{
    (void)state;
    ranks_run(3, run_two, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_averages), cmocka_unit_test(test_unused),
                                       cmocka_unit_test(test_missing),  cmocka_unit_test(test_accumulation),
                                       cmocka_unit_test(test_rebuild),  cmocka_unit_test(test_dtypes),
                                       cmocka_unit_test(test_threads),  cmocka_unit_test(test_two_reducers)};
    ranks_setup();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
