/* The cores that the ranks of a host have. */
#ifndef CORES_H
#define CORES_H

#include <stdbool.h>

/* Whether each of the host's ranks has a core of its own.  Spinning pays there; elsewhere it takes the core from the
 * one waited for. */
bool cores_are_own(int local_world_size);

/* Spreads the calling threads of a host's ranks evenly over the cores, neighbours together, where there are not more
 * cores than ranks.  They are bound to nothing: the kernel may move them.  But those that have woken on one core stay
 * there for many milliseconds while they spin, or give it to each other, and another is idle or has fewer. */
void cores_start_even(int local_rank, int local_world_size);

#endif
