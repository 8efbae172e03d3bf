/* Averages the gradients of a model over the ranks: a tutti_reducer, and copies of gradients on the group's device. */
#ifndef GRADIENTS_H
#define GRADIENTS_H

#include <tutti/train/reducer.h>

#include "model.h"

struct gradients {
    const struct model *model;
    tutti_reducer *reducer;
    tutti_parameter parameter[MODEL_PARAMETERS_MAX];
};

/* Makes the reducer.  dtype is that of the gradients on their way. */
void gradients_init(struct gradients *gradients, const struct model *model, tutti_dtype dtype, int bucket_kib);
void gradients_free(struct gradients *gradients);

/* Sends the gradient of a parameter, which is complete, as soon as it fills a bucket.  A model_report. */
void gradients_ready(void *gradients, int parameter);

/* Waits until all gradients are averages. */
void gradients_wait(struct gradients *gradients);

#endif
