/* Makes a new group of the survivors of a group and of newcomers. */
#ifndef REGROUP_H
#define REGROUP_H

#include "group/regroup_round.h"

/* Makes a group in place of one that was made with a store: fails it, and those made from it, on all ranks, meets the
 * other ranks, and opens the new group, as often as ranks die meanwhile.  timeout_ms is for ranks that do not come.
 * Returns ABORTED if the others have gone on without this rank, the errors of the store, and the error of opening the
 * group if trying again does not help. */
int regroup_group(struct tutti_group *old, int world_size, int64_t timeout_ms, struct tutti_group **next);

/* Joins such a group as a newcomer.  regroup has a store, args and a timeout; the rest is found out.  began_with is the
 * number of ranks of the first generation, or -1 if it is unknown.  Also returns TIMEOUT, if no survivor has come. */
int regroup_join(struct regroup *regroup, int began_with, struct tutti_group **next);

/* True if ranks wait to regroup with this group, which has a generation.  Asks the store now and then. */
bool regroup_is_wanted(struct tutti_group *group);

#endif
