/* The cores that the ranks of a host have. */
#ifndef CORES_H
#define CORES_H

#include <stdbool.h>

/* Whether each of the host's ranks has a core of its own.  Spinning pays there; elsewhere it takes the core from the
 * one waited for. */
bool cores_are_own(int local_world_size);

/* Puts the calling threads of ranks that have just as many cores as they are on one each.  They are bound to nothing:
 * the kernel may move them, but two that have woken on one core stay there for many milliseconds while the other core
 * is idle, if both spin. */
void cores_start_apart(int local_rank, int local_world_size);

#endif
