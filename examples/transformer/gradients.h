/* Averages the gradients of a model over the ranks. */
#ifndef GRADIENTS_H
#define GRADIENTS_H

#include <tutti/tutti.h>

#include "model.h"

struct gradients {
    struct model *model;
    tutti_tensor sent; /* in float32 or bfloat16, on the group's device */
    uint16_t *half;    /* bfloat16 on the host */
};

struct gradients gradients_new(struct model *model, tutti_dtype dtype);
void gradients_free(struct gradients *gradients);

/* Takes note that the gradient of a parameter is complete.  A model_report. */
void gradients_ready(void *gradients, int parameter);

/* Waits until all gradients are averages. */
void gradients_wait(struct gradients *gradients);

#endif
