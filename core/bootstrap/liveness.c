#include "bootstrap/liveness.h"

#include <inttypes.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "portable/process.h"

enum {
    SCOPE_MAX = 64,
    STARTS_PER_CHECK = 16 /* reading a start time is slow */
};

void liveness_name(char name[LIVENESS_NAME_MAX])
{
    char scope[SCOPE_MAX];
    process_scope(scope, sizeof scope);
    snprintf(name, LIVENESS_NAME_MAX, "%d %" PRIu64 " %s", (int)getpid(), process_start(getpid()), scope);
}

/* Returns the id of the named process if it belongs to this scope and has ended, else 0.  Without compare_start it does
 * not distinguish the process from a later one with the same id. */
static int ended_here(const char *name, const char scope[SCOPE_MAX], bool compare_start)
{
    int pid = 0, used = 0;
    uint64_t started = 0;
    if (scope[0] == '\0' || sscanf(name, "%d %" SCNu64 " %n", &pid, &started, &used) < 2 || pid <= 0 ||
        strcmp(name + used, scope) != 0)
        return 0;
    if (process_has_ended((pid_t)pid)) return pid;
    uint64_t now = compare_start ? process_start((pid_t)pid) : 0;
    return started != 0 && now != 0 && now != started ? pid : 0;
}

int liveness_ended(const char *name)
{
    char scope[SCOPE_MAX];
    process_scope(scope, sizeof scope);
    return ended_here(name, scope, true);
}

bool liveness_is_running(const char *name)
{
    char scope[SCOPE_MAX];
    int used = 0;
    process_scope(scope, sizeof scope);
    bool here =
        scope[0] != '\0' && sscanf(name, "%*d %*u %n", &used) == 0 && used > 0 && strcmp(name + used, scope) == 0;
    return here && ended_here(name, scope, true) == 0;
}

/* ---- reports of lost ranks ---------------------------------------------------------------------------------- */

static atomic_bool trusts_launcher;

void liveness_trust_launcher(bool trusts)
{
    atomic_store_explicit(&trusts_launcher, trusts, memory_order_relaxed); /* relaxed: no other data depends on it */
}

int liveness_read_lost(tutti_store *store, const char *key)
{
    char text[ERROR_TEXT_MAX];
    size_t bytes = 0;
    int failure = TUTTI_ERR_PEER_LOST, used = 0;
    int status = tutti_store_get(store, key, text, sizeof text - 1, &bytes, 0);
    if (status == TUTTI_ERR_TIMEOUT) return TUTTI_OK;
    if (status != TUTTI_OK) return status;
    text[bytes] = '\0';
    bool by_launcher = text[0] == 'L';
    if (by_launcher && !atomic_load_explicit(&trusts_launcher, memory_order_relaxed)) return TUTTI_OK;
    const char *at = text + by_launcher;
    if (sscanf(at, "%d %n", &failure, &used) < 1 || failure >= 0) failure = TUTTI_ERR_PEER_LOST;
    return error_set(failure, "%s", at + used);
}

void liveness_report_lost(tutti_store *store, const char *key, int status, const char *message)
{
    char value[ERROR_TEXT_MAX];
    snprintf(value, sizeof value, "%d %.900s", status, message);
    tutti_store_compare_set(store, key, "", 0, value, strlen(value), NULL, 0, NULL);
}

/* ---- processes of this host --------------------------------------------------------------------------------- */

int liveness_append(tutti_store *store, const char *key, int rank)
{
    char name[LIVENESS_NAME_MAX], line[LIVENESS_NAME_MAX + 16];
    liveness_name(name);
    snprintf(line, sizeof line, "%d %s\n", rank, name);
    return tutti_store_append(store, key, line, strlen(line));
}

/* Reads the list if it may have changed.  A complete list is read once; an incomplete one is read again, more rarely
 * with more ranks, so that the store's load stays bounded. */
static int read_list(struct liveness_list *list, tutti_store *store, const char *key, int n)
{
    int64_t pause_ms = n > LIVENESS_CHECK_MS / 5 ? 5 * (int64_t)n : LIVENESS_CHECK_MS;
    if (list->n == n || clock_now_ns() < list->again_ns) return TUTTI_OK;
    list->again_ns = clock_deadline_ns(pause_ms);
    size_t bytes = 0, capacity = (size_t)n * (LIVENESS_NAME_MAX + 16);
    char *text = realloc(list->text, capacity + 1);
    if (text == NULL) return TUTTI_OK; /* the deadline still bounds the wait */
    list->text = text;
    if (list->own[0] == '\0') liveness_name(list->own);
    int status = tutti_store_get(store, key, text, capacity, &bytes, 0);
    text[status == TUTTI_OK ? bytes : 0] = '\0';
    list->n = 0;
    for (const char *at = text; (at = strchr(at, '\n')) != NULL; at++) list->n++;
    return status == TUTTI_ERR_TIMEOUT ? TUTTI_OK : status;
}

/* Reads a line of the list.  Returns its rank, or -1 if it has none, and copies the name of its process.  strtol reads
 * only the number; sscanf would look for the end of the whole list. */
static int read_line(const char *line, char name[LIVENESS_NAME_MAX])
{
    char *rest;
    long rank = strtol(line, &rest, 10);
    if (rest == line || rank < 0 || rank > INT_MAX) return -1;
    rest += strspn(rest, " ");
    snprintf(name, LIVENESS_NAME_MAX, "%.*s", (int)strcspn(rest, "\n"), rest);
    return (int)rank;
}

int liveness_check_list(struct liveness_list *list, tutti_store *store, const char *key, int n)
{
    char scope[SCOPE_MAX], name[LIVENESS_NAME_MAX];
    int status = read_list(list, store, key, n);
    process_scope(scope, sizeof scope);
    int first = list->n > 0 ? (int)(list->n_checks++ * STARTS_PER_CHECK % (unsigned)list->n) : 0;
    const char *at = list->text;
    for (int i = 0; status == TUTTI_OK && i < list->n; i++, at = strchr(at, '\n') + 1) {
        bool compare_start = (i - first + list->n) % list->n < STARTS_PER_CHECK;
        int rank = read_line(at, name);
        if (rank < 0 || strcmp(name, list->own) == 0) continue; /* this process is running */
        int pid = ended_here(name, scope, compare_start);
        if (pid > 0 && (list->members == NULL || (rank < list->n_members && list->members[rank] >= 0)))
            status = error_set(TUTTI_ERR_PEER_LOST, "rank %d is lost: its process %d has ended", rank, pid);
    }
    return status;
}

void liveness_list_free(struct liveness_list *list)
{
    free(list->text);
    *list = (struct liveness_list){0};
}
