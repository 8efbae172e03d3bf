/* Launches the ranks, watches them, and launches them again after a case that crashed or hung. */
#ifndef CONFORMANCE_LAUNCH_H
#define CONFORMANCE_LAUNCH_H

#include "conformance/cases.h"
#include "conformance/scoreboard.h"

/* Runs all cases on scoreboard->ranks ranks and leaves their results on the scoreboard.  Returns the number of cases,
 * or the first case that could not be run, with the reason in scoreboard->end. */
int launch_run(struct scoreboard *scoreboard, const struct options *options, const struct cases *cases);

#endif
