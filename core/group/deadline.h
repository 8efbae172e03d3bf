/* Deadlines of operations: asks the peers that a late operation waits for, warns, and ends it when its time is up. */
#ifndef DEADLINE_H
#define DEADLINE_H

#include <stdint.h>

struct engine;

/* Looks at each operation under way.  Returns when the next one is due.  See engine_hooks.check_deadlines. */
int64_t deadline_check(struct engine *engine, int64_t now);

#endif
