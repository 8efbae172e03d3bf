/* Starts the ranks, watches them, and goes on behind a case that crashed or hung. */
#ifndef CONFORMANCE_LAUNCH_H
#define CONFORMANCE_LAUNCH_H

#include "conformance/board.h"
#include "conformance/cases.h"

/* Runs all cases on board->ranks ranks; their results are on the board afterwards.  The number of cases, or the first
 * from which on none could be run, with the reason in board->end. */
int launch_run(struct board *board, const struct options *options, const struct cases *cases);

#endif
