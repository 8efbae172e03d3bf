/* What each launcher offers for the exchange of the store's address. */
#ifndef LAUNCHER_EXCHANGE_H
#define LAUNCHER_EXCHANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The boards: PMIx (Open MPI's mpirun, srun --mpi=pmix), PMI-1 (MPICH's mpiexec), and one for torchrun.  Rank 0 hands
 * text in, the others get it; capacity includes the final zero.  All ranks call with the same key, which is used once.
 * BACKEND: the launcher does not do its part. */
struct launcher_exchange {
    const char *name;
    bool (*present)(void); /* by the environment; opens nothing */
    int (*share)(int rank, const char *key, char *text, size_t capacity, int64_t timeout_ms);
};

extern const struct launcher_exchange launcher_pmix, launcher_pmi1, launcher_torchrun;

/* Whether MPICH's mpiexec has started this very process: what it was started by has left its variables, too, and where
 * another launcher has come in between, that has closed the wire, whose number may be another file's by now. */
bool launcher_pmi1_is_last(void);

#endif
