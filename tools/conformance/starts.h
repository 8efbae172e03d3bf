/* What cases of starting share: the environment as it was, and the default group's use. */
#ifndef CONFORMANCE_STARTS_H
#define CONFORMANCE_STARTS_H

#include "conformance/suite.h"

/* Where these are among the variables that ranks are told by; the library's own come first, then those of other
 * launchers, one of which may have started this job. */
enum { STARTS_MASTER_ADDR = 4, STARTS_OWN = 7, VARIABLES = 18 };

struct environment {
    char *value[VARIABLES];
};

/* Keeps all of them, and unsets those from `from` on. */
struct environment starts_take_away(int from);
void starts_restore(struct environment *saved);

/* The default group is there and is the whole world; then it is ended. */
enum verdict starts_use_and_end(struct rank *rank, int number, int size);

#endif
