/* Ranks that a launcher of MPI or Slurm has started, and that were told no MASTER_ADDR, or torchrun, whose own store is
 * there: rank 0 starts Tutti's on a free port and tells the others where it is, over a board. */
#ifndef LAUNCHER_H
#define LAUNCHER_H

#include "bootstrap/rendezvous_place.h"

/* The boards: PMIx (Open MPI's mpirun, srun --mpi=pmix), PMI-1 (MPICH's mpiexec), and one for torchrun.  Rank 0 hands
 * text in, the others get it; capacity includes the final zero.  All ranks call with the same key, which is used once.
 * BACKEND: the launcher does not do its part. */
struct launcher_board {
    const char *name;
    bool (*present)(void); /* by the environment; opens nothing */
    int (*share)(int rank, const char *key, char *text, size_t capacity, int64_t timeout_ms);
};

extern const struct launcher_board launcher_pmix, launcher_pmi1, launcher_torchrun;

/* Whether MPICH's mpiexec has started this very process: what it was started by has left its variables, too, and where
 * another launcher has come in between, that has closed the wire, whose number may be another file's by now. */
bool launcher_pmi1_is_last(void);

/* Whether the launcher has a board. */
bool launcher_present(void);

/* Fills the place's host and port, and opens the store: its server too on rank 0. */
int launcher_open(struct place *place, int64_t timeout_ms, tutti_store **store);

#endif
