#include "group.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/env.h"
#include "base/error.h"
#include "base/log.h"
#include "cache.h"
#include "exits.h"
#include "health.h"
#include "host.h"
#include "registry.h"
#include "submit.h"
#include "work.h"

/* One tree over the rank numbers, whatever the size: the same bits from run to run and from message to message. */
#define FIXED_TREE "all_reduce=reduce_broadcast,reduce=fixed_tree,reduce_scatter=fixed_tree"

enum { TOLD_NS = 200 * 1000 * 1000 };
enum { CLOSE_WAIT_MS = 2000, AGREE_MS = 60000 };

/* ---- doors ------------------------------------------------------------------------------------------------- */

static void close_door(struct tutti_group *group, struct group_door *door)
{
    if (door->state == NULL) return;
    engine_lock(group->engine);
    engine_remove_source(group->engine, door->state);
    door->backend->close(door->state);
    engine_handle_events(group->engine); /* what it told in its last breath */
    engine_unlock(group->engine);
    free(door->state);
    door->state = NULL;
}

/* The door of a group that has this backend. */
static const struct group_door *door_of(const struct tutti_group *group, const tutti_backend *backend)
{
    for (int device = 0; device < 2; device++)
        for (int i = 0; i < group->n_doors[device]; i++)
            if (group->doors[device][i].backend == backend) return &group->doors[device][i];
    return NULL;
}

/* Peers that have opened it already may send notes, which whoever drives the family answers through the doors. */
static int open_door(struct tutti_group *group, const struct group_args *args, const tutti_backend *backend,
                     void *parent, struct group_door *door)
{
    const struct group_door *from = args->whole != NULL ? door_of(args->whole, backend) : NULL;
    *door = (struct group_door){.backend = backend};
    int status = TUTTI_HAS(backend, probe) && parent == NULL ? backend->probe(&host_services) : TUTTI_OK;
    if (status != TUTTI_OK) return status;
    size_t bytes = (backend->group_bytes + 63) / 64 * 64;
    door->state = aligned_alloc(64, bytes > 0 ? bytes : 64);
    if (door->state == NULL) return error_set(TUTTI_ERR_NO_MEMORY, "no memory for a group of %s", backend->name);
    memset(door->state, 0, bytes);
    tutti_group_info info = {
        .size = sizeof info,
        .rank = group->rank,
        .world_size = group->size,
        .global_ranks = group->global_ranks,
        .id = group->id,
        .parent = parent,
        .core = group,
        .store = group->store,
        .device = group->device,
        .timeout_ms = group->timeout_ms,
        .local_rank = group->local_rank,
        .local_world_size = group->local_world_size,
        .high_priority = args->high_priority,
        .name = group->name,
        .made_from = from != NULL ? from->state : NULL,
        .color = args->color,
    };
    engine_lock(group->engine);
    status = backend->open(door->state, &info, &host_services);
    if (status == TUTTI_OK && parent == NULL) status = engine_add_source(group->engine, backend, door->state);
    engine_unlock(group->engine);
    if (status != TUTTI_OK) {
        char text[ERROR_TEXT_MAX]; /* close may overwrite it */
        snprintf(text, sizeof text, "%s", error_text());
        close_door(group, door);
        return error_set(status, "%s", text);
    }
    return TUTTI_OK;
}

/* All ranks open a backend, or none does: an error anywhere is an error everywhere, with the first one's text. */
static int agree(struct tutti_group *group, const char *name, int status)
{
    char key[400], mine[ERROR_TEXT_MAX], text[ERROR_TEXT_MAX];
    size_t bytes = 0;
    snprintf(mine, sizeof mine, "%s", status == TUTTI_OK ? "" : error_text());
    if (group->size == 1) return status;
    snprintf(key, sizeof key, "failed/%s", name);
    if (status != TUTTI_OK) {
        snprintf(text, sizeof text, "%d rank %d: %.900s", status, group->rank, mine);
        tutti_store_compare_set(group->store, key, "", 0, text, strlen(text), NULL, 0, &bytes);
    }
    char barrier[400];
    snprintf(barrier, sizeof barrier, "opened/%s", name);
    int met = tutti_store_barrier(group->store, barrier, group->size, AGREE_MS);
    if (status != TUTTI_OK) return error_set(status, "%s", mine);
    if (met != TUTTI_OK) return error_prefix(met, "opening backend %s together", name);
    bool present = false;
    const char *keys[1] = {key};
    int checked = tutti_store_check(group->store, keys, 1, &present);
    if (checked != TUTTI_OK || !present) return checked;
    checked = tutti_store_get(group->store, key, text, sizeof text - 1, &bytes, 0);
    if (checked != TUTTI_OK) return checked;
    text[bytes] = '\0';
    int theirs = TUTTI_ERR_BACKEND, used = 0;
    if (sscanf(text, "%d %n", &theirs, &used) < 1 || theirs >= 0) theirs = TUTTI_ERR_BACKEND;
    return error_set(theirs, "backend %s did not start on all ranks: %s", name, text + used);
}

static void add_door(struct tutti_group *group, int device, const struct group_door *door)
{
    engine_lock(group->engine);
    group->doors[device][group->n_doors[device]++] = *door;
    engine_unlock(group->engine);
}

/* Loads and opens one backend by name, for the devices it is to serve. */
static int add_backend(struct tutti_group *group, const struct group_args *args, const char *name, int device,
                       bool only_device)
{
    const tutti_backend *backend = NULL;
    struct group_door door = {0};
    int status = registry_load(name, &backend);
    if (status == TUTTI_OK && only_device && device == 0 && !group_takes_device(backend, device))
        status = error_set(TUTTI_ERR_INVALID_ARGUMENT, "backend %s takes no CPU tensors", name);
    const struct group_door *shared = status == TUTTI_OK ? door_of(group, backend) : NULL;
    if (shared != NULL) { /* "cpu:x,cuda:x": one state serves both */
        add_door(group, device, shared);
        return TUTTI_OK;
    }
    const struct group_door *parent = status == TUTTI_OK && args->parent != NULL ? door_of(group->root, backend) : NULL;
    if (status == TUTTI_OK) status = open_door(group, args, backend, parent != NULL ? parent->state : NULL, &door);
    if (args->parent == NULL || parent == NULL) {
        int agreed = agree(group, name, status);
        if (agreed != TUTTI_OK && status == TUTTI_OK) {
            char text[ERROR_TEXT_MAX];
            snprintf(text, sizeof text, "%s", error_text());
            close_door(group, &door);
            error_set(agreed, "%s", text);
        }
        status = agreed;
    }
    if (status != TUTTI_OK) return status;
    if (only_device) {
        add_door(group, device, &door);
    } else {
        for (int d = 0; d < 2; d++)
            if (group_takes_device(backend, d)) add_door(group, d, &door);
    }
    return TUTTI_OK;
}

static bool needs_stager(const struct tutti_group *group)
{
    for (int i = 0; i < group->n_doors[1]; i++)
        if (!group_takes_device(group->doors[1][i].backend, 1)) return true;
    return false;
}

/* For CUDA tensors on backends that take CPU tensors: the plug-in with the device's name copies them. */
static int open_stager(struct tutti_group *group, const struct group_args *args)
{
    static const char name[] = "cuda";
    const tutti_backend *backend = NULL;
    int status = registry_load(name, &backend);
    if (status == TUTTI_OK && !(TUTTI_HAS(backend, stage_open) && TUTTI_HAS(backend, native[TUTTI_COPY])))
        status = error_set(TUTTI_ERR_BACKEND, "plug-in %s does not stage tensors", name);
    void *parent = args->parent != NULL ? group->root->stager.state : NULL;
    if (status == TUTTI_OK) status = open_door(group, args, backend, parent, &group->stager);
    if (parent == NULL) {
        int agreed = agree(group, name, status);
        if (agreed != TUTTI_OK && status == TUTTI_OK) status = agreed; /* what has opened is closed with the group */
    }
    if (status == TUTTI_OK) return TUTTI_OK;
    return error_prefix(status, "CUDA tensors on a backend of CPU tensors need the plug-in %s", name);
}

/* What the backends of CUDA tensors do not have goes to those of CPU tensors, named for it or not. */
static int add_staging(struct tutti_group *group, const struct group_args *args)
{
    int named = group->n_doors[1];
    bool wanted = needs_stager(group), possible = args->parent == NULL || group->root->stager.state != NULL;
    for (int i = 0; named > 0 && (wanted || possible) && i < group->n_doors[0]; i++) {
        bool there = false;
        for (int k = 0; k < named; k++) there |= group->doors[1][k].backend == group->doors[0][i].backend;
        if (!there && group->n_doors[1] < GROUP_DOORS) add_door(group, 1, &group->doors[0][i]);
    }
    if (!needs_stager(group)) return TUTTI_OK;
    int status = open_stager(group, args);
    if (status == TUTTI_OK || wanted) return status;
    log_write(LOG_INFO, "group %s: CUDA tensors do not go to CPU backends: %s", group->name, error_text());
    close_door(group, &group->stager);
    group->stager = (struct group_door){0};
    group->n_doors[1] = named;
    return TUTTI_OK;
}

static int open_doors(struct tutti_group *group, const struct group_args *args)
{
    const struct names *names = args->names;
    for (int device = 0; device < 2; device++) {
        int opened = 0, status = TUTTI_OK;
        for (int i = 0; i < names->n[device]; i++) {
            const char *name = names->name[device][i];
            status = add_backend(group, args, name, device, names->by_device);
            if (status == TUTTI_OK) opened++;
            if (status == TUTTI_OK && names->automatic) break;
            if (status != TUTTI_OK && i + 1 < names->n[device])
                log_write(LOG_INFO, "group %s goes on without backend %s: %s", group->name, name, error_text());
        }
        if (names->n[device] > 0 && opened == 0) return status;
    }
    return add_staging(group, args);
}

/* ---- what the choice of algorithms needs ----------------------------------------------------------------------- */

/* Rank 0's tuning file counts for all.  It hands it out before the ranks agree that a backend has opened, the others
 * take it afterwards: nobody waits. */
static int give_tuning(struct tutti_group *group)
{
    if (group != group->root || group->rank != 0) return TUTTI_OK;
    group->tuning = tuning_read(env_string("TUTTI_TUNING", NULL));
    if (group->size == 1) return TUTTI_OK;
    const char *text = group->tuning != NULL ? group->tuning : "";
    return tutti_store_set(group->store, "tuning", text, strlen(text));
}

static int take_tuning(struct tutti_group *group)
{
    size_t bytes = 0;
    if (group != group->root || group->rank == 0) return TUTTI_OK;
    char *text = malloc(TUNING_TEXT_MAX + 1);
    if (text == NULL) return error_set(TUTTI_ERR_NO_MEMORY, "no memory for the tuning");
    int status = tutti_store_get(group->store, "tuning", text, TUNING_TEXT_MAX, &bytes, AGREE_MS);
    if (status == TUTTI_OK && bytes > 0 && bytes <= TUNING_TEXT_MAX) {
        text[bytes] = '\0';
        group->tuning = text;
        return TUTTI_OK;
    }
    free(text);
    return status;
}

/* As the backend says; for a part of a family, as it said of the whole. */
static int find_hosts(struct tutti_group *group, struct group_door *door)
{
    const struct group_door *whole = group != group->root ? door_of(group->root, door->backend) : NULL;
    if (!TUTTI_HAS(door->backend, hosts) || group->size == 1 || (whole != NULL && whole->hosts == NULL))
        return TUTTI_OK;
    int32_t *host = calloc((size_t)group->size, sizeof *host);
    int status = host != NULL ? TUTTI_OK : TUTTI_ERR_NO_MEMORY;
    if (status == TUTTI_OK && whole == NULL) {
        engine_lock(group->engine);
        status = door->backend->hosts(door->state, host);
        engine_unlock(group->engine);
    }
    for (int i = 0; status == TUTTI_OK && whole != NULL && i < group->size; i++)
        host[i] = whole->hosts->of[group->global_ranks[i]];
    if (status == TUTTI_OK) {
        door->hosts = coll_hosts_new(host, group->size);
        status = door->hosts != NULL ? TUTTI_OK : TUTTI_ERR_NO_MEMORY;
    }
    free(host);
    return status == TUTTI_ERR_NO_MEMORY ? error_set(status, "no memory for a group of %d ranks", group->size) : status;
}

static int learn(struct tutti_group *group)
{
    int status = take_tuning(group);
    const char *text = group->root->tuning;
    for (int device = 0; device < 2; device++)
        for (int i = 0; status == TUTTI_OK && i < group->n_doors[device]; i++) {
            struct group_door *door = &group->doors[device][i];
            status = find_hosts(group, door);
            if (status == TUTTI_OK && text != NULL)
                status = tuning_parse(text, door->backend->name, group->size, door->hosts ? door->hosts->n : 1,
                                      &door->tuned);
        }
    return status;
}

static void forget(struct tutti_group *group)
{
    for (int device = 0; device < 2; device++)
        for (int i = 0; i < group->n_doors[device]; i++) {
            free(group->doors[device][i].hosts);
            tuning_free(&group->doors[device][i].tuned);
        }
    free(group->tuning);
}

static void describe_doors(struct tutti_group *group)
{
    size_t used = 0;
    for (int device = 0; device < 2; device++)
        for (int i = 0; i < group->n_doors[device]; i++) {
            const char *lead = i > 0 ? "|" : used == 0 ? (device == 0 ? "cpu:" : "cuda:") : ",cuda:";
            used += (size_t)snprintf(group->backend_text + used, sizeof group->backend_text - used, "%s%s", lead,
                                     group->doors[device][i].backend->name);
            if (used >= sizeof group->backend_text) return;
        }
}

static void shut(struct tutti_group *group)
{
    if (group->shut) return;
    group->shut = true;
    engine_lock(group->engine);
    engine_handle_events(group->engine); /* what is told to a backend, before it is closed */
    engine_unlock(group->engine);
    for (int device = 0; device < 2; device++)
        for (int i = 0; i < group->n_doors[device]; i++) {
            struct group_door *door = &group->doors[device][i];
            void *state = door->state;
            close_door(group, door);
            for (int d = device; d < 2; d++) /* a state that served both devices is closed once */
                for (int k = 0; k < group->n_doors[d]; k++)
                    if (group->doors[d][k].state == state) group->doors[d][k].state = NULL;
        }
    close_door(group, &group->stager);
    engine_lock(group->engine);
    struct tutti_work *work;
    while ((work = TAILQ_LAST(&group->works, work_queue)) != NULL) work_closed(work); /* parts before their parent */
    engine_handle_events(group->engine);
    engine_unlock(group->engine);
}

/* A list of members, by its hash, and how often members alone have made a group of it. */
struct group_use {
    uint64_t hash, count;
    struct group_use *next;
};

/* ---- life -------------------------------------------------------------------------------------------------- */

static void free_group(struct tutti_group *group)
{
    struct engine *engine = group->engine;
    if (engine != NULL) {
        engine_lock(engine);
        if (group->root != NULL) TAILQ_REMOVE(&group->root->family, group, family_link);
        engine_unlock(engine);
    }
    while (group->uses != NULL) {
        struct group_use *use = group->uses;
        group->uses = use->next;
        free(use);
    }
    forget(group);
    cache_free(group->cache);
    health_free(group->health);
    tutti_store_free(group->store);
    free(group->global_ranks);
    free(group->local_of);
    free(group->lost);
    free(group->failed_text);
    free(group->gone_text);
    free(group->told_text);
    if (group->told != TUTTI_OK) group->engine->n_told--;
    free(group);
    if (engine != NULL) engine_drop(engine);
}

uint64_t group_count_use(struct tutti_group *parent, uint64_t hash)
{
    struct group_use *use = parent->uses;
    while (use != NULL && use->hash != hash) use = use->next;
    if (use == NULL) {
        use = calloc(1, sizeof *use);
        if (use == NULL) return 0; /* as if it were the first: a second group of the list would then fail to match */
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
        return error_set(TUTTI_ERR_NO_MEMORY, "no memory for a group of %d ranks", args->size);
    for (int i = 0; i < group->world; i++) group->local_of[i] = -1;
    for (int i = 0; i < args->size; i++) {
        group->global_ranks[i] = args->global_ranks != NULL ? args->global_ranks[i] : i;
        group->local_of[group->global_ranks[i]] = i;
    }
    return TUTTI_OK;
}

static int make_store(struct tutti_group *group, const struct group_args *args)
{
    tutti_store *base = args->parent != NULL ? group->root->store : args->store;
    char prefix[64];
    if (args->parent == NULL)
        snprintf(prefix, sizeof prefix, "tutti");
    else
        snprintf(prefix, sizeof prefix, "group/%016" PRIx64, group->id);
    return tutti_store_prefix(base, prefix, &group->store);
}

static int fill(struct tutti_group *group, const struct group_args *args)
{
    TAILQ_INIT(&group->family);
    TAILQ_INIT(&group->works);
    group->names = *args->names;
    group->rank = args->rank;
    group->size = args->size;
    group->id = args->id;
    group->timeout_ms = args->timeout_ms;
    group->device = args->device;
    group->local_rank = args->local_rank;
    group->local_world_size = args->local_world_size;
    group->algorithm = env_bool("TUTTI_DETERMINISTIC", false) ? FIXED_TREE : env_string("TUTTI_ALGO", NULL);
    snprintf(group->name, sizeof group->name, "%s", args->name);
    int status = TUTTI_OK;
    struct tutti_group *root = args->parent != NULL ? args->parent->root : group;
    if (args->parent != NULL) {
        group->engine = root->engine;
        engine_lock(group->engine);
        engine_hold(group->engine);
    } else {
        status = engine_new(args->local_world_size > 0 ? args->local_world_size : args->size, &group->engine);
        if (status != TUTTI_OK) return status;
        engine_lock(group->engine);
        group->engine->first = group;
    }
    group->root = root;
    TAILQ_INSERT_TAIL(&root->family, group, family_link);
    engine_unlock(group->engine);
    status = fill_ranks(group, args);
    if (status != TUTTI_OK) return status;
    group->cache = cache_new();
    group->health = health_new(args->size);
    if (group->cache == NULL || group->health == NULL) return error_set(TUTTI_ERR_NO_MEMORY, "no memory for a group");
    return make_store(group, args);
}

int group_open(const struct group_args *args, struct tutti_group **out)
{
    struct tutti_group *group = calloc(1, sizeof *group);
    if (group == NULL) return error_set(TUTTI_ERR_NO_MEMORY, "no memory for a group");
    int status = fill(group, args);
    if (status == TUTTI_OK) status = give_tuning(group);
    if (status == TUTTI_OK) status = open_doors(group, args);
    if (status == TUTTI_OK) status = learn(group);
    if (status != TUTTI_OK) {
        char text[ERROR_TEXT_MAX];
        snprintf(text, sizeof text, "%s", error_text());
        if (group->engine != NULL) shut(group);
        free_group(group);
        return error_set(status, "%s", text);
    }
    describe_doors(group);
    if (group->root == group && group->size > 1) {
        engine_lock(group->engine);
        engine_start_thread(group->engine);
        exits_add(group->engine);
        engine_unlock(group->engine);
    }
    log_write(LOG_INFO, "group %s: rank %d of %d, %s", group->name, group->rank, group->size, group->backend_text);
    *out = group;
    return TUTTI_OK;
}

int group_abstain(struct tutti_group *group)
{
    int status = TUTTI_OK;
    engine_lock(group->engine);
    for (int device = 0; device < 2; device++)
        for (int i = 0; i < group->n_doors[device] && status == TUTTI_OK; i++) {
            const struct group_door *door = &group->doors[device][i];
            if (door_of(group, door->backend) == door && TUTTI_HAS(door->backend, abstain))
                status = door->backend->abstain(door->state); /* once where it serves both devices */
        }
    engine_unlock(group->engine);
    return status;
}

int group_open_outsider(struct tutti_group *parent, const char *name, struct tutti_group **out)
{
    struct tutti_group *group = calloc(1, sizeof *group);
    if (group == NULL) return error_set(TUTTI_ERR_NO_MEMORY, "no memory for a group");
    TAILQ_INIT(&group->family);
    TAILQ_INIT(&group->works);
    snprintf(group->name, sizeof group->name, "%s", name);
    group->rank = group->size = -1;
    group->engine = parent->engine;
    group->root = parent->root;
    engine_lock(group->engine);
    engine_hold(group->engine);
    TAILQ_INSERT_TAIL(&group->root->family, group, family_link);
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

/* Lets what is under way end, for a while; what is left then fails. */
static void settle(struct tutti_group *group)
{
    struct engine *engine = group->engine;
    int64_t deadline = clock_deadline_ns(CLOSE_WAIT_MS);
    engine_lock(engine);
    engine->calls++;
    if (!group->shut) wait_for_works(group, deadline);
    if (!group->shut && !TAILQ_EMPTY(&group->works)) {
        group_fail(group, TUTTI_ERR_ABORTED, "the group was destroyed while the operation was under way", true);
        wait_for_works(group, clock_deadline_ns(CLOSE_WAIT_MS)); /* until the backends let go of the memory */
    }
    engine_unlock(engine);
}

void group_close(struct tutti_group *group)
{
    if (group->engine != NULL && engine_is_forked(group->engine)) return; /* the parent's, all of it */
    settle(group);
    if (group == group->root) {
        struct tutti_group *other, *next;
        for (other = TAILQ_LAST(&group->family, group_list); other != NULL && other != group; other = next) {
            next = TAILQ_PREV(other, group_list, family_link);
            settle(other);
            shut(other); /* its handle stays good for destroying */
        }
    }
    shut(group);
    engine_lock(group->engine);
    struct tutti_group *root = group->root, *member;
    if (group == root) /* the handles that outlive it */
        while ((member = TAILQ_FIRST(&root->family)) != NULL) {
            TAILQ_REMOVE(&root->family, member, family_link);
            member->root = NULL;
        }
    engine_unlock(group->engine);
    free_group(group);
}

/* ---- failing ----------------------------------------------------------------------------------------------- */

/* So that what the backends have under way lets go of its memory. */
static void abort_doors(struct tutti_group *group)
{
    if (group->aborted || group->shut) return;
    group->aborted = true;
    for (int device = 0; device < 2; device++)
        for (int i = 0; i < group->n_doors[device]; i++) {
            const struct group_door *door = &group->doors[device][i];
            if (door->state != NULL && TUTTI_HAS(door->backend, abort)) door->backend->abort(door->state);
        }
}

/* The first collective that has not ended well. */
static uint64_t failed_sequence(const struct tutti_group *group)
{
    const struct tutti_work *work;
    TAILQ_FOREACH(work, &group->works, group_link)
    {
        if (!work->point_to_point) return work->op.sequence;
    }
    return group->sequence + 1;
}

static bool has_before(const struct tutti_group *group, uint64_t sequence)
{
    const struct tutti_work *work;
    TAILQ_FOREACH(work, &group->works, group_link)
    {
        if (!work->point_to_point && work->op.sequence < sequence) return true;
    }
    return false;
}

static void take_told(struct tutti_group *group)
{
    if (!group->failed && has_before(group, group->told_sequence) && clock_now_ns() - group->told_ns < TOLD_NS) return;
    int status = group->told;
    group->told = TUTTI_OK;
    group->engine->n_told--;
    if (group->told_sequence == UINT64_MAX && TAILQ_EMPTY(&group->works))
        return; /* all ended well: the next will fail */
    if (!group->failed) group_fail(group, status, group->told_text != NULL ? group->told_text : "", true);
}

void group_told(struct tutti_group *group, int status, const char *text, uint64_t sequence)
{
    if (group->told != TUTTI_OK) return;
    group->told = status;
    free(group->told_text);
    group->told_text = strdup(text);
    group->told_sequence = sequence;
    group->told_ns = clock_now_ns();
    group->engine->n_told++;
    take_told(group);
}

void group_take_told(struct tutti_group *first)
{
    struct tutti_group *group;
    TAILQ_FOREACH(group, &first->family, family_link)
    {
        if (group->told != TUTTI_OK) take_told(group);
    }
}

/* Time ran out for the others, who waited for this rank: what happens to its own operations is something else. */
static bool was_given_up(const struct tutti_group *group)
{
    return group->rank < 64 && (group->failed_missing >> group->rank & 1) != 0;
}

void group_fail(struct tutti_group *group, int status, const char *text, bool tell)
{
    if (group->failed == TUTTI_OK) {
        group->failed = status;
        group->failed_text = strdup(text);
        log_write(LOG_INFO, "group %s failed: %s: %s", group->name, error_name(status), text);
        group->failed_sequence = failed_sequence(group);
        bool every_ranks = status == TUTTI_ERR_MISMATCH || status == TUTTI_ERR_PEER_LOST;
        group->failed_met = !every_ranks || has_before(group, UINT64_MAX);
        if (tell && !group->shut) health_tell(group);
    }
    char copy[ERROR_TEXT_MAX]; /* text may be a work's own */
    snprintf(copy, sizeof copy, "%s", text);
    if (status == TUTTI_ERR_TIMEOUT && was_given_up(group)) status = TUTTI_ERR_ABORTED;
    abort_doors(group);
    engine_alert(group->engine);
    struct tutti_work *work, *next;
    for (work = TAILQ_FIRST(&group->works); work != NULL; work = next) {
        next = TAILQ_NEXT(work, group_link);
        if (work->draining || work->parts > 0) continue; /* what has parts ends with the last of them */
        if (!work->started) group->engine->n_blocked--;
        free(work->text);
        work->text = NULL;
        work_withdraw(work, status, copy);
    }
}

int group_check_open(const struct tutti_group *group)
{
    if (engine_is_forked(group->engine))
        return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                         "group %s was made before fork(): a child cannot use its parent's groups", group->name);
    if (group->shut) return error_set(TUTTI_ERR_ABORTED, "group %s has been destroyed with its world", group->name);
    return TUTTI_OK;
}

int group_check_usable(struct tutti_group *group, const char *doing)
{
    int status = group_check_open(group);
    if (status != TUTTI_OK) return status;
    if (group->failed)
        return error_set(TUTTI_ERR_ABORTED, "group %s failed before: %s: %s", group->name, error_name(group->failed),
                         group->failed_text != NULL ? group->failed_text : "");
    if (group->gone_text != NULL) {
        char text[ERROR_TEXT_MAX];
        snprintf(text, sizeof text, "%s after #%" PRIu64 " of group %s: %s", doing, group->sequence, group->name,
                 group->gone_text);
        group_fail(group, TUTTI_ERR_PEER_LOST, text, true);
        group->failed_met = true; /* by this call */
        return error_set(TUTTI_ERR_PEER_LOST, "%s", text);
    }
    return TUTTI_OK;
}

int group_check_collective(struct tutti_group *group, const char *doing)
{
    if (!group->failed || group->failed_met || group->shut || engine_is_forked(group->engine))
        return group_check_usable(group, doing);
    group->failed_met = true;
    return error_set(group->failed, "%s", group->failed_text != NULL ? group->failed_text : "");
}

struct lost_event {
    struct engine_event event; /* first */
    struct tutti_group *root;
    int peer;
    bool left;
    char why[200];
};

static void handle_lost(struct engine_event *event)
{
    struct lost_event *lost = (struct lost_event *)event;
    char text[300];
    lost->root->lost[lost->peer] = true;
    snprintf(text, sizeof text, "rank %d is lost: %s", lost->peer, lost->why);
    struct tutti_group *group;
    TAILQ_FOREACH(group, &lost->root->family, family_link)
    {
        if (group->rank < 0 || group->local_of[lost->peer] < 0 || group->failed || group->shut) continue;
        if (lost->left) continue; /* what waits for it fails through its requests; what it had sent may still come in */
        if (group->gone_text == NULL) group->gone_text = strdup(text);
        if (TAILQ_EMPTY(&group->works)) continue;
        char what[160], whole[500];
        work_describe(TAILQ_FIRST(&group->works), what, sizeof what);
        snprintf(whole, sizeof whole, "%s: %s", what, text);
        group_told(group, TUTTI_ERR_PEER_LOST, whole, UINT64_MAX);
    }
    free(lost);
}

void group_peer_lost(void *core, int32_t peer, bool left, const char *why)
{
    struct tutti_group *root = core;
    if (peer < 0 || peer >= root->world) return;
    struct lost_event *lost = malloc(sizeof *lost);
    if (lost == NULL) return; /* what waits for the peer fails through its requests */
    *lost = (struct lost_event){.event.handle = handle_lost, .root = root, .peer = peer, .left = left};
    snprintf(lost->why, sizeof lost->why, "%s", why);
    engine_post(root->engine, &lost->event);
}

struct failed_event {
    struct engine_event event; /* first */
    struct tutti_group *group;
    int status;
    char why[ERROR_TEXT_MAX];
};

static void handle_failed(struct engine_event *event)
{
    struct failed_event *failed = (struct failed_event *)event;
    char text[ERROR_TEXT_MAX + 100];
    snprintf(text, sizeof text, "group %s: %s", failed->group->name, failed->why);
    if (!failed->group->failed && !failed->group->shut) group_fail(failed->group, failed->status, text, true);
    free(failed);
}

void group_failed(void *core, int status, const char *why)
{
    struct tutti_group *group = core;
    struct failed_event *failed = malloc(sizeof *failed);
    if (failed == NULL) return; /* the backend tells again, or what is pending fails by itself */
    *failed = (struct failed_event){.event.handle = handle_failed, .group = group, .status = status};
    snprintf(failed->why, sizeof failed->why, "%s", why);
    engine_post(group->engine, &failed->event);
}
