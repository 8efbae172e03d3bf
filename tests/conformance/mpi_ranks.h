/* A rank of test_mpi, as mpirun or mpiexec starts it: it has a tcp group of all ranks and an mpi group of the same
 * ranks.  It prints what went wrong and returns 1. */
#ifndef TESTS_MPI_RANKS_H
#define TESTS_MPI_RANKS_H

#include <stdio.h>
#include <tutti/tutti.h>

enum { MPI_RANKS_MOST = 300000 }; /* elements */

extern struct mpi_ranks {
    int rank, size;
    tutti_group *mpi; /* the default group is over tcp */
    tutti_store *store;
    char *in, *out[2]; /* of the operation under test: over tcp, over mpi */
} mpi_ranks;

#define SHOULD(call, status)                                                                                           \
    do {                                                                                                               \
        int got_ = (call);                                                                                             \
        if (got_ != (status)) {                                                                                        \
            fprintf(stderr, "rank %d, line %d: %s returned %d: %s\n", mpi_ranks.rank, __LINE__, #call, got_,           \
                    tutti_last_error());                                                                               \
            return 1;                                                                                                  \
        }                                                                                                              \
    } while (0)
#define OK(call) SHOULD(call, TUTTI_OK)

/* Prints what is wrong and returns 1. */
int mpi_ranks_wrong(const char *what, const char *detail);

/* Makes both groups. */
int mpi_ranks_open(void);

/* Runs everything: operations over both groups, then the properties of mpi alone: order, mismatch, timeouts, groups. */
int mpi_ranks_main(void);

/* Runs every operation over both groups on the same random bits, and compares the results bit by bit. */
int mpi_forms_compare(void);

#endif
