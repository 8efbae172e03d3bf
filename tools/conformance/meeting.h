/* How the ranks of a launch meet and learn each other's verdicts, without the backend under test: in the memory that
 * they share, or, in a job that a launcher started, through its store. */
#ifndef CONFORMANCE_MEETING_H
#define CONFORMANCE_MEETING_H

#include "conformance/board.h"

/* Within a case ranks meet by steps, counted from 1.  The first tells that this rank has come to its next one; the
 * second whether another has come to the same, or is through with the case, and so will not. */
void meeting_come(struct rank *rank);
bool meeting_has_come(struct rank *rank, int other);

/* After a case, when this rank's verdict is on the board: returns when all have come, their results on the board too.
 * False where they cannot be reached; the reason is in board->end. */
bool meeting_after(struct rank *rank);

/* Once more, before the next case; only after meeting_after, and on all ranks. */
bool meeting_again(struct rank *rank);

/* The results of those that are through with the case, without waiting for the rest. */
void meeting_fetch(struct rank *rank);

#endif
