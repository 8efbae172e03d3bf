#include "base/cores.h"

#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>
#include <unistd.h>

static int count_cores(pid_t pid)
{
    cpu_set_t mask;
    return sched_getaffinity(pid, sizeof mask, &mask) == 0 ? CPU_COUNT(&mask) : 1;
}

static pid_t find_parent(pid_t pid)
{
    char path[40];
    int parent = -1;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    if (file != NULL && fscanf(file, "%*d %*[^)]) %*c %d", &parent) != 1) parent = -1;
    if (file != NULL) fclose(file);
    return parent;
}

/* True if the launcher has bound this rank to a part of its own cores, which suffice for all ranks. */
static bool is_bound_by(pid_t launcher, int cores, int local_world_size)
{
    int all = count_cores(launcher);
    return cores < all && local_world_size <= all;
}

/* Counts the cores of the affinity masks.  Looks at two ancestors, because tutti-run --mpi may be in between. */
bool cores_are_own(int local_world_size)
{
    int cores = count_cores(0);
    pid_t parent = getppid();
    if (local_world_size < 1 || local_world_size <= cores) return local_world_size > 0;
    return is_bound_by(parent, cores, local_world_size) || is_bound_by(find_parent(parent), cores, local_world_size);
}

/* Moves the thread to its share of the cores.  Does nothing with more cores than ranks: the kernel knows better which
 * cores share caches and execution units. */
void cores_start_even(int local_rank, int local_world_size)
{
    cpu_set_t mask, one;
    if (local_rank < 0 || local_world_size < 2 || sched_getaffinity(0, sizeof mask, &mask) != 0) return;
    int cores = CPU_COUNT(&mask), target = (int)((int64_t)local_rank * cores / local_world_size);
    if (cores < 2 || cores > local_world_size) return;
    for (int cpu = 0, nth = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &mask) || nth++ != target) continue;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        if (sched_setaffinity(0, sizeof one, &one) == 0) sched_setaffinity(0, sizeof mask, &mask);
        return;
    }
}
