#include "store/redis_calls.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/token.h"
#include "store/redis_scripts.h"

enum {
    GRACE_MS = 2000,    /* for a reply to arrive after the deadline */
    OUTAGE_MS = 30000,  /* a short call, such as one of a loop of polls, waits so long for the server */
    SHORT_MS = 1000,    /* a call whose timeout is less is short */
    RETRY_MS = 10,      /* pause between two attempts to connect; doubles up to RETRY_MAX_MS */
    RETRY_MAX_MS = 500, /* a server that starts is not flooded by a thousand ranks */
    POOL_MAX = 4        /* connections that stay open without a call */
};

/* ---- the pool ------------------------------------------------------------------------------------------------ */

struct redis_link *redis_borrow_link(struct redis *redis, enum redis_use use)
{
    pthread_mutex_lock(&redis->lock);
    struct redis_link *link = redis->idle[use];
    if (link != NULL) {
        redis->idle[use] = link->next;
        redis->n_open -= link->fd >= 0;
    }
    pthread_mutex_unlock(&redis->lock);
    if (link == NULL) link = redis_link_new();
    if (link == NULL) error_set(TUTTI_ERR_NO_MEMORY, "%s: out of memory for a connection", redis->base.name);
    return link;
}

void redis_return_link(struct redis *redis, enum redis_use use, struct redis_link *link)
{
    pthread_mutex_lock(&redis->lock);
    if (redis->n_open >= POOL_MAX) redis_link_disconnect(link, false);
    redis->n_open += link->fd >= 0;
    link->next = redis->idle[use];
    redis->idle[use] = link;
    pthread_mutex_unlock(&redis->lock);
}

/* ---- calls --------------------------------------------------------------------------------------------------- */

static void back_off(int *pause_ms, int64_t until_ns)
{
    uint8_t random;
    token_random(&random, 1);
    int sleep_ms = *pause_ms / 2 + *pause_ms * random / 510, left = clock_left_ms(until_ns);
    if (left >= 0 && sleep_ms > left) sleep_ms = left;
    struct timespec pause = clock_timespec((int64_t)sleep_ms * 1000000);
    nanosleep(&pause, NULL);
    *pause_ms = 2 * *pause_ms > RETRY_MAX_MS ? RETRY_MAX_MS : 2 * *pause_ms;
}

struct redis_limits redis_limits(struct redis *redis, const struct store_request *request)
{
    int64_t deadline_ns = request->deadline_ns, outage_ms = redis->base.timeout_ms;
    if (request->prompt || deadline_ns == CLOCK_NEVER) return (struct redis_limits){deadline_ns, deadline_ns};
    bool is_short = deadline_ns < clock_deadline_ns(SHORT_MS);
    if (is_short && !atomic_load(&redis->down))
        deadline_ns = clock_deadline_ns(outage_ms < OUTAGE_MS ? outage_ms : OUTAGE_MS);
    int64_t now_ns = clock_now_ns();
    return (struct redis_limits){deadline_ns,
                                 (deadline_ns > now_ns ? deadline_ns : now_ns) + (int64_t)GRACE_MS * 1000000};
}

/* Keeps the reason why this store is of no use any more. */
static int mark_lost(struct redis *redis, int status)
{
    pthread_mutex_lock(&redis->lock);
    if (!atomic_load(&redis->lost)) snprintf(redis->lost_text, sizeof redis->lost_text, "%s", error_text());
    atomic_store(&redis->lost, true);
    pthread_mutex_unlock(&redis->lock);
    return status;
}

/* Opens the link if it is closed, and calls once.  (C23 has another function call_once.) */
static int attempt_call(struct redis *redis, struct redis_link *link, const struct redis_command *command,
                        int64_t until_ns, redisReply **reply, enum redis_retry *retry)
{
    const struct redis_target *target = &redis->target;
    *reply = NULL;
    int status = link->fd >= 0 ? TUTTI_OK : redis_link_open(link, target, until_ns, retry);
    if (status == TUTTI_OK) status = redis_link_call(link, target, command, until_ns, reply, retry);
    if (status == TUTTI_OK && (*reply)->type == REDIS_REPLY_ERROR &&
        (strncmp((*reply)->str, "LOADING", 7) == 0 || strncmp((*reply)->str, "BUSY", 4) == 0)) {
        status = redis_link_report(target, *reply, retry);
        freeReplyObject(*reply);
        *reply = NULL;
    }
    if (status != TUTTI_OK) redis_link_disconnect(link, false);
    return status;
}

int redis_call_link(struct redis *redis, struct redis_link *link, const struct redis_command *command,
                    struct redis_limits limits, redisReply **reply)
{
    if (atomic_load(&redis->lost)) return error_set(TUTTI_ERR_STORE, "%s", redis->lost_text);
    if (link->fd >= 0 && !redis_link_is_usable(link)) redis_link_disconnect(link, false);
    for (int pause_ms = RETRY_MS;; back_off(&pause_ms, limits.retry_ns)) {
        enum redis_retry retry = REDIS_FINAL;
        int status = attempt_call(redis, link, command, limits.reply_ns, reply, &retry);
        if (status == TUTTI_OK) atomic_store(&redis->down, false);
        if (status == TUTTI_OK && pause_ms > RETRY_MS)
            log_write(LOG_INFO, LOG_STORE, "redis store %s: the server is back", redis->target.text);
        if (retry == REDIS_LOST && status != TUTTI_OK) return mark_lost(redis, status);
        if (status == TUTTI_OK || retry == REDIS_FINAL) return status;
        if (clock_now_ns() < limits.retry_ns) continue;
        atomic_store(&redis->down, true);
        return status;
    }
}

/* ---- scripts ------------------------------------------------------------------------------------------------- */

/* The parts of EVAL that all scripts have, then the arguments of the operation. */
struct script {
    struct redis_command command;
    int n, most;
    char number[24];
};

static void add_part(struct script *script, const void *data, size_t bytes)
{
    script->command.parts[script->n] = data;
    ((size_t *)(uintptr_t)script->command.bytes)[script->n] = bytes;
    script->command.n = ++script->n;
}

static void add_text(struct script *script, const char *text)
{
    add_part(script, text, strlen(text));
}

static void add_slices(struct script *script, const struct store_slice *slices, int n)
{
    for (int i = 0; i < n; i++) add_part(script, slices[i].data, slices[i].bytes);
}

static int begin_script(struct redis *redis, struct script *script, int most)
{
    void *arrays = malloc((size_t)(most + 10) * (sizeof(char *) + sizeof(size_t)));
    if (arrays == NULL) return error_set(TUTTI_ERR_NO_MEMORY, "%s: out of memory for a request", redis->base.name);
    *script = (struct script){.most = most + 10};
    script->command.parts = arrays;
    script->command.bytes = (size_t *)(script->command.parts + script->most);
    add_text(script, "EVAL");
    return TUTTI_OK;
}

static void end_script(struct script *script)
{
    free(script->command.parts);
}

/* Sets the reply of an operation that the server refused, or returns the error of a server that is of no use. */
static int report_error(struct redis *redis, const redisReply *error, struct store_reply *reply)
{
    enum redis_retry retry;
    if (strstr(error->str, REDIS_LOST_TEXT) != NULL)
        return mark_lost(redis, error_set(TUTTI_ERR_STORE,
                                          "redis store %s: the server has lost all keys of job %s: they were deleted "
                                          "or have expired; start the job again",
                                          redis->target.text, redis->target.url.job));
    if (strstr(error->str, "not an integer") != NULL)
        store_reply_error(reply, TUTTI_ERR_STORE, "the value is not a decimal integer");
    else if (strncmp(error->str, REDIS_LARGE_TEXT, strlen(REDIS_LARGE_TEXT)) == 0)
        store_reply_error(reply, TUTTI_ERR_INVALID_ARGUMENT,
                          "the value would have%s bytes and the limit is %d; use several keys",
                          error->str + strlen(REDIS_LARGE_TEXT), TUTTI_STORE_VALUE_MAX);
    else
        return redis_link_report(&redis->target, error, &retry);
    return TUTTI_OK;
}

int redis_write(struct redis *redis, const struct store_request *request, const char *text,
                const struct store_slice *arguments, int n, redisReply **raw, struct store_reply *reply)
{
    struct script script;
    struct redis_link *link = redis_borrow_link(redis, REDIS_CALLS);
    *raw = NULL;
    if (link == NULL) return TUTTI_ERR_NO_MEMORY;
    int status = begin_script(redis, &script, n);
    if (status == TUTTI_OK) {
        snprintf(script.number, sizeof script.number, "%" PRIu64, ++link->sequence);
        const char *const first[] = {text,     "2",           redis->target.data_key, redis->target.calls_key,
                                     link->id, script.number, REDIS_EXPIRE_S};
        for (size_t i = 0; i < sizeof first / sizeof *first; i++) add_text(&script, first[i]);
        add_slices(&script, arguments, n);
        status = redis_call_link(redis, link, &script.command, redis_limits(redis, request), raw);
        end_script(&script);
    }
    if (status == TUTTI_OK && (*raw)->type == REDIS_REPLY_ERROR) {
        status = report_error(redis, *raw, reply);
        freeReplyObject(*raw);
        *raw = NULL;
    } else if (status == TUTTI_OK && (*raw)->type == REDIS_REPLY_STRING) {
        link->acknowledged = link->sequence;
    }
    redis_return_link(redis, REDIS_CALLS, link);
    return status;
}

int redis_read(struct redis *redis, const struct store_request *request, const char *text, redisReply **raw)
{
    struct script script;
    struct redis_link *link = redis_borrow_link(redis, REDIS_CALLS);
    enum redis_retry retry;
    char limit[16], value_limit[16];
    *raw = NULL;
    if (link == NULL) return TUTTI_ERR_NO_MEMORY;
    int status = begin_script(redis, &script, request->n_keys);
    if (status == TUTTI_OK) {
        snprintf(limit, sizeof limit, "%d", STORE_BATCH_BYTES);
        snprintf(value_limit, sizeof value_limit, "%d", TUTTI_STORE_VALUE_MAX);
        const char *const first[] = {text, "1", redis->target.data_key, limit, value_limit};
        for (size_t i = 0; i < sizeof first / sizeof *first; i++) add_text(&script, first[i]);
        add_slices(&script, request->keys, request->n_keys);
        status = redis_call_link(redis, link, &script.command, redis_limits(redis, request), raw);
        end_script(&script);
    }
    if (status == TUTTI_OK && (*raw)->type == REDIS_REPLY_ERROR) {
        status = redis_link_report(&redis->target, *raw, &retry);
        freeReplyObject(*raw);
        *raw = NULL;
    }
    redis_return_link(redis, REDIS_CALLS, link);
    return status;
}

/* ---- replies ------------------------------------------------------------------------------------------------- */

int redis_no_memory(const struct redis *redis, size_t bytes)
{
    return error_set(TUTTI_ERR_NO_MEMORY, "%s: out of memory for %zu bytes", redis->base.name, bytes);
}

int redis_report_odd(const struct redis *redis, const redisReply *raw)
{
    enum redis_retry retry;
    return redis_link_report(&redis->target, raw, &retry);
}

int64_t redis_number(const redisReply *raw)
{
    return raw->type == REDIS_REPLY_INTEGER  ? raw->integer
           : raw->type == REDIS_REPLY_STRING ? strtoll(raw->str, NULL, 10)
                                             : 0;
}

int redis_add_value(const struct redis *redis, const void *data, size_t bytes, struct store_reply *reply)
{
    void *copy = malloc(bytes > 0 ? bytes : 1); /* the scripts return none above the limit */
    if (copy == NULL) return redis_no_memory(redis, bytes);
    if (bytes > 0) memcpy(copy, data, bytes);
    reply->values[reply->n_values++] = (tutti_bytes){copy, bytes};
    return TUTTI_OK;
}
