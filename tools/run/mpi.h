/* --mpi: MPI's launcher starts the ranks, because MPI has no other way to find them.
 *
 *   tutti-run --mpi -n 4 PROGRAM                 handles signals and --timeout, and starts mpirun
 *     mpirun -n 4 tutti-run --mpi-rank PROGRAM   starts one rank, prefixes or files its output, and reports its end
 *       PROGRAM                                  is the rank */
#ifndef RUN_MPI_H
#define RUN_MPI_H

#include "options.h"

/* Replaces the program in `options` by MPI's launcher with its arguments, the hosts among them.  Returns the launcher's
 * name, or NULL after a message on stderr.  The allocations are never freed. */
const char *mpi_start_instead(struct options *options);

/* Reads this process's rank from the variables of MPI's launcher, and ties its end to the launcher's.  Returns 0, or -1
 * after a message on stderr. */
int mpi_take_rank(struct options *options);

/* Reports a failure to MPICH's launcher, with PMI-1's abort.  Otherwise that launcher would ignore a rank that fails
 * before MPI_Init. */
void mpi_report_failure(int status);

#endif
