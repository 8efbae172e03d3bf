/* Runs all cases as one rank of a job that a launcher started.  Rank 0 reports. */
#ifndef CONFORMANCE_JOIN_H
#define CONFORMANCE_JOIN_H

#include "conformance/cases.h"

/* Returns the program's exit status.  On ranks other than 0 it does not depend on the verdicts. */
int join_run(struct options *options, const struct cases *cases);

#endif
