/* Error feedback: what compression loses of a gradient is added to the next one. */
#ifndef TRAIN_REDUCER_RESIDUAL_H
#define TRAIN_REDUCER_RESIDUAL_H

#include "reducer_state.h"

/* Allocates the residuals, if there are any. */
int residual_create(struct tutti_reducer *reducer);

/* Casts the gradient plus its residual to `to`, and keeps what that loses. */
void residual_cast(struct parameter *parameter, tutti_tensor to);

/* Adds the residual to the gradient's place in its bucket. */
void residual_add(struct parameter *parameter, tutti_tensor place);

/* Keeps what the float8 blocks of a bucket lose. */
void residual_of_blocks(struct tutti_reducer *reducer, const struct bucket *bucket);

/* Sums this rank's part of a bucket's blocks, of all ranks.  What encoding the sum loses joins this rank's residuals.
 */
void residual_sum_blocks(struct tutti_reducer *reducer, const struct bucket *bucket, const uint8_t *parts,
                         uint8_t *sum);

#endif
