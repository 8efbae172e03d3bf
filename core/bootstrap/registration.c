/* Each rank writes its name under its number and adds 1 to a counter.  The last rank writes the verdict, for which all
 * ranks wait.  A rank that detects that the registration cannot succeed writes the reason as the verdict instead.  The
 * first verdict wins.
 *
 *   size       "N R": the world size according to rank R, the first to write it
 *   rank/R     "host:pid nonce", and the process as liveness.h names it
 *   joined     the number of ranks that have registered
 *   verdict    "0 ", or a status, a space and the error message */
#include "bootstrap/registration.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/token.h"
#include "bootstrap/liveness.h"

enum { PROCESS_NAME_MAX = 256, MISSING_NAMED = 16, HOST_NAME_MAX_BYTES = 65 };

/* Sets the key if it is absent.  Copies the resulting value to current, as a string. */
static int set_if_absent(const struct registration *registration, const char *key, const char *value, char *current,
                         size_t capacity)
{
    size_t bytes = 0;
    int status =
        tutti_store_compare_set(registration->store, key, "", 0, value, strlen(value), current, capacity - 1, &bytes);
    current[status == TUTTI_OK && bytes < capacity ? bytes : 0] = '\0';
    return status;
}

/* Parses "-5 message": returns the status and sets this thread's error message. */
static int read_verdict(const char *verdict)
{
    char *text = NULL;
    long status = strtol(verdict, &text, 10);
    if (text == verdict || *text != ' ' || status > TUTTI_OK || status < TUTTI_ERR_NOT_FOUND)
        return error_set(TUTTI_ERR_STORE, "rendezvous: the verdict in the store is malformed: \"%.100s\"", verdict);
    return status == TUTTI_OK ? TUTTI_OK : error_set((int)status, "%s", text + 1);
}

/* Publishes a failure as the verdict, and returns the verdict that holds. */
static int publish_failure(const struct registration *registration, int failure, const char *message)
{
    char verdict[ERROR_TEXT_MAX], current[ERROR_TEXT_MAX];
    snprintf(verdict, sizeof verdict, "%d %.900s", failure, message);
    int status = set_if_absent(registration, "verdict", verdict, current, sizeof current);
    if (status != TUTTI_OK) return error_set(failure, "%s", message);
    return read_verdict(current);
}

static int check_size(const struct registration *registration)
{
    char own[40], current[64], message[160];
    int size = -1, rank = -1;
    snprintf(own, sizeof own, "%d %d", registration->world_size, registration->rank);
    int status = set_if_absent(registration, "size", own, current, sizeof current);
    if (status != TUTTI_OK) return status;
    if (sscanf(current, "%d %d", &size, &rank) != 2)
        return error_set(TUTTI_ERR_STORE, "rendezvous: the world size in the store is malformed: \"%s\"", current);
    if (size == registration->world_size) return TUTTI_OK;
    snprintf(message, sizeof message, "rendezvous: WORLD_SIZE differs: rank %d says %d, rank %d says %d; use one value",
             registration->rank, registration->world_size, rank, size);
    publish_failure(registration, TUTTI_ERR_MISMATCH, message);
    return error_set(TUTTI_ERR_MISMATCH, "%s", message);
}

/* ---- a file from an earlier run ------------------------------------------------------------------------------ */

static void get_host_name(char host[HOST_NAME_MAX_BYTES])
{
    if (gethostname(host, HOST_NAME_MAX_BYTES) != 0) strcpy(host, "unknown");
    host[HOST_NAME_MAX_BYTES - 1] = '\0';
}

static int report_left_over(const struct registration *registration, const char *why)
{
    return error_set(TUTTI_ERR_STORE,
                     "rendezvous: %.300s is left over from an earlier run (%s); remove it, or use another file",
                     registration->file, why);
}

/* Checks for a verdict.  Before this rank has registered, a verdict of success must be from an earlier run. */
static int check_verdict(struct registration *registration)
{
    char verdict[ERROR_TEXT_MAX];
    size_t bytes = 0;
    int status = tutti_store_get(registration->store, "verdict", verdict, sizeof verdict - 1, &bytes, 0);
    if (status == TUTTI_ERR_TIMEOUT) return TUTTI_OK;
    if (status != TUTTI_OK) return status;
    verdict[bytes] = '\0';
    status = read_verdict(verdict);
    registration->in_use = status == TUTTI_OK;
    if (registration->in_use) return report_left_over(registration, "its ranks had registered");
    return error_prefix(status, "%.300s holds a failure; if it is from an earlier run, remove it", registration->file);
}

/* Checks that the processes in the file are running: all that have registered, or only rank 0 if they have a verdict,
 * as it will remove the file. */
static int check_file(struct registration *registration)
{
    char key[32], name[PROCESS_NAME_MAX], why[PROCESS_NAME_MAX + 40];
    size_t bytes;
    int status = check_verdict(registration);
    int n = registration->in_use ? 1 : registration->world_size;
    for (int i = 0; i < n && (status == TUTTI_OK || registration->in_use); i++) {
        snprintf(key, sizeof key, "rank/%d", i);
        if (tutti_store_get(registration->store, key, name, sizeof name - 1, &bytes, 0) != TUTTI_OK) continue;
        name[bytes] = '\0';
        int process = 0;
        sscanf(name, "%*s %*s %n", &process);
        if (liveness_ended(name + process) == 0) continue;
        name[strcspn(name, " ")] = '\0';
        snprintf(why, sizeof why, "rank %d was %s, which has ended", i, name);
        registration->in_use = false;
        return report_left_over(registration, why);
    }
    return status;
}

/* ---- joining ------------------------------------------------------------------------------------------------- */

/* True if the store holds the verdict of an attempt that has failed.  Keeps the error message.  Not inline: its texts
 * would enlarge the stack of each rank that registers. */
__attribute__((noinline)) static bool has_failed_before(const struct registration *registration, int status)
{
    char text[ERROR_TEXT_MAX], verdict[ERROR_TEXT_MAX];
    size_t bytes = 0;
    snprintf(text, sizeof text, "%s", error_text());
    bool found = tutti_store_get(registration->store, "verdict", verdict, sizeof verdict - 1, &bytes, 0) == TUTTI_OK;
    verdict[found ? bytes : 0] = '\0';
    bool failed = found && read_verdict(verdict) != TUTTI_OK;
    error_set(status, "%s", text);
    return failed;
}

static int register_rank(struct registration *registration)
{
    char host[HOST_NAME_MAX_BYTES], process[LIVENESS_NAME_MAX], own[PROCESS_NAME_MAX], current[PROCESS_NAME_MAX],
        key[32];
    uint64_t nonce; /* tells ranks apart that are threads of one process */
    token_random(&nonce, sizeof nonce);
    get_host_name(host);
    liveness_name(process);
    snprintf(own, sizeof own, "%s:%d %016" PRIx64 " %s", host, (int)getpid(), nonce, process);
    snprintf(key, sizeof key, "rank/%d", registration->rank);
    int status = set_if_absent(registration, key, own, current, sizeof current);
    registration->registered = status == TUTTI_OK && strcmp(current, own) == 0;
    if (registration->registered) return liveness_append(registration->store, "processes", registration->rank);
    if (status != TUTTI_OK) return status;
    current[strcspn(current, " ")] = '\0';
    const char *instead = registration->left_over != NULL ? registration->left_over : registration->file;
    status = error_set(TUTTI_ERR_MISMATCH, "rendezvous: rank %d already joined from %s%s%s%s", registration->rank,
                       current, instead == NULL ? "" : "; if that was an earlier run, ",
                       instead == NULL || instead == registration->left_over ? "" : "remove ",
                       instead == NULL ? "" : instead);
    registration->failed_before = registration->left_over != NULL && has_failed_before(registration, status);
    return status;
}

/* Marks the ranks whose processes are in the list that all append to.  One request, for any number of ranks. */
static int read_joined(const struct registration *registration, bool *joined)
{
    size_t bytes = 0, capacity = (size_t)registration->world_size * (LIVENESS_NAME_MAX + 16);
    char *text = malloc(capacity + 1);
    if (text == NULL)
        return error_set(TUTTI_ERR_NO_MEMORY, "rendezvous: out of memory for %d ranks", registration->world_size);
    int status = tutti_store_get(registration->store, "processes", text, capacity, &bytes, 0);
    text[status == TUTTI_OK ? bytes : 0] = '\0';
    for (const char *at = text; *at != '\0'; at++) {
        long rank = strtol(at, NULL, 10);
        if (rank >= 0 && rank < registration->world_size) joined[rank] = true;
        at += strcspn(at, "\n");
        if (*at == '\0') break;
    }
    free(text);
    return status == TUTTI_ERR_TIMEOUT ? TUTTI_OK : status;
}

/* Formats "joined 2 of 3, missing 1". */
static void format_missing(const struct registration *registration, const bool *joined, char *message, size_t size)
{
    char missing[256] = "";
    int n_missing = 0;
    size_t used = 0;
    for (int i = 0; i < registration->world_size; i++) {
        if (joined[i] || n_missing++ >= MISSING_NAMED) continue;
        used += (size_t)snprintf(missing + used, sizeof missing - used, "%s%d", used > 0 ? ", " : "", i);
    }
    if (n_missing > 0)
        snprintf(message, size, "rendezvous: joined %d of %d, missing %s%s, after %" PRId64 " ms",
                 registration->world_size - n_missing, registration->world_size, missing,
                 n_missing > MISSING_NAMED ? ", ..." : "", registration->timeout_ms);
    else /* a rank writes its name before it counts itself */
        snprintf(message, size,
                 "rendezvous: all %d ranks started, but one of them died or was stopped before it joined, after "
                 "%" PRId64 " ms",
                 registration->world_size, registration->timeout_ms);
}

static int report_missing(const struct registration *registration)
{
    char message[512];
    bool *joined = calloc((size_t)registration->world_size, sizeof *joined);
    if (joined == NULL)
        return error_set(TUTTI_ERR_NO_MEMORY, "rendezvous: out of memory for %d ranks", registration->world_size);
    int status = read_joined(registration, joined);
    if (status == TUTTI_OK) format_missing(registration, joined, message, sizeof message);
    free(joined);
    return status == TUTTI_OK ? publish_failure(registration, TUTTI_ERR_TIMEOUT, message) : status;
}

/* Returns PEER_LOST for a rank that can no longer register: reported by the launcher, or a process of this host that
 * has ended. */
static int check_lost(const struct registration *registration, struct liveness_list *list)
{
    int status = liveness_read_lost(registration->store, "lost");
    return status == TUTTI_OK ? liveness_check_list(list, registration->store, "processes", registration->world_size)
                              : status;
}

static int await_verdict(const struct registration *registration, int64_t deadline_ns)
{
    char verdict[ERROR_TEXT_MAX];
    struct liveness_list list = {0};
    int status = TUTTI_ERR_TIMEOUT;
    while (status == TUTTI_ERR_TIMEOUT) {
        size_t bytes = 0;
        int64_t left = (deadline_ns - clock_now_ns()) / 1000000;
        bool last = left <= 0;
        status = tutti_store_get(registration->store, "verdict", verdict, sizeof verdict - 1, &bytes,
                                 last                       ? 0
                                 : left < LIVENESS_CHECK_MS ? left
                                                            : LIVENESS_CHECK_MS);
        verdict[status == TUTTI_OK ? bytes : 0] = '\0';
        if (status == TUTTI_OK)
            status = read_verdict(verdict);
        else if (status == TUTTI_ERR_TIMEOUT) {
            int lost = check_lost(registration, &list);
            if (lost != TUTTI_OK && lost != TUTTI_ERR_STORE) {
                char text[ERROR_TEXT_MAX];
                snprintf(text, sizeof text, "%s", error_text());
                status = publish_failure(registration, lost, text);
            } else if (lost != TUTTI_OK || last) {
                status = lost != TUTTI_OK ? lost : report_missing(registration);
            } else {
                continue;
            }
        }
        break;
    }
    liveness_list_free(&list);
    return status;
}

int registration_complete(struct registration *registration)
{
    int64_t joined = 0, deadline_ns = clock_deadline_ns(registration->timeout_ms);
    char current[ERROR_TEXT_MAX];
    int status = token_init(); /* the nonce needs libsodium */
    if (status == TUTTI_OK && registration->file != NULL) status = check_file(registration);
    if (status == TUTTI_OK) status = check_size(registration);
    if (status == TUTTI_OK) status = register_rank(registration);
    if (status == TUTTI_OK) status = tutti_store_add(registration->store, "joined", 1, &joined);
    if (status == TUTTI_OK && joined == registration->world_size)
        status = set_if_absent(registration, "verdict", "0 ", current, sizeof current);
    return status == TUTTI_OK ? await_verdict(registration, deadline_ns) : status;
}
