/* Deadlines of operations: asks the peers that a late operation waits for, warns, and ends it when its time is up. */
#ifndef DEADLINE_H
#define DEADLINE_H

#include <stdint.h>

struct engine;

/* Checks the operations under way if one is due.  Returns the time of the next check.  See
 * engine_hooks.check_deadlines. */
int64_t deadline_check(struct engine *engine, int64_t now);

#endif
