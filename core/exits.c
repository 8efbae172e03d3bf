#include "exits.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "engine.h"

enum { TRY_US = 1000, TRIES = 300 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static LIST_HEAD(, engine) engines = LIST_HEAD_INITIALIZER(engines);

/* Other threads may be in the midst of calls, and never come back from them. */
static bool try_lock(pthread_mutex_t *mutex)
{
    for (int i = 0; i < TRIES; i++) {
        if (pthread_mutex_trylock(mutex) == 0) return true;
        usleep(TRY_US);
    }
    return false;
}

static void leave(struct engine *engine)
{
    if (engine_is_forked(engine) || !try_lock(&engine->lock)) return;
    for (int i = 0; i < engine->n_sources; i++)
        if (TUTTI_HAS(engine->source[i].backend, leave)) engine->source[i].backend->leave(engine->source[i].state);
    pthread_mutex_unlock(&engine->lock);
}

static void leave_all(void)
{
    struct engine *engine;
    if (!try_lock(&lock)) return;
    LIST_FOREACH(engine, &engines, exits_link) leave(engine);
    pthread_mutex_unlock(&lock);
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
    pthread_mutex_lock(&lock);
    LIST_INSERT_HEAD(&engines, engine, exits_link);
    engine->watches_exit = true;
    pthread_mutex_unlock(&lock);
}

void exits_remove(struct engine *engine)
{
    if (!engine->watches_exit) return;
    pthread_mutex_lock(&lock);
    LIST_REMOVE(engine, exits_link);
    engine->watches_exit = false;
    pthread_mutex_unlock(&lock);
}
