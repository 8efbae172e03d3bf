/* A rank of test_hosts that reduces until its time is over and reports errors:
 *
 *     test_hosts loop SECONDS TIMEOUT_MS BYTES [STORE_TIMEOUT_MS [PAUSE_S]]
 *
 * Prints "joined", and "running" after the first result.  Then "right after N rounds", or "S.SSS STATUS: message",
 * S.SSS being the seconds since the last good round.  Exits with 0, with 3 after an error, or with 4 after a wrong
 * result. */
#ifndef TESTS_LOOP_H
#define TESTS_LOOP_H

/* Runs it with the arguments after "loop"; returns the exit status. */
int loop_main(char **argument);

#endif
