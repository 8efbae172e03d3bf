/* The public function that reads a group's counters. */
#include <string.h>
#include <tutti/tutti.h>

#include "base/error.h"
#include "group/group_check.h"
#include "progress/engine.h"

int tutti_get_stats_sized(tutti_group *group, tutti_stats *stats, size_t bytes)
{
    group = group_for_call(group);
    if (group == NULL) return TUTTI_ERR_INVALID_ARGUMENT;
    if (stats == NULL || bytes == 0)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "get_stats: stats is NULL; pass an address for the counters");
    if (group->rank < 0)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                         "get_stats: this rank is not in group %s; only members may call this", group->name);
    engine_lock(group->engine);
    tutti_stats all = *group->stats;
    const tutti_stats *tree = group->engine->stats;
    all.waits = tree->waits;
    all.sleeps = tree->sleeps;
    all.transport = tree->transport;
    engine_unlock(group->engine);
    memset(stats, 0, bytes);
    memcpy(stats, &all, bytes < sizeof all ? bytes : sizeof all);
    return TUTTI_OK;
}
