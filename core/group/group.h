/* Process groups: how they are made and closed. */
#ifndef GROUP_H
#define GROUP_H

#include "progress/engine.h"
#include "state/group_state.h"

struct group_args;

int group_open(const struct group_args *args, struct tutti_group **group);

/* Waits until a pending group has been made.  If it cannot be made, it fails. */
void group_settle(struct tutti_group *group);

/* Returns a handle for a non-member. */
int group_open_non_member(struct tutti_group *parent, const char *name, struct tutti_group **group);

/* Counts the groups made with members_only of a list of members, given its hash.  Returns the number, including this
 * one.
 */
uint64_t group_count_use(struct tutti_group *parent, uint64_t hash);

/* Ends the group's operations (waiting up to 2 s) and waits up to delivery_ms until peers have received what was sent
 * (TUTTI_DEFAULT_TIMEOUT: the group's timeout).  Then closes the backends.  group_close also drops the handle's
 * reference. */
void group_end(struct tutti_group *group, int64_t delivery_ms);
void group_close(struct tutti_group *group, int64_t delivery_ms);

/* Keeps the group's memory until group_drop, even if another thread closes it.  group_drop must be called without the
 * lock. */
void group_hold(struct tutti_group *group);
void group_drop(struct tutti_group *group);

/* Checks the device that a call passes for a new group.  Type 0 means none. */
int group_check_device(const char *doing, tutti_device device);

#endif
