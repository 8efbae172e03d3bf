/* A rank of test_hosts that reduces until its time is over and reports errors:
 *
 *     test_hosts loop SECONDS TIMEOUT_MS BYTES [STORE_TIMEOUT_MS [PAUSE_S]]
 *
 * It prints "joined", and "running" after the first result.  Then it prints "right after N rounds", or "S.SSS STATUS:
 * message", where S.SSS is the seconds since the last good round.  It exits with 0, with 3 after an error, or with 4
 * after a wrong result. */
#ifndef TESTS_LOOP_H
#define TESTS_LOOP_H

/* Runs the rank with the arguments after "loop".  Returns the exit status. */
int loop_main(char **argument);

#endif
