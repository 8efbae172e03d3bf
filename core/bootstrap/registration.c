/* Each rank writes its name under its number and counts itself; the last to come writes the verdict, for which all
 * wait. Whoever finds out that the meeting cannot succeed writes the reason there instead; the first to write it wins.
 *
 *   size       "N R": the world size, as rank R, the first, has it
 *   rank/R     "host:pid nonce", and its process as liveness.h has it
 *   joined     how many have come
 *   verdict    "0 " or a status, a space and the sentence
 */
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

/* compare_set from "absent": whoever comes first; now is what is there, as a string. */
static int set_if_absent(const struct registration *registration, const char *key, const char *value, char *now,
                         size_t capacity)
{
    size_t bytes = 0;
    int status =
        tutti_store_compare_set(registration->store, key, "", 0, value, strlen(value), now, capacity - 1, &bytes);
    now[status == TUTTI_OK && bytes < capacity ? bytes : 0] = '\0';
    return status;
}

/* "-5 the sentence" to a status and this thread's sentence. */
static int read_verdict(const char *verdict)
{
    char *text = NULL;
    long status = strtol(verdict, &text, 10);
    if (text == verdict || *text != ' ' || status > TUTTI_OK || status < TUTTI_ERR_NOT_FOUND)
        return error_set(TUTTI_ERR_STORE, "rendezvous: the store holds \"%.100s\" as the verdict", verdict);
    return status == TUTTI_OK ? TUTTI_OK : error_set((int)status, "%s", text + 1);
}

/* Writes a failure for all to see, and returns whatever verdict stands then. */
static int publish_failure(const struct registration *registration, int failure, const char *sentence)
{
    char verdict[ERROR_TEXT_MAX], now[ERROR_TEXT_MAX];
    snprintf(verdict, sizeof verdict, "%d %.900s", failure, sentence);
    int status = set_if_absent(registration, "verdict", verdict, now, sizeof now);
    if (status != TUTTI_OK) return error_set(failure, "%s", sentence);
    return read_verdict(now);
}

static int check_size(const struct registration *registration)
{
    char mine[40], now[64], sentence[160];
    int size = -1, rank = -1;
    snprintf(mine, sizeof mine, "%d %d", registration->world_size, registration->rank);
    int status = set_if_absent(registration, "size", mine, now, sizeof now);
    if (status != TUTTI_OK) return status;
    if (sscanf(now, "%d %d", &size, &rank) != 2)
        return error_set(TUTTI_ERR_STORE, "rendezvous: the store holds \"%s\" as the world size", now);
    if (size == registration->world_size) return TUTTI_OK;
    snprintf(sentence, sizeof sentence, "rendezvous: WORLD_SIZE differs: rank %d says %d, rank %d says %d",
             registration->rank, registration->world_size, rank, size);
    publish_failure(registration, TUTTI_ERR_MISMATCH, sentence);
    return error_set(TUTTI_ERR_MISMATCH, "%s", sentence);
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
                     "rendezvous: %.300s is left over from an earlier run (%s): remove it, or name another",
                     registration->file, why);
}

/* Before this rank has registered nobody can have found the world complete. */
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
    if (registration->in_use) return report_left_over(registration, "its ranks have met");
    return error_prefix(status, "%.300s holds a failure (if of an earlier run, remove it)", registration->file);
}

/* All that have registered must be alive; where they have met already, their rank 0, which then removes the file. */
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
        snprintf(why, sizeof why, "rank %d was %s, which is gone", i, name);
        registration->in_use = false;
        return report_left_over(registration, why);
    }
    return status;
}

/* ---- joining ------------------------------------------------------------------------------------------------- */

static int register_rank(const struct registration *registration)
{
    char host[HOST_NAME_MAX_BYTES], process[LIVENESS_NAME_MAX], mine[PROCESS_NAME_MAX], now[PROCESS_NAME_MAX], key[32];
    uint64_t nonce; /* ranks may be threads of one process */
    token_random(&nonce, sizeof nonce);
    get_host_name(host);
    liveness_name(process);
    snprintf(mine, sizeof mine, "%s:%d %016" PRIx64 " %s", host, (int)getpid(), nonce, process);
    snprintf(key, sizeof key, "rank/%d", registration->rank);
    int status = set_if_absent(registration, key, mine, now, sizeof now);
    if (status == TUTTI_OK && strcmp(now, mine) == 0)
        return liveness_append(registration->store, "processes", registration->rank);
    if (status != TUTTI_OK) return status;
    now[strcspn(now, " ")] = '\0';
    return error_set(TUTTI_ERR_MISMATCH, "rendezvous: rank %d already joined from %s%s%s", registration->rank, now,
                     registration->file == NULL ? "" : "; if that was an earlier run, remove ",
                     registration->file == NULL ? "" : registration->file);
}

/* Marks the ranks whose processes are in the list that all append to.  One request, however many ranks there are. */
static int read_joined(const struct registration *registration, bool *joined)
{
    size_t bytes = 0, capacity = (size_t)registration->world_size * (LIVENESS_NAME_MAX + 16);
    char *text = malloc(capacity + 1);
    if (text == NULL)
        return error_set(TUTTI_ERR_NO_MEMORY, "rendezvous: no memory for %d ranks", registration->world_size);
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

/* "joined 2 of 3, missing 1" */
static void format_missing(const struct registration *registration, const bool *joined, char *sentence, size_t size)
{
    char missing[256] = "";
    int n_missing = 0;
    size_t used = 0;
    for (int i = 0; i < registration->world_size; i++) {
        if (joined[i] || n_missing++ >= MISSING_NAMED) continue;
        used += (size_t)snprintf(missing + used, sizeof missing - used, "%s%d", used > 0 ? ", " : "", i);
    }
    if (n_missing > 0)
        snprintf(sentence, size, "rendezvous: joined %d of %d, missing %s%s, after %" PRId64 " ms",
                 registration->world_size - n_missing, registration->world_size, missing,
                 n_missing > MISSING_NAMED ? ", ..." : "", registration->timeout_ms);
    else /* the name comes before the count */
        snprintf(sentence, size,
                 "rendezvous: all %d ranks came, but one of them died or was stopped before it had joined, after "
                 "%" PRId64 " ms",
                 registration->world_size, registration->timeout_ms);
}

static int report_missing(const struct registration *registration)
{
    char sentence[512];
    bool *joined = calloc((size_t)registration->world_size, sizeof *joined);
    if (joined == NULL)
        return error_set(TUTTI_ERR_NO_MEMORY, "rendezvous: no memory for %d ranks", registration->world_size);
    int status = read_joined(registration, joined);
    if (status == TUTTI_OK) format_missing(registration, joined, sentence, sizeof sentence);
    free(joined);
    return status == TUTTI_OK ? publish_failure(registration, TUTTI_ERR_TIMEOUT, sentence) : status;
}

/* What is known of ranks that cannot come any more: from the launcher, and of this host's processes. */
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
    char now[ERROR_TEXT_MAX];
    int status = token_init(); /* for the nonce */
    if (status == TUTTI_OK && registration->file != NULL) status = check_file(registration);
    if (status == TUTTI_OK) status = check_size(registration);
    if (status == TUTTI_OK) status = register_rank(registration);
    if (status == TUTTI_OK) status = tutti_store_add(registration->store, "joined", 1, &joined);
    if (status == TUTTI_OK && joined == registration->world_size)
        status = set_if_absent(registration, "verdict", "0 ", now, sizeof now);
    return status == TUTTI_OK ? await_verdict(registration, deadline_ns) : status;
}
