/* A rank of test_hosts that computes, and goes on in a new group when ranks die:
 *
 *     test_hosts regroup FOLDER
 *
 * Rank 0 of each group looks into the folder: with a file "stop" all ranks leave, and with a file "idle" they wait
 * without an operation until the file is gone or a rank is lost.  With a file "send" rank 0 sends the last rank a
 * message meanwhile, which is not received.  Each rank prints, with T as the time of day in s:
 *
 *     again T G N    after the first result in generation G, of N ranks
 *     idle T G N     it begins to wait without an operation
 *     sent T G N     it has sent the message
 *     heard T WHY    it has learnt while it was idle that a rank is lost
 *
 * It exits with 0, with 3 after an error that is not the loss of a rank, or with 4 after a wrong result. */
#ifndef TESTS_REGROUP_H
#define TESTS_REGROUP_H

/* Runs the rank with the arguments after "regroup".  Returns the exit status. */
int regroup_main(char **argument);

#endif
