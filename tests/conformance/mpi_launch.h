/* Starts ranks with the launchers of the MPIs that the mpi backend was built for: "openmpi" and "mpich". */
#ifndef TESTS_MPI_LAUNCH_H
#define TESTS_MPI_LAUNCH_H

#include "tools/launch.h"

/* True if the backend was built for this MPI and its launcher is installed.  Prints what is missing otherwise. */
bool mpi_launch_has(const char *mpi);

/* Runs a program to its end under a launcher. `environment` has the form of a shell's assignments (A=1 B=2). */
void mpi_launch_run(const char *mpi, const char *environment, int ranks, const char *program, const char *argument,
                    struct launch *launch);

#endif
