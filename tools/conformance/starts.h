/* Helpers of the cases that start groups: the original environment, and a check of the default group. */
#ifndef CONFORMANCE_STARTS_H
#define CONFORMANCE_STARTS_H

#include "conformance/suite.h"

/* Indices into the variables that hold a rank's number and rendezvous.  The library's are first.  Those of other
 * launchers follow, because another launcher may have started this job. */
enum { STARTS_MASTER_ADDR = 4, STARTS_OWN = 7, VARIABLES = 18 };

struct environment {
    char *value[VARIABLES];
};

/* Saves all these variables and unsets those from index `from` on. */
struct environment starts_take_away(int from);
void starts_restore(struct environment *saved);

/* Checks that the default group is the whole world, and ends it. */
enum verdict starts_use_and_end(struct rank *rank, int number, int size);

#endif
