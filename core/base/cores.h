/* Finds out whether the ranks of a host have cores of their own, and spreads their threads over the cores. */
#ifndef CORES_H
#define CORES_H

#include <stdbool.h>

/* True if each rank of the host has its own core.  Spinning pays only then: otherwise a spinning rank takes the core
 * from the rank that it waits for. */
bool cores_are_own(int local_world_size);

/* Returns how many cores the ranks of this host share, or 0 if each has one of its own. */
int cores_shared(int local_world_size);

/* Spreads the calling threads of a host's ranks evenly over the cores, neighbours together, if there are at least as
 * many ranks as cores.  Threads are not bound: the kernel may move them.  Without this, threads that woke on the same
 * core stay there for many milliseconds while they spin or yield to each other, and other cores are idle. */
void cores_start_even(int local_rank, int local_world_size);

#endif
