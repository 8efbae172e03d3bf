/* Waits for all operations of a group at once. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "group/default_group.h"
#include "group/group.h"
#include "group/group_check.h"
#include "progress/engine_wait.h"
#include "progress/work.h"

/* Returns the group's n works that have not ended, each held.  NULL with n > 0: out of memory. */
static struct tutti_work **hold_works(struct tutti_group *group, int *n)
{
    struct tutti_work *work, **works;
    *n = 0;
    TAILQ_FOREACH(work, &group->works, group_link)++ *n;
    if (*n == 0 || (works = malloc((size_t)*n * sizeof(struct tutti_work *))) == NULL) return NULL;
    int i = 0;
    TAILQ_FOREACH(work, &group->works, group_link)
    {
        work->references++;
        works[i++] = work;
    }
    return works;
}

/* Sets the error of a timeout: how many works have not ended, and the first of them. */
static int report_timeout(const struct tutti_group *group, struct tutti_work *const *works, int n)
{
    char what[160] = "";
    int left = 0;
    for (int i = 0; i < n; i++) {
        if (work_ended(works[i])) continue;
        if (left++ == 0) work_describe(works[i], what, sizeof what);
    }
    return error_set(TUTTI_ERR_TIMEOUT, "group_quiesce: %d of %d operations of group %s are still under way, first %s",
                     left, n, group->name, what);
}

static int wait_for_works(struct tutti_group *group, int64_t deadline_ns)
{
    int n = 0, status = TUTTI_OK;
    struct tutti_work **works = hold_works(group, &n);
    if (n > 0 && works == NULL)
        return error_set(TUTTI_ERR_NO_MEMORY, "group_quiesce: out of memory to wait for %d operations", n);
    for (int i = 0; i < n && status == TUTTI_OK; i++)
        if (!work_ended(works[i]) && !engine_wait(group->engine, works[i], deadline_ns)) status = TUTTI_ERR_TIMEOUT;
    if (status != TUTTI_OK) status = report_timeout(group, works, n);
    for (int i = 0; i < n; i++) work_release_locked(works[i]);
    free(works);
    return status;
}

int tutti_group_quiesce(tutti_group *group, int64_t timeout_ms)
{
    group = group_for_call(group);
    if (group == NULL) return TUTTI_ERR_INVALID_ARGUMENT;
    if (group->rank < 0)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                         "group_quiesce: this rank is not in group %s; only members may call this", group->name);
    if (timeout_ms < 0 && timeout_ms != TUTTI_NOW)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "group_quiesce: timeout_ms is %lld; it must not be negative",
                         (long long)timeout_ms);
    int64_t deadline_ns = timeout_ms <= 0                       ? 0
                          : timeout_ms == TUTTI_DEFAULT_TIMEOUT ? CLOCK_NEVER /* each ends by its own deadline */
                                                                : clock_deadline_ns(timeout_ms);
    engine_lock(group->engine);
    engine_count_call(group->engine);
    group_hold(group); /* another thread may destroy the group meanwhile */
    int status = wait_for_works(group, deadline_ns);
    engine_unlock(group->engine);
    group_drop(group);
    return status;
}

uint64_t tutti_get_sequence(const tutti_group *group)
{
    group = default_group_peek(group);
    if (group == NULL || group->rank < 0) return 0;
    engine_lock(group->engine);
    uint64_t sequence = group->sequence;
    engine_unlock(group->engine);
    return sequence;
}
