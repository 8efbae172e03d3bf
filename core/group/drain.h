/* Delivers data at the end of a group.  Data of a completed send or collective must arrive unless the receiver is gone.
 * So a group is closed only after its backends report that every peer has received what was sent to it. */
#ifndef DRAIN_H
#define DRAIN_H

#include <stdint.h>

struct engine;
struct tutti_group;

/* Waits until the group's peers have received everything, the deadline has passed, or the group has failed.  Called
 * after the group's operations have ended.  Takes the engine's lock itself. */
void drain_group(struct tutti_group *group, int64_t deadline_ns);

/* Does the same for a process that exits without destroying its groups, with the first group's timeout.  The caller
 * holds the lock throughout, so other threads may block on it until the process has ended. */
void drain_at_exit(struct engine *engine);

#endif
