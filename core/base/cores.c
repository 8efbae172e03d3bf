#include "base/cores.h"

#include <stdint.h>
#include <sys/types.h>
#include <unistd.h>

#include "portable/cores.h"
#include "portable/process.h"

/* True if the launcher has bound this rank to a part of its own cores, which suffice for all ranks. */
static bool is_bound_by(pid_t launcher, int cores, int local_world_size)
{
    int all = cores_usable(launcher);
    return cores < all && local_world_size <= all;
}

/* Counts the cores of the affinity masks.  Looks at two ancestors, because tutti-run --mpi may be in between. */
bool cores_are_own(int local_world_size)
{
    int cores = cores_usable(0);
    pid_t parent = getppid();
    if (local_world_size < 1 || local_world_size <= cores) return local_world_size > 0;
    return is_bound_by(parent, cores, local_world_size) || is_bound_by(process_parent(parent), cores, local_world_size);
}

int cores_shared(int local_world_size)
{
    if (cores_are_own(local_world_size)) return 0;
    pid_t parent = getppid();
    int cores = cores_usable(0), above[] = {cores_usable(parent), cores_usable(process_parent(parent))};
    for (int i = 0; i < 2; i++) /* this rank may be bound to a part of them */
        if (above[i] > cores) cores = above[i];
    return cores;
}

/* Moves the thread to its share of the cores.  Does nothing with more cores than ranks: the kernel knows better which
 * cores share caches and execution units. */
void cores_start_even(int local_rank, int local_world_size)
{
    if (local_rank < 0 || local_world_size < 2) return;
    int cores = cores_usable(0);
    if (cores >= 2 && cores <= local_world_size) cores_move_to((int)((int64_t)local_rank * cores / local_world_size));
}
