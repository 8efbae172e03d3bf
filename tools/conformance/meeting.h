/* Synchronises the ranks of a launch and exchanges their verdicts without the backend under test: through shared memory
 * or, in a job that a launcher started, through the job's store. */
#ifndef CONFORMANCE_MEETING_H
#define CONFORMANCE_MEETING_H

#include "conformance/scoreboard.h"

/* Within a case ranks synchronise by steps, counted from 1.  meeting_arrive reports that this rank has reached its next
 * step.  meeting_has_arrived returns true if another rank has reached the same step, or has finished the case. */
void meeting_arrive(struct rank *rank);
bool meeting_has_arrived(struct rank *rank, int other);

/* Waits for the results of all ranks.  Called after a case, when this rank's verdict is on the scoreboard.  Returns
 * false, with the reason in scoreboard->end, if the other ranks cannot be reached. */
bool meeting_after(struct rank *rank);

/* Waits for all ranks once more before the next case.  Called on all ranks, after meeting_after. */
bool meeting_again(struct rank *rank);

/* Collects the results of ranks that have finished the case, without waiting for the rest. */
void meeting_fetch(struct rank *rank);

#endif
