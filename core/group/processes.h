/* The processes of a group's ranks, as listed in its store. */
#ifndef PROCESSES_H
#define PROCESSES_H

struct tutti_group;

/* Publishes this process in the group's store, and sets group->turn, which separates this group's keys from those of
 * earlier groups. */
int processes_publish(struct tutti_group *group);

/* Returns PEER_LOST, naming the rank, if a member's process on this host has ended. */
int processes_check(struct tutti_group *group);

#endif
