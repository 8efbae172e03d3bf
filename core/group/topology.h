/* Topology exchange: what the choice of algorithms needs to know of a group, which is the job's tuning file and the
 * hosts of its ranks. */
#ifndef TOPOLOGY_H
#define TOPOLOGY_H

struct tutti_group;

/* Publishes rank 0's tuning file and the algorithms named by the first rank that arrives.  Call it before the backends
 * are opened. */
int topology_publish(struct tutti_group *group);

/* Returns an error if this rank names other algorithms than the first one: the ranks would wait for each other forever,
 * or mistake each other's messages. */
int topology_check_alike(const struct tutti_group *group);

/* Reads what was published, after the backends have been opened. */
int topology_read(struct tutti_group *group);

void topology_free(struct tutti_group *group);

#endif
