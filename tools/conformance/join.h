/* One rank of a job that a launcher started: runs all cases; rank 0 reports. */
#ifndef CONFORMANCE_JOIN_H
#define CONFORMANCE_JOIN_H

#include "conformance/cases.h"

/* Returns the program's exit status, which is 0 on ranks other than 0 whatever the verdicts are. */
int join_run(struct options *options, const struct cases *cases);

#endif
