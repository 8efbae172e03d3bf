/* A rank of test_hosts that leaves right after a message:
 *
 *     test_hosts leave BYTES
 *
 * Rank 0 sends a message to rank 1 and leaves the group at once.  Rank 1 prints "right" if it gets the message. */
#ifndef TESTS_LEAVE_H
#define TESTS_LEAVE_H

/* Runs the rank with the arguments after "leave".  Returns the exit status. */
int leave_main(char **argument);

#endif
