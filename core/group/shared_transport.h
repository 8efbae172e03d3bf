/* Groups made with a store share the transport between their ranks.
 *
 * A transport (listener, endpoints, segments, descriptors, thread) belongs to the first group of a tree.  The first
 * group that some ranks make with a store opens such a tree, whose first group has no handle, and becomes a child of
 * it.  A further group of the same ranks becomes another child.
 *
 * Which one is found through the store: each rank offers the numbers of the trees that it has with this rank, size,
 * backends and settings, and in which no rank is lost.  The last rank to arrive looks for a number that all have
 * offered.  Numbers are random: a tree of another job, or with a process that was replaced, has a number that not all
 * ranks offer. */
#ifndef SHARED_TRANSPORT_H
#define SHARED_TRANSPORT_H

#include "group/group.h"

/* Opens a group with args->store; args->parent is NULL.  Returns the errors of group_open. */
int shared_transport_open_group(const struct group_args *args, struct tutti_group **group);

/* Do group_end and group_close, and closes the transport after the last group on it. */
void shared_transport_end_group(struct tutti_group *group, int64_t delivery_ms);
void shared_transport_close_group(struct tutti_group *group, int64_t delivery_ms);

#endif
