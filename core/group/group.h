/* Process groups: how they are made and closed. */
#ifndef GROUP_H
#define GROUP_H

#include "progress/engine.h"
#include "state/group_state.h"

struct group_args;

int group_open(const struct group_args *args, struct tutti_group **group);

/* Waits until a pending group is made.  If it cannot be made, it fails. */
void group_settle(struct tutti_group *group);

/* Returns a handle for a non-member. */
int group_open_non_member(struct tutti_group *parent, const char *name, struct tutti_group **group);

/* Counts the groups that members alone have made of a list of members, by its hash.  Returns the number, with this one.
 */
uint64_t group_count_use(struct tutti_group *parent, uint64_t hash);

/* Ends the group's operations (waiting up to 2 s), waits up to delivery_ms until peers have received what was sent
 * (TUTTI_DEFAULT_TIMEOUT: the group's timeout), closes the backends and drops the handle's reference. */
void group_close(struct tutti_group *group, int64_t delivery_ms);

/* Keeps the group's memory until group_drop, though another thread may close it.  Call group_drop without the lock. */
void group_hold(struct tutti_group *group);
void group_drop(struct tutti_group *group);

/* Checks the device that a call gives for a new group; type 0: none. */
int group_check_device(const char *doing, tutti_device device);

#endif
