#include "progress/engine.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cores.h"
#include "base/error.h"
#include "base/log.h"
#include "base/thread.h"
#include "progress/exits.h"
#include "progress/work.h"

enum {
    LOOK_MS = 100,      /* how often a wait looks at the operations' deadlines */
    LOOK_ROUNDS = 16,   /* how often one that has no time to sleep looks at the clock */
    SETTLE_NS = 100000, /* the first sleep on the backends: see their arm */
    UNARMED_MS = 20,    /* an idle group looks so often for notes where no descriptor tells of them */
    NAP_US = 50,        /* sleep where a backend has nothing to poll */
    DISOWNED_US = 1000, /* sleep where the program has closed the engine's descriptors */
    ATTEND_US = 100,    /* grace for the caller to wait itself before the thread takes over */
    TRIES = 100,        /* to let others have the lock */
    QUIET_MS = 1,       /* without calls of other threads: a waiting caller polls */
    ATTEND_ROUNDS = 50, /* of these without work, then the thread sleeps deeply */
    WATCH_MS = 50,      /* quiet this long: the thread watches for notes */
    ALERT_FOR_MS = 2000,
    ALERT_MS = 5,       /* instead of WATCH_MS, after a failure */
    SPINS_MOST = 200,   /* rounds before sleeping, where each rank has a core; each asks every backend once */
    SPINS_SHARED = 0,   /* where ranks share cores: to spin keeps the core from whom one waits for */
    YIELDS = 100,       /* rounds after these: being woken costs more than some turns of the others */
    SPINS_NEAR = 50,    /* where peers answer as soon as they run, and each has a core, they are given this one, */
    YIELDS_NEAR = 4000, /* often: it may be theirs, and being woken takes longer; they may have some MiB to read */
    SPINS_LEAST = 2,
    TRY_EVERY = 32
};

/* ---- life -------------------------------------------------------------------------------------------------- */

static atomic_int fork_generation;

static void in_child(void)
{
    /* relaxed: the child has one thread */
    atomic_fetch_add_explicit(&fork_generation, 1, memory_order_relaxed);
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, in_child);
}

bool engine_is_disowned(struct engine *engine)
{
    if (!engine->disowned && engine->witness.fd >= 0) engine->disowned = !witness_holds(&engine->witness);
    return engine->disowned;
}

static void close_wake_fds(struct engine *engine)
{
    bool ours = !engine_is_disowned(engine);
    for (int i = 0; i < 2; i++) {
        if (engine->wake_fd[i] >= 0 && ours) close(engine->wake_fd[i]);
        engine->wake_fd[i] = -1;
    }
    witness_leave(&engine->witness);
}

int engine_new(int local_world_size, const struct engine_hooks *hooks, struct engine **out)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    struct engine *engine = calloc(1, sizeof *engine);
    if (engine == NULL) return error_set(TUTTI_ERR_NO_MEMORY, "no memory for a group");
    engine->wake_fd[POLLER_CALLER] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    engine->wake_fd[POLLER_THREAD] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    engine->witness.fd = -1;
    if (engine->wake_fd[POLLER_CALLER] < 0 || engine->wake_fd[POLLER_THREAD] < 0 || !witness_join(&engine->witness)) {
        close_wake_fds(engine);
        free(engine);
        return error_errno(TUTTI_ERR_SYSTEM, "no eventfd for a group");
    }
    pthread_mutex_init(&engine->asleep, NULL);
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&engine->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    TAILQ_INIT(&engine->active);
    TAILQ_INIT(&engine->runnable);
    TAILQ_INIT(&engine->callbacks);
    SLIST_INIT(&engine->spare);
    TAILQ_INIT(&engine->events);
    engine->own_core = cores_are_own(local_world_size);
    engine->spins = engine->spins_most = engine->own_core ? SPINS_MOST : SPINS_SHARED;
    engine->yields = YIELDS;
    engine->references = 1;
    engine->hooks = hooks;
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
    /* relaxed: whoever adds one has one, so it cannot be the last that is being given back */
    atomic_fetch_add_explicit(&engine->references, 1, memory_order_relaxed);
}

static void engine_free(struct engine *engine)
{
    struct tutti_work *work;
    exits_remove(engine);
    while ((work = SLIST_FIRST(&engine->spare)) != NULL) {
        SLIST_REMOVE_HEAD(&engine->spare, spare_link);
        work_destroy(work);
    }
    close_wake_fds(engine);
    pthread_cond_destroy(&engine->changed);
    pthread_mutex_destroy(&engine->asleep);
    free(engine);
}

static void wake(struct engine *engine, enum engine_poller who)
{
    uint64_t one = 1;
    if (engine_is_disowned(engine)) return; /* it sleeps by the clock alone */
    ssize_t written = write(engine->wake_fd[who], &one, sizeof one);
    (void)written; /* EAGAIN: it is readable already */
}

/* Wakes, once: it may take a while until who is wanted has a core.  Said before it is done, and unsaid after the wake
 * was taken, so that none is left out. */
static void want(struct engine *engine, enum engine_poller who)
{
    if (!atomic_exchange(&engine->wanted[who], true)) wake(engine, who);
}

/* Ends the thread.  False: that is this one, which is in a callback, and ends after it; or it cannot be woken, because
 * the program has closed the descriptor for that. */
static bool end_thread(struct engine *engine)
{
    if (!engine->has_thread || engine_is_forked(engine)) return true;
    engine->stopping = true;
    wake(engine, POLLER_THREAD);
    if (engine_is_disowned(engine)) return false;
    if (pthread_equal(engine->thread, pthread_self())) return false;
    pthread_join(engine->thread, NULL);
    engine->has_thread = false;
    return true;
}

void engine_drop(struct engine *engine)
{
    /* release, so that all that was done under this reference comes before the end; acquire for the one who ends it */
    if (atomic_fetch_sub_explicit(&engine->references, 1, memory_order_acq_rel) > 1) return;
    if (end_thread(engine)) {
        engine_free(engine);
        return;
    }
    if (!engine->disowned) engine->frees_itself = true; /* else the engine is left to the thread for good */
    pthread_detach(engine->thread);
}

void engine_retire(struct engine *engine)
{
    engine_lock(engine);
    engine->first = NULL;
    engine_unlock(engine);
    if (!end_thread(engine)) return;
    exits_remove(engine);
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
    lock_give(&engine->lock);
    engine_hold(engine); /* a callback may give all others up */
    while ((work = TAILQ_FIRST(&due)) != NULL) {
        TAILQ_REMOVE(&due, work, link);
        work->callback(work, work->argument);
        work_release(work);
    }
    engine_drop(engine);
}

int engine_add_source(struct engine *engine, const tutti_backend *backend, void *state)
{
    if (engine->n_sources == ENGINE_SOURCES)
        return error_set(TUTTI_ERR_UNSUPPORTED,
                         "%d groups of this world have backends of their own, which the world was not started with, "
                         "and no more can: destroy some, or start the world with that backend, too",
                         ENGINE_SOURCES - 1);
    engine->source[engine->n_sources].backend = backend;
    engine->source[engine->n_sources].state = state;
    engine->n_sources++;
    if (!TUTTI_HAS(backend, is_near) || !backend->is_near(state)) return TUTTI_OK;
    if (!engine->own_core) return TUTTI_OK;
    engine->spins = engine->spins_most = SPINS_NEAR;
    engine->yields = YIELDS_NEAR;
    return TUTTI_OK;
}

void engine_remove_source(struct engine *engine, void *state)
{
    for (int i = 0; i < engine->n_sources; i++)
        if (engine->source[i].state == state) engine->source[i] = engine->source[--engine->n_sources];
}

/* ---- one round --------------------------------------------------------------------------------------------- */

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
    return any;
}

/* Deadlines are looked at before a sleep.  Where other threads' operations never let one sleep they are looked at all
 * the same. */
static void look_at_clock(struct engine *engine)
{
    engine->now_ns = clock_now_ns();
    if (engine->now_ns < engine->look_ns) return;
    engine->look_ns = engine->now_ns + (int64_t)LOOK_MS * 1000000;
    engine->hooks->check_deadlines(engine, engine->now_ns);
}

/* Each work gets one turn, so that a long local computation of one does not keep the wire waiting. */
static bool run_works(struct engine *engine)
{
    struct tutti_work *last = TAILQ_LAST(&engine->runnable, work_queue), *work = NULL;
    bool moved = false;
    while (work != last && (work = TAILQ_FIRST(&engine->runnable)) != NULL) {
        TAILQ_REMOVE(&engine->runnable, work, run_link);
        work->queued = false;
        moved = true;
        work_run(work);
    }
    return moved;
}

static void begin_unblocked(struct engine *engine)
{
    if (!engine->recheck) return;
    engine->recheck = false;
    if (engine->n_blocked > 0 && engine->first != NULL) engine->hooks->begin_unblocked(engine->first);
}

void engine_go_on(struct engine *engine)
{
    run_works(engine);
    begin_unblocked(engine);
}

void engine_drives(struct engine *engine)
{
    for (int who = 0; who < 2; who++)
        if (engine->polling[who]) want(engine, who);
}

bool engine_poll_backends(struct engine *engine)
{
    bool moved = false;
    for (int i = 0; i < engine->n_sources; i++)
        if (TUTTI_HAS(engine->source[i].backend, progress))
            moved |= engine->source[i].backend->progress(engine->source[i].state) != 0;
    return moved;
}

bool engine_step(struct engine *engine)
{
    engine_drives(engine);
    bool moved = engine_poll_backends(engine);
    /* First: a peer's note says why the connections break that the same round may have reported. */
    moved |= engine_handle_events(engine);
    moved |= run_works(engine);
    if (engine->n_told > 0 && engine->first != NULL) engine->hooks->take_told(engine->first);
    begin_unblocked(engine);
    if (++engine->rounds % LOOK_ROUNDS == 0) look_at_clock(engine);
    return moved;
}

/* ---- sleeping ---------------------------------------------------------------------------------------------- */

/* For those who do not poll: until engine_notice. */
static void doze(struct engine *engine, int ms)
{
    struct timespec until = clock_timespec(clock_deadline_ns(ms));
    engine->dozing++;
    pthread_mutex_lock(&engine->asleep);
    lock_give(&engine->lock);
    pthread_cond_timedwait(&engine->changed, &engine->asleep, &until);
    pthread_mutex_unlock(&engine->asleep);
    engine_lock(engine);
    engine->dozing--;
}

/* Of a caller. */
struct wait {
    uint64_t calls; /* by all threads, when it last looked */
    bool polled;
};

static void take_wake(struct engine *engine, enum engine_poller who)
{
    uint64_t count;
    if (engine_is_disowned(engine)) return;
    ssize_t got = read(engine->wake_fd[who], &count, sizeof count);
    (void)got;
    engine->wanted[who] = false;
}

/* How many descriptors to poll; 0: something is there already; -1: a backend has none. */
static int arm(struct engine *engine, enum engine_poller who, struct pollfd *polled)
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

/* Without ever sleeping for it: those who call again and again have it for nearly all the time, and each release would
 * wake the thread in vain.  It comes after those who do. */
static bool try_lock(struct engine *engine)
{
    for (int i = 0; i < TRIES; i++) {
        if (!lock_is_wanted(&engine->lock) && lock_try(&engine->lock)) return true;
        sched_yield();
    }
    return false;
}

/* The backends may have missed what came just while they looked: after a moment they are asked again. */
static int arm_again(struct engine *engine, enum engine_poller who, struct pollfd *polled)
{
    if (who == POLLER_CALLER)
        engine_lock(engine);
    else if (!try_lock(engine))
        return 0;
    int n = arm(engine, who, polled);
    lock_give(&engine->lock);
    return n;
}

/* Without descriptors there is nothing to sleep on.  All groups fail. */
static bool nap_disowned(struct engine *engine, enum engine_poller who)
{
    if (engine->first != NULL) engine->hooks->disowned(engine->first);
    lock_give(&engine->lock);
    usleep(who == POLLER_CALLER ? DISOWNED_US : WATCH_MS * 1000);
    return false;
}

/* Sleeps until a backend has something, somebody calls, or timeout_ms (-1: no limit) has passed.  Lets the lock go, and
 * returns without it; polling[who] is still set then.  Whether somebody called. */
static bool sleep_on_backends(struct engine *engine, enum engine_poller who, int timeout_ms)
{
    struct pollfd *polled = engine->polled[who];
    struct timespec settle = clock_timespec(SETTLE_NS);
    if (engine_is_disowned(engine)) return nap_disowned(engine, who);
    int n = arm(engine, who, polled), found = 0;
    engine->polling[who] = n != 0;
    lock_give(&engine->lock);
    if (n > 0) found = ppoll(polled, (nfds_t)n, &settle, NULL); /* EINTR: a round too many */
    if (n > 0 && found == 0 && timeout_ms != 0) {
        n = arm_again(engine, who, polled);
        if (n > 0) found = poll(polled, (nfds_t)n, timeout_ms);
    }
    if (n < 0) usleep(NAP_US);
    if (n <= 0 || found <= 0 || (polled[n - 1].revents & POLLIN) == 0) return false;
    take_wake(engine, who);
    return true;
}

/* How long to sleep, at most until then: peers that are waited for are asked now and then. */
static int look_ms(int64_t deadline_ns)
{
    int left = clock_left_ms(deadline_ns);
    return left < 0 || left > LOOK_MS ? LOOK_MS : left;
}

static void wake_dozing(struct engine *engine)
{
    if (engine->dozing == 0) return;
    pthread_mutex_lock(&engine->asleep);
    pthread_cond_broadcast(&engine->changed);
    pthread_mutex_unlock(&engine->asleep);
}

void engine_notice(struct engine *engine)
{
    wake_dozing(engine);
    if (engine->polling[POLLER_CALLER]) want(engine, POLLER_CALLER);
}

/* ---- waiting callers --------------------------------------------------------------------------------------- */

static int first_ended(struct tutti_work *const *works, int n)
{
    for (int i = 0; i < n; i++)
        if (works[i] != NULL && work_ended(works[i])) return i;
    return -1;
}

/* Between two rounds of a long wait: callbacks that are owed, threads that want the lock. */
static void let_others_in(struct engine *engine)
{
    if (!lock_is_wanted(&engine->lock) && TAILQ_EMPTY(&engine->callbacks)) return;
    engine_unlock(engine);
    for (int i = 0; i < TRIES && lock_is_wanted(&engine->lock); i++) sched_yield(); /* until they have it */
    engine_lock(engine);
}

/* The number of rounds follows what they bring: cores may be busy with others' work, so that who is waited for comes
 * when it is given this one; peers may be far away.  Now and then all of them are tried, or it would never find out
 * that times have changed. */
static void learn_spinning(struct engine *engine, int spun, bool moved)
{
    if (!engine->own_core) return;
    if (moved && spun <= engine->spins)
        engine->spins = spun * 2 > engine->spins ? spun * 2 : engine->spins;
    else
        engine->spins = ++engine->in_vain % TRY_EVERY == 0 ? engine->spins_most : engine->spins / 2;
    if (engine->spins > engine->spins_most) engine->spins = engine->spins_most;
    if (engine->spins < SPINS_LEAST) engine->spins = SPINS_LEAST;
}

/* Until there may be something to do.  One caller polls.  While other threads call nobody does: their rounds take what
 * comes, and with it the backends' promise to wake who polls. */
static void wait_asleep(struct engine *engine, int ms, struct wait *wait)
{
    if (engine->polling[POLLER_CALLER]) {
        doze(engine, ms);
    } else if (engine->calls != wait->calls) {
        wait->calls = engine->calls;
        doze(engine, ms < QUIET_MS ? ms : QUIET_MS);
    } else {
        sleep_on_backends(engine, POLLER_CALLER, ms);
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
    while ((index = first_ended(works, n)) < 0) {
        bool moved = engine_step(engine);
        let_others_in(engine);
        if (engine->now_ns >= deadline_ns) {
            index = first_ended(works, n);
            break;
        }
        if (moved) {
            if (spun > 0) learn_spinning(engine, spun, true);
            spun = 0;
            continue;
        }
        if (spun++ < engine->spins) continue;
        if (spun <= engine->spins + engine->yields) {
            sched_yield();
            continue;
        }
        learn_spinning(engine, spun, false);
        spun = 0;
        if ((index = first_ended(works, n)) >= 0) break;
        int64_t now = clock_now_ns();
        if (now >= deadline_ns) break;
        int64_t next = engine->hooks->check_deadlines(engine, now);
        if ((index = first_ended(works, n)) >= 0) break;
        for (int i = 0; i < n; i++)
            if (works[i] != NULL) works[i]->awaited = true;
        wait_asleep(engine, look_ms(next < deadline_ns ? next : deadline_ns), &wait);
    }
    engine->callers--;
    if (wait.polled) wake_dozing(engine); /* one of them has to */
    return index;
}

bool engine_wait(struct engine *engine, struct tutti_work *work, int64_t deadline_ns)
{
    return engine_wait_any(engine, &work, 1, deadline_ns) == 0;
}

/* ---- the thread -------------------------------------------------------------------------------------------- */

/* Sleeps without the lock, until somebody wants the thread. */
static bool nap(struct engine *engine, int64_t ns)
{
    struct pollfd polled = {engine->wake_fd[POLLER_THREAD], POLLIN, 0};
    struct timespec time = clock_timespec(ns);
    if (engine_is_disowned(engine)) polled.fd = -1;
    if (ppoll(&polled, 1, &time, NULL) <= 0) return false; /* EINTR: too early */
    if (polled.revents & POLLNVAL) usleep(DISOWNED_US);
    take_wake(engine, POLLER_THREAD);
    return true;
}

/* A round, and a sleep on the backends after one that brought nothing.  False: others drive. */
static bool drive(struct engine *engine)
{
    if (engine->stopping || engine->callers > 0 || !try_lock(engine)) return false;
    bool moved = engine_step(engine);
    int64_t next = moved ? 0 : engine->hooks->check_deadlines(engine, clock_now_ns());
    if (moved || !TAILQ_EMPTY(&engine->callbacks)) {
        engine_unlock(engine);
        return true;
    }
    int idle_ms = engine->n_unarmed > 0 ? UNARMED_MS : -1;
    bool called = sleep_on_backends(engine, POLLER_THREAD, engine->n_async > 0 ? look_ms(next) : idle_ms);
    engine->polling[POLLER_THREAD] = false;
    return !called;
}

/* Drives asynchronous work while no caller does.  Returns when there has been none for a while. */
static void attend(struct engine *engine)
{
    for (int quiet = 0; !engine->stopping && quiet < ATTEND_ROUNDS;) {
        nap(engine, ATTEND_US * 1000);
        quiet = engine->n_async > 0 ? 0 : quiet + 1;
        while (engine->n_async > 0 && drive(engine)) continue;
    }
}

/* Nobody has called for a while: sleep where notes from peers wake us, until someone does. */
static void watch(struct engine *engine)
{
    uint64_t calls = engine->calls;
    while (engine->calls == calls && engine->n_async == 0 && drive(engine)) continue;
}

/* Until nobody has called for a while, or, which is false, the thread is wanted. */
static bool nap_until_quiet(struct engine *engine)
{
    /* relaxed: who alerts wakes the thread */
    bool alert = clock_now_ns() < atomic_load_explicit(&engine->alert_ns, memory_order_relaxed);
    uint64_t seen;
    do {
        seen = engine->calls;
        if (nap(engine, (int64_t)(alert ? ALERT_MS : WATCH_MS) * 1000000)) return false;
    } while (!alert && (seen != engine->calls || engine->callers > 0));
    return true;
}

static void *thread_main(void *argument)
{
    struct engine *engine = argument;
    while (!engine->stopping) {
        engine->attending = false; /* before it is asked whether there is work: who brings some looks at it after */
        engine->attending = engine->n_async > 0;
        if (engine->attending)
            attend(engine);
        else if (nap_until_quiet(engine))
            watch(engine);
    }
    if (engine->frees_itself) engine_free(engine);
    return NULL;
}

static void start_thread(struct engine *engine)
{
    int error = thread_start(&engine->thread, thread_main, engine);
    engine->has_thread = error == 0;
    if (error != 0) log_write(LOG_WARN, "no thread for asynchronous progress: it happens in tutti_wait alone");
}

void engine_start_thread(struct engine *engine)
{
    if (!engine->has_thread) start_thread(engine);
}

void engine_attend(struct engine *engine)
{
    engine_start_thread(engine);
    bool knows = engine->attending && !(engine->polling[POLLER_THREAD] && engine->n_async == 1);
    if (!knows) want(engine, POLLER_THREAD);
}

void engine_alert(struct engine *engine)
{
    /* relaxed: a time; who is asleep is woken below */
    atomic_store_explicit(&engine->alert_ns, clock_now_ns() + (int64_t)ALERT_FOR_MS * 1000000, memory_order_relaxed);
    if (!engine->attending) want(engine, POLLER_THREAD);
}
