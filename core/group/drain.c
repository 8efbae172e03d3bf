#include "group/drain.h"

#include <inttypes.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "group/entries.h"
#include "progress/engine.h"
#include "progress/engine_step.h"

enum {
    NAP_US = 50,
    NAP_MOST_US = 5000,
    WARN_MS = 2000 /* a wait of this length is logged */
};

/* State of a wait for delivery: its deadline, when to warn, how long to sleep. */
struct drain_wait {
    int64_t deadline_ns, warn_ns;
    useconds_t nap_us;
};

static struct drain_wait begin_waiting(int64_t deadline_ns)
{
    return (struct drain_wait){deadline_ns, clock_deadline_ns(WARN_MS), NAP_US};
}

/* True if the engine's i-th backend can drain, and this is its first group. */
static bool drains(const struct engine *engine, int i, const struct tutti_group *group)
{
    const tutti_backend *backend = engine->source[i].backend;
    const struct backend_entry *entry = group != NULL ? entries_find(group, backend) : NULL;
    bool its_own = group == NULL || (entry != NULL && entry->state == engine->source[i].state);
    return its_own && TUTTI_HAS(backend, drain);
}

static bool drains_any(struct tutti_group *group)
{
    bool any = false;
    engine_lock(group->engine);
    for (int i = 0; i < group->engine->n_sources; i++) any |= drains(group->engine, i, group);
    engine_unlock(group->engine);
    return any;
}

/* Returns a rank that may not have received everything, or -1.  Asks each backend about its first group. */
static int32_t find_lacking(const struct engine *engine, const struct tutti_group *group)
{
    int32_t found = -1;
    for (int i = 0; i < engine->n_sources; i++) {
        const tutti_backend *backend = engine->source[i].backend;
        if (!drains(engine, i, group)) continue;
        int32_t rank = backend->drain(engine->source[i].state);
        if (found < 0) found = rank;
    }
    return found;
}

static void warn(struct drain_wait *wait, const struct tutti_group *group, int32_t rank)
{
    if (clock_now_ns() < wait->warn_ns) return;
    wait->warn_ns = CLOCK_NEVER;
    log_write(LOG_WARN, LOG_GROUP,
              "group %s: rank %d has not received all data of this rank; the group ends when it has, or in at "
              "most %d s",
              group->name, rank, clock_left_ms(wait->deadline_ns) / 1000);
}

/* Sleeps if nothing moved.  Returns false once the deadline has passed. */
static bool nap(struct drain_wait *wait, bool moved)
{
    if (clock_now_ns() >= wait->deadline_ns) return false;
    if (moved) {
        wait->nap_us = NAP_US;
        return true;
    }
    usleep(wait->nap_us);
    if (wait->nap_us < NAP_MOST_US) wait->nap_us *= 2;
    return true;
}

void drain_group(struct tutti_group *group, int64_t deadline_ns)
{
    if (!drains_any(group)) return;
    struct drain_wait wait = begin_waiting(deadline_ns);
    for (bool moved = true; nap(&wait, moved);) {
        engine_lock(group->engine);
        bool over = group->failed || group->shut || !TAILQ_EMPTY(&group->works);
        int32_t rank = over ? -1 : find_lacking(group->engine, group);
        if (rank >= 0) moved = engine_step(group->engine);
        engine_unlock(group->engine);
        if (rank < 0) return;
        warn(&wait, group, rank);
    }
}

static bool make_progress(const struct engine *engine)
{
    bool moved = false;
    for (int i = 0; i < engine->n_sources; i++)
        if (TUTTI_HAS(engine->source[i].backend, progress))
            moved |= engine->source[i].backend->progress(engine->source[i].state) != 0;
    return moved;
}

/* True if the first group has failed.  A root that groups share does not fail itself; it counts as failed if all of
 * them have. */
static bool has_failed(const struct tutti_group *first)
{
    const struct tutti_group *group;
    if (!first->is_shared) return first->failed != TUTTI_OK;
    TAILQ_FOREACH(group, &first->tree, tree_link)
    {
        if (group != first && group->rank >= 0 && group->failed == TUTTI_OK) return false;
    }
    return true;
}

void drain_at_exit(struct engine *engine)
{
    const struct tutti_group *first = engine->first;
    if (first == NULL || has_failed(first)) return;
    struct drain_wait wait = begin_waiting(clock_deadline_ns(first->timeout_ms));
    int32_t rank;
    for (bool moved = true; nap(&wait, moved) && (rank = find_lacking(engine, NULL)) >= 0;) {
        moved = make_progress(engine);
        warn(&wait, first, rank);
    }
}
