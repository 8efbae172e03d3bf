#include "progress/engine.h"

#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cores.h"
#include "base/error.h"
#include "portable/waits.h"
#include "portable/wake.h"
#include "state/work_state.h"

enum {
    ALERT_FOR_MS = 2000,
    SPINS = 200,        /* rounds before sleeping if each rank has a core; a round polls every backend once */
    SPINS_SHARED = 0,   /* the same if ranks share cores: spinning takes the core from the awaited peer */
    YIELDS = 100,       /* yields after these rounds: being woken costs more than a few turns of the peers */
    SPINS_LOCAL = 50,   /* replaces SPINS if peers answer as soon as they run: yielding gives them this core */
    YIELDS_LOCAL = 4000 /* many: this may be a peer's core, waking takes longer, and peers may read some MiB */
};

/* ---- creation and end ------------------------------------------------------------------------------------------ */

static atomic_int fork_generation;

static void count_fork(void)
{
    /* relaxed: the child has one thread */
    atomic_fetch_add_explicit(&fork_generation, 1, memory_order_relaxed);
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, count_fork);
}

bool engine_is_disowned(struct engine *engine)
{
    if (!engine->disowned && engine->sentinel.fd >= 0) engine->disowned = !descriptors_is_same(&engine->sentinel);
    return engine->disowned;
}

static void close_wake_fds(struct engine *engine)
{
    bool ours = !engine_is_disowned(engine);
    for (int i = 0; i < 2; i++) {
        if (engine->wake_fd[i] >= 0 && ours) close(engine->wake_fd[i]);
        engine->wake_fd[i] = -1;
    }
    descriptors_leave_sentinel(&engine->sentinel);
}

static void leave_at_exit(struct exit_watch *watch)
{
    struct engine *engine = (struct engine *)(void *)((char *)watch - offsetof(struct engine, exit_watch));
    if (engine_is_forked(engine) || !exits_try_lock(&engine->lock)) return;
    engine->hooks->drain_at_exit(engine);
    for (int i = 0; i < engine->n_sources; i++)
        if (TUTTI_HAS(engine->source[i].backend, leave)) engine->source[i].backend->leave(engine->source[i].state);
    lock_give(&engine->lock);
}

static void init_lists(struct engine *engine)
{
    TAILQ_INIT(&engine->active);
    TAILQ_INIT(&engine->runnable);
    TAILQ_INIT(&engine->callbacks);
    SLIST_INIT(&engine->spare);
    TAILQ_INIT(&engine->events);
}

static void init_sleep(struct engine *engine)
{
    pthread_mutex_init(&engine->sleep_lock, NULL);
    waits_condition_init(&engine->changed);
}

int engine_new(int local_world_size, const struct engine_hooks *hooks, struct engine **out)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    struct engine *engine = calloc(1, sizeof *engine);
    if (engine != NULL) engine->stats = stats_take();
    if (engine == NULL || engine->stats == NULL || !event_memory_open(&engine->event_memory)) {
        if (engine != NULL) stats_give(engine->stats);
        free(engine);
        return error_set(TUTTI_ERR_NO_MEMORY, "out of memory for the %zu bytes of a group's engine", sizeof *engine);
    }
    engine->wake_fd[POLLER_CALLER] = wake_open(false);
    engine->wake_fd[POLLER_THREAD] = wake_open(false);
    engine->sentinel.fd = -1;
    if (engine->wake_fd[POLLER_CALLER] < 0 || engine->wake_fd[POLLER_THREAD] < 0 ||
        !descriptors_join_sentinel(&engine->sentinel)) {
        int status = error_errno(TUTTI_ERR_SYSTEM, "cannot create an eventfd for a group");
        close_wake_fds(engine);
        event_memory_close(&engine->event_memory);
        stats_give(engine->stats);
        free(engine);
        return status;
    }
    init_sleep(engine);
    init_lists(engine);
    engine->own_core = cores_are_own(local_world_size);
    engine->has_spare_cores = cores_are_own(2 * local_world_size);
    engine->spins = engine->spins_max = engine->own_core ? SPINS : SPINS_SHARED;
    engine->yields = YIELDS;
    engine->references = 1;
    engine->hooks = hooks;
    engine->exit_watch.at_exit = leave_at_exit;
    engine->fork_generation = atomic_load_explicit(&fork_generation, memory_order_relaxed);
    *out = engine;
    return TUTTI_OK;
}

bool engine_is_forked(const struct engine *engine)
{
    return engine->fork_generation != atomic_load_explicit(&fork_generation, memory_order_relaxed);
}

void engine_hold(struct engine *engine)
{
    /* relaxed: a thread that adds a reference has one, so the last one cannot be dropped meanwhile */
    atomic_fetch_add_explicit(&engine->references, 1, memory_order_relaxed);
}

void engine_free(struct engine *engine)
{
    struct tutti_work *work;
    exits_remove(&engine->exit_watch);
    while ((work = SLIST_FIRST(&engine->spare)) != NULL) {
        SLIST_REMOVE_HEAD(&engine->spare, spare_link);
        free(work);
    }
    close_wake_fds(engine);
    pthread_cond_destroy(&engine->changed);
    pthread_mutex_destroy(&engine->sleep_lock);
    event_memory_close(&engine->event_memory);
    stats_give(engine->stats);
    free(engine);
}

static void write_wake(struct engine *engine, enum engine_poller who)
{
    if (engine_is_disowned(engine)) return; /* the poller then sleeps by the clock alone */
    wake_send(engine->wake_fd[who]);
}

void engine_wake(struct engine *engine, enum engine_poller who)
{
    if (!atomic_exchange(&engine->wake_sent[who], true)) write_wake(engine, who);
}

/* Ends the thread.  Returns false if the caller is the thread itself, in a callback; the thread then ends after it.
 * Also returns false if the thread cannot be woken, because the program has closed its descriptor. */
static bool end_thread(struct engine *engine)
{
    if (!engine->has_thread || engine_is_forked(engine)) return true;
    engine->stopping = true;
    write_wake(engine, POLLER_THREAD);
    if (engine_is_disowned(engine)) return false;
    if (pthread_equal(engine->thread, pthread_self())) return false;
    pthread_join(engine->thread, NULL);
    engine->has_thread = false;
    return true;
}

void engine_drop(struct engine *engine)
{
    /* release: all accesses under this reference precede the end; acquire: for the thread that frees */
    if (atomic_fetch_sub_explicit(&engine->references, 1, memory_order_acq_rel) > 1) return;
    if (end_thread(engine)) {
        engine_free(engine);
        return;
    }
    if (!engine->disowned) engine->frees_itself = true; /* otherwise the thread keeps the engine for good */
    pthread_detach(engine->thread);
}

void engine_retire(struct engine *engine)
{
    engine_lock(engine);
    engine->first = NULL;
    engine_unlock(engine);
    if (!end_thread(engine)) return;
    exits_remove(&engine->exit_watch);
    engine_lock(engine);
    if (engine->callers == 0) close_wake_fds(engine);
    engine_unlock(engine);
}

void engine_unlock_and_call(struct engine *engine)
{
    struct work_queue due;
    struct tutti_work *work;
    TAILQ_INIT(&due);
    TAILQ_CONCAT(&due, &engine->callbacks, link);
    engine_hold(engine); /* a callback may drop all other references */
    lock_give(&engine->lock);
    while ((work = TAILQ_FIRST(&due)) != NULL) {
        TAILQ_REMOVE(&due, work, link);
        engine->hooks->call_back(work);
    }
    engine_drop(engine);
}

/* ---- backends ---------------------------------------------------------------------------------------------- */

int engine_add_source(struct engine *engine, const tutti_backend *backend, void *state)
{
    if (engine->n_sources == ENGINE_SOURCES)
        return error_set(TUTTI_ERR_UNSUPPORTED,
                         "%d groups of this world have backends that the world was not started with, "
                         "which is the maximum; destroy some, or start the world with that backend",
                         ENGINE_SOURCES - 1);
    engine->source[engine->n_sources].backend = backend;
    engine->source[engine->n_sources].state = state;
    engine->n_sources++;
    if (!TUTTI_HAS(backend, is_near) || !backend->is_near(state)) return TUTTI_OK;
    if (!engine->own_core) return TUTTI_OK;
    engine->spins = engine->spins_max = SPINS_LOCAL;
    engine->yields = YIELDS_LOCAL;
    return TUTTI_OK;
}

void engine_remove_source(struct engine *engine, void *state)
{
    for (int i = 0; i < engine->n_sources; i++)
        if (engine->source[i].state == state) engine->source[i] = engine->source[--engine->n_sources];
}

bool engine_poll_backends(struct engine *engine)
{
    bool moved = false;
    for (int i = 0; i < engine->n_sources; i++)
        if (TUTTI_HAS(engine->source[i].backend, progress))
            moved |= engine->source[i].backend->progress(engine->source[i].state) != 0;
    return moved;
}

void engine_wake_pollers(struct engine *engine)
{
    for (int who = 0; who < 2; who++)
        if (engine->polling[who]) engine_wake(engine, who);
}

/* ---- events ------------------------------------------------------------------------------------------------ */

void engine_post(struct engine *engine, struct engine_event *event)
{
    TAILQ_INSERT_TAIL(&engine->events, event, link);
}

bool engine_handle_events(struct engine *engine)
{
    struct engine_event *event;
    bool any = false;
    while ((event = TAILQ_FIRST(&engine->events)) != NULL) {
        TAILQ_REMOVE(&engine->events, event, link);
        event->handle(event);
        any = true;
    }
    if (engine->event_memory.has_lost && engine->first != NULL) {
        engine->event_memory.has_lost = false;
        engine->hooks->fail_starved(engine->first);
    }
    return any;
}

/* ---- waking ------------------------------------------------------------------------------------------------ */

void engine_wake_sleepers(struct engine *engine)
{
    if (engine->n_sleepers == 0) return;
    pthread_mutex_lock(&engine->sleep_lock);
    pthread_cond_broadcast(&engine->changed);
    pthread_mutex_unlock(&engine->sleep_lock);
}

void engine_wake_waiters(struct engine *engine)
{
    engine_wake_sleepers(engine);
    if (engine->polling[POLLER_CALLER]) engine_wake(engine, POLLER_CALLER);
}

void engine_alert(struct engine *engine)
{
    /* sequentially consistent, like `attending` and `wake_sent`: if no wake is sent below, the thread sees the time
     * when it next looks */
    engine->alert_until_ns = clock_now_ns() + (int64_t)ALERT_FOR_MS * 1000000;
    if (!engine->attending) engine_wake(engine, POLLER_THREAD);
}
