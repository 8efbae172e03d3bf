/* How callers wait for operations.
 *
 * A waiting caller polls the backends itself, spins a little if its rank has a core, and then sleeps on the backends'
 * descriptors.  Of several waiting threads one polls and the others sleep on a condition.  While other threads call,
 * none polls: engine_step sees what arrives, and the waiting threads look now and then. */
#ifndef ENGINE_WAIT_H
#define ENGINE_WAIT_H

#include <stdbool.h>
#include <stdint.h>

struct engine;
struct tutti_work;

/* Makes progress until work has ended or the deadline has passed.  Returns whether work has ended.  Lock held. */
bool engine_wait(struct engine *engine, struct tutti_work *work, int64_t deadline_ns);

/* The same for any one of n works.  Returns its index, or -1. */
int engine_wait_any(struct engine *engine, struct tutti_work *const *works, int n, int64_t deadline_ns);

#endif
