#include "progress/exits.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/lock.h"

enum { TRY_US = 1000, TRIES = 300 };

static struct lock lock;
static LIST_HEAD(, exit_watch) watches = LIST_HEAD_INITIALIZER(watches);

bool exits_try_lock(struct lock *which)
{
    for (int i = 0; i < TRIES; i++) {
        if (lock_try(which)) return true;
        usleep(TRY_US);
    }
    return false;
}

static void call_all(void)
{
    struct exit_watch *watch;
    if (!exits_try_lock(&lock)) return;
    LIST_FOREACH(watch, &watches, link) watch->at_exit(watch);
    lock_give(&lock);
}

/* Registers with atexit, because the backends' libraries may be unloaded when a destructor of this library runs. */
static void watch_exits(void)
{
    atexit(call_all);
}

void exits_add(struct exit_watch *watch)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_exits);
    lock_take(&lock);
    LIST_INSERT_HEAD(&watches, watch, link);
    watch->is_added = true;
    lock_give(&lock);
}

void exits_remove(struct exit_watch *watch)
{
    if (!watch->is_added) return;
    lock_take(&lock);
    LIST_REMOVE(watch, link);
    watch->is_added = false;
    lock_give(&lock);
}
