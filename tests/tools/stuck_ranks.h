/* Ranks that get stuck, for the tests of the flight recorder: one skips a collective, calls another one, dies, or is
 * asked by a signal. */
#ifndef TESTS_STUCK_RANKS_H
#define TESTS_STUCK_RANKS_H

/* STUCK_WAIT_MS: after this time the ranks give up a collective that one of them skips.  STUCK_HANG_MS bounds hangs. */
enum { STUCK_HANG_MS = 100000, STUCK_WAIT_MS = 400 };

/* Runs a rank of a job.  `what` is skip, message, differ, die, init, signal or call.  Returns the exit status. */
int stuck_rank_main(const char *what);

#endif
