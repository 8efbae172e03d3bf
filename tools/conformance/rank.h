/* Runs one rank of a launch: its groups, and the loop over the cases. */
#ifndef CONFORMANCE_RANK_H
#define CONFORMANCE_RANK_H

#include "conformance/cases.h"
#include "conformance/scoreboard.h"

/* Opens the part of the job's store in which the suite synchronises, from MASTER_ADDR and MASTER_PORT. */
int rank_store(tutti_store **store);

/* Runs all cases from scoreboard->first on, as one of scoreboard->ranks ranks over store.  Returns 0, or 1 with the
 * reason in scoreboard->end if the group could not be made. */
int rank_run(struct scoreboard *scoreboard, const struct options *options, const struct cases *cases,
             tutti_store *store, int rank);

#endif
