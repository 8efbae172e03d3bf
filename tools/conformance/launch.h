/* Starts the ranks, watches them, and continues after a case that crashed or hung. */
#ifndef CONFORMANCE_LAUNCH_H
#define CONFORMANCE_LAUNCH_H

#include "conformance/board.h"
#include "conformance/cases.h"

/* Runs all cases on board->ranks ranks and leaves their results on the board.  Returns the number of cases, or the
 * first case that could not be run, with the reason in board->end. */
int launch_run(struct board *board, const struct options *options, const struct cases *cases);

#endif
