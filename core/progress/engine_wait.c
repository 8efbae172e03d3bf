#include "progress/engine_wait.h"

#include <sched.h>

#include "base/clock.h"
#include "portable/waits.h"
#include "progress/engine.h"
#include "progress/engine_sleep.h"
#include "progress/engine_step.h"
#include "progress/work.h"

enum {
    QUIET_MS = 1, /* time without calls of other threads after which a waiting caller polls */
    SPINS_LEAST = 2,
    SPINS_TRY_EVERY = 32,
    LONG_YIELD_NS = 2000000, /* only a process that computes keeps a core that long */
    KEEP_CORE_NS = 30000000
};

/* State of one waiting caller. */
struct wait {
    uint64_t calls; /* engine->calls at its last check */
    bool polled;
};

/* Sleeps until engine_wake_waiters, for callers that do not poll. */
static void sleep_on_condition(struct engine *engine, int ms)
{
    struct timespec until = clock_timespec(clock_deadline_ns(ms));
    engine->n_sleepers++;
    engine->stats->sleeps++;
    pthread_mutex_lock(&engine->sleep_lock);
    lock_give(&engine->lock);
    waits_condition(&engine->changed, &engine->sleep_lock, &until);
    pthread_mutex_unlock(&engine->sleep_lock);
    engine_lock(engine);
    engine->n_sleepers--;
}

static int find_ended(struct tutti_work *const *works, int n)
{
    for (int i = 0; i < n; i++)
        if (works[i] != NULL && work_ended(works[i])) return i;
    return -1;
}

/* Runs the callbacks of ended works and lets other threads take the lock, between two rounds of a long wait. */
static void let_others_in(struct engine *engine)
{
    if (!lock_is_wanted(&engine->lock) && TAILQ_EMPTY(&engine->callbacks)) return;
    engine_unlock(engine);
    for (int i = 0; i < ENGINE_LOCK_TRIES && lock_is_wanted(&engine->lock); i++) sched_yield();
    engine_lock(engine);
}

/* Adapts the number of rounds to their success.  Cores may be busy with other work, so that a peer runs only when it is
 * given this core, and peers may be far away.  Regularly the full number is tried, to notice when this changes. */
static void adapt_spins(struct engine *engine, int spun, bool moved)
{
    if (!engine->own_core) return;
    if (moved && spun <= engine->spins)
        engine->spins = spun * 2 > engine->spins ? spun * 2 : engine->spins;
    else
        engine->spins = ++engine->n_useless_spins % SPINS_TRY_EVERY == 0 ? engine->spins_max : engine->spins / 2;
    if (engine->spins > engine->spins_max) engine->spins = engine->spins_max;
    if (engine->spins < SPINS_LEAST) engine->spins = SPINS_LEAST;
}

/* Yields the core.  If every rank has its own core, only other processes can take it, and one that computes keeps it
 * for its whole time slice.  A rank that has met such a process does not yield for a while.  It soon sleeps instead,
 * and the kernel gives the core back as soon as a peer wakes it. */
static void yield_core(struct engine *engine)
{
    int64_t begin = engine->own_core ? clock_now_ns() : 0;
    if (begin < engine->keeps_core_until_ns) return;
    sched_yield();
    if (engine->own_core && clock_now_ns() - begin > LONG_YIELD_NS) engine->keeps_core_until_ns = begin + KEEP_CORE_NS;
}

/* Sleeps until there may be something to do.  One caller polls.  While other threads call, none does: their rounds see
 * what arrives, and cancel the backends' promise to wake the poller. */
static void sleep_as_caller(struct engine *engine, int ms, struct wait *wait)
{
    if (engine->polling[POLLER_CALLER]) {
        sleep_on_condition(engine, ms);
    } else if (engine->calls != wait->calls) {
        wait->calls = engine->calls;
        sleep_on_condition(engine, ms < QUIET_MS ? ms : QUIET_MS);
    } else {
        engine_sleep(engine, POLLER_CALLER, ms);
        engine_lock(engine);
        engine->polling[POLLER_CALLER] = false;
        wait->polled = true;
    }
}

int engine_wait_any(struct engine *engine, struct tutti_work *const *works, int n, int64_t deadline_ns)
{
    int spun = 0, index = -1;
    struct wait wait = {.calls = engine->calls};
    engine->callers++;
    engine->stats->waits++;
    while ((index = find_ended(works, n)) < 0) {
        bool moved = engine_step(engine);
        let_others_in(engine);
        if (engine->now_ns >= deadline_ns) {
            index = find_ended(works, n);
            break;
        }
        if (moved) {
            if (spun > 0) adapt_spins(engine, spun, true);
            spun = 0;
            continue;
        }
        if (spun++ < engine->spins) continue;
        if (spun <= engine->spins + engine->yields) {
            yield_core(engine);
            continue;
        }
        adapt_spins(engine, spun, false);
        spun = 0;
        if ((index = find_ended(works, n)) >= 0) break;
        int64_t now = clock_now_ns();
        if (now >= deadline_ns) break;
        int64_t next = engine->hooks->check_deadlines(engine, now);
        if ((index = find_ended(works, n)) >= 0) break;
        for (int i = 0; i < n; i++)
            if (works[i] != NULL) works[i]->awaited = true;
        sleep_as_caller(engine, engine_sleep_ms(next < deadline_ns ? next : deadline_ns), &wait);
    }
    engine->callers--;
    if (wait.polled) engine_wake_sleepers(engine); /* one of the sleepers must poll */
    return index;
}

bool engine_wait(struct engine *engine, struct tutti_work *work, int64_t deadline_ns)
{
    return engine_wait_any(engine, &work, 1, deadline_ns) == 0;
}
