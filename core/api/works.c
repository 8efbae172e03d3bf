/* The public functions on a Work. */
#include <errno.h>
#include <sched.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "portable/wake.h"
#include "progress/engine_step.h"
#include "progress/engine_thread.h"
#include "progress/engine_wait.h"
#include "progress/work.h"

static int check_timeout(int64_t timeout_ms)
{
    if (timeout_ms >= 0 || timeout_ms == TUTTI_NOW) return TUTTI_OK;
    return error_set(TUTTI_ERR_INVALID_ARGUMENT, "wait: timeout_ms is %lld; it must not be negative",
                     (long long)timeout_ms);
}

static int check_forked(const struct engine *engine)
{
    if (!engine_is_forked(engine)) return TUTTI_OK;
    return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                     "wait: the operation was started before fork(); only the parent can wait for it");
}

/* Returns the deadline of a wait, or 0 for one round.  TUTTI_DEFAULT_TIMEOUT sets no limit, because an operation ends
 * by its own deadline. */
static int64_t deadline_of(int64_t timeout_ms)
{
    if (timeout_ms == 0 || timeout_ms == TUTTI_NOW) return 0;
    return timeout_ms == TUTTI_DEFAULT_TIMEOUT ? CLOCK_NEVER : clock_deadline_ns(timeout_ms);
}

/* Yields the core, which a program that polls in a loop would take from the peer it waits for. */
static void yield_core(const struct engine *engine)
{
    if (!engine->own_core) sched_yield();
}

/* True if nothing is left to do or to report. */
static bool is_done(const struct tutti_work *work)
{
    return work_ended(work) && work->status == TUTTI_OK;
}

/* Waits for a work under its engine's lock.  Sets *ended if it had ended then; it may also end right after that. */
static int wait_locked(struct tutti_work *work, int64_t deadline_ns, int64_t timeout_ms, bool *ended)
{
    *ended = work_ended(work) || engine_wait(work->engine, work, deadline_ns);
    if (*ended) return work_result(work);
    char what[160];
    work_describe(work, what, sizeof what);
    return error_set(TUTTI_ERR_TIMEOUT, "wait: %s is still under way after %lld ms; it continues", what,
                     (long long)(timeout_ms > 0 ? timeout_ms : 0));
}

static int wait_until(struct tutti_work *work, int64_t deadline_ns, int64_t timeout_ms, bool *ended)
{
    struct engine *engine = work->engine;
    int status = check_forked(engine);
    *ended = false;
    if (status != TUTTI_OK) return status;
    engine_lock_to_wait(engine);
    engine_count_call(engine);
    status = wait_locked(work, deadline_ns, timeout_ms, ended);
    engine_unlock(engine);
    if (!*ended && timeout_ms <= 0) yield_core(engine);
    return status;
}

static int wait_one(struct tutti_work *work, int64_t timeout_ms, bool *ended)
{
    int status = check_timeout(timeout_ms);
    *ended = false;
    return status != TUTTI_OK ? status : wait_until(work, deadline_of(timeout_ms), timeout_ms, ended);
}

int tutti_work_wait(tutti_work *work, int64_t timeout_ms)
{
    bool ended;
    if (work == NULL) return error_set(TUTTI_ERR_INVALID_ARGUMENT, "wait: work is NULL; pass a Work");
    return wait_one(work, timeout_ms, &ended);
}

int tutti_wait(tutti_work **work, int64_t timeout_ms)
{
    if (work == NULL || *work == NULL)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "wait: work or *work is NULL; pass the address of a Work");
    bool ended;
    int status = wait_one(*work, timeout_ms, &ended);
    if (ended) {
        work_give_up(*work);
        *work = NULL;
    }
    return status;
}

/* An engine that is locked for several works in turn, and the number of their handles that have been freed. */
struct visit {
    struct engine *engine; /* NULL: none */
    int handles;
};

static void leave_engine(struct visit *visit, bool yields)
{
    struct engine *engine = visit->engine;
    if (engine == NULL) return;
    bool last = engine_remove_handles(engine, visit->handles), shares_core = !engine->own_core;
    engine_unlock(engine); /* may end the engine, if not even the last handle was removed here */
    if (yields && shares_core) sched_yield();
    if (last) engine_drop(engine);
    *visit = (struct visit){NULL, 0};
}

static int visit_engine(struct visit *visit, struct engine *engine)
{
    if (engine == visit->engine) return TUTTI_OK;
    leave_engine(visit, false);
    int status = check_forked(engine);
    if (status != TUTTI_OK) return status;
    engine_lock_to_wait(engine);
    engine_count_call(engine);
    visit->engine = engine;
    return TUTTI_OK;
}

int tutti_wait_all(tutti_work **works, int n, int64_t timeout_ms)
{
    if (n < 0 || (works == NULL && n > 0))
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "wait_all: works is NULL or n (%d) is negative", n);
    int status = check_timeout(timeout_ms), first = TUTTI_OK;
    if (status != TUTTI_OK) return status;
    int64_t deadline_ns = deadline_of(timeout_ms);
    bool timed_out = false;
    char text[ERROR_TEXT_MAX];
    struct visit visit = {NULL, 0};
    for (int i = 0; i < n; i++) {
        if (works[i] == NULL) continue;
        status = visit_engine(&visit, works[i]->engine);
        bool ended = status == TUTTI_OK && is_done(works[i]);
        if (status == TUTTI_OK && !ended) status = wait_locked(works[i], deadline_ns, timeout_ms, &ended);
        if (status != TUTTI_OK && (first == TUTTI_OK || (ended && timed_out))) {
            first = status;
            timed_out = !ended;
            snprintf(text, sizeof text, "%s", error_text());
        }
        if (!ended) continue; /* later works may have ended and are freed too */
        work_release_locked(works[i]);
        visit.handles++;
        works[i] = NULL;
    }
    leave_engine(&visit, timed_out && timeout_ms <= 0);
    return first != TUTTI_OK ? error_set(first, "%s", text) : TUTTI_OK;
}

int tutti_wait_any(tutti_work **works, int n, int64_t timeout_ms, int *index)
{
    if (n < 0 || (works == NULL && n > 0) || index == NULL)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "wait_any: works or index is NULL, or n (%d) is negative", n);
    int status = check_timeout(timeout_ms);
    if (status != TUTTI_OK) return status;
    *index = -1;
    struct engine *engine = NULL;
    for (int i = 0; i < n; i++) {
        if (works[i] == NULL) continue;
        if (engine != NULL && works[i]->engine != engine)
            return error_set(
                TUTTI_ERR_UNSUPPORTED,
                "wait_any: works[%d] is from another world than the works before it; wait for each world on its own",
                i);
        engine = works[i]->engine;
    }
    if (engine == NULL) return TUTTI_OK;
    status = check_forked(engine);
    if (status != TUTTI_OK) return status;
    engine_lock_to_wait(engine);
    engine_count_call(engine);
    int found = engine_wait_any(engine, works, n, deadline_of(timeout_ms));
    status = found >= 0
                 ? work_result(works[found])
                 : error_set(TUTTI_ERR_TIMEOUT, "wait_any: none of %d operations ended in %lld ms; they continue", n,
                             (long long)timeout_ms);
    engine_unlock(engine);
    if (found < 0 && timeout_ms <= 0) yield_core(engine);
    if (found < 0) return status;
    work_give_up(works[found]);
    works[found] = NULL;
    *index = found;
    return status;
}

/* True if the backend has ordered the stream after the work, so that the host need not wait. */
static bool stream_waits(struct tutti_work *work, void *stream)
{
    if (!work->started || work->exec != NULL || work->request.owner == NULL) return false;
    return TUTTI_HAS(work->backend, wait_stream) &&
           work->backend->wait_stream(work->state, &work->request, stream) == TUTTI_OK;
}

int tutti_wait_stream(tutti_work *work, void *stream)
{
    if (work == NULL) return error_set(TUTTI_ERR_INVALID_ARGUMENT, "wait_stream: work is NULL; pass a Work");
    int status = check_forked(work->engine);
    if (status != TUTTI_OK) return status;
    engine_lock(work->engine);
    engine_count_call(work->engine);
    bool waits = !work_ended(work) && stream_waits(work, stream);
    engine_unlock(work->engine);
    /* CPU work has no streams, so the host waits. */
    return waits ? TUTTI_OK : tutti_work_wait(work, TUTTI_DEFAULT_TIMEOUT);
}

bool tutti_work_is_completed(tutti_work *work)
{
    if (work == NULL || work_ended(work)) return true;
    if (engine_is_forked(work->engine)) return false;
    struct engine *engine = work->engine;
    engine_lock(engine);
    engine_count_call(engine);
    bool moved = work_ended(work) || engine_step(engine);
    if (!moved) engine->hooks->check_deadlines(engine, clock_now_ns());
    engine_unlock(engine);
    if (!moved) yield_core(engine);
    return work_ended(work);
}

int tutti_work_status(tutti_work *work)
{
    return work != NULL && work_ended(work) ? work->status : TUTTI_OK;
}

const char *tutti_work_error(tutti_work *work)
{
    return work != NULL && work_ended(work) && work->text != NULL ? work->text : "";
}

int tutti_work_then(tutti_work *work, void (*callback)(tutti_work *work, void *argument), void *argument)
{
    if (work == NULL || callback == NULL)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "work_then: %s is NULL; pass a Work and a callback",
                         work == NULL ? "work" : "callback");
    struct engine *engine = work->engine;
    int status = TUTTI_OK;
    engine_lock(engine);
    bool ended = work_ended(work);
    if (work->callback != NULL) {
        status =
            error_set(TUTTI_ERR_INVALID_ARGUMENT, "work_then: the work has a callback already; a work takes only one");
    } else {
        work->callback = callback;
        work->argument = argument;
        if (!ended) engine_thread_hurry(engine);
    }
    engine_unlock(engine);
    if (status == TUTTI_OK && ended) callback(work, argument);
    return status;
}

tutti_kind tutti_work_op(const tutti_work *work)
{
    return work != NULL ? work->op.kind : TUTTI_KIND_COUNT;
}

uint64_t tutti_work_sequence(const tutti_work *work)
{
    return work != NULL ? work->op.sequence : 0;
}

int64_t tutti_work_duration_ns(const tutti_work *work)
{
    if (work == NULL || !work_ended(work)) return -1;
    return work->duration_ns;
}

int tutti_work_source(const tutti_work *work)
{
    return work != NULL && work_ended(work) ? work->found.source : -1;
}

int tutti_work_tag(const tutti_work *work)
{
    bool has = work != NULL && work_ended(work) && work->found.source >= 0;
    return has ? work->found.tag : TUTTI_ANY_TAG;
}

int64_t tutti_work_received(const tutti_work *work)
{
    bool has = work != NULL && work_ended(work) && work->status == TUTTI_OK && work->found.source >= 0;
    return has ? work->found.received : -1;
}

int tutti_work_fd(tutti_work *work)
{
    if (work == NULL) return error_set(TUTTI_ERR_INVALID_ARGUMENT, "work_fd: work is NULL; pass a Work");
    struct engine *engine = work->engine;
    engine_lock(engine);
    if (work->event_fd < 0) work->event_fd = wake_open(work_ended(work));
    if (!work_ended(work)) engine_thread_hurry(engine);
    int fd = work->event_fd;
    engine_unlock(engine);
    return fd >= 0 ? fd : error_errno(TUTTI_ERR_SYSTEM, "work_fd: cannot create an eventfd");
}

void tutti_work_free(tutti_work *work)
{
    if (work != NULL) work_give_up(work);
}
