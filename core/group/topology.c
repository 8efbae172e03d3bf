#include "group/topology.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/env.h"
#include "base/error.h"
#include "base/log.h"
#include "bootstrap/liveness.h"
#include "coll/override.h"
#include "group/entries.h"
#include "group/links.h"
#include "group/processes.h"
#include "progress/engine.h"

enum { ALGORITHM_MAX = 400 };

static const char *algorithm_of(const struct tutti_group *group)
{
    return group->algorithm != NULL ? group->algorithm : "";
}

static int publish_algorithm(struct tutti_group *group)
{
    char key[64], mine[ALGORITHM_MAX + 32];
    size_t bytes = 0;
    snprintf(key, sizeof key, "algorithm/%" PRIi64, group->turn);
    snprintf(mine, sizeof mine, "%d %.*s", group->rank, ALGORITHM_MAX, algorithm_of(group));
    group->agreed = calloc(1, sizeof mine);
    if (group->agreed == NULL) return error_set(TUTTI_ERR_NO_MEMORY, "out of memory for group %s", group->name);
    return tutti_store_compare_set(group->store, key, "", 0, mine, strlen(mine), group->agreed, sizeof mine - 1,
                                   &bytes);
}

int topology_check_alike(const struct tutti_group *group)
{
    int rank = 0, used = 0;
    const char *mine = algorithm_of(group);
    if (group->agreed == NULL) return TUTTI_OK;
    if (sscanf(group->agreed, "%d%n", &rank, &used) < 1) used = 0;
    const char *theirs = group->agreed + used + (group->agreed[used] == ' ');
    if (strncmp(theirs, mine, ALGORITHM_MAX) == 0) return TUTTI_OK;
    return error_set(
        TUTTI_ERR_INVALID_ARGUMENT,
        "TUTTI_ALGO or TUTTI_DETERMINISTIC differ: \"%s\" on rank %d, \"%s\" on rank %d; set the same value on "
        "all ranks",
        theirs, rank, mine, group->rank);
}

int topology_publish(struct tutti_group *group)
{
    return group == group->root && group->size > 1 ? publish_algorithm(group) : TUTTI_OK;
}

/* ---- what rank 0 publishes ----------------------------------------------------------------------------------------
 *
 * One value: the figures of the links (links.h), then the text of the tuning file.  After a failure on rank 0 it is
 * "failed STATUS TEXT" instead. */

static const char topology_key[] = "topology";
enum { TOPOLOGY_TEXT_MAX = LINKS_TEXT_MAX + TUNING_TEXT_MAX };

static int publish_topology(struct tutti_group *group, int status)
{
    char links[LINKS_TEXT_MAX], failure[ERROR_TEXT_MAX];
    if (status != TUTTI_OK) {
        snprintf(failure, sizeof failure, "%s", error_text());
        int n = snprintf(links, sizeof links, "failed %d %s", status, failure);
        tutti_store_set(group->store, topology_key, links, (size_t)n);
        return error_set(status, "%s", failure);
    }
    const char *tuning = group->tuning != NULL ? group->tuning : "";
    size_t used = links_print(group, links), bytes = strlen(tuning);
    char *text = malloc(used + bytes + 1);
    if (text == NULL) return error_set(TUTTI_ERR_NO_MEMORY, "out of memory for the tuning file");
    memcpy(text, links, used);
    memcpy(text + used, tuning, bytes);
    status = tutti_store_set(group->store, topology_key, text, used + bytes);
    free(text);
    return status;
}

/* Returns OK if rank 0 has published meanwhile: a process may end as soon as it has read the text.  Otherwise keeps the
 * error. */
static int look_again(struct tutti_group *group, int status, char *text, size_t *bytes)
{
    char failure[ERROR_TEXT_MAX];
    snprintf(failure, sizeof failure, "%s", error_text());
    if (tutti_store_get(group->store, topology_key, text, TOPOLOGY_TEXT_MAX, bytes, 1) == TUTTI_OK) return TUTTI_OK;
    return error_set(status, "%s", failure);
}

/* Waits for rank 0's text, which it publishes after it has measured.  Fails at once if a process has ended. */
static int await_topology(struct tutti_group *group, int64_t limit_ms, char *text, size_t *bytes)
{
    int64_t deadline_ns = clock_deadline_ns(limit_ms);
    int status;
    do {
        status = tutti_store_get(group->store, topology_key, text, TOPOLOGY_TEXT_MAX, bytes, LIVENESS_CHECK_MS);
        if (status != TUTTI_ERR_TIMEOUT) return status;
        status = processes_check(group);
    } while (status == TUTTI_OK && clock_now_ns() < deadline_ns);
    if (status != TUTTI_OK) return look_again(group, status, text, bytes);
    return error_set(TUTTI_ERR_TIMEOUT,
                     "rank 0 has not published the topology within %" PRIi64 " ms; check rank 0 or raise the timeout",
                     limit_ms);
}

/* Reads rank 0's text.  It comes from the store, so any rank may have written it. */
static int read_topology(struct tutti_group *group, const char *text)
{
    int code = 0, used = 0;
    if (sscanf(text, "failed %d %n", &code, &used) == 1 && code < 0 && code >= INT16_MIN)
        return error_set(code, "rank 0: %s", text + used);
    const char *tuning = links_read(group, text);
    if (tuning == NULL)
        return error_set(
            TUTTI_ERR_STORE,
            "the store's entry %s is not one of rank 0; check that all ranks run the same version of Tutti",
            topology_key);
    if (*tuning == '\0') return TUTTI_OK;
    group->tuning = strdup(tuning);
    return group->tuning != NULL ? TUTTI_OK : error_set(TUTTI_ERR_NO_MEMORY, "out of memory for the tuning file");
}

/* Receives what rank 0 has found.  If this rank has failed meanwhile, it first looks for the reason on rank 0, which
 * may have left because of it. */
static int receive_topology(struct tutti_group *group, int failed)
{
    enum { FAILED_MS = 2000 };
    char failure[ERROR_TEXT_MAX];
    size_t bytes = 0;
    int64_t limit_ms = group->open_timeout_ms;
    if (failed != TUTTI_OK && limit_ms > FAILED_MS) limit_ms = FAILED_MS;
    snprintf(failure, sizeof failure, "%s", failed != TUTTI_OK ? error_text() : "");
    char *text = malloc(TOPOLOGY_TEXT_MAX + 1);
    if (text == NULL)
        return error_set(TUTTI_ERR_NO_MEMORY, "out of memory for the %d bytes of the tuning file",
                         (int)TUNING_TEXT_MAX);
    int status = await_topology(group, limit_ms, text, &bytes);
    text[bytes <= TOPOLOGY_TEXT_MAX ? bytes : 0] = '\0';
    if (status == TUTTI_OK)
        status = read_topology(group, text);
    else if (failed != TUTTI_OK)
        status = error_set(failed, "%s", failure);
    free(text);
    return status;
}

/* Finds how fast the links are and which measured rows apply.  All ranks use what rank 0 finds.  Each waits for it as
 * it waits for the tuning file, so the figures cost no request to the store. */
static int share_topology(struct tutti_group *group, int status)
{
    if (group != group->root) return status;
    if (status == TUTTI_OK && group->rank == 0) group->tuning = tuning_read(env_string("TUTTI_TUNING", NULL));
    if (group->size == 1 || (status != TUTTI_OK && group->rank != 0)) return status;
    if (status == TUTTI_OK) status = links_find(group);
    return group->rank == 0 ? publish_topology(group, status) : receive_topology(group, status);
}

/* Returns the entry of the tree's first group with the same backend.  Returns NULL in that group itself. */
static const struct backend_entry *find_whole(const struct tutti_group *group, const struct backend_entry *entry)
{
    return group != group->root ? entries_find(group->root, entry->backend) : NULL;
}

/* Groups use the figures of their tree's first group. */
static void inherit_links(const struct tutti_group *group, struct backend_entry *entry)
{
    const struct backend_entry *whole = find_whole(group, entry);
    if (whole != NULL) entry->links = whole->links;
}

/* Finds which ranks share a host: from the backend for a tree's first group, and from that group's result for the
 * others. */
static int find_hosts(struct tutti_group *group, struct backend_entry *entry)
{
    const struct backend_entry *whole = find_whole(group, entry);
    if (!TUTTI_HAS(entry->backend, hosts) || group->size == 1 || (whole != NULL && whole->hosts == NULL))
        return TUTTI_OK;
    int32_t *host = calloc((size_t)group->size, sizeof *host);
    int status = host != NULL ? TUTTI_OK : TUTTI_ERR_NO_MEMORY;
    if (status == TUTTI_OK && whole == NULL) {
        engine_lock(group->engine);
        status = entry->backend->hosts(entry->state, host);
        engine_unlock(group->engine);
    }
    for (int i = 0; status == TUTTI_OK && whole != NULL && i < group->size; i++)
        host[i] = whole->hosts->of[group->global_ranks[i]];
    if (status == TUTTI_OK) {
        entry->hosts = coll_hosts_new(host, group->size);
        status = entry->hosts != NULL ? TUTTI_OK : TUTTI_ERR_NO_MEMORY;
    }
    free(host);
    return status == TUTTI_ERR_NO_MEMORY ? error_set(status, "out of memory for a group of %d ranks", group->size)
                                         : status;
}

/* ---- paths ------------------------------------------------------------------------------------------------- */

static int count_paths(const tutti_backend *backend)
{
    int n = 0;
    while (TUTTI_HAS(backend, paths) && backend->paths[n].name != NULL) n++;
    return n;
}

/* True if the group's algorithms are named, by TUTTI_ALGO or measured rows, which may name paths of backends. */
static bool names_paths(const struct tutti_group *group)
{
    return group->algorithm != NULL || group->root->tuning != NULL;
}

/* Lists the paths of the group's backends, as algorithms that build no plan. */
static int gather_paths(struct tutti_group *group)
{
    int n = 0;
    for (int device = 0; device < 2; device++)
        for (int i = 0; i < group->n_entries[device]; i++) n += count_paths(group->entries[device][i].backend);
    group->paths = calloc((size_t)n + 1, sizeof *group->paths);
    if (group->paths == NULL) return error_set(TUTTI_ERR_NO_MEMORY, "out of memory for group %s", group->name);
    n = 0;
    for (int device = 0; device < 2; device++)
        for (int i = 0; i < group->n_entries[device]; i++) {
            const tutti_backend *backend = group->entries[device][i].backend;
            int n_paths = count_paths(backend);
            for (int k = 0; k < n_paths; k++)
                group->paths[n++] = (struct coll_path){{.kind = backend->paths[k].kind, .name = backend->paths[k].name},
                                                       backend->paths[k].number,
                                                       backend};
        }
    return TUTTI_OK;
}

/* Reads the measured rows for a backend.  A row that names an unknown algorithm of this backend invalidates the file
 * for this backend, as a malformed one does. */
static void read_rows(struct tutti_group *group, struct backend_entry *entry)
{
    const char *text = group->root->tuning, *name = entry->backend->name;
    int hosts = entry->hosts != NULL ? entry->hosts->n : 1;
    if (text == NULL || tuning_parse(text, name, group->size, hosts, group->paths, &entry->tuned) == TUTTI_OK) return;
    if (group->rank == 0)
        log_write(LOG_WARN, LOG_OP, "TUTTI_TUNING is not used for backend %s: %s", name, error_text());
}

static int pass_rows(struct tutti_group *group, struct backend_entry *entry)
{
    struct coll_override override = {group->algorithm, entry->tuned.rows, entry->tuned.n, group->paths};
    if (!TUTTI_HAS(entry->backend, choose) || (override.names == NULL && override.n_tuned == 0)) return TUTTI_OK;
    entry->path_rows = calloc((size_t)override_rows_max(&override), sizeof *entry->path_rows);
    if (entry->path_rows == NULL) return error_set(TUTTI_ERR_NO_MEMORY, "out of memory for group %s", group->name);
    int n = override_rows(&override, entry->backend, entry->path_rows);
    engine_lock(group->engine);
    if (n > 0) entry->backend->choose(entry->state, entry->path_rows, n);
    engine_unlock(group->engine);
    return TUTTI_OK;
}

int topology_read(struct tutti_group *group)
{
    int status = TUTTI_OK;
    for (int device = 0; device < 2; device++)
        for (int i = 0; status == TUTTI_OK && i < group->n_entries[device]; i++)
            status = find_hosts(group, &group->entries[device][i]);
    status = share_topology(group, status);
    if (status == TUTTI_OK && names_paths(group)) status = gather_paths(group);
    if (status == TUTTI_OK && group == group->root) links_log(group);
    for (int device = 0; device < 2; device++)
        for (int i = 0; status == TUTTI_OK && i < group->n_entries[device]; i++) {
            struct backend_entry *entry = &group->entries[device][i];
            inherit_links(group, entry);
            read_rows(group, entry);
            status = pass_rows(group, entry);
        }
    return status;
}

void topology_free(struct tutti_group *group)
{
    for (int device = 0; device < 2; device++)
        for (int i = 0; i < group->n_entries[device]; i++) {
            free(group->entries[device][i].hosts);
            free(group->entries[device][i].path_rows);
            tuning_free(&group->entries[device][i].tuned);
        }
    free(group->paths);
    free(group->own_algorithm);
    free(group->tuning);
    free(group->agreed);
}
