/* What the choice of algorithms needs to know of a group: the job's tuning file, and who is on which host. */
#ifndef TOPOLOGY_H
#define TOPOLOGY_H

struct tutti_group;

/* Before the backends are opened: rank 0 hands the tuning out; the first rank to come says which algorithms are named.
 */
int topology_give(struct tutti_group *group);

/* Whether this rank has named the same as the first: where they differ ranks would wait for each other for good, or
 * take each other's messages for what they are not. */
int topology_agree(const struct tutti_group *group);

/* Afterwards. */
int topology_take(struct tutti_group *group);

void topology_forget(struct tutti_group *group);

#endif
