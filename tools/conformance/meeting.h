/* How the ranks of a launch synchronise and exchange verdicts without the backend under test: through shared memory or,
 * in a job that a launcher started, through its store. */
#ifndef CONFORMANCE_MEETING_H
#define CONFORMANCE_MEETING_H

#include "conformance/scoreboard.h"

/* Within a case ranks synchronise by steps, counted from 1.  The first function reports that this rank has reached its
 * next step.  The second tells whether another rank has reached the same one, or has finished the case and will not. */
void meeting_come(struct rank *rank);
bool meeting_has_come(struct rank *rank, int other);

/* Called after a case, when this rank's verdict is on the scoreboard.  Returns when the results of all ranks are there.
 * Returns false if they cannot be reached, with the reason in scoreboard->end. */
bool meeting_after(struct rank *rank);

/* Called once more before the next case, after meeting_after and on all ranks. */
bool meeting_again(struct rank *rank);

/* Collects the results of ranks that have finished the case, without waiting for the rest. */
void meeting_fetch(struct rank *rank);

#endif
