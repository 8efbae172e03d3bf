/* Sleeping on the backends' descriptors. */
#ifndef ENGINE_SLEEP_H
#define ENGINE_SLEEP_H

#include <stdbool.h>
#include <stdint.h>

#include "progress/engine.h"

enum {
    ENGINE_WATCH_MS = 50,      /* after this time without a call the thread sleeps on the backends */
    ENGINE_DISOWNED_US = 1000, /* sleep if the program has closed the engine's descriptors */
    ENGINE_LOCK_TRIES = 100    /* yields in favor of threads that want the lock */
};

/* Sleeps until a backend has something, another thread calls, or timeout_ms (-1: no limit) has passed.  Releases the
 * lock and returns without it; polling[who] is still set then.  Returns whether another thread called. */
bool engine_sleep(struct engine *engine, enum engine_poller who, int timeout_ms);

/* Takes the lock without ever sleeping for it, behind the callers that want it.  A caller in a tight loop holds it
 * nearly all the time, and each release would wake the thread in vain. */
bool engine_sleep_try_lock(struct engine *engine);

/* Returns how long to sleep at most until deadline_ns: stragglers are asked now and then. */
int engine_sleep_ms(int64_t deadline_ns);

/* Reads the eventfd that has ended a sleep. */
void engine_sleep_take_wake(struct engine *engine, enum engine_poller who);

#endif
