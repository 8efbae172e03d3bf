#include "group/regroup.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/env.h"
#include "base/error.h"
#include "diagnose/recorder.h"
#include "group/group_check.h"
#include "group/group_fail.h"
#include "progress/engine.h"
#include "state/group_state.h"

enum { UNNUMBERED = 1 << 20, WANTED_MS = 100 };

/* Returns ABORTED if the others have made a newer group without this rank. */
static int check_left_behind(const struct regroup *regroup)
{
    struct generation *newest = NULL;
    int status = generation_read(regroup->store, &newest);
    if (status != TUTTI_OK || newest == NULL) return status;
    bool newer = newest->number > regroup->old->number;
    generation_free(newest);
    return newer ? regroup_report_left_behind(regroup) : TUTTI_OK;
}

/* Rounds may fail again and again although nobody dies, for example if two ranks cannot connect. */
static int give_up(const struct regroup *regroup, int status)
{
    double seconds = (double)regroup->timeout_ms / 1000;
    if (status != TUTTI_OK)
        return error_prefix(status, "gave up after %.3f s in which no rank died and no group could be made", seconds);
    return error_set(TUTTI_ERR_TIMEOUT,
                     "regroup of group %s: gave up after %.3f s in which no rank died and no group could be made",
                     regroup->name, seconds);
}

static int run(struct regroup *regroup, struct tutti_group **next)
{
    bool again = true;
    int status = TUTTI_OK;
    int64_t deadline = clock_deadline_ns(regroup->timeout_ms);
    for (uint64_t round = regroup->old->number + 1; again; round++) {
        status = regroup->group != NULL ? check_left_behind(regroup) : TUTTI_OK;
        if (status != TUTTI_OK) return status;
        regroup->progressed = false;
        status = regroup_round_run(regroup, round, next, &again);
        if (regroup->progressed) deadline = clock_deadline_ns(regroup->timeout_ms);
        if (again && clock_now_ns() >= deadline) return give_up(regroup, status);
    }
    return status;
}

int regroup_group(struct tutti_group *old, int world_size, int64_t timeout_ms, struct tutti_group **next)
{
    char text[200];
    struct group_args args = {
        .names = &old->names,
        .hooks = old->engine->hooks,
        .id = 1,
        .name = old->name,
        .local_rank = old->local_rank,
        .local_world_size = old->local_world_size,
        .node_rank = old->node_rank,
        .timeout_ms = old->timeout_ms,
        .open_timeout_ms = old->open_timeout_ms,
        .device = old->device,
        .algorithm = old->own_algorithm,
    };
    struct regroup regroup = {
        .store = old->generation->store,
        .launcher = old->generation->launcher,
        .group = old,
        .name = old->name,
        .old = old->generation,
        .args = &args,
        .number = old->generation->member[old->rank],
        .world_size = world_size,
        .timeout_ms = timeout_ms,
    };
    snprintf(text, sizeof text, "rank %d has called tutti_regroup for group %s", old->rank, old->name);
    engine_lock(old->engine);
    int status = group_check_open(old);
    if (status == TUTTI_OK) group_fail_descendants(old, TUTTI_ERR_ABORTED, text);
    engine_unlock(old->engine);
    return status == TUTTI_OK ? run(&regroup, next) : status;
}

/* ---- newcomers ----------------------------------------------------------------------------------------------- */

/* Sets the number of a newcomer: the launcher's, or another one that no process has. */
static int find_number(struct regroup *regroup)
{
    int64_t count = 0;
    regroup->number = -1;
    if (regroup->launcher != NULL) {
        int status = env_int("TUTTI_MEMBER", -1, 0, UNNUMBERED - 1, &regroup->number);
        if (status != TUTTI_OK || regroup->number >= 0) return status;
    }
    int status = tutti_store_add(regroup->store, "regroup/newcomers", 1, &count);
    regroup->number = UNNUMBERED + count;
    return status;
}

int regroup_join(struct regroup *regroup, int began_with, struct tutti_group **next)
{
    recorder_start();
    int status = find_number(regroup);
    if (status == TUTTI_OK) status = generation_read(regroup->store, &regroup->old);
    if (status == TUTTI_OK && regroup->old == NULL)
        status = generation_first(began_with > 0 ? began_with : 0, regroup->store, regroup->launcher, &regroup->old);
    if (status == TUTTI_OK) status = run(regroup, next);
    generation_free(regroup->old);
    return status;
}

/* True if the answer is known, or too recent to ask the store again. */
static bool knows_wanted(struct tutti_group *group)
{
    int64_t now = clock_now_ns();
    engine_lock(group->engine);
    group->wanted |= group->failed != TUTTI_OK || group->lost_text != NULL;
    bool known = group->wanted || group->shut || now < group->wanted_again_ns;
    if (!known) group->wanted_again_ns = now + (int64_t)WANTED_MS * 1000000;
    engine_unlock(group->engine);
    return known;
}

bool regroup_is_wanted(struct tutti_group *group)
{
    char key[REGROUP_KEY];
    bool present = false;
    if (!knows_wanted(group)) {
        regroup_round_key(group->generation->number + 1, key);
        tutti_store_check(group->generation->store, (const char *[]){key}, 1, &present);
    }
    engine_lock(group->engine);
    bool wanted = group->wanted |= present;
    engine_unlock(group->engine);
    return wanted;
}
