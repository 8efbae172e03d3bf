#include "group/group.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cores.h"
#include "base/env.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/streams.h"
#include "base/text.h"
#include "bootstrap/liveness.h"
#include "coll/coll.h"
#include "diagnose/control_channel.h"
#include "diagnose/health.h"
#include "diagnose/recorder.h"
#include "group/allocations.h"
#include "group/backends.h"
#include "group/creation.h"
#include "group/creation_state.h"
#include "group/drain.h"
#include "group/generation.h"
#include "group/group_args.h"
#include "group/group_fail.h"
#include "group/group_id.h"
#include "group/losses.h"
#include "group/processes.h"
#include "group/tool_view.h"
#include "group/topology.h"
#include "progress/engine_thread.h"
#include "progress/engine_wait.h"
#include "progress/plan_cache.h"
#include "progress/work.h"
#include "stats/stats.h"

enum {
    CLOSE_WAIT_MS = 2000, /* time for pending operations to end */
    LET_GO_MS = 1000,     /* time for backends to release the memory of the others; close may take as long again */
    SETTLE_NAP_US = 100   /* time between two checks whether another thread has settled the group */
};

static void shut(struct tutti_group *group)
{
    engine_lock(group->engine);
    bool was = group->shut;
    if (!was) control_channel_flush(group);
    if (creation_is_under_way(group) && group->rank >= 0) {
        char text[ERROR_TEXT_MAX];
        snprintf(text, sizeof text, "rank %d has destroyed the group", group->global_ranks[group->rank]);
        creation_give_up(group, TUTTI_ERR_ABORTED, text);
    }
    group->shut = true;
    if (group->root == group) creation_free_all(group);
    engine_handle_events(group->engine); /* handles events of the backends before they are closed */
    engine_unlock(group->engine);
    if (was) return;
    backends_close(group);
    engine_lock(group->engine);
    struct tutti_work *work;
    while ((work = TAILQ_LAST(&group->works, work_queue)) != NULL) work_closed(work); /* parts before their parent */
    engine_handle_events(group->engine);
    control_channel_close(group);
    engine_unlock(group->engine);
    tool_view_close(group);
    /* Freed here, because the store that it is a prefix of may be freed before the last reference is dropped. */
    tutti_store_free(group->store);
    group->store = NULL;
}

/* A list of members, as a hash, and the number of groups made of it with members_only. */
struct group_use {
    uint64_t hash, count;
    struct group_use *next;
};

/* ---- creation and end -------------------------------------------------------------------------------------------- */

static void free_group(struct tutti_group *group)
{
    struct engine *engine = group->engine;
    if (engine != NULL) {
        engine_lock(engine);
        creation_forget(group);
        if (group->root == group) creation_free_all(group);
        if (group->root != NULL) TAILQ_REMOVE(&group->root->tree, group, tree_link);
        if (group->reported_status != TUTTI_OK) engine->n_reported--;
        engine_unlock(engine);
    }
    recorder_remove(group); /* once the engine cannot fail it any more */
    while (group->uses != NULL) {
        struct group_use *use = group->uses;
        group->uses = use->next;
        free(use);
    }
    topology_free(group);
    liveness_list_free(&group->processes);
    if (group->limit_ranks > 0) limits_restore(group->limit_ranks);
    plan_cache_free(group->cache);
    for (int kind = 0; kind < TUTTI_KIND_COUNT; kind++) free(group->call_memos[kind].listed);
    health_free(group->health);
    if (engine != NULL && group->stats != engine->stats) stats_give(group->stats);
    free(group->global_ranks);
    free(group->local_of);
    free(group->lost);
    free(group->failed_text);
    free(group->lost_text);
    free(group->reported_text);
    generation_free(group->generation);
    losses_free(group);
    free(group);
    if (engine != NULL) engine_drop(engine);
}

void group_hold(struct tutti_group *group)
{
    /* relaxed: the caller has a reference, or the lock of a group that is not shut */
    atomic_fetch_add_explicit(&group->references, 1, memory_order_relaxed);
}

void group_drop(struct tutti_group *group)
{
    /* release: all accesses under this reference precede the end; acquire: for the thread that frees */
    if (atomic_fetch_sub_explicit(&group->references, 1, memory_order_acq_rel) == 1) free_group(group);
}

int group_check_device(const char *doing, tutti_device device)
{
    if (device.type != 0 && group_device_index(device) < 0)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                         "%s: device type %d is neither TUTTI_CPU nor TUTTI_CUDA; use one of them", doing,
                         (int)device.type);
    if (device.index < 0)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "%s: the device's index is %d; it must not be negative", doing,
                         (int)device.index);
    return TUTTI_OK;
}

uint64_t group_count_use(struct tutti_group *parent, uint64_t hash)
{
    struct group_use *use = parent->uses;
    while (use != NULL && use->hash != hash) use = use->next;
    if (use == NULL) {
        use = calloc(1, sizeof *use);
        if (use == NULL)
            return 0; /* counts as the first group, so that a second group of the same list fails to match */
        use->hash = hash;
        use->next = parent->uses;
        parent->uses = use;
    }
    return ++use->count;
}

static int fill_ranks(struct tutti_group *group, const struct group_args *args)
{
    group->world = args->parent != NULL ? args->parent->world : args->size;
    group->global_ranks = calloc((size_t)args->size, sizeof(int));
    group->local_of = malloc((size_t)group->world * sizeof(int));
    if (args->parent == NULL) group->lost = calloc((size_t)group->world, sizeof *group->lost);
    bool short_of = group->global_ranks == NULL || group->local_of == NULL;
    if (short_of || (args->parent == NULL && group->lost == NULL))
        return error_set(TUTTI_ERR_NO_MEMORY, "out of memory for a group of %d ranks", args->size);
    for (int i = 0; i < group->world; i++) group->local_of[i] = -1;
    for (int i = 0; i < args->size; i++) {
        group->global_ranks[i] = args->global_ranks != NULL ? args->global_ranks[i] : i;
        group->local_of[group->global_ranks[i]] = i;
    }
    return TUTTI_OK;
}

static int make_store(struct tutti_group *group, const struct group_args *args)
{
    tutti_store *base = args->store != NULL ? args->store : group->origin->store;
    char prefix[64];
    struct text text = text_in(prefix, sizeof prefix);
    if (args->store != NULL) text_add(&text, args->parent != NULL ? "tutti/" : "tutti");
    if (args->parent != NULL) text_add(&text, "group/");
    if (args->parent != NULL) text_add_hex(&text, group->id, 16);
    return tutti_store_prefix(base, prefix, &group->store);
}

static int fill(struct tutti_group *group, const struct group_args *args)
{
    group->references = 1;
    group->generation = args->generation;
    TAILQ_INIT(&group->tree);
    TAILQ_INIT(&group->works);
    group->names = *args->names;
    group->rank = args->rank;
    group->size = args->size;
    group->id = args->id;
    group->timeout_ms = args->timeout_ms;
    group->open_timeout_ms = args->open_timeout_ms > 0 ? args->open_timeout_ms : args->timeout_ms;
    group->device = args->device;
    group->local_rank = args->local_rank;
    group->local_world_size = args->local_world_size;
    group->node_rank = args->node_rank;
    text_copy(group->name, sizeof group->name, args->name);
    int status = TUTTI_OK;
    struct tutti_group *root = args->parent != NULL ? args->parent->root : group;
    if (args->parent != NULL) {
        group->engine = root->engine;
        engine_lock(group->engine);
        engine_hold(group->engine);
    } else {
        status =
            engine_new(args->local_world_size > 0 ? args->local_world_size : args->size, args->hooks, &group->engine);
        if (status != TUTTI_OK) return status;
        engine_lock(group->engine);
        group->engine->first = group;
    }
    group->root = root;
    group->origin = args->store != NULL ? group : args->parent->origin;
    group->is_shared = args->is_shared;
    status = fill_ranks(group, args); /* before other threads can see the group */
    TAILQ_INSERT_TAIL(&root->tree, group, tree_link);
    engine_unlock(group->engine);
    bool fixed = root == group && env_bool("TUTTI_DETERMINISTIC", false);
    group->algorithm = root != group ? root->algorithm : fixed ? coll_fixed_order : env_string("TUTTI_ALGO", NULL);
    if (args->algorithm != NULL) group->algorithm = group->own_algorithm = strdup(args->algorithm);
    if (args->algorithm != NULL && group->algorithm == NULL)
        status = error_set(TUTTI_ERR_NO_MEMORY, "out of memory for group %s", group->name);
    if (status != TUTTI_OK) return status;
    group->stats = root == group ? group->engine->stats : stats_take();
    group->cache = plan_cache_new();
    group->health = health_new(args->size);
    if (group->cache == NULL || group->health == NULL || group->stats == NULL)
        return error_set(TUTTI_ERR_NO_MEMORY, "out of memory for group %s", group->name);
    stats_label(group->stats, group->name, group->rank, group->size, group->global_ranks[group->rank], root == group);
    group->stragglers = health_stragglers(group->health);
    recorder_add(group);
    return make_store(group, args);
}

/* Closes a group that could not be opened.  Keeps the error. */
static int fail_open(struct tutti_group *group, int status)
{
    char text[ERROR_TEXT_MAX];
    snprintf(text, sizeof text, "%s", error_text());
    if (group->engine != NULL) {
        engine_lock(group->engine);
        creation_give_up(group, status, text);
        engine_unlock(group->engine);
        shut(group);
    }
    free_group(group);
    return error_set(status, "%s", text);
}

/* Opens the backends and what depends on them. */
static int open_backends(struct tutti_group *group, const struct group_args *args)
{
    int status = topology_publish(group);
    if (status == TUTTI_OK) status = backends_open(group, args);
    if (status == TUTTI_OK) status = topology_read(group);
    if (status != TUTTI_OK) return status;
    engine_lock(group->engine);
    group->backend_text[0] = '\0';
    backends_describe(group);
    control_channel_open(group);
    creation_end(group);
    engine_unlock(group->engine);
    tool_view_open(group);
    log_write(LOG_INFO, LOG_GROUP, "group %s: rank %d of %d, %s", group->name, group->rank, group->size,
              group->backend_text);
    return TUTTI_OK;
}

/* Makes the members agree on the group before any of them opens it.  Sets *pends if they have not agreed yet. */
static int agree_on_group(struct tutti_group *group, const struct group_args *args, bool *pends)
{
    *pends = false;
    if (args->parent == NULL || group->size == 1 || !creation_is_possible(group->root)) return TUTTI_OK;
    int status = creation_begin(group, args, backends_ready(group, args));
    if (status != TUTTI_OK) return status;
    if (!args->may_pend || !backends_open_alone(group, args)) return creation_wait(group);
    snprintf(group->backend_text, sizeof group->backend_text, "%s", args->parent->backend_text);
    /* release: pairs with group_for_call's acquire */
    atomic_store_explicit(&group->pending, true, memory_order_release);
    *pends = true;
    return TUTTI_OK;
}

/* Returns true if this thread is to settle the group.  Waits while another thread does.  A group that was shut before
 * its first use stays pending. */
static bool claim_settling(struct tutti_group *group)
{
    while (group->settling) {
        engine_unlock(group->engine);
        usleep(SETTLE_NAP_US);
        engine_lock(group->engine);
    }
    bool pending = atomic_load_explicit(&group->pending, memory_order_relaxed); /* only written under the lock */
    group->settling = pending && !group->shut;
    return group->settling;
}

void group_settle(struct tutti_group *group)
{
    engine_lock(group->engine);
    bool takes = claim_settling(group);
    struct group_args args = takes ? *creation_args(group) : (struct group_args){0};
    engine_unlock(group->engine);
    if (!takes) return;
    char text[ERROR_TEXT_MAX] = "";
    int status = creation_wait(group);
    if (status != TUTTI_OK) snprintf(text, sizeof text, "%s", error_text());
    int opened = open_backends(group, &args); /* also after a failure, so that calls can be checked */
    if (status == TUTTI_OK && opened != TUTTI_OK) snprintf(text, sizeof text, "%s", error_text());
    if (status == TUTTI_OK) status = opened;
    engine_lock(group->engine);
    if (status != TUTTI_OK) {
        creation_give_up(group, status, text);
        group_fail(group, status, text, false);
        group->failure_returned = false; /* the first call returns the failure */
    }
    group->settling = false;
    /* release: the backends are open, or the group has failed */
    atomic_store_explicit(&group->pending, false, memory_order_release);
    engine_unlock(group->engine);
}

int group_open(const struct group_args *args, struct tutti_group **out)
{
    struct tutti_group *group = calloc(1, sizeof *group);
    bool pends = false;
    if (group == NULL) {
        generation_free(args->generation);
        return error_set(TUTTI_ERR_NO_MEMORY, "out of memory for group %s", args->name);
    }
    if (args->parent == NULL && args->size > 1) {
        limits_raise(args->size);
        group->limit_ranks = args->size;
    }
    if (args->parent == NULL) streams_fill(); /* the program may have closed them after it made the store */
    int status = fill(group, args);
    if (status == TUTTI_OK && group->size > 1 && group->root == group) status = processes_publish(group);
    if (group->turn > 0) group->id = group_id_mix(group->id, (uint64_t)group->turn); /* differs from earlier ids */
    if (status == TUTTI_OK) status = agree_on_group(group, args, &pends);
    if (status == TUTTI_OK && !pends) status = open_backends(group, args);
    if (status != TUTTI_OK) return fail_open(group, status);
    if (group->root == group && group->size > 1) {
        engine_lock(group->engine);
        engine_thread_start(group->engine);
        exits_add(&group->engine->exit_watch);
        engine_unlock(group->engine);
        cores_start_even(group->local_rank, group->local_world_size); /* last, because a sleep may undo it */
    }
    *out = group;
    return TUTTI_OK;
}

int group_open_non_member(struct tutti_group *parent, const char *name, struct tutti_group **out)
{
    struct tutti_group *group = calloc(1, sizeof *group);
    if (group == NULL) return error_set(TUTTI_ERR_NO_MEMORY, "out of memory for group %s", name);
    TAILQ_INIT(&group->tree);
    TAILQ_INIT(&group->works);
    snprintf(group->name, sizeof group->name, "%s", name);
    group->references = 1;
    group->device = (tutti_device){TUTTI_CPU, 0};
    group->rank = group->size = -1;
    group->engine = parent->engine;
    group->root = parent->root;
    group->origin = parent->origin;
    engine_lock(group->engine);
    engine_hold(group->engine);
    TAILQ_INSERT_TAIL(&group->root->tree, group, tree_link);
    engine_unlock(group->engine);
    *out = group;
    return TUTTI_OK;
}

static void wait_for_works(struct tutti_group *group, int64_t deadline)
{
    struct tutti_work *work;
    while ((work = TAILQ_FIRST(&group->works)) != NULL) {
        work->references++;
        bool ended = engine_wait(group->engine, work, deadline);
        work_release_locked(work);
        if (!ended) return;
    }
}

static void wait_until_ended(struct tutti_group *group, int64_t deadline)
{
    if (!group->shut) wait_for_works(group, deadline);
}

static void fail_late(struct tutti_group *group, int64_t deadline)
{
    (void)deadline;
    if (group->shut || TAILQ_EMPTY(&group->works)) return;
    char text[ERROR_TEXT_MAX]; /* sent to the peers too */
    snprintf(text, sizeof text, "rank %d destroyed group %s while the operation was under way",
             group->global_ranks[group->rank], group->name);
    group_fail(group, TUTTI_ERR_ABORTED, text, true);
}

/* Returns the next group to close: the group itself or, if it was made with a store, each of its descendants, the
 * latest first.  The returned group is held, because callbacks may destroy it. */
static struct tutti_group *next_to_close(struct tutti_group *group, struct tutti_group *before)
{
    struct tutti_group *next = NULL;
    engine_lock(group->engine);
    if (before == NULL)
        next = group == group->origin ? TAILQ_LAST(&group->root->tree, group_list) : group;
    else if (before != group)
        next = TAILQ_PREV(before, group_list, tree_link);
    while (next != NULL && next != group && next->origin != group) next = TAILQ_PREV(next, group_list, tree_link);
    if (next != NULL) group_hold(next);
    engine_unlock(group->engine);
    if (before != NULL) group_drop(before);
    return next;
}

static void visit_to_close(struct tutti_group *group, void (*visit)(struct tutti_group *other, int64_t deadline),
                           int64_t deadline)
{
    struct tutti_group *other = NULL;
    while ((other = next_to_close(group, other)) != NULL) {
        engine_lock(group->engine);
        engine_count_call(group->engine);
        visit(other, deadline);
        engine_unlock(group->engine);
    }
}

/* Takes the descendants of origin out of the tree, because their handles outlive it. */
static void leave_tree(struct tutti_group *origin)
{
    struct tutti_group *root = origin->root, *member, *next;
    for (member = TAILQ_FIRST(&root->tree); member != NULL; member = next) {
        next = TAILQ_NEXT(member, tree_link);
        if (member->origin != origin) continue;
        creation_forget(member);
        TAILQ_REMOVE(&root->tree, member, tree_link);
        member->root = member->origin = NULL;
    }
}

/* Waits for the operations under way, then fails those that are left. */
static void end_works(struct tutti_group *group)
{
    engine_lock(group->engine);
    engine_count_call(group->engine);
    bool none = TAILQ_EMPTY(&group->engine->active);
    engine_unlock(group->engine);
    if (none) return;
    visit_to_close(group, wait_until_ended, clock_deadline_ns(CLOSE_WAIT_MS));
    visit_to_close(group, fail_late, 0);
    visit_to_close(group, wait_until_ended, clock_deadline_ns(LET_GO_MS));
}

void group_end(struct tutti_group *group, int64_t delivery_ms)
{
    struct tutti_group *other = NULL;
    end_works(group);
    int64_t deadline = clock_deadline_ns(delivery_ms == TUTTI_DEFAULT_TIMEOUT ? group->timeout_ms : delivery_ms);
    while ((other = next_to_close(group, other)) != NULL) {
        drain_group(other, deadline);
        shut(other); /* the handle can still be destroyed */
    }
    if (group == group->root) allocations_release(group->engine);
    if (group == group->root) engine_retire(group->engine);
    engine_lock(group->engine);
    if (group == group->origin) leave_tree(group);
    engine_unlock(group->engine);
}

void group_close(struct tutti_group *group, int64_t delivery_ms)
{
    if (engine_is_forked(group->engine)) return; /* everything belongs to the parent */
    group_end(group, delivery_ms);
    group_drop(group);
}
