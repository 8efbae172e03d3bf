/* One iteration: reports of gradients, and its end. */
#ifndef TRAIN_REDUCER_ITERATION_H
#define TRAIN_REDUCER_ITERATION_H

#include "reducer_state.h"

/* Reports a gradient as ready, or as one that is not computed in this iteration. */
int iteration_report(struct tutti_reducer *reducer, int i, bool skipped);

/* Ends the iteration.  Lock held. */
int iteration_end(struct tutti_reducer *reducer);

/* True between the first report and the end. */
bool iteration_is_open(const struct tutti_reducer *reducer);

/* Waits until operations have ended, or aborts the group if they do not. */
void iteration_abandon(struct tutti_reducer *reducer);

#endif
