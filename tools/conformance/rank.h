/* One rank of a launch: its groups, and its way through the cases. */
#ifndef CONFORMANCE_RANK_H
#define CONFORMANCE_RANK_H

#include "conformance/board.h"
#include "conformance/cases.h"

/* The part of the job's store in which the suite meets, opened from MASTER_ADDR and MASTER_PORT. */
int rank_store(tutti_store **store);

/* Runs all cases from board->first on, as rank of board->ranks over store.  0, or 1 if there was no group to run in;
 * the reason is in board->end. */
int rank_run(struct board *board, const struct options *options, const struct cases *cases, tutti_store *store,
             int rank);

#endif
