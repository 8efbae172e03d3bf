/* Moves one gradient between the program's memory and its bucket. */
#ifndef TRAIN_REDUCER_FILL_H
#define TRAIN_REDUCER_FILL_H

#include "reducer_state.h"

/* Copies the gradient into its bucket. */
int fill_gradient(struct tutti_reducer *reducer, struct parameter *parameter);

/* Puts zeros into the gradient's place in the bucket.  The contents of a view are saved for fill_restore, unless this
 * rank has joined. */
int fill_zeros(struct tutti_reducer *reducer, struct parameter *parameter);

/* Puts the saved contents of a view back. */
void fill_restore(struct parameter *parameter);

/* Copies the sum out of the bucket to the gradient, divided if the scheme has not done that. */
int fill_result(struct tutti_reducer *reducer, struct parameter *parameter);

#endif
