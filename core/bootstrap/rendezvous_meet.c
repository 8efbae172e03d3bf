/* Each rank writes its name under its number and counts itself; the last to come writes the verdict, for which all
 * wait. Whoever finds out that the meeting cannot succeed writes the reason there instead; the first to write it wins.
 *
 *   size       "N R": the world size, as rank R, the first, has it
 *   rank/R     "host:pid nonce", and its process as liveness.h has it
 *   joined     how many have come
 *   verdict    "0 " or a status, a space and the sentence
 */
#include "bootstrap/rendezvous_meet.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/token.h"
#include "bootstrap/liveness.h"

enum { MEET_NAME_MAX = 256, MEET_NAMED = 16, MEET_HOST_MAX = 65 };

/* compare_set from "absent": whoever comes first; now is what is there, as a string. */
static int meet_claim(const struct meet *meet, const char *key, const char *value, char *now, size_t capacity)
{
    size_t bytes = 0;
    int status = tutti_store_compare_set(meet->store, key, "", 0, value, strlen(value), now, capacity - 1, &bytes);
    now[status == TUTTI_OK && bytes < capacity ? bytes : 0] = '\0';
    return status;
}

/* "-5 the sentence" to a status and this thread's sentence. */
static int meet_read_verdict(const char *verdict)
{
    char *text = NULL;
    long status = strtol(verdict, &text, 10);
    if (text == verdict || *text != ' ' || status > TUTTI_OK || status < TUTTI_ERR_NOT_FOUND)
        return error_set(TUTTI_ERR_STORE, "rendezvous: the store holds \"%.100s\" as the verdict", verdict);
    return status == TUTTI_OK ? TUTTI_OK : error_set((int)status, "%s", text + 1);
}

/* Writes a failure for all to see, and returns whatever verdict stands then. */
static int meet_fail(const struct meet *meet, int failure, const char *sentence)
{
    char verdict[ERROR_TEXT_MAX], now[ERROR_TEXT_MAX];
    snprintf(verdict, sizeof verdict, "%d %.900s", failure, sentence);
    int status = meet_claim(meet, "verdict", verdict, now, sizeof now);
    if (status != TUTTI_OK) return error_set(failure, "%s", sentence);
    return meet_read_verdict(now);
}

static int meet_check_size(const struct meet *meet)
{
    char mine[40], now[64], sentence[160];
    int size = -1, rank = -1;
    snprintf(mine, sizeof mine, "%d %d", meet->world_size, meet->rank);
    int status = meet_claim(meet, "size", mine, now, sizeof now);
    if (status != TUTTI_OK) return status;
    if (sscanf(now, "%d %d", &size, &rank) != 2)
        return error_set(TUTTI_ERR_STORE, "rendezvous: the store holds \"%s\" as the world size", now);
    if (size == meet->world_size) return TUTTI_OK;
    snprintf(sentence, sizeof sentence, "rendezvous: WORLD_SIZE differs: rank %d says %d, rank %d says %d", meet->rank,
             meet->world_size, rank, size);
    meet_fail(meet, TUTTI_ERR_MISMATCH, sentence);
    return error_set(TUTTI_ERR_MISMATCH, "%s", sentence);
}

/* ---- a file from an earlier run ------------------------------------------------------------------------------ */

static void meet_host(char host[MEET_HOST_MAX])
{
    if (gethostname(host, MEET_HOST_MAX) != 0) strcpy(host, "unknown");
    host[MEET_HOST_MAX - 1] = '\0';
}

static int meet_left_over(const struct meet *meet, const char *why)
{
    return error_set(TUTTI_ERR_STORE,
                     "rendezvous: %.300s is left over from an earlier run (%s): remove it, or name another", meet->file,
                     why);
}

/* Before this rank has registered nobody can have found the world complete. */
static int meet_check_verdict(struct meet *meet)
{
    char verdict[ERROR_TEXT_MAX];
    size_t bytes = 0;
    int status = tutti_store_get(meet->store, "verdict", verdict, sizeof verdict - 1, &bytes, 0);
    if (status == TUTTI_ERR_TIMEOUT) return TUTTI_OK;
    if (status != TUTTI_OK) return status;
    verdict[bytes] = '\0';
    status = meet_read_verdict(verdict);
    meet->in_use = status == TUTTI_OK;
    if (meet->in_use) return meet_left_over(meet, "its ranks have met");
    return error_prefix(status, "%.300s holds a failure (if of an earlier run, remove it)", meet->file);
}

/* All that have registered must be alive; where they have met already, their rank 0, which then removes the file. */
static int meet_check_file(struct meet *meet)
{
    char key[32], name[MEET_NAME_MAX], why[MEET_NAME_MAX + 40];
    size_t bytes;
    int status = meet_check_verdict(meet);
    int n = meet->in_use ? 1 : meet->world_size;
    for (int i = 0; i < n && (status == TUTTI_OK || meet->in_use); i++) {
        snprintf(key, sizeof key, "rank/%d", i);
        if (tutti_store_get(meet->store, key, name, sizeof name - 1, &bytes, 0) != TUTTI_OK) continue;
        name[bytes] = '\0';
        int process = 0;
        sscanf(name, "%*s %*s %n", &process);
        if (liveness_ended(name + process) == 0) continue;
        name[strcspn(name, " ")] = '\0';
        snprintf(why, sizeof why, "rank %d was %s, which is gone", i, name);
        meet->in_use = false;
        return meet_left_over(meet, why);
    }
    return status;
}

/* ---- joining ------------------------------------------------------------------------------------------------- */

static int meet_register(const struct meet *meet)
{
    char host[MEET_HOST_MAX], process[LIVENESS_NAME_MAX], mine[MEET_NAME_MAX], now[MEET_NAME_MAX], key[32];
    uint64_t nonce; /* ranks may be threads of one process */
    token_random(&nonce, sizeof nonce);
    meet_host(host);
    liveness_name(process);
    snprintf(mine, sizeof mine, "%s:%d %016" PRIx64 " %s", host, (int)getpid(), nonce, process);
    snprintf(key, sizeof key, "rank/%d", meet->rank);
    int status = meet_claim(meet, key, mine, now, sizeof now);
    if (status == TUTTI_OK && strcmp(now, mine) == 0) return liveness_append(meet->store, "processes", meet->rank);
    if (status != TUTTI_OK) return status;
    now[strcspn(now, " ")] = '\0';
    return error_set(TUTTI_ERR_MISMATCH, "rendezvous: rank %d already joined from %s%s%s", meet->rank, now,
                     meet->file == NULL ? "" : "; if that was an earlier run, remove ",
                     meet->file == NULL ? "" : meet->file);
}

/* Marks the ranks whose processes are in the list that all append to.  One request, however many ranks there are. */
static int meet_read_joined(const struct meet *meet, bool *joined)
{
    size_t bytes = 0, capacity = (size_t)meet->world_size * (LIVENESS_NAME_MAX + 16);
    char *text = malloc(capacity + 1);
    if (text == NULL) return error_set(TUTTI_ERR_NO_MEMORY, "rendezvous: no memory for %d ranks", meet->world_size);
    int status = tutti_store_get(meet->store, "processes", text, capacity, &bytes, 0);
    text[status == TUTTI_OK ? bytes : 0] = '\0';
    for (const char *at = text; *at != '\0'; at++) {
        long rank = strtol(at, NULL, 10);
        if (rank >= 0 && rank < meet->world_size) joined[rank] = true;
        at += strcspn(at, "\n");
        if (*at == '\0') break;
    }
    free(text);
    return status == TUTTI_ERR_TIMEOUT ? TUTTI_OK : status;
}

/* "joined 2 of 3, missing 1" */
static void meet_say_missing(const struct meet *meet, const bool *joined, char *sentence, size_t size)
{
    char missing[256] = "";
    int n_missing = 0;
    size_t used = 0;
    for (int i = 0; i < meet->world_size; i++) {
        if (joined[i] || n_missing++ >= MEET_NAMED) continue;
        used += (size_t)snprintf(missing + used, sizeof missing - used, "%s%d", used > 0 ? ", " : "", i);
    }
    if (n_missing > 0)
        snprintf(sentence, size, "rendezvous: joined %d of %d, missing %s%s, after %" PRId64 " ms",
                 meet->world_size - n_missing, meet->world_size, missing, n_missing > MEET_NAMED ? ", ..." : "",
                 meet->timeout_ms);
    else /* the name comes before the count */
        snprintf(sentence, size,
                 "rendezvous: all %d ranks came, but one of them died or was stopped before it had joined, after "
                 "%" PRId64 " ms",
                 meet->world_size, meet->timeout_ms);
}

static int meet_missing(const struct meet *meet)
{
    char sentence[512];
    bool *joined = calloc((size_t)meet->world_size, sizeof *joined);
    if (joined == NULL) return error_set(TUTTI_ERR_NO_MEMORY, "rendezvous: no memory for %d ranks", meet->world_size);
    int status = meet_read_joined(meet, joined);
    if (status == TUTTI_OK) meet_say_missing(meet, joined, sentence, sizeof sentence);
    free(joined);
    return status == TUTTI_OK ? meet_fail(meet, TUTTI_ERR_TIMEOUT, sentence) : status;
}

/* What is known of ranks that cannot come any more: from the launcher, and of this host's processes. */
static int meet_check_lost(const struct meet *meet, struct liveness_list *list)
{
    int status = liveness_lost(meet->store, "lost");
    return status == TUTTI_OK ? liveness_check_list(list, meet->store, "processes", meet->world_size) : status;
}

static int meet_await(const struct meet *meet, int64_t deadline_ns)
{
    char verdict[ERROR_TEXT_MAX];
    struct liveness_list list = {0};
    int status = TUTTI_ERR_TIMEOUT;
    while (status == TUTTI_ERR_TIMEOUT) {
        size_t bytes = 0;
        int64_t left = (deadline_ns - clock_now_ns()) / 1000000;
        bool last = left <= 0;
        status = tutti_store_get(meet->store, "verdict", verdict, sizeof verdict - 1, &bytes,
                                 last                      ? 0
                                 : left < LIVENESS_LOOK_MS ? left
                                                           : LIVENESS_LOOK_MS);
        verdict[status == TUTTI_OK ? bytes : 0] = '\0';
        if (status == TUTTI_OK)
            status = meet_read_verdict(verdict);
        else if (status == TUTTI_ERR_TIMEOUT) {
            int lost = meet_check_lost(meet, &list);
            if (lost != TUTTI_OK && lost != TUTTI_ERR_STORE) {
                char text[ERROR_TEXT_MAX];
                snprintf(text, sizeof text, "%s", error_text());
                status = meet_fail(meet, lost, text);
            } else if (lost != TUTTI_OK || last) {
                status = lost != TUTTI_OK ? lost : meet_missing(meet);
            } else {
                continue;
            }
        }
        break;
    }
    liveness_list_free(&list);
    return status;
}

int meet_all(struct meet *meet)
{
    int64_t joined = 0, deadline_ns = clock_deadline_ns(meet->timeout_ms);
    char now[ERROR_TEXT_MAX];
    int status = token_init(); /* for the nonce */
    if (status == TUTTI_OK && meet->file != NULL) status = meet_check_file(meet);
    if (status == TUTTI_OK) status = meet_check_size(meet);
    if (status == TUTTI_OK) status = meet_register(meet);
    if (status == TUTTI_OK) status = tutti_store_add(meet->store, "joined", 1, &joined);
    if (status == TUTTI_OK && joined == meet->world_size) status = meet_claim(meet, "verdict", "0 ", now, sizeof now);
    return status == TUTTI_OK ? meet_await(meet, deadline_ns) : status;
}
