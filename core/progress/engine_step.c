#include "progress/engine_step.h"

#include "base/clock.h"
#include "base/reduce_clock.h"
#include "progress/engine.h"
#include "progress/work.h"

enum {
    CHECK_MS = 100 /* time between two checks of the deadlines */,
    CHECK_ROUNDS = 16 /* rounds between two reads of the clock */
};

/* Starts the clock of the works issued since the last look at it, but of those that read it when they were issued. */
static void start_clocks(struct engine *engine, int64_t last_ns)
{
    struct tutti_work *work = TAILQ_LAST(&engine->active, work_queue);
    for (; work != NULL && (work->start_ns == 0 || work->start_ns > last_ns); work = TAILQ_PREV(work, work_queue, link))
        if (work->start_ns == 0 && !work->draining) work_start_clock(work, engine->now_ns);
}

/* Checks deadlines during rounds too, because operations of other threads may keep this one from ever sleeping. */
static void check_deadlines(struct engine *engine)
{
    int64_t last_ns = engine->looked_ns;
    engine->looked_ns = engine->now_ns = clock_now_ns();
    start_clocks(engine, last_ns);
    if (engine->now_ns < engine->next_check_ns) return;
    engine->next_check_ns = engine->now_ns + (int64_t)CHECK_MS * 1000000;
    engine->hooks->check_deadlines(engine, engine->now_ns);
}

/* Runs one turn of each runnable work, so that a long local computation of one does not delay the messages of
 * others. */
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

static void dispatch_unblocked(struct engine *engine)
{
    if (!engine->recheck) return;
    engine->recheck = false;
    if (engine->n_blocked == 0 || engine->first == NULL) return;
    engine->hooks->dispatch_unblocked(engine->first);
    engine->due_ns = 0;
}

/* If a tool measures reductions, those of this round belong to this tree. */
static void claim_reductions(const struct engine *engine)
{
    bool measures = atomic_load_explicit(&reduce_clock_runs, memory_order_relaxed);
    if (__builtin_expect(measures, 0) && engine->first != NULL) reduce_clock_enter(engine->first->tool_tree);
}

void engine_step_works(struct engine *engine)
{
    claim_reductions(engine);
    run_works(engine);
    dispatch_unblocked(engine);
}

bool engine_step(struct engine *engine)
{
    claim_reductions(engine);
    engine->rounds++; /* first, so that engine_time_ns reads the clock again after a sleep */
    engine_wake_pollers(engine);
    bool moved = engine_poll_backends(engine);
    /* Handled first: a control message may explain why connections have broken that the same round reports. */
    moved |= engine_handle_events(engine);
    moved |= run_works(engine);
    if (engine->n_reported > 0 && engine->first != NULL) engine->hooks->apply_reported(engine->first);
    dispatch_unblocked(engine);
    if (engine->rounds % CHECK_ROUNDS == 0) check_deadlines(engine);
    return moved;
}
