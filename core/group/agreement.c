#include "group/agreement.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "bootstrap/liveness.h"

enum { KEY_MAX = 400 };

struct keys {
    char verdict[KEY_MAX], count[KEY_MAX], all[KEY_MAX];
};

/* Parses a verdict.  "-5 rank 1: text" becomes a status and this thread's error text, "0 text" the decided text. */
static int read_verdict(struct agreement *agreement, const char *text)
{
    char *end = NULL;
    long status = strtol(text, &end, 10);
    bool is_number = end != text;
    while (*end == ' ') end++;
    if (is_number && status == TUTTI_OK) {
        snprintf(agreement->decided, sizeof agreement->decided, "%s", end);
        return TUTTI_OK;
    }
    if (status >= 0 || status < INT16_MIN) status = TUTTI_ERR_BACKEND;
    return error_set((int)status, "%s: %s", agreement->what, end);
}

/* Publishes a verdict, unless there is one already.  Returns the one that is in the store, which all ranks use. */
static int give_verdict(struct agreement *agreement, const struct keys *keys, const char *verdict)
{
    char now[ERROR_TEXT_MAX];
    size_t bytes = 0;
    int status = tutti_store_compare_set(agreement->store, keys->verdict, "", 0, verdict, strlen(verdict), now,
                                         sizeof now - 1, &bytes);
    if (status != TUTTI_OK) return error_prefix(status, "%s", agreement->what);
    now[bytes < sizeof now ? bytes : 0] = '\0';
    return read_verdict(agreement, now);
}

/* Publishes a failure that this rank has noticed.  Its text names the rank that caused it. */
static int publish_noticed(struct agreement *agreement, const struct keys *keys, int status)
{
    char verdict[ERROR_TEXT_MAX];
    snprintf(verdict, sizeof verdict, "%d %.900s", status, error_text());
    return give_verdict(agreement, keys, verdict);
}

/* Publishes this rank's own failure. */
static int publish_own(struct agreement *agreement, const struct keys *keys, int status)
{
    return publish_noticed(agreement, keys, error_prefix(status, "rank %d", agreement->rank));
}

/* Runs on the last rank to arrive: publishes OK and the decided text. */
static int decide(struct agreement *agreement, const struct keys *keys)
{
    char text[AGREEMENT_TEXT] = "", verdict[AGREEMENT_TEXT + 8];
    int status = agreement->decide != NULL ? agreement->decide(agreement->context, text) : TUTTI_OK;
    if (status != TUTTI_OK) return publish_own(agreement, keys, status);
    snprintf(verdict, sizeof verdict, "0 %s", text);
    return give_verdict(agreement, keys, verdict);
}

/* Waits for the verdict.  Publishes a failure instead if a rank has died or the deadline has passed. */
static int await_verdict(struct agreement *agreement, const struct keys *keys, int64_t deadline_ns)
{
    char text[ERROR_TEXT_MAX];
    size_t bytes = 0;
    int64_t n_arrived = 0;
    int status;
    do {
        status = tutti_store_get(agreement->store, keys->verdict, text, sizeof text - 1, &bytes, LIVENESS_CHECK_MS);
        text[bytes < sizeof text ? bytes : 0] = '\0';
        if (status == TUTTI_OK) return read_verdict(agreement, text);
        if (status == TUTTI_ERR_TIMEOUT) status = agreement->check(agreement->context);
        if (status != TUTTI_OK && status != TUTTI_ERR_STORE) return publish_noticed(agreement, keys, status);
    } while (status == TUTTI_OK && clock_now_ns() < deadline_ns);
    if (status == TUTTI_OK) status = tutti_store_add(agreement->store, keys->count, 0, &n_arrived);
    if (status != TUTTI_OK) return error_prefix(status, "%s", agreement->what);
    int here = (int)((n_arrived - 1) % agreement->size) + 1;
    status = error_set(TUTTI_ERR_TIMEOUT,
                       "%d of %d ranks arrived within %" PRIi64 " ms; check the others or raise the timeout", here,
                       agreement->size, agreement->timeout_ms);
    return publish_noticed(agreement, keys, status);
}

/* Waits after a failure until all ranks have read the verdict: the store ends with the rank that hosts it.  Keeps the
 * error text. */
static void await_all(struct agreement *agreement, const char *all, int status, int64_t deadline_ns)
{
    char text[ERROR_TEXT_MAX];
    const char *keys[1] = {all};
    snprintf(text, sizeof text, "%s", error_text());
    while (tutti_store_wait(agreement->store, keys, 1, LIVENESS_CHECK_MS) == TUTTI_ERR_TIMEOUT &&
           agreement->check(agreement->context) == TUTTI_OK && clock_now_ns() < deadline_ns)
        continue;
    error_set(status, "%s", text);
}

int agreement_reach(struct agreement *agreement, int status)
{
    char mine[ERROR_TEXT_MAX];
    struct keys keys;
    int64_t n_arrived = 0, deadline_ns = clock_deadline_ns(agreement->timeout_ms);
    agreement->decided[0] = '\0';
    if (agreement->size == 1) return status;
    snprintf(mine, sizeof mine, "%s", status == TUTTI_OK ? "" : error_text());
    snprintf(keys.verdict, sizeof keys.verdict, "verdict/%" PRIi64 "/%s", agreement->turn, agreement->name);
    snprintf(keys.count, sizeof keys.count, "came/%" PRIi64 "/%s", agreement->turn, agreement->name);
    snprintf(keys.all, sizeof keys.all, "all/%" PRIi64 "/%s", agreement->turn, agreement->name);
    if (status != TUTTI_OK) publish_own(agreement, &keys, status);
    int met = tutti_store_add(agreement->store, keys.count, 1, &n_arrived);
    if (met == TUTTI_OK && n_arrived == agreement->size)
        met = decide(agreement, &keys);
    else if (met == TUTTI_OK)
        met = await_verdict(agreement, &keys, deadline_ns);
    if (status != TUTTI_OK) met = error_set(status, "%s", mine);
    if (met == TUTTI_OK) return TUTTI_OK;
    if (n_arrived == agreement->size)
        tutti_store_set(agreement->store, keys.all, "", 0);
    else if (met != TUTTI_ERR_PEER_LOST)
        await_all(agreement, keys.all, met, deadline_ns);
    return met;
}
