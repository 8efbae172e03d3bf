/* Tutti training: a parameter of a model, as the reducer and the sharded optimizer take it. */
#ifndef TUTTI_TRAIN_PARAMETER_H
#define TUTTI_TRAIN_PARAMETER_H

#include <tutti/tutti.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One parameter of the model.  The tensors are borrowed until the reducer or sharded optimizer made from it is
 * destroyed.
 */
typedef struct tutti_parameter {
    const char *name;      /* in messages and checkpoints; copied; NULL: "parameter I" */
    tutti_tensor value;    /* broadcast from rank 0 by create.  Reducer: numel 0: nothing is */
    tutti_tensor gradient; /* Reducer: any dtype but bool; with gradient_as_bucket_view data is not used.  Sharded
                              optimizer: as many elements as value */
} tutti_parameter;

#ifdef __cplusplus
}
#endif
#endif
