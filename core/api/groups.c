/* The public functions that make, query and abort groups. */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/hooks.h"
#include "base/error.h"
#include "base/sized.h"
#include "group/default_group.h"
#include "group/generation.h"
#include "group/group.h"
#include "group/group_args.h"
#include "group/group_check.h"
#include "group/group_fail.h"
#include "group/group_id.h"
#include "group/shared_transport.h"
#include "group/split.h"
#include "group/subgroup.h"

/* ---- queries ----------------------------------------------------------------------------------------------------- */

int tutti_get_rank(const tutti_group *group)
{
    group = default_group_peek(group);
    return group != NULL ? group->rank : -1;
}

int tutti_get_world_size(const tutti_group *group)
{
    group = default_group_peek(group);
    return group != NULL ? group->size : -1;
}

int tutti_get_global_rank(const tutti_group *group, int group_rank)
{
    group = default_group_peek(group);
    return group != NULL && group_rank >= 0 && group_rank < group->size ? group->global_ranks[group_rank] : -1;
}

int tutti_get_group_rank(const tutti_group *group, int global_rank)
{
    group = default_group_peek(group);
    return group != NULL ? group_rank_of(group, global_rank) : -1;
}

const char *tutti_get_name(const tutti_group *group)
{
    group = default_group_peek(group);
    return group != NULL ? group->name : "";
}

const char *tutti_get_backend(const tutti_group *group)
{
    group = default_group_peek(group);
    return group != NULL ? group->backend_text : "";
}

tutti_device tutti_get_device(const tutti_group *group)
{
    group = default_group_peek(group);
    return group != NULL ? group->device : (tutti_device){TUTTI_CPU, 0};
}

/* ---- new_group --------------------------------------------------------------------------------------------------- */

/* Reads the options, or the defaults if *opts is NULL. */
static int read_opts(const tutti_group_opts **opts, size_t bytes, tutti_group_opts *copy)
{
    static const tutti_group_opts defaults;
    if (*opts != NULL) return SIZED_READ(tutti_group_opts, *opts, bytes, copy);
    *opts = &defaults;
    return TUTTI_OK;
}

/* Sets *parent to the group from which a group is to be made, if that is possible. */
static int find_parent(const char *what, const tutti_group_opts *opts, struct tutti_group **parent)
{
    *parent = group_for_call(opts->parent);
    if (*parent == NULL) return TUTTI_ERR_INVALID_ARGUMENT;
    if ((*parent)->rank < 0)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                         "%s: this rank is not in the parent group %s; only members may call this", what,
                         (*parent)->name);
    if (opts->timeout_ms < 0)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "%s: timeout_ms is %" PRId64 "; it must not be negative", what,
                         opts->timeout_ms);
    engine_lock((*parent)->engine);
    engine_count_call((*parent)->engine);
    int status = group_check_usable(*parent, what);
    engine_unlock((*parent)->engine);
    return status;
}

static int check_members(const struct tutti_group *parent, const int *ranks, int n)
{
    if (ranks == NULL || n < 1 || n > parent->size)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                         "new_group: %d ranks were passed, but group %s has %d; pass 1 to %d ranks",
                         ranks == NULL ? 0 : n, parent->name, parent->size, parent->size);
    bool *seen = calloc((size_t)parent->world, sizeof *seen);
    if (seen == NULL) return error_set(TUTTI_ERR_NO_MEMORY, "new_group: out of memory for a group of %d ranks", n);
    int status = TUTTI_OK;
    for (int i = 0; i < n && status == TUTTI_OK; i++) {
        if (tutti_get_group_rank(parent, ranks[i]) < 0)
            status = error_set(TUTTI_ERR_INVALID_ARGUMENT,
                               "new_group: ranks[%d] is %d, which is not a global rank of group %s", i, ranks[i],
                               parent->name);
        else if (seen[ranks[i]])
            status = error_set(TUTTI_ERR_INVALID_ARGUMENT, "new_group: rank %d is listed twice; list each rank once",
                               ranks[i]);
        else
            seen[ranks[i]] = true;
    }
    free(seen);
    return status;
}

static int compare_numbers(const void *a, const void *b)
{
    const int *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Computes a hash of the members that does not depend on their order. */
static int hash_members(uint64_t id, const int *ranks, int n, uint64_t *set)
{
    int *sorted = malloc((size_t)n * sizeof *sorted);
    if (sorted == NULL) return error_set(TUTTI_ERR_NO_MEMORY, "new_group: out of memory for a group of %d ranks", n);
    memcpy(sorted, ranks, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, compare_numbers);
    *set = group_id_mix(id, 2);
    for (int i = 0; i < n; i++) *set = group_id_mix(*set, (uint64_t)sorted[i] + 1);
    free(sorted);
    return TUTTI_OK;
}

/* Chooses the id of a new group.  If all ranks of the parent call, it derives from the number of their calls.  With
 * members_only, it derives from the number of groups made of these members. */
static int choose_id(struct tutti_group *parent, const int *ranks, int n, bool members_only, struct subgroup_id *id)
{
    uint64_t base = group_id_mix(parent->id, 1), set = 0;
    int status = members_only ? hash_members(base, ranks, n, &set) : TUTTI_OK;
    if (status != TUTTI_OK) return status;
    engine_lock(parent->engine);
    *id = (struct subgroup_id){.number = members_only ? 0 : ++parent->n_subgroups, .may_pend = members_only};
    id->key = members_only ? group_id_mix(set, group_count_use(parent, set)) : group_id_mix(base, id->number + 2);
    id->id = id->key;
    engine_unlock(parent->engine);
    return TUTTI_OK;
}

int tutti_new_group_sized(const int *ranks, int n, const tutti_group_opts *opts, size_t opts_bytes, tutti_group **group)
{
    tutti_group_opts copy;
    int status = read_opts(&opts, opts_bytes, &copy);
    if (status != TUTTI_OK) return status;
    if (group == NULL)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "new_group: group is NULL; pass an address for the handle");
    struct tutti_group *parent = NULL;
    status = find_parent("new_group", opts, &parent);
    if (status == TUTTI_OK) status = check_members(parent, ranks, n);
    struct subgroup_id id;
    if (status == TUTTI_OK) status = choose_id(parent, ranks, n, opts->members_only, &id);
    return status == TUTTI_OK ? subgroup_open(parent, ranks, n, &id, 0, opts, group) : status;
}

/* ---- split_group ------------------------------------------------------------------------------------------------- */

static int compare_keys(const void *a, const void *b)
{
    const struct split_choice *x = a, *y = b;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

int tutti_split_group_sized(int color, int key, const tutti_group_opts *opts, size_t opts_bytes, tutti_group **group)
{
    tutti_group_opts copy;
    int status = read_opts(&opts, opts_bytes, &copy);
    if (status != TUTTI_OK) return status;
    if (group == NULL)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "split_group: group is NULL; pass an address for the handle");
    struct tutti_group *parent = NULL;
    status = find_parent("split_group", opts, &parent);
    if (status != TUTTI_OK) return status;
    struct subgroup_id of_all;
    status = choose_id(parent, NULL, 0, false, &of_all);
    if (status != TUTTI_OK) return status;
    uint64_t id = of_all.id;
    struct split_choice *all = calloc((size_t)parent->size, sizeof *all);
    int *ranks = calloc((size_t)parent->size, sizeof *ranks), n = 0;
    status = all != NULL && ranks != NULL
                 ? TUTTI_OK
                 : error_set(TUTTI_ERR_NO_MEMORY, "split_group: out of memory for %d ranks", parent->size);
    if (color < 0) color = -1;
    if (status == TUTTI_OK) status = split_exchange(parent, &of_all, color, key, all);
    if (status == TUTTI_OK) {
        qsort(all, (size_t)parent->size, sizeof *all, compare_keys);
        for (int i = 0; i < parent->size; i++)
            if (color >= 0 && all[i].color == color) ranks[n++] = all[i].rank;
        struct subgroup_id part = {.id = group_id_mix(id, (uint64_t)color + 3),
                                   .key = group_id_mix(id, (uint64_t)color + 3)};
        status = subgroup_open(parent, ranks, n, &part, color, opts, group);
    }
    free(ranks);
    free(all);
    return status;
}

/* ---- create_group ------------------------------------------------------------------------------------------------ */

/* Makes the group known as the first of those that regroup makes. */
static int add_generation(tutti_group *group, tutti_store *store)
{
    char text[ERROR_TEXT_MAX];
    int status = generation_first(group->size, store, NULL, &group->generation);
    if (status == TUTTI_OK) return TUTTI_OK;
    snprintf(text, sizeof text, "%s", error_text());
    shared_transport_close_group(group, 0);
    return error_set(status, "%s", text);
}

int tutti_create_group_sized(const char *backend, tutti_store *store, int rank, int world_size,
                             const tutti_group_opts *opts, size_t opts_bytes, tutti_group **group)
{
    tutti_group_opts copy;
    int status = read_opts(&opts, opts_bytes, &copy);
    if (status != TUTTI_OK) return status;
    if (store == NULL || group == NULL)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                         "create_group: %s is NULL; pass a store and an address for the handle",
                         store == NULL ? "store" : "group");
    if (world_size < 1 || rank < 0 || rank >= world_size)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                         "create_group: rank is %d and world_size %d; use ranks from 0 to world_size - 1", rank,
                         world_size);
    if (opts->timeout_ms < 0)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "create_group: timeout_ms is %" PRId64 "; it must not be negative",
                         opts->timeout_ms);
    struct backend_spec names;
    status = group_check_device("create_group", opts->device);
    if (status == TUTTI_OK) status = backend_spec_parse(backend, &names);
    if (status != TUTTI_OK) return status;
    const tutti_device cpu = {TUTTI_CPU, 0};
    struct group_args args = {
        .names = &names,
        .store = store,
        .hooks = &library_hooks,
        .id = 1,
        .name = opts->name != NULL ? opts->name : "own",
        .rank = rank,
        .size = world_size,
        .local_rank = -1,
        .local_world_size = -1,
        .node_rank = -1,
        .timeout_ms = opts->timeout_ms > 0 ? opts->timeout_ms : 30 * 60 * 1000,
        .device = opts->device.type != 0 ? opts->device : cpu,
    };
    status = shared_transport_open_group(&args, group);
    return status == TUTTI_OK ? add_generation(*group, store) : status;
}

int tutti_abort(tutti_group *group, const char *reason)
{
    group = group_for_call(group);
    if (group == NULL) return TUTTI_ERR_INVALID_ARGUMENT;
    if (group->rank < 0)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "abort: this rank is not in group %s; only members may call this",
                         group->name);
    char text[ERROR_TEXT_MAX];
    snprintf(text, sizeof text, "group %s was aborted by rank %d: %.800s", group->name,
             group->global_ranks[group->rank], reason != NULL ? reason : "no reason given");
    engine_lock(group->engine);
    engine_count_call(group->engine);
    group_fail(group, TUTTI_ERR_ABORTED, text, true);
    engine_unlock(group->engine);
    return TUTTI_OK;
}
