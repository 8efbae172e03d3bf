/* --mpi: MPI's launcher starts the ranks, for MPI finds them in no other way.
 *
 *   tutti-run --mpi -n 4 PROGRAM        signals, --timeout; starts
 *     mpirun -n 4 tutti-run --mpi-rank PROGRAM      each prefixes or files its rank's output and says how it ended
 *       PROGRAM */
#ifndef RUN_MPI_H
#define RUN_MPI_H

#include "options.h"

/* Puts MPI's launcher, with its arguments, in the program's place, to be started once.  Its name; NULL after a sentence
 * on stderr.  What it allocates lives as long as the process. */
const char *mpi_start_instead(struct options *options);

/* Which rank this is, as MPI's launcher says; and that it ends with it.  0, or -1 after a sentence on stderr. */
int mpi_take_rank(struct options *options);

/* MPICH's launcher goes on when a rank fails that has not yet begun MPI, unless it is told (by PMI-1's word for it). */
void mpi_tell_failure(int status);

#endif
