/* Exchange of a text between the ranks, with one implementation per kind of launcher. */
#ifndef LAUNCHER_EXCHANGE_H
#define LAUNCHER_EXCHANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* PMIx (Open MPI's mpirun, srun --mpi=pmix), PMI-1 (MPICH's mpiexec), and a unix socket for torchrun.  Rank 0 passes
 * text, and the other ranks receive it; capacity includes the final zero.  All ranks call with the same key, which is
 * used once.  Returns BACKEND if the launcher does not respond as specified. */
struct launcher_exchange {
    const char *name;
    bool (*present)(void); /* reads the environment; opens nothing */
    int (*share)(int rank, const char *key, char *text, size_t capacity, int64_t timeout_ms);
};

extern const struct launcher_exchange launcher_pmix, launcher_pmi1, launcher_torchrun;

/* True if MPICH's mpiexec has started this very process.  An outer mpiexec leaves its variables too, but a launcher in
 * between has closed PMI_FD, whose number may be another file by now. */
bool launcher_pmi1_is_last(void);

#endif
