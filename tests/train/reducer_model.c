#include "train/reducer_model.h"

const int model_numel[LAYERS] = {300, 1, 700, 0, 64, 257};

struct model *model_make(int rank)
{
    struct model *model = calloc(1, sizeof *model);
    if (model == NULL) abort();
    for (int i = 0; i < LAYERS; i++) {
        snprintf(model->name[i], sizeof model->name[i], "layer%d", i);
        for (int j = 0; j < model_numel[i]; j++) model->value[i][j] = (float)(1000 * rank + i + j);
        model->list[i] = (tutti_parameter){model->name[i], tutti_view(model->value[i], model_numel[i]),
                                           tutti_view(model->gradient[i], model_numel[i])};
    }
    return model;
}

float model_element(int iteration, int i, int rank, int j)
{
    return (float)(100 * iteration + 10 * i + rank + j);
}

void model_set_gradient(tutti_reducer *reducer, int iteration, int i, int rank)
{
    float *x = tutti_reducer_gradient(reducer, i).data;
    for (int j = 0; j < model_numel[i]; j++) x[j] = model_element(iteration, i, rank, j);
}

bool model_is_average(tutti_reducer *reducer, int iteration, int i, int active, double divisor)
{
    const float *x = tutti_reducer_gradient(reducer, i).data;
    for (int j = 0; j < model_numel[i]; j++) {
        double sum = 0;
        for (int r = 0; r < active; r++) sum += (double)model_element(iteration, i, r, j);
        double error = (double)x[j] - sum / divisor;
        if (error > 1e-3 || error < -1e-3) {
            fprintf(stderr, "gradient %d[%d] is %g, not %g\n", i, j, (double)x[j], sum / divisor);
            return false;
        }
    }
    return true;
}

int model_iterate(tutti_group *group, tutti_reducer *reducer, int iteration, int rank, int size, double divisor)
{
    for (int k = 0; k < LAYERS; k++) {
        int i = (k + rank + iteration) % LAYERS;
        model_set_gradient(reducer, iteration, i, rank);
        EXPECT(tutti_reducer_ready(reducer, i) == TUTTI_OK);
    }
    EXPECT(tutti_reducer_wait(reducer) == TUTTI_OK);
    for (int i = 0; i < LAYERS; i++) EXPECT(model_is_average(reducer, iteration, i, size, divisor));
    return 0;
}

int model_make_reducer(tutti_group *group, int rank, tutti_reducer_opts opts, struct model **model,
                       tutti_reducer **reducer)
{
    *model = model_make(rank);
    opts.group = group;
    if (opts.bucket_bytes == 0) opts.bucket_bytes = 1500;
    if (opts.first_bucket_bytes == 0) opts.first_bucket_bytes = 256;
    return tutti_reducer_create((*model)->list, LAYERS, &opts, reducer);
}

int model_report_all_but(tutti_group *group, tutti_reducer *reducer, int iteration, int missing)
{
    int rank = tutti_get_rank(group);
    for (int k = 0; k < LAYERS; k++) {
        int i = (k + rank) % LAYERS;
        if (i == missing) continue;
        model_set_gradient(reducer, iteration, i, rank);
        EXPECT(tutti_reducer_ready(reducer, i) == TUTTI_OK);
    }
    return 0;
}

bool error_has(const char *word)
{
    if (strstr(tutti_last_error(), word) != NULL) return true;
    fprintf(stderr, "\"%s\" lacks \"%s\"\n", tutti_last_error(), word);
    return false;
}
