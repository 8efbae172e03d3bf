/* A model for the tests of checkpoints: every number in it follows from its place and a generation. */
#ifndef TESTS_CHECKPOINT_MODEL_H
#define TESTS_CHECKPOINT_MODEL_H

#include <tutti/train/checkpoint.h>

enum { CHECKPOINT_PARAMETERS = 4, CHECKPOINT_STATES = 3 };

struct checkpoint_model {
    tutti_sharded *sharded;
    int n; /* parameters */
    tutti_parameter list[CHECKPOINT_PARAMETERS];
    float *memory, *momentum;
    int16_t *flags;
    int64_t step;
    tutti_checkpoint_state states[CHECKPOINT_STATES];
};

/* Makes a model with `large` elements in its largest parameter.  Returns a status. */
int checkpoint_model_make(struct checkpoint_model *model, tutti_group *group, int large, int64_t bucket_bytes);

/* Sets everything but the parameters to a generation. */
void checkpoint_model_set(struct checkpoint_model *model, int generation);

/* True if everything is of this generation; the parameters are checked if `gathered` is set. */
bool checkpoint_model_is(const struct checkpoint_model *model, int generation, bool gathered);

int checkpoint_model_save(struct checkpoint_model *model, const char *folder);
int checkpoint_model_load(struct checkpoint_model *model, const char *folder);

void checkpoint_model_free(struct checkpoint_model *model);

#endif
