/* Calls in progress are counted by turn: each tutti_set_logger begins a turn, and waits for the calls of the turn
 * before.  So it does not wait for calls of the new logger. */
#include "base/log_logger.h"

#include <pthread.h>

static struct {
    pthread_mutex_t lock; /* never held during a call */
    pthread_cond_t changed;
    tutti_logger function;
    void *argument;
    bool setting; /* a thread is in log_logger_set */
    unsigned turn;
    int running[2]; /* calls in progress, by turn modulo 2 */
} logger = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static _Thread_local int inside; /* 1 + the turn modulo 2 of the call that this thread is in; 0: none */

/* A fork waits until the lock is free, so that the child can take it. */
static void before_fork(void)
{
    pthread_mutex_lock(&logger.lock);
}

static void in_parent(void)
{
    pthread_mutex_unlock(&logger.lock);
}

/* Keeps the logger.  The child's one thread may be inside it; the parent's other threads do not exist here. */
static void in_child(void)
{
    logger.setting = false;
    for (int i = 0; i < 2; i++) logger.running[i] = inside == 1 + i;
    pthread_cond_init(&logger.changed, NULL);
    pthread_mutex_unlock(&logger.lock);
}

static void watch_forks(void)
{
    pthread_atfork(before_fork, in_parent, in_child);
}

static void lock_logger(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&logger.lock);
}

bool log_logger_set(tutti_logger function, void *argument)
{
    if (inside != 0) return false;
    lock_logger();
    while (logger.setting) pthread_cond_wait(&logger.changed, &logger.lock);
    logger.setting = true;
    int before = (int)(logger.turn++ % 2);
    logger.function = function;
    logger.argument = argument;
    while (logger.running[before] > 0) pthread_cond_wait(&logger.changed, &logger.lock);
    logger.setting = false;
    pthread_cond_broadcast(&logger.changed);
    pthread_mutex_unlock(&logger.lock);
    return true;
}

bool log_logger_call(const tutti_log_line *line)
{
    if (inside != 0) return false;
    lock_logger();
    tutti_logger function = logger.function;
    void *argument = logger.argument;
    int turn = (int)(logger.turn % 2);
    if (function != NULL) logger.running[turn]++;
    pthread_mutex_unlock(&logger.lock);
    if (function == NULL) return false;
    inside = 1 + turn;
    function(line, argument);
    inside = 0;
    pthread_mutex_lock(&logger.lock);
    if (--logger.running[turn] == 0) pthread_cond_broadcast(&logger.changed);
    pthread_mutex_unlock(&logger.lock);
    return true;
}
