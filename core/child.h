/* A group of some of another one's ranks. */
#ifndef CHILD_H
#define CHILD_H

#include <tutti/tutti.h>

/* Ids of groups are mixed from the parent's and from what tells its children apart. */
uint64_t child_mix(uint64_t hash, uint64_t value);

/* Opens the group of n global ranks of the parent; a handle for an outsider where this rank is none of them.  color:
 * the same for those of the group; others have another one, or none and a negative number. */
int child_open(struct tutti_group *parent, const int *ranks, int n, uint64_t id, int color,
               const tutti_group_opts *opts, tutti_group **group);

#endif
