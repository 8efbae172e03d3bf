#include "group/backends.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/aligned.h"
#include "base/error.h"
#include "base/log.h"
#include "base/streams.h"
#include "base/text.h"
#include "group/agreement.h"
#include "group/creation_state.h"
#include "group/entries.h"
#include "group/group_args.h"
#include "group/host_store.h"
#include "group/processes.h"
#include "group/topology.h"
#include "plugin/registry.h"
#include "progress/engine.h"

static void close_entry(struct tutti_group *group, struct backend_entry *entry)
{
    if (entry->state == NULL) return;
    engine_lock(group->engine);
    engine_remove_source(group->engine, entry->state);
    entry->backend->close(entry->state);
    engine_handle_events(group->engine); /* handles events that close has posted */
    engine_unlock(group->engine);
    tutti_store_free(entry->store);
    aligned_free(entry->state);
    entry->state = NULL;
}

/* Opens the backend's part of the group's store.  The turn in its prefix keeps keys of earlier groups out. */
static int open_store(const struct tutti_group *group, struct backend_entry *entry)
{
    char prefix[80];
    struct text text = text_in(prefix, sizeof prefix);
    text_add_some(&text, entry->backend->name, 40);
    text_add(&text, "/");
    text_add_hex(&text, (uint64_t)group->turn, 16);
    return tutti_store_prefix(group->store, prefix, &entry->store);
}

static tutti_group_info info_for(struct tutti_group *group, const struct group_args *args, const tutti_backend *backend,
                                 void *parent, tutti_store *store)
{
    const struct backend_entry *from = args->whole != NULL ? entries_find(args->whole, backend) : NULL;
    return (tutti_group_info){
        .size = sizeof(tutti_group_info),
        .rank = group->rank,
        .world_size = group->size,
        .global_ranks = parent != NULL ? group->global_ranks : group->root->global_ranks, /* root: 0, 1, .. */
        .id = group->id,
        .parent = parent,
        .core = group,
        .store = store,
        .device = group->device,
        .timeout_ms = group->timeout_ms,
        .local_rank = group->local_rank,
        .local_world_size = group->local_world_size,
        .high_priority = args->high_priority,
        .name = group->name,
        .made_from = from != NULL ? from->state : NULL,
        .color = args->color,
        .plans_only = (group->algorithm != NULL && !TUTTI_HAS(backend, choose)) ||
                      (group->is_shared && TUTTI_HAS(backend, offer)),
        .open_timeout_ms = group->open_timeout_ms,
        .counters = &group->engine->stats->transport,
    };
}

/* ---- before a group is made from another one ---------------------------------------------------------------- */

/* Lists the backends that a new group shares with the first group, in the same order on all ranks.  Returns their
 * number. */
static int list_shared(struct tutti_group *group, const struct group_args *args,
                       const struct backend_entry *shared[2 * GROUP_ENTRIES])
{
    int n = 0;
    for (int device = 0; device < 2; device++)
        for (int i = 0; i < args->names->n[device]; i++) {
            const tutti_backend *backend = NULL;
            if (registry_load(args->names->name[device][i], group->engine->hooks->host, &backend) != TUTTI_OK) continue;
            const struct backend_entry *entry = entries_find(group->root, backend);
            for (int k = 0; k < n; k++)
                if (shared[k] == entry) entry = NULL;
            if (entry != NULL) shared[n++] = entry;
        }
    return n;
}

static const uint8_t *offer_of(struct tutti_group *group, const struct group_args *args, const tutti_backend *backend)
{
    const struct backend_entry *shared[2 * GROUP_ENTRIES];
    if (group->creation == NULL || !TUTTI_HAS(backend, offer)) return NULL;
    int n = list_shared(group, args, shared), at = 0;
    for (int i = 0; i < n; i++) {
        if (shared[i]->backend == backend) return creation_offer(group, at);
        at += TUTTI_HAS(shared[i]->backend, offer);
    }
    return NULL;
}

int backends_ready(struct tutti_group *group, const struct group_args *args)
{
    const struct backend_entry *shared[2 * GROUP_ENTRIES];
    int n = list_shared(group, args, shared), status = TUTTI_OK;
    for (int i = 0; i < n && status == TUTTI_OK; i++)
        if (TUTTI_HAS(shared[i]->backend, ready)) status = shared[i]->backend->ready(shared[i]->state);
    return status;
}

static bool opens_alone(const tutti_backend *backend)
{
    return TUTTI_HAS(backend, traits) && (backend->traits & TUTTI_BACKEND_OPENS_ALONE) != 0;
}

bool backends_may_share(const struct backend_spec *names, const tutti_host *host)
{
    bool may = true;
    for (int device = 0; device < 2; device++)
        for (int i = 0; i < names->n[device] && may; i++) {
            const tutti_backend *backend = NULL;
            may = registry_load(names->name[device][i], host, &backend) == TUTTI_OK && opens_alone(backend) &&
                  TUTTI_HAS(backend, tell);
        }
    return may;
}

bool backends_can_share(const struct tutti_group *root)
{
    bool can = entries_find_control(root) != NULL;
    for (int device = 0; device < 2; device++)
        for (int i = 0; i < root->n_entries[device]; i++) can &= opens_alone(root->entries[device][i].backend);
    return can;
}

bool backends_open_alone(struct tutti_group *group, const struct group_args *args)
{
    const struct backend_entry *shared[2 * GROUP_ENTRIES];
    int n = list_shared(group, args, shared);
    if (args->names->n[1] > 0 || n == 0) return false;
    for (int i = 0; i < n; i++)
        if (!opens_alone(shared[i]->backend)) return false;
    return true;
}

int backends_offer(struct tutti_group *group, const struct group_args *args, uint8_t (*offer)[TUTTI_OFFER_BYTES],
                   uint32_t *n)
{
    const struct backend_entry *shared[2 * GROUP_ENTRIES];
    int of = list_shared(group, args, shared), status = TUTTI_OK;
    *n = 0;
    for (int i = 0; i < of && status == TUTTI_OK; i++) {
        const struct backend_entry *entry = shared[i];
        if (!TUTTI_HAS(entry->backend, offer)) continue;
        tutti_group_info info = info_for(group, args, entry->backend, entry->state, NULL);
        status = entry->backend->offer(entry->state, &info, offer[(*n)++]);
    }
    return status;
}

/* ---- opening ------------------------------------------------------------------------------------------------- */

/* Opens one backend under the engine's lock: peers that have opened it already may send control messages, which any
 * thread that polls answers. */
static int open_entry(struct tutti_group *group, const struct group_args *args, const tutti_backend *backend,
                      void *parent, struct backend_entry *entry)
{
    size_t bytes = backend->group_bytes;
    *entry = (struct backend_entry){.backend = backend};
    int status = open_store(group, entry);
    if (status != TUTTI_OK) return status;
    entry->state = aligned_new(64, bytes);
    if (entry->state == NULL) {
        tutti_store_free(entry->store);
        return error_set(TUTTI_ERR_NO_MEMORY, "out of memory for the %zu bytes of a group of backend %s", bytes,
                         backend->name);
    }
    memset(entry->state, 0, bytes);
    entry->first = parent != NULL ? parent : entry->state;
    tutti_group_info info = info_for(group, args, backend, parent, entry->store);
    info.offer = offer_of(group, args, backend);
    engine_lock(group->engine);
    host_store_set_opening(group);
    status = backend->open(entry->state, &info, group->engine->hooks->host);
    host_store_set_opening(NULL);
    if (status == TUTTI_OK && parent == NULL) status = engine_add_source(group->engine, backend, entry->state);
    engine_unlock(group->engine);
    if (status != TUTTI_OK) {
        char text[ERROR_TEXT_MAX]; /* copied, because close may overwrite it */
        snprintf(text, sizeof text, "%s", error_text());
        close_entry(group, entry);
        return error_set(status, "%s", text);
    }
    return TUTTI_OK;
}

static int check_processes(void *group)
{
    return processes_check(group);
}

/* Makes all ranks return the same status.  `name` is the same on all ranks, `what` begins the error text. */
static int agree(struct tutti_group *group, const char *name, const char *what, int status)
{
    struct agreement agreement = {
        .store = group->store,
        .turn = group->root->turn,
        .name = name,
        .what = what,
        .rank = group->rank,
        .size = group->size,
        .timeout_ms = group->open_timeout_ms,
        .check = check_processes,
        .context = group,
    };
    return agreement_reach(&agreement, status);
}

/* Makes a backend's stage ("load", "open") succeed on all ranks or on none. */
static int agree_on_backend(struct tutti_group *group, const char *stage, const char *name, int status)
{
    char key[160], what[160];
    snprintf(key, sizeof key, "%s/%.100s", stage, name);
    snprintf(what, sizeof what, "backend %.100s did not start on all ranks", name);
    return agree(group, key, what, status);
}

/* Opens a backend's first group in the group tree.  Opening may wait for peers, and not every library gives up at a
 * timeout (MPI does not), so no rank begins before all have loaded the backend. */
static int open_first(struct tutti_group *group, const struct group_args *args, const tutti_backend *backend,
                      const char *name, int status, struct backend_entry *entry)
{
    char text[ERROR_TEXT_MAX];
    streams_fill(); /* the program may have closed them since the tree's first group was made */
    if (status == TUTTI_OK && TUTTI_HAS(backend, probe)) status = backend->probe(group->engine->hooks->host);
    status = agree_on_backend(group, "load", name, status);
    if (status != TUTTI_OK) return status;
    status = open_entry(group, args, backend, NULL, entry);
    int agreed = agree_on_backend(group, "open", name, status);
    if (agreed != TUTTI_OK && status == TUTTI_OK) {
        snprintf(text, sizeof text, "%s", error_text()); /* copied, because close may overwrite it */
        close_entry(group, entry);
        error_set(agreed, "%s", text);
    }
    return agreed;
}

static void add_entry(struct tutti_group *group, int device, const struct backend_entry *entry)
{
    engine_lock(group->engine);
    group->entries[device][group->n_entries[device]++] = *entry;
    engine_unlock(group->engine);
}

/* Loads and opens one backend by name, for one device or for all that it takes. */
static int add_backend(struct tutti_group *group, const struct group_args *args, const char *name, int device,
                       bool only_device)
{
    const tutti_backend *backend = NULL;
    struct backend_entry entry = {0};
    int status = registry_load(name, group->engine->hooks->host, &backend);
    if (status == TUTTI_OK && only_device && device == 0 && !group_takes_device(backend, device))
        status = error_set(TUTTI_ERR_INVALID_ARGUMENT, "backend %s does not take CPU tensors; name another one for cpu",
                           name);
    const struct backend_entry *shared = status == TUTTI_OK ? entries_find(group, backend) : NULL;
    if (shared != NULL) { /* "cpu:x,cuda:x": one state serves both */
        add_entry(group, device, shared);
        return TUTTI_OK;
    }
    const struct backend_entry *parent =
        status == TUTTI_OK && args->parent != NULL ? entries_find(group->root, backend) : NULL;
    status = parent != NULL ? open_entry(group, args, backend, parent->state, &entry)
                            : open_first(group, args, backend, name, status, &entry);
    if (status != TUTTI_OK) return status;
    if (only_device) {
        add_entry(group, device, &entry);
    } else {
        for (int d = 0; d < 2; d++)
            if (group_takes_device(backend, d)) add_entry(group, d, &entry);
    }
    return TUTTI_OK;
}

static bool needs_stager(const struct tutti_group *group)
{
    for (int i = 0; i < group->n_entries[1]; i++)
        if (!group_takes_device(group->entries[1][i].backend, 1)) return true;
    return false;
}

/* Opens the plug-in that copies CUDA tensors for backends of CPU tensors.  It is named after the device. */
static int open_stager(struct tutti_group *group, const struct group_args *args)
{
    static const char name[] = "cuda";
    const tutti_backend *backend = NULL;
    int status = registry_load(name, group->engine->hooks->host, &backend);
    if (status == TUTTI_OK && !(TUTTI_HAS(backend, stage_open) && TUTTI_HAS(backend, native[TUTTI_COPY])))
        status =
            error_set(TUTTI_ERR_BACKEND, "plug-in %s does not stage tensors; install the one of this version", name);
    void *parent = args->parent != NULL ? group->root->stager.state : NULL;
    if (parent == NULL)
        status = open_first(group, args, backend, name, status, &group->stager);
    else if (status == TUTTI_OK)
        status = open_entry(group, args, backend, parent, &group->stager);
    if (status == TUTTI_OK) return TUTTI_OK;
    return error_prefix(status, "CUDA tensors on a backend of CPU tensors need the plug-in %s", name);
}

/* Adds the CPU backends as fallbacks for CUDA tensors, if a plug-in can copy them. */
static int add_staging(struct tutti_group *group, const struct group_args *args)
{
    int named = group->n_entries[1];
    bool wanted = needs_stager(group), possible = args->parent == NULL || group->root->stager.state != NULL;
    for (int i = 0; named > 0 && (wanted || possible) && i < group->n_entries[0]; i++) {
        bool there = false;
        for (int k = 0; k < named; k++) there |= group->entries[1][k].backend == group->entries[0][i].backend;
        if (!there && group->n_entries[1] < GROUP_ENTRIES) add_entry(group, 1, &group->entries[0][i]);
    }
    if (!needs_stager(group)) return TUTTI_OK;
    int status = open_stager(group, args);
    if (status == TUTTI_OK || wanted) return status;
    log_write(LOG_INFO, LOG_GROUP, "group %s: CUDA tensors cannot be staged for CPU backends: %s", group->name,
              error_text());
    close_entry(group, &group->stager);
    group->stager = (struct backend_entry){0};
    group->n_entries[1] = named;
    return TUTTI_OK;
}

int backends_open(struct tutti_group *group, const struct group_args *args)
{
    const struct backend_spec *names = args->names;
    int differ =
        group == group->root ? agree(group, "as one", "cannot make the group", topology_check_alike(group)) : TUTTI_OK;
    if (differ != TUTTI_OK) return differ;
    for (int device = 0; device < 2; device++) {
        int opened = 0, status = TUTTI_OK;
        for (int i = 0; i < names->n[device]; i++) {
            const char *name = names->name[device][i];
            status = add_backend(group, args, name, device, names->by_device);
            if (status == TUTTI_OK) opened++;
            if (status == TUTTI_OK && names->automatic) break;
            if (status != TUTTI_OK && i + 1 < names->n[device])
                log_write(LOG_INFO, LOG_GROUP, "group %s continues without backend %s: %s", group->name, name,
                          error_text());
        }
        if (names->n[device] > 0 && opened == 0) return status;
    }
    return add_staging(group, args);
}

void backends_describe(struct tutti_group *group)
{
    struct text text = text_in(group->backend_text, sizeof group->backend_text);
    for (int device = 0; device < 2; device++)
        for (int i = 0; i < group->n_entries[device]; i++) {
            bool is_first = text.at == group->backend_text;
            text_add(&text, i > 0 ? "|" : device == 0 ? "cpu:" : is_first ? "cuda:" : ",cuda:");
            text_add(&text, group->entries[device][i].backend->name);
        }
}

void backends_close(struct tutti_group *group)
{
    for (int device = 0; device < 2; device++)
        for (int i = 0; i < group->n_entries[device]; i++) {
            struct backend_entry *entry = &group->entries[device][i];
            void *state = entry->state;
            close_entry(group, entry);
            for (int d = device; d < 2; d++) /* a state that serves both devices is closed once */
                for (int k = 0; k < group->n_entries[d]; k++)
                    if (group->entries[d][k].state == state) group->entries[d][k].state = NULL;
        }
    close_entry(group, &group->stager);
}

int backends_abstain(struct tutti_group *group)
{
    int status = TUTTI_OK;
    engine_lock(group->engine);
    for (int device = 0; device < 2; device++)
        for (int i = 0; i < group->n_entries[device] && status == TUTTI_OK; i++) {
            const struct backend_entry *entry = &group->entries[device][i];
            if (entries_find(group, entry->backend) == entry && TUTTI_HAS(entry->backend, abstain))
                status = entry->backend->abstain(entry->state); /* called once if it serves both devices */
        }
    engine_unlock(group->engine);
    return status;
}
