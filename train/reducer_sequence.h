/* The order in which all ranks start the operations of an iteration. */
#ifndef TRAIN_REDUCER_SEQUENCE_H
#define TRAIN_REDUCER_SEQUENCE_H

#include "reducer_state.h"

/* Starts all operations that can start, in order.  With may_wait it waits for those that must complete before, and
 * starts all.  The first failure is kept in reducer->status.  Lock held. */
void sequence_advance(struct tutti_reducer *reducer, bool may_wait);

/* Waits for a Work, if there is one, and keeps its failure.  On a CUDA stream only orders the stream behind it. */
void sequence_wait(struct tutti_reducer *reducer, tutti_work **work, bool is_cuda);

/* Keeps a failure of the iteration, with tutti_last_error(), unless there is one. */
void sequence_fail(struct tutti_reducer *reducer, int status);

/* Does the same with a failure of this rank alone, and aborts the group, because the other ranks wait for this one. */
void sequence_give_up(struct tutti_reducer *reducer, int status);

/* Does one or the other with the failure of an operation that could not start, and nothing with TUTTI_OK. */
void sequence_fail_start(struct tutti_reducer *reducer, int status);

/* Aborts the reducer's groups. */
void sequence_abort(struct tutti_reducer *reducer, const char *reason);

/* Makes the next iteration start from the beginning. */
void sequence_reset(struct tutti_reducer *reducer);

#endif
