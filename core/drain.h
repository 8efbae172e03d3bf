/* Delivery at the end of a group: what a send or a collective has reported as complete arrives, unless its receiver is
 * gone.  The group therefore stays until its backends say that every peer has received what was sent to it. */
#ifndef DRAIN_H
#define DRAIN_H

#include <stdint.h>

struct engine;
struct tutti_group;

/* Waits until the group's peers have received what was sent to them, the deadline has passed or the group has failed.
 * Its operations have ended.  Without the lock. */
void drain_group(struct tutti_group *group, int64_t deadline_ns);

/* The same for a process that ends without destroying its groups, with the first group's timeout.  Under the lock,
 * which other threads may want for ever. */
void drain_at_exit(struct engine *engine);

#endif
