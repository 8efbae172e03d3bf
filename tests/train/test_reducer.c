/* The reducer over ranks that are threads: what is averaged, in which buckets, and what is refused. */
#include <tutti/train/reducer.h>

#include "ranks.h"

enum { LAYERS = 6, NUMEL_MOST = 700 };

/* A model of parameters with different sizes; gradient i of rank r in iteration k has elements 100 k + 10 i + r + j. */
struct model {
    tutti_parameter list[LAYERS];
    char name[LAYERS][16];
    float value[LAYERS][NUMEL_MOST], gradient[LAYERS][NUMEL_MOST];
};

static const int numel[LAYERS] = {300, 1, 700, 0, 64, 257};

static struct model *make_model(int rank)
{
    struct model *model = calloc(1, sizeof *model);
    if (model == NULL) abort();
    for (int i = 0; i < LAYERS; i++) {
        snprintf(model->name[i], sizeof model->name[i], "layer%d", i);
        for (int j = 0; j < numel[i]; j++) model->value[i][j] = (float)(1000 * rank + i + j);
        model->list[i] = (tutti_parameter){model->name[i], tutti_view(model->value[i], numel[i]),
                                           tutti_view(model->gradient[i], numel[i])};
    }
    return model;
}

static float element(int iteration, int i, int rank, int j)
{
    return (float)(100 * iteration + 10 * i + rank + j);
}

static void set_gradient(tutti_reducer *reducer, int iteration, int i, int rank)
{
    float *x = tutti_reducer_gradient(reducer, i).data;
    for (int j = 0; j < numel[i]; j++) x[j] = element(iteration, i, rank, j);
}

/* True if the gradient is the average over `active` of `size` ranks, the first ones. */
static bool is_average(tutti_reducer *reducer, int iteration, int i, int active, double divisor)
{
    const float *x = tutti_reducer_gradient(reducer, i).data;
    for (int j = 0; j < numel[i]; j++) {
        double sum = 0;
        for (int r = 0; r < active; r++) sum += (double)element(iteration, i, r, j);
        double error = (double)x[j] - sum / divisor;
        if (error > 1e-3 || error < -1e-3) {
            fprintf(stderr, "gradient %d[%d] is %g, not %g\n", i, j, (double)x[j], sum / divisor);
            return false;
        }
    }
    return true;
}

/* Runs an iteration that reports in an order that depends on the rank, and checks the averages. */
static int iterate(tutti_group *group, tutti_reducer *reducer, int iteration, int rank, int size, double divisor)
{
    for (int k = 0; k < LAYERS; k++) {
        int i = (k + rank + iteration) % LAYERS;
        set_gradient(reducer, iteration, i, rank);
        EXPECT(tutti_reducer_ready(reducer, i) == TUTTI_OK);
    }
    EXPECT(tutti_reducer_wait(reducer) == TUTTI_OK);
    for (int i = 0; i < LAYERS; i++) EXPECT(is_average(reducer, iteration, i, size, divisor));
    return 0;
}

/* Makes a reducer with small buckets, and runs a few iterations. */
static int average(tutti_group *group, int rank, int size, tutti_reducer_opts opts)
{
    struct model *model = make_model(rank);
    tutti_reducer *reducer = NULL;
    opts.group = group;
    EXPECT(tutti_reducer_create(model->list, LAYERS, &opts, &reducer) == TUTTI_OK);
    for (int i = 0; i < LAYERS; i++)
        for (int j = 0; j < numel[i]; j++)
            EXPECT(model->value[i][j] == (float)((opts.no_broadcast ? 1000 * rank : 0) + i + j));
    for (int k = 0; k < 4; k++) {
        int line = iterate(group, reducer, k, rank, size, opts.sum ? 1 : size);
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_averages)};
    ranks_setup();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
