/* One rank of a job that a launcher started: all cases, and on rank 0 the report. */
#ifndef CONFORMANCE_JOIN_H
#define CONFORMANCE_JOIN_H

#include "conformance/cases.h"

/* The program's exit status; on ranks other than 0 it is 0 whatever the verdicts are. */
int join_run(struct options *options, const struct cases *cases);

#endif
