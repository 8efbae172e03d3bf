#include "group/deadline.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "diagnose/health.h"
#include "diagnose/recorder.h"
#include "diagnose/stragglers.h"
#include "group/group_fail.h"
#include "group/unmatched.h"
#include "progress/work.h"

enum { ASK_NS = 200 * 1000 * 1000, ASK_LEAST_NS = 20 * 1000 * 1000 };

static void time_out(struct tutti_work *work, int64_t now)
{
    char what[160], stragglers[600], unmatched[80], text[ERROR_TEXT_MAX];
    work_describe(work, what, sizeof what);
    stragglers_describe(work, now, stragglers, sizeof stragglers);
    unmatched_describe(work, unmatched, sizeof unmatched);
    snprintf(text, sizeof text, "%s: rank %d waited %.3f s for %s%s", what,
             work->group->global_ranks[work->group->rank], (double)(now - work->start_ns) / 1e9, stragglers, unmatched);
    if (work_is_message(work)) {
        if (work->op.timeout_ms > 0) recorder_failed(work->group, TUTTI_ERR_TIMEOUT, text); /* else it is a poll */
        work_withdraw(work, TUTTI_ERR_TIMEOUT, text);
        return;
    }
    if (!work->group->failed) work->group->given_up = stragglers_set(work, now);
    group_fail(work->group, TUTTI_ERR_TIMEOUT, text, true);
}

/* Ends a work that waits for a peer which has destroyed the group. */
static void end_left(struct tutti_work *work, int peer)
{
    char what[160], text[ERROR_TEXT_MAX];
    work_describe(work, what, sizeof what);
    snprintf(text, sizeof text, "%s: rank %d has destroyed the group", what, work->group->global_ranks[peer]);
    if (work_is_message(work)) {
        recorder_failed(work->group, TUTTI_ERR_ABORTED, text);
        work_withdraw(work, TUTTI_ERR_ABORTED, text);
    } else {
        group_fail(work->group, TUTTI_ERR_ABORTED, text, true);
    }
}

static void warn_late(struct tutti_work *work, int64_t now)
{
    char what[160], stragglers[600];
    work_describe(work, what, sizeof what);
    stragglers_describe(work, now, stragglers, sizeof stragglers);
    log_write(LOG_WARN, LOG_OP, "%s has taken %.3f s; waiting for %s", what, (double)(now - work->start_ns) / 1e9,
              stragglers);
    work->warned = true;
}

/* Returns the time between two questions to the peers for their positions.  It leaves time for the answers to reach a
 * timeout's error message. */
static int64_t ask_interval(const struct tutti_work *work)
{
    int64_t quarter = work->deadline_ns == CLOCK_NEVER ? ASK_NS : (work->deadline_ns - work->start_ns) / 4;
    int64_t every = quarter < ASK_LEAST_NS ? ASK_LEAST_NS : quarter;
    return every < ASK_NS ? every : ASK_NS;
}

static int64_t time_to_ask(const struct tutti_work *work)
{
    return work->asked_ns + ask_interval(work);
}

/* Returns the time at which the work last asked.  For a work that has not started, which never asks, returns the time
 * at which this process last ran. */
static int64_t last_asked(const struct tutti_work *work)
{
    int64_t checked_ns = work->started ? 0 : work->engine->checked_ns;
    return checked_ns > work->asked_ns ? checked_ns : work->asked_ns;
}

/* Gives a work whose timeout has passed a little longer, once, if nothing is known of the peers that it waits for: it
 * has gone on since it asked, or this process did not run when it should have.  Returns false if it has asked in time,
 * or its timeout is too short for that. */
static bool postpone(struct tutti_work *work, int64_t now)
{
    int64_t least = 2 * ask_interval(work);
    bool has_moved = work->has_moved && work->deadline_ns - work->start_ns >= least;
    if (work->postponed || (!has_moved && work->deadline_ns - last_asked(work) < least)) return false;
    work->postponed = true;
    work->asked_ns = now - ASK_NS; /* it asks at once */
    work->deadline_ns = now + ASK_NS;
    return true;
}

static bool may_warn(const struct tutti_work *work)
{
    return !work->warned && !work->draining && work->deadline_ns != CLOCK_NEVER;
}

/* Returns the time at which half of its timeout has passed. */
static int64_t time_to_warn(const struct tutti_work *work)
{
    return work->start_ns + (work->deadline_ns - work->start_ns) / 2;
}

/* Checks one work.  Returns true if it has ended, possibly with others. */
static bool check_one(struct tutti_work *work, int64_t now)
{
    bool late = now >= work->deadline_ns;
    if (work->draining) {
        if (late) work_abandon(work);
        return late;
    }
    if (late && !postpone(work, now)) {
        time_out(work, now);
        return true;
    }
    if (work->started && now >= time_to_ask(work)) {
        work->asked_ns = now;
        work->has_moved = false;
        int left = health_ask(work);
        if (left >= 0) {
            end_left(work, left);
            return true;
        }
    }
    if (may_warn(work) && now >= time_to_warn(work)) warn_late(work, now);
    return false;
}

static int64_t time_to_check(const struct tutti_work *work)
{
    int64_t time = work->deadline_ns;
    if (work->started && !work->draining && time_to_ask(work) < time) time = time_to_ask(work);
    if (may_warn(work) && time_to_warn(work) < time) time = time_to_warn(work);
    return time;
}

/* Checks all works.  Returns the time of the next check. */
static int64_t check_all(struct engine *engine, int64_t now)
{
    /* A work that ends may end other works of its group, so the search starts over after it. */
    struct tutti_work *work = TAILQ_FIRST(&engine->active);
    int64_t deadline = CLOCK_NEVER;
    while (work != NULL) {
        struct tutti_work *next = TAILQ_NEXT(work, link);
        bool ended = check_one(work, now);
        if (!ended && time_to_check(work) < deadline) deadline = time_to_check(work);
        work = ended ? TAILQ_FIRST(&engine->active) : next;
    }
    return deadline;
}

/* Begins to check the works that have been added since the last check.  They are the last ones of the list. */
static void check_new(struct engine *engine, int64_t now)
{
    struct tutti_work *work = TAILQ_LAST(&engine->active, work_queue);
    for (; work != NULL && !work->checked; work = TAILQ_PREV(work, work_queue, link)) {
        if (work->start_ns == 0 && !work->draining) work_start_clock(work, now);
        if (time_to_check(work) < engine->due_ns) engine->due_ns = time_to_check(work);
        work->checked = true;
    }
}

int64_t deadline_check(struct engine *engine, int64_t now)
{
    check_new(engine, now);
    if (now >= engine->due_ns) { /* thousands of works may wait, and most are in no cache */
        engine->due_ns = CLOCK_NEVER;
        int64_t due_ns = check_all(engine, now);
        if (due_ns < engine->due_ns) engine->due_ns = due_ns; /* it may be 0: see engine.h */
    }
    engine->checked_ns = now;
    return engine->due_ns;
}
