/* --mpi: MPI's launcher starts the ranks, for MPI finds them in no other way.
 *
 *   tutti-run --mpi -n 4 PROGRAM        signals, --timeout; starts
 *     mpirun -n 4 tutti-run --mpi-rank PROGRAM      each prefixes or files its rank's output and says how it ended
 *       PROGRAM */
#ifndef RUN_MPI_H
#define RUN_MPI_H

#include "options.h"

/* Replaces the program by MPI's launcher with its arguments, to be started once.  Returns its name, or NULL after a
 * message on stderr.  Its allocations live as long as the process. */
const char *mpi_start_instead(struct options *options);

/* Finds this process's rank as MPI's launcher sets it, and ends with the launcher.  Returns 0, or -1 after a message on
 * stderr. */
int mpi_take_rank(struct options *options);

/* Tells MPICH's launcher about a failure (by PMI-1's abort).  Otherwise it goes on if a rank fails before it has begun
 * MPI. */
void mpi_tell_failure(int status);

#endif
