#include "progress/exits.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "progress/engine.h"

enum { TRY_US = 1000, TRIES = 300 };

static struct lock lock;
static LIST_HEAD(, engine) engines = LIST_HEAD_INITIALIZER(engines);

/* Other threads may be in the midst of calls, and never come back from them. */
static bool try_lock(struct lock *which)
{
    for (int i = 0; i < TRIES; i++) {
        if (lock_try(which)) return true;
        usleep(TRY_US);
    }
    return false;
}

static void leave(struct engine *engine)
{
    if (engine_is_forked(engine) || !try_lock(&engine->lock)) return;
    engine->hooks->drain_at_exit(engine);
    for (int i = 0; i < engine->n_sources; i++)
        if (TUTTI_HAS(engine->source[i].backend, leave)) engine->source[i].backend->leave(engine->source[i].state);
    lock_give(&engine->lock);
}

static void leave_all(void)
{
    struct engine *engine;
    if (!try_lock(&lock)) return;
    LIST_FOREACH(engine, &engines, exits_link) leave(engine);
    lock_give(&lock);
}

/* Not from a destructor of the library: the backends' libraries may be gone by then. */
static void watch_exits(void)
{
    atexit(leave_all);
}

void exits_add(struct engine *engine)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_exits);
    lock_take(&lock);
    LIST_INSERT_HEAD(&engines, engine, exits_link);
    engine->watches_exit = true;
    lock_give(&lock);
}

void exits_remove(struct engine *engine)
{
    if (!engine->watches_exit) return;
    lock_take(&lock);
    LIST_REMOVE(engine, exits_link);
    engine->watches_exit = false;
    lock_give(&lock);
}
