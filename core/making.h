/* How the members of a group that is made from another one agree on it.
 *
 * The member of the lowest rank leads.  Each other one hands in its card: the ordered list of members, the backends,
 * and whether it is able to.  The leader gives one verdict for all: why the group cannot be made, or what its backends
 * offer (such as the place of a group's memory), which all members then use.  All of it are messages between the ranks
 * of the family's first group (`tell` in the ABI), so they arrive wherever the group's own backends are not open yet.
 *
 * Members whose lists have other leaders meet, too: a card that comes to a rank that does not lead the group, or is not
 * in it, is answered with what differs.  A leader that waits asks those who have not come, who answer with their card
 * for that number, or with what they are doing.  Nobody gives up on its own: a member whose time is over asks the
 * leader to decide, so that the verdict is one.
 *
 * Where only the members call, they may make several groups in different orders, so they cannot wait for each other
 * then.  If the backends need nobody to open a group (TUTTI_BACKEND_OPENS_ALONE), such a group is pending until its
 * first use, which waits for the verdict.
 */
#ifndef MAKING_H
#define MAKING_H

#include "group.h"

struct making;

/* Whether the ranks of the family can agree so: their first backend of CPU tensors has `tell`. */
bool making_is_possible(const struct tutti_group *root);

/* Begins: hands in this rank's card, or collects the others'.  ready is why this rank cannot, with its sentence as the
 * thread's error.  group->making is set; on an error there is none, and the others have been told. */
int making_begin(struct tutti_group *group, const struct group_args *args, int ready);

/* Waits for the verdict, then forgets group->making unless it is TUTTI_OK. */
int making_wait(struct tutti_group *group);

/* What the i-th of the backends offers; NULL: nothing. */
const uint8_t *making_offer(const struct tutti_group *group, int i);

/* The arguments of a group that is pending. */
const struct group_args *making_args(const struct tutti_group *group);

/* This rank calls as one that is not in the group. */
void making_abstain(struct tutti_group *parent, const int *ranks, int n, const struct names *names, uint64_t key,
                    uint64_t number);

/* The group is made, or never will be.  Under the lock. */
void making_end(struct tutti_group *group);

/* This rank gives up a group that is pending, or cannot open one that the others have been told to: they hear of it.
 * Under the lock. */
void making_give_up(struct tutti_group *group, int status, const char *text);

/* Destroys what the family has of it; a group that is about to be freed is not mentioned any more.  Under the lock. */
void making_forget(struct tutti_group *group);
void making_free_all(struct tutti_group *root);

/* A peer is gone for good; a group that others are made from has failed.  Under the lock. */
void making_peer_lost(struct tutti_group *root, int peer, bool left, const char *text);
void making_parent_failed(struct tutti_group *parent, int status, const char *text);

/* A message came in; core is the family's first group. */
void making_notified(struct tutti_group *root, int peer, const void *message, size_t bytes);

#endif
