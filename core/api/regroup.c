/* The public functions that make a group in place of another one. */
#include <inttypes.h>
#include <stdio.h>

#include "api/hooks.h"
#include "api/world.h"
#include "base/error.h"
#include "base/sized.h"
#include "group/default_group.h"
#include "group/group.h"
#include "group/group_check.h"
#include "group/regroup.h"
#include "group/shared_transport.h"
#include "group/shrink.h"

enum { DEFAULT_TIMEOUT_MS = 30 * 60 * 1000 };

/* ---- queries ----------------------------------------------------------------------------------------------------- */

/* Returns the generation of a group, or of the group that it was made from; NULL if there is none. */
static const struct generation *find_generation(const tutti_group *group)
{
    if (group != NULL && group->generation == NULL) group = group->origin;
    return group != NULL ? group->generation : NULL;
}

int tutti_get_old_rank(const tutti_group *group, int group_rank)
{
    group = default_group_peek(group);
    const struct generation *generation = find_generation(group);
    if (generation == NULL || group_rank < 0 || group_rank >= group->size) return -1;
    int rank = group->global_ranks[group_rank];
    return rank < generation->n ? generation->old_rank[rank] : -1;
}

uint64_t tutti_get_generation(const tutti_group *group)
{
    const struct generation *generation = find_generation(default_group_peek(group));
    return generation != NULL ? generation->number : 0;
}

bool tutti_regroup_wanted(tutti_group *group)
{
    group = group_for_call(group);
    if (group != NULL && group->generation == NULL) group = group->origin;
    return group != NULL && group->generation != NULL && regroup_is_wanted(group);
}

/* ---- shrink_group ------------------------------------------------------------------------------------------------ */

static int check_member(const char *what, const tutti_group *group, tutti_group *const *result)
{
    if (result == NULL)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "%s is NULL; pass an address for the handle", what);
    if (group->rank >= 0) return TUTTI_OK;
    return error_set(TUTTI_ERR_INVALID_ARGUMENT, "%.*s this rank is not in group %s; only members may call this",
                     (int)(strchr(what, ' ') - what), what, group->name);
}

int tutti_shrink_group(tutti_group *group, tutti_group **smaller)
{
    group = group_for_call(group);
    int status = group != NULL ? check_member("shrink_group: smaller", group, smaller) : TUTTI_ERR_INVALID_ARGUMENT;
    return status == TUTTI_OK ? shrink_group(group, group->timeout_ms, smaller) : status;
}

/* ---- regroup ----------------------------------------------------------------------------------------------------- */

static int check_opts(const tutti_regroup_opts *opts)
{
    if (opts->timeout_ms < 0 || opts->world_size < 0)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                         "regroup: timeout_ms is %" PRId64 " and world_size %d; they must not be negative",
                         opts->timeout_ms, opts->world_size);
    return TUTTI_OK;
}

int tutti_regroup_sized(tutti_group *group, const tutti_regroup_opts *opts, size_t opts_bytes, tutti_group **next)
{
    static const tutti_regroup_opts defaults;
    tutti_regroup_opts copy;
    int status = SIZED_READ(tutti_regroup_opts, opts, opts_bytes, &copy);
    if (opts == NULL) opts = &defaults;
    if (status == TUTTI_OK) status = check_opts(opts);
    if (status != TUTTI_OK) return status;
    if (group == NULL || group == default_group_peek(NULL)) return world_regroup(opts, next);
    group = group_for_call(group);
    status = group != NULL ? check_member("regroup: next", group, next) : TUTTI_ERR_INVALID_ARGUMENT;
    if (status != TUTTI_OK) return status;
    int64_t timeout_ms = group_timeout(group, opts->timeout_ms);
    if (group->generation == NULL) return shrink_group(group, timeout_ms, next);
    status = regroup_group(group, opts->world_size, timeout_ms, next);
    if (status == TUTTI_OK) shared_transport_end_group(group, 0);
    return status;
}

int tutti_join_group_sized(const char *backend, tutti_store *store, const tutti_group_opts *opts, size_t opts_bytes,
                           tutti_group **group)
{
    static const tutti_group_opts defaults;
    tutti_group_opts copy;
    struct backend_spec names;
    int status = SIZED_READ(tutti_group_opts, opts, opts_bytes, &copy);
    if (opts == NULL) opts = &defaults;
    if (status != TUTTI_OK) return status;
    if (store == NULL || group == NULL)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                         "join_group: %s is NULL; pass a store and an address for the handle",
                         store == NULL ? "store" : "group");
    if (opts->timeout_ms < 0)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "join_group: timeout_ms is %" PRId64 "; it must not be negative",
                         opts->timeout_ms);
    status = group_check_device("join_group", opts->device);
    if (status == TUTTI_OK) status = backend_spec_parse(backend, &names);
    if (status != TUTTI_OK) return status;
    const tutti_device cpu = {TUTTI_CPU, 0};
    struct group_args args = {
        .names = &names,
        .hooks = &library_hooks,
        .id = 1,
        .name = opts->name != NULL ? opts->name : "own",
        .local_rank = -1,
        .local_world_size = -1,
        .node_rank = -1,
        .timeout_ms = opts->timeout_ms > 0 ? opts->timeout_ms : DEFAULT_TIMEOUT_MS,
        .device = opts->device.type != 0 ? opts->device : cpu,
    };
    args.open_timeout_ms = args.timeout_ms;
    struct regroup regroup = {.store = store, .name = args.name, .args = &args, .timeout_ms = args.timeout_ms};
    return regroup_join(&regroup, -1, group);
}
