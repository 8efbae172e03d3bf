#include "progress/engine_sleep.h"

#include <sched.h>
#include <unistd.h>

#include "base/clock.h"
#include "portable/waits.h"
#include "portable/wake.h"

enum {
    SLEEP_MOST_MS = 100,
    SETTLE_NS = 100000, /* length of the first sleep on the backends: see arm in backend.h */
    NO_FD_US = 50       /* length of a sleep if a backend has no descriptor */
};

int engine_sleep_ms(int64_t deadline_ns)
{
    int left = clock_left_ms(deadline_ns);
    return left < 0 || left > SLEEP_MOST_MS ? SLEEP_MOST_MS : left;
}

void engine_sleep_take_wake(struct engine *engine, enum engine_poller who)
{
    if (engine_is_disowned(engine)) return;
    wake_take(engine->wake_fd[who]);
    engine->wake_sent[who] = false;
}

/* Returns the number of descriptors to poll, 0 if something has arrived already, or -1 if a backend has none. */
static int arm_backends(struct engine *engine, enum engine_poller who, struct pollfd *polled)
{
    int n = 0;
    for (int i = 0; i < engine->n_sources; i++) {
        int descriptors[TUTTI_ARM_MAX];
        const tutti_backend *backend = engine->source[i].backend;
        if (!TUTTI_HAS(backend, arm)) {
            if (TAILQ_EMPTY(&engine->active)) continue;
            return -1;
        }
        int found = backend->arm(engine->source[i].state, descriptors);
        if (found <= 0) return 0;
        for (int k = 0; k < found; k++) polled[n++] = (struct pollfd){descriptors[k], POLLIN, 0};
    }
    polled[n++] = (struct pollfd){engine->wake_fd[who], POLLIN, 0};
    return n;
}

bool engine_sleep_try_lock(struct engine *engine)
{
    for (int i = 0; i < ENGINE_LOCK_TRIES; i++) {
        if (!lock_is_wanted(&engine->lock) && lock_try(&engine->lock)) {
            engine_settle(engine);
            return true;
        }
        sched_yield();
    }
    return false;
}

/* Arms the backends again after a moment, because they may have missed an arrival while they checked. */
static int arm_again(struct engine *engine, enum engine_poller who, struct pollfd *polled)
{
    if (who == POLLER_CALLER)
        engine_lock(engine);
    else if (!engine_sleep_try_lock(engine))
        return 0;
    int n = arm_backends(engine, who, polled);
    lock_give(&engine->lock);
    return n;
}

/* Fails all groups and sleeps for a fixed time, because the program has closed the engine's descriptors. */
static bool sleep_disowned(struct engine *engine, enum engine_poller who)
{
    if (engine->first != NULL) engine->hooks->fail_disowned(engine->first);
    lock_give(&engine->lock);
    usleep(who == POLLER_CALLER ? ENGINE_DISOWNED_US : ENGINE_WATCH_MS * 1000);
    return false;
}

bool engine_sleep(struct engine *engine, enum engine_poller who, int timeout_ms)
{
    struct pollfd *polled = engine->polled[who];
    if (engine_is_disowned(engine)) return sleep_disowned(engine, who);
    int n = arm_backends(engine, who, polled), found = 0;
    engine->stats->sleeps++;
    engine->polling[who] = n != 0;
    lock_give(&engine->lock);
    if (n > 0) found = waits_poll(polled, (nfds_t)n, SETTLE_NS); /* EINTR costs one extra round */
    if (n > 0 && found == 0 && timeout_ms != 0) {
        n = arm_again(engine, who, polled);
        if (n > 0) found = poll(polled, (nfds_t)n, timeout_ms);
    }
    if (n < 0) usleep(NO_FD_US);
    if (n <= 0 || found <= 0 || (polled[n - 1].revents & POLLIN) == 0) return false;
    engine_sleep_take_wake(engine, who);
    return true;
}
