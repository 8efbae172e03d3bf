#include "checkpoint_model.h"

#include <stdlib.h>

static const int small[CHECKPOINT_PARAMETERS] = {5, 0, 37, 3};
static const char *const names[CHECKPOINT_PARAMETERS] = {"bias", "empty", "weight", "scale"};

int checkpoint_model_make(struct checkpoint_model *model, tutti_group *group, int large, int64_t bucket_bytes)
{
    int total = 0, at = 0, numel[CHECKPOINT_PARAMETERS];
    for (int i = 0; i < CHECKPOINT_PARAMETERS; i++) total += numel[i] = i == 2 && large > 0 ? large : small[i];
    *model = (struct checkpoint_model){.n = CHECKPOINT_PARAMETERS, .memory = calloc((size_t)total + 1, sizeof(float))};
    for (int i = 0; i < CHECKPOINT_PARAMETERS; i++) {
        tutti_tensor tensor = tutti_view(model->memory + at, numel[i]); /* the gradients are not used */
        model->list[i] = (tutti_parameter){names[i], tensor, tensor};
        at += numel[i];
    }
    tutti_sharded_opts opts = {.group = group, .bucket_bytes = bucket_bytes};
    int status = tutti_sharded_create(model->list, model->n, &opts, &model->sharded);
    if (status != TUTTI_OK) return status;
    int64_t shard = tutti_sharded_value(model->sharded).numel;
    model->momentum = calloc((size_t)shard + 1, sizeof(float));
    model->flags = calloc((size_t)shard + 1, sizeof(int16_t));
    model->states[0] = (tutti_checkpoint_state){"momentum", tutti_view(model->momentum, shard), false};
    model->states[1] = (tutti_checkpoint_state){"step", tutti_view(&model->step, 1), true};
    model->states[2] = (tutti_checkpoint_state){"flags", tutti_view(model->flags, shard), false};
    return TUTTI_OK;
}

static float value_at(int parameter, int64_t i, int generation)
{
    return (float)(parameter * 1000000 + i + generation * 7);
}

void checkpoint_model_set(struct checkpoint_model *model, int generation)
{
    float *value = tutti_sharded_value(model->sharded).data;
    tutti_sharded_piece piece;
    for (int k = 0; tutti_sharded_get_piece(model->sharded, k, &piece); k++)
        for (int64_t i = 0; i < piece.numel; i++) {
            value[piece.at + i] = value_at(piece.parameter, piece.begin + i, generation);
            model->momentum[piece.at + i] = -value[piece.at + i];
            model->flags[piece.at + i] = (int16_t)(piece.begin + i + generation);
        }
    model->step = generation;
}

static bool shard_is(const struct checkpoint_model *model, int generation)
{
    const float *value = tutti_sharded_value(model->sharded).data;
    tutti_sharded_piece piece;
    for (int k = 0; tutti_sharded_get_piece(model->sharded, k, &piece); k++)
        for (int64_t i = 0; i < piece.numel; i++) {
            float wanted = value_at(piece.parameter, piece.begin + i, generation);
            if (value[piece.at + i] != wanted || model->momentum[piece.at + i] != -wanted) return false;
            if (model->flags[piece.at + i] != (int16_t)(piece.begin + i + generation)) return false;
        }
    return true;
}

bool checkpoint_model_is(const struct checkpoint_model *model, int generation, bool gathered)
{
    for (int i = 0; i < model->n && gathered; i++)
        for (int64_t k = 0; k < model->list[i].value.numel; k++)
            if (((float *)model->list[i].value.data)[k] != value_at(i, k, generation)) return false;
    return model->step == generation && shard_is(model, generation);
}

int checkpoint_model_save(struct checkpoint_model *model, const char *folder)
{
    return tutti_checkpoint_save(model->sharded, folder, model->states, CHECKPOINT_STATES, NULL);
}

int checkpoint_model_load(struct checkpoint_model *model, const char *folder)
{
    return tutti_checkpoint_load(model->sharded, folder, model->states, CHECKPOINT_STATES, NULL);
}

void checkpoint_model_free(struct checkpoint_model *model)
{
    tutti_sharded_destroy(model->sharded);
    free(model->memory);
    free(model->momentum);
    free(model->flags);
}
