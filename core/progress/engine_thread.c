#include "progress/engine_thread.h"

#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "portable/waits.h"
#include "progress/engine_sleep.h"
#include "progress/engine_step.h"

enum {
    UNARMED_MS = 20,      /* period of checks for control messages over a backend without arm, in an idle group */
    GRACE_US = 100,       /* time in which the caller may begin to wait before the thread polls */
    GRACE_MOST_US = 6400, /* it doubles up to this while callers make progress themselves */
    BUSY_US = 10,         /* a program that calls more often than this makes the rounds that it is left */
    ATTEND_US = 5000,     /* time without work or calls before the thread sleeps on the backends */
    CALLS_US = 100000,    /* time without work before it naps for longer, although callers call */
    ALERT_MS = 5          /* replaces ENGINE_WATCH_MS after a failure */
};

/* Sleeps without the lock.  Returns true if the thread was woken. */
static bool nap(struct engine *engine, int64_t ns)
{
    struct pollfd polled = {engine->wake_fd[POLLER_THREAD], POLLIN, 0};
    if (engine_is_disowned(engine)) polled.fd = -1;
    if (waits_poll(&polled, 1, ns) <= 0) return false; /* EINTR ends the sleep early */
    if (polled.revents & POLLNVAL) usleep(ENGINE_DISOWNED_US);
    engine_sleep_take_wake(engine, POLLER_THREAD);
    return true;
}

/* Runs a round, and sleeps on the backends if nothing moved.  Returns false once callers make progress themselves. */
static bool make_progress(struct engine *engine)
{
    if (engine->stopping || engine->callers > 0 || !engine_sleep_try_lock(engine)) return false;
    bool moved = engine_step(engine);
    int64_t next = moved ? 0 : engine->hooks->check_deadlines(engine, clock_now_ns());
    if (moved || !TAILQ_EMPTY(&engine->callbacks)) {
        engine_unlock(engine);
        return true;
    }
    int idle_ms = engine->n_unarmed > 0 ? UNARMED_MS : -1;
    bool called = engine_sleep(engine, POLLER_THREAD, engine->n_async > 0 ? engine_sleep_ms(next) : idle_ms);
    engine->polling[POLLER_THREAD] = false;
    return !called;
}

/* True if the thread leaves its round to the program's next asynchronous call.  Without spare cores it would take the
 * program's, and a switch of threads costs more than the round.  A program that calls again and again makes the rounds
 * itself.  If none comes until the next nap ends, the thread makes the round. */
static bool leaves_round(struct engine *engine, uint64_t calls)
{
    if (engine->n_async == 0 || engine->has_spare_cores) return false;
    /* relaxed: the lock orders the rounds */
    bool refused = atomic_exchange_explicit(&engine->offered, false, memory_order_relaxed);
    if (refused || engine->calls == calls) return false;
    atomic_store_explicit(&engine->offered, true, memory_order_relaxed);
    return true;
}

/* True for a while after a failure: control messages are then read without delay, although callers call. */
static bool is_alert(const struct engine *engine)
{
    return clock_now_ns() < engine->alert_until_ns;
}

static int lengthen(int us)
{
    return us < GRACE_MOST_US ? 2 * us : GRACE_MOST_US;
}

/* Makes progress on asynchronous operations while no caller does.  Returns when there have been none for a while. */
static void attend_works(struct engine *engine)
{
    int grace_us = GRACE_US, most_us = ATTEND_US;
    int busy_us = 0; /* time of the last nap behind a program that calls all the time; else 0 */
    for (int quiet_us = 0; !engine->stopping && quiet_us < most_us;) {
        /* relaxed: a hint; engine_thread_hurry also wakes the thread */
        bool hurried = atomic_exchange_explicit(&engine->hurried, false, memory_order_relaxed);
        uint64_t calls = engine->calls;
        int nap_us = busy_us > grace_us ? busy_us : grace_us;
        nap(engine, hurried ? 0 : nap_us * 1000);
        if (!hurried && leaves_round(engine, calls)) {
            bool busy = engine->calls - calls > (uint64_t)(nap_us / BUSY_US);
            busy_us = busy ? lengthen(nap_us) : 0;
            continue;
        }
        busy_us = 0;
        quiet_us = engine->n_async > 0 ? 0 : quiet_us + grace_us;
        most_us = engine->calls != calls && !is_alert(engine) ? CALLS_US : ATTEND_US;
        bool is_needed = engine->n_async > 0 && engine->callers == 0;
        grace_us = is_needed ? GRACE_US : lengthen(grace_us);
        while (engine->n_async > 0 && make_progress(engine)) continue;
    }
}

/* Answers peers' control messages until the next call. */
static void watch_messages(struct engine *engine)
{
    uint64_t calls = engine->calls;
    while (engine->calls == calls && engine->n_async == 0 && make_progress(engine)) continue;
}

/* Returns true after a while without calls, false if the thread was woken. */
static bool nap_until_quiet(struct engine *engine)
{
    bool alert = is_alert(engine); /* read after wake_sent was cleared: see engine_alert */
    uint64_t seen;
    do {
        seen = engine->calls;
        if (nap(engine, (int64_t)(alert ? ALERT_MS : ENGINE_WATCH_MS) * 1000000)) return false;
    } while (!alert && (seen != engine->calls || engine->callers > 0));
    return true;
}

static void *thread_main(void *argument)
{
    struct engine *engine = argument;
    while (!engine->stopping) {
        /* Cleared before n_async is read: engine_thread_notify reads `attending` after it has raised n_async. */
        engine->attending = false;
        engine->attending = engine->n_async > 0;
        if (engine->attending)
            attend_works(engine);
        else if (nap_until_quiet(engine))
            watch_messages(engine);
    }
    if (engine->frees_itself) engine_free(engine);
    return NULL;
}

void engine_thread_start(struct engine *engine)
{
    if (engine->has_thread) return;
    int error = thread_start(&engine->thread, thread_main, engine);
    engine->has_thread = error == 0;
    if (error != 0)
        log_write(LOG_WARN, LOG_OP,
                  "cannot start the progress thread (%s); asynchronous operations progress only in tutti_wait",
                  strerror(error));
}

void engine_thread_notify(struct engine *engine)
{
    engine_thread_start(engine);
    bool knows = engine->attending && !(engine->polling[POLLER_THREAD] && engine->n_async == 1);
    if (!knows) engine_wake(engine, POLLER_THREAD);
}

void engine_thread_hurry(struct engine *engine)
{
    /* relaxed: see attend_works */
    if (atomic_exchange_explicit(&engine->hurried, true, memory_order_relaxed)) return;
    engine_wake(engine, POLLER_THREAD);
}

void engine_take_round(struct engine *engine)
{
    if (!engine_has_offer(engine)) return;
    atomic_store_explicit(&engine->offered, false, memory_order_relaxed);
    engine_step(engine);
}
