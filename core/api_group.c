/* The public functions on groups: making, asking, ending early; and the library's own version and errors. */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/error.h"
#include "base/sized.h"
#include "child.h"
#include "fingerprint.h"
#include "group.h"
#include "hooks.h"

const char *tutti_last_error(void)
{
    return error_text();
}

const char *tutti_status_string(int status)
{
    return error_name(status);
}

const char *tutti_version(void)
{
    return TUTTI_VERSION;
}

int tutti_abi_version(void)
{
    return TUTTI_ABI_VERSION;
}

const char *tutti_kind_name(tutti_kind kind)
{
    return fingerprint_kind_name(kind);
}

const char *tutti_dtype_name(tutti_dtype dtype)
{
    return dtype_name(dtype);
}

const char *tutti_reduce_op_name(tutti_reduce_op op)
{
    return reduce_op_name(op);
}

/* ---- asking ------------------------------------------------------------------------------------------------ */

int tutti_get_rank(const tutti_group *group)
{
    group = group_to_ask(group);
    return group != NULL ? group->rank : -1;
}

int tutti_get_world_size(const tutti_group *group)
{
    group = group_to_ask(group);
    return group != NULL ? group->size : -1;
}

int tutti_get_global_rank(const tutti_group *group, int group_rank)
{
    group = group_to_ask(group);
    return group != NULL && group_rank >= 0 && group_rank < group->size ? group->global_ranks[group_rank] : -1;
}

int tutti_get_group_rank(const tutti_group *group, int global_rank)
{
    group = group_to_ask(group);
    return group != NULL ? group_rank_of(group, global_rank) : -1;
}

const char *tutti_get_name(const tutti_group *group)
{
    group = group_to_ask(group);
    return group != NULL ? group->name : "";
}

const char *tutti_get_backend(const tutti_group *group)
{
    group = group_to_ask(group);
    return group != NULL ? group->backend_text : "";
}

tutti_device tutti_get_device(const tutti_group *group)
{
    group = group_to_ask(group);
    return group != NULL ? group->device : (tutti_device){TUTTI_CPU, 0};
}

/* ---- making ------------------------------------------------------------------------------------------------ */

/* The options as this library knows them; NULL: all defaults. */
static int read_opts(const tutti_group_opts **opts, size_t bytes, tutti_group_opts *copy)
{
    static const tutti_group_opts defaults;
    if (*opts != NULL) return SIZED_READ(tutti_group_opts, *opts, bytes, copy);
    *opts = &defaults;
    return TUTTI_OK;
}

/* The parent, if a group can be made from it. */
static int find_parent(const char *what, const tutti_group_opts *opts, struct tutti_group **parent)
{
    *parent = group_for_call(opts->parent);
    if (*parent == NULL) return TUTTI_ERR_INVALID_ARGUMENT;
    if ((*parent)->rank < 0)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "%s: this rank is not in the parent group %s", what,
                         (*parent)->name);
    if (opts->timeout_ms < 0)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "%s: timeout_ms is %" PRId64, what, opts->timeout_ms);
    engine_lock((*parent)->engine);
    engine_called((*parent)->engine);
    int status = group_check_usable(*parent, what);
    engine_unlock((*parent)->engine);
    return status;
}

static int check_members(const struct tutti_group *parent, const int *ranks, int n)
{
    if (ranks == NULL || n < 1 || n > parent->size)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "new_group: %d ranks from group %s of %d", ranks == NULL ? 0 : n,
                         parent->name, parent->size);
    bool *seen = calloc((size_t)parent->world, sizeof *seen);
    if (seen == NULL) return error_set(TUTTI_ERR_NO_MEMORY, "no memory for a group");
    int status = TUTTI_OK;
    for (int i = 0; i < n && status == TUTTI_OK; i++) {
        if (tutti_get_group_rank(parent, ranks[i]) < 0)
            status =
                error_set(TUTTI_ERR_INVALID_ARGUMENT, "new_group: ranks[%d] is %d, which is no global rank of group %s",
                          i, ranks[i], parent->name);
        else if (seen[ranks[i]])
            status = error_set(TUTTI_ERR_INVALID_ARGUMENT, "new_group: rank %d stands there twice", ranks[i]);
        else
            seen[ranks[i]] = true;
    }
    free(seen);
    return status;
}

static int by_number(const void *a, const void *b)
{
    const int *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Alike for lists of the same members, in whichever order. */
static int set_of(uint64_t id, const int *ranks, int n, uint64_t *set)
{
    int *sorted = malloc((size_t)n * sizeof *sorted);
    if (sorted == NULL) return error_set(TUTTI_ERR_NO_MEMORY, "no memory for a group");
    memcpy(sorted, ranks, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, by_number);
    *set = child_mix(id, 2);
    for (int i = 0; i < n; i++) *set = child_mix(*set, (uint64_t)sorted[i] + 1);
    free(sorted);
    return TUTTI_OK;
}

/* Which group this is.  Where all of the parent call, their count of calls tells; where members alone do, it is how
 * often these members have been used. */
static int next_id(struct tutti_group *parent, const int *ranks, int n, bool members_only, struct child_id *id)
{
    uint64_t base = child_mix(parent->id, 1), set = 0;
    int status = members_only ? set_of(base, ranks, n, &set) : TUTTI_OK;
    if (status != TUTTI_OK) return status;
    engine_lock(parent->engine);
    *id = (struct child_id){.number = members_only ? 0 : ++parent->children, .may_pend = members_only};
    id->key = members_only ? child_mix(set, group_count_use(parent, set)) : child_mix(base, id->number + 2);
    id->id = id->key;
    engine_unlock(parent->engine);
    return TUTTI_OK;
}

int tutti_new_group_sized(const int *ranks, int n, const tutti_group_opts *opts, size_t opts_bytes, tutti_group **group)
{
    tutti_group_opts copy;
    int status = read_opts(&opts, opts_bytes, &copy);
    if (status != TUTTI_OK) return status;
    if (group == NULL) return error_set(TUTTI_ERR_INVALID_ARGUMENT, "new_group: group is NULL");
    struct tutti_group *parent = NULL;
    status = find_parent("new_group", opts, &parent);
    if (status == TUTTI_OK) status = check_members(parent, ranks, n);
    struct child_id id;
    if (status == TUTTI_OK) status = next_id(parent, ranks, n, opts->members_only, &id);
    return status == TUTTI_OK ? child_open(parent, ranks, n, &id, 0, opts, group) : status;
}

/* ---- split ------------------------------------------------------------------------------------------------- */

enum { SPLIT_KEY = 64, CHOICE_MOST = 40 };

#define NOBODY_SPLITS "n" /* a verdict; another one has all choices */

struct chosen {
    int color, key, rank; /* the rank is global */
};

static int by_key(const void *a, const void *b)
{
    const struct chosen *x = a, *y = b;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

static void split_key(uint64_t id, const char *what, char key[SPLIT_KEY])
{
    snprintf(key, SPLIT_KEY, "split/%016" PRIx64 "/%s", id, what);
}

/* Takes the split before out of the store.  All have chosen anew, so all have read it. */
static void forget_last(struct tutti_group *parent, uint64_t id)
{
    static const char *const parts[] = {"choices", "came", "verdict"};
    char key[SPLIT_KEY];
    for (size_t i = 0; i < sizeof parts / sizeof *parts && parent->rank == 0 && parent->last_split != 0; i++) {
        split_key(parent->last_split, parts[i], key);
        tutti_store_delete(parent->store, key, NULL);
    }
    parent->last_split = id;
}

/* Lines of rank, color and key: one of each rank. */
static int read_choices(const struct tutti_group *parent, const char *text, struct chosen *all)
{
    int n = 0;
    for (int i = 0; i < parent->size; i++) all[i].rank = -1;
    for (; *text != '\0'; n++) {
        struct chosen choice;
        int rank, used = 0;
        bool whole = sscanf(text, "%d %d %d%n", &rank, &choice.color, &choice.key, &used) == 3 && text[used] == '\n';
        if (!whole || rank < 0 || rank >= parent->size || all[rank].rank >= 0)
            return error_set(TUTTI_ERR_STORE, "split_group: a choice in the store is \"%.*s\"",
                             (int)strcspn(text, "\n"), text);
        choice.rank = parent->global_ranks[rank];
        all[rank] = choice;
        text += used + 1;
    }
    if (n == parent->size) return TUTTI_OK;
    return error_set(TUTTI_ERR_STORE, "split_group: the store has the choices of %d of %d ranks", n, parent->size);
}

/* Whether the ranks split: the one that has all choices, or the first that has waited long enough for them, says so for
 * all.  So nobody splits with one that has given up, and nobody gives up when others have begun. */
static int settle(struct tutti_group *parent, uint64_t id, const char *mine, char *verdict, size_t room)
{
    char key[SPLIT_KEY];
    size_t bytes = 0;
    split_key(id, "verdict", key);
    int status = tutti_store_compare_set(parent->store, key, "", 0, mine, strlen(mine), verdict, room - 1, &bytes);
    verdict[status == TUTTI_OK && bytes < room ? bytes : 0] = '\0';
    return status;
}

/* The last to choose reads what all have chosen, and hands it out. */
static int hand_out(struct tutti_group *parent, uint64_t id, char *choices, char *verdict, size_t room)
{
    char key[SPLIT_KEY];
    size_t bytes = 0;
    split_key(id, "choices", key);
    int status = tutti_store_get(parent->store, key, choices, room - 1, &bytes, parent->timeout_ms);
    if (status != TUTTI_OK) return status;
    choices[bytes] = '\0';
    return settle(parent, id, choices, verdict, room);
}

static int await_verdict(struct tutti_group *parent, uint64_t id, char *verdict, size_t room)
{
    char key[SPLIT_KEY];
    size_t bytes = 0;
    int64_t came = 0;
    split_key(id, "verdict", key);
    int status = tutti_store_get(parent->store, key, verdict, room - 1, &bytes, parent->timeout_ms);
    verdict[status == TUTTI_OK ? bytes : 0] = '\0';
    if (status != TUTTI_ERR_TIMEOUT) return status;
    status = settle(parent, id, NOBODY_SPLITS, verdict, room);
    if (status != TUTTI_OK || strcmp(verdict, NOBODY_SPLITS) != 0) return status;
    split_key(id, "came", key);
    status = tutti_store_add(parent->store, key, 0, &came);
    if (status != TUTTI_OK) return status;
    return error_set(TUTTI_ERR_TIMEOUT, "split_group of group %s: %d of %d ranks came within %.3f s", parent->name,
                     (int)came, parent->size, (double)parent->timeout_ms / 1000);
}

static int choose(struct tutti_group *parent, uint64_t id, int color, int key, int64_t *came)
{
    char name[SPLIT_KEY], own[CHOICE_MOST];
    split_key(id, "choices", name);
    snprintf(own, sizeof own, "%d %d %d\n", parent->rank, color, key);
    int status = tutti_store_append(parent->store, name, own, strlen(own));
    split_key(id, "came", name);
    return status == TUTTI_OK ? tutti_store_add(parent->store, name, 1, came) : status;
}

/* All ranks' choices, through the store: it needs no tensors of any device.  A rank makes a few requests for one key
 * each, however many ranks there are. */
static int exchange(struct tutti_group *parent, uint64_t id, int color, int key, struct chosen *all)
{
    size_t room = (size_t)parent->size * CHOICE_MOST + CHOICE_MOST;
    char *choices = malloc(2 * room), *verdict = choices + room;
    int64_t came = 0;
    if (choices == NULL) return error_set(TUTTI_ERR_NO_MEMORY, "no memory to split");
    int status = choose(parent, id, color, key, &came);
    if (status == TUTTI_OK && came == parent->size)
        status = hand_out(parent, id, choices, verdict, room);
    else if (status == TUTTI_OK)
        status = await_verdict(parent, id, verdict, room);
    if (status == TUTTI_OK && strcmp(verdict, NOBODY_SPLITS) == 0)
        status = error_set(TUTTI_ERR_TIMEOUT,
                           "split_group of group %s: the other ranks have given up waiting for this one (%d), or for "
                           "others",
                           parent->name, parent->global_ranks[parent->rank]);
    else if (status == TUTTI_OK)
        status = read_choices(parent, verdict, all);
    if (status == TUTTI_OK) forget_last(parent, id);
    free(choices);
    return status;
}

int tutti_split_group_sized(int color, int key, const tutti_group_opts *opts, size_t opts_bytes, tutti_group **group)
{
    tutti_group_opts copy;
    int status = read_opts(&opts, opts_bytes, &copy);
    if (status != TUTTI_OK) return status;
    if (group == NULL) return error_set(TUTTI_ERR_INVALID_ARGUMENT, "split_group: group is NULL");
    struct tutti_group *parent = NULL;
    status = find_parent("split_group", opts, &parent);
    if (status != TUTTI_OK) return status;
    struct child_id of_all;
    status = next_id(parent, NULL, 0, false, &of_all);
    if (status != TUTTI_OK) return status;
    uint64_t id = of_all.id;
    struct chosen *all = calloc((size_t)parent->size, sizeof *all);
    int *ranks = calloc((size_t)parent->size, sizeof *ranks), n = 0;
    status = all != NULL && ranks != NULL ? TUTTI_OK : error_set(TUTTI_ERR_NO_MEMORY, "no memory to split");
    if (color < 0) color = -1;
    if (status == TUTTI_OK) status = exchange(parent, id, color, key, all);
    if (status == TUTTI_OK) {
        qsort(all, (size_t)parent->size, sizeof *all, by_key);
        for (int i = 0; i < parent->size; i++)
            if (color >= 0 && all[i].color == color) ranks[n++] = all[i].rank;
        struct child_id part = {.id = child_mix(id, (uint64_t)color + 3), .key = child_mix(id, (uint64_t)color + 3)};
        status = child_open(parent, ranks, n, &part, color, opts, group);
    }
    free(ranks);
    free(all);
    return status;
}

/* ---- a group of its own ------------------------------------------------------------------------------------ */

int tutti_create_group_sized(const char *backend, tutti_store *store, int rank, int world_size,
                             const tutti_group_opts *opts, size_t opts_bytes, tutti_group **group)
{
    tutti_group_opts copy;
    int status = read_opts(&opts, opts_bytes, &copy);
    if (status != TUTTI_OK) return status;
    if (store == NULL || group == NULL)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "create_group: %s is NULL", store == NULL ? "store" : "group");
    if (world_size < 1 || rank < 0 || rank >= world_size)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "create_group: rank %d of %d", rank, world_size);
    if (opts->timeout_ms < 0)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "create_group: timeout_ms is %" PRId64, opts->timeout_ms);
    struct names names;
    status = group_check_device("create_group", opts->device);
    if (status == TUTTI_OK) status = names_parse(backend, &names);
    if (status != TUTTI_OK) return status;
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
        .device = opts->device.type != 0 ? opts->device : (tutti_device){TUTTI_CPU, 0},
    };
    return group_open(&args, group);
}

int tutti_abort(tutti_group *group, const char *reason)
{
    group = group_for_call(group);
    if (group == NULL) return TUTTI_ERR_INVALID_ARGUMENT;
    if (group->rank < 0)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "abort: this rank is not in group %s", group->name);
    char text[ERROR_TEXT_MAX];
    snprintf(text, sizeof text, "group %s was aborted by rank %d: %.800s", group->name,
             group->global_ranks[group->rank], reason != NULL ? reason : "no reason given");
    engine_lock(group->engine);
    engine_called(group->engine);
    group_fail(group, TUTTI_ERR_ABORTED, text, true);
    engine_unlock(group->engine);
    return TUTTI_OK;
}
