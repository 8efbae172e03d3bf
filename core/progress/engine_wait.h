/* Makes callers wait for operations.
 *
 * A waiting caller polls the backends itself, spins a little if its rank has a core, and then sleeps on the backends'
 * descriptors.  If several threads wait, one polls and the others sleep on a condition.  While other threads call, none
 * polls: engine_step sees arrivals, and the waiting threads check regularly. */
#ifndef ENGINE_WAIT_H
#define ENGINE_WAIT_H

#include <stdbool.h>
#include <stdint.h>

struct engine;
struct tutti_work;

/* Makes progress until work has ended or the deadline has passed.  Returns true if work has ended.  Lock held. */
bool engine_wait(struct engine *engine, struct tutti_work *work, int64_t deadline_ns);

/* Does the same for any of n works.  Returns the index of one that has ended, or -1. */
int engine_wait_any(struct engine *engine, struct tutti_work *const *works, int n, int64_t deadline_ns);

#endif
