/* Which gradients share a bucket, and where buckets are in memory. */
#ifndef TRAIN_REDUCER_LAYOUT_H
#define TRAIN_REDUCER_LAYOUT_H

#include "reducer_state.h"

/* Allocates buckets and their memory for any order of the parameters, and makes buckets of the reverse order of the
 * list.  On failure sets the error message; reducer_layout_free releases what there is. */
int reducer_layout_create(struct tutti_reducer *reducer);

void reducer_layout_free(struct tutti_reducer *reducer);

/* Assigns all parameters to buckets, in this order: a permutation of the parameters.  Views move with their contents.
 */
void reducer_layout_assign(struct tutti_reducer *reducer, const int32_t *order);

#endif
