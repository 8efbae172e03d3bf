/* Topology exchange: provides what the choice of algorithms depends on, the job's tuning file, the hosts of the ranks
 * and the speed of the links. */
#ifndef TOPOLOGY_H
#define TOPOLOGY_H

struct tutti_group;

/* Publishes the algorithms named by the first rank that arrives.  Must be called before the backends are opened. */
int topology_publish(struct tutti_group *group);

/* Returns an error if this rank names other algorithms than the first one.  Otherwise the ranks would wait for each
 * other forever, or take each other's messages for their own. */
int topology_check_alike(const struct tutti_group *group);

/* Finds the hosts, lets rank 0 measure and publish the rest, and reads it, after the backends have been opened. */
int topology_read(struct tutti_group *group);

void topology_free(struct tutti_group *group);

#endif
