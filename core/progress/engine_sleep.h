/* Sleeps on the backends' descriptors. */
#ifndef ENGINE_SLEEP_H
#define ENGINE_SLEEP_H

#include <stdbool.h>
#include <stdint.h>

#include "progress/engine.h"

enum {
    ENGINE_WATCH_MS = 50,      /* time without calls after which the thread sleeps on the backends */
    ENGINE_DISOWNED_US = 1000, /* length of a sleep if the program has closed the engine's descriptors */
    ENGINE_LOCK_TRIES = 100    /* yields in favor of threads that want the lock */
};

/* Sleeps until a backend has an event, another thread calls, or timeout_ms (-1: no limit) has passed.  Releases the
 * lock and returns without it; polling[who] is still set then.  Returns true if another thread called. */
bool engine_sleep(struct engine *engine, enum engine_poller who, int timeout_ms);

/* Tries to take the lock without sleeping for it, and lets callers that want it go first.  A caller in a tight loop
 * holds it nearly all the time, and each release would wake the thread in vain. */
bool engine_sleep_try_lock(struct engine *engine);

/* Returns the maximum length of a sleep until deadline_ns, in milliseconds.  It is limited because stragglers are asked
 * regularly. */
int engine_sleep_ms(int64_t deadline_ns);

/* Reads the eventfd that ended a sleep. */
void engine_sleep_take_wake(struct engine *engine, enum engine_poller who);

#endif
