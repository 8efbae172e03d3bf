/* A store on a redis server that others run.  A call borrows a connection; one that waits subscribes to the key on a
 * second one.  A call whose server is away connects again until its timeout. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/env.h"
#include "base/log.h"
#include "base/sized.h"
#include "base/token.h"
#include "store/redis_calls.h"
#include "store/redis_scripts.h"

enum { WARN_MS = 5000, CLOSE_MS = 500 };

static struct store_slice slice_of(const char *text)
{
    return (struct store_slice){text, strlen(text)};
}

/* Runs a write whose reply is a number. */
static int write_number(struct redis *redis, const struct store_request *request, const char *text,
                        const struct store_slice *arguments, int n, struct store_reply *reply)
{
    redisReply *raw;
    int status = redis_write(redis, request, text, arguments, n, &raw, reply);
    if (raw == NULL) return status;
    reply->number = redis_number(raw);
    freeReplyObject(raw);
    return status;
}

/* ---- values -------------------------------------------------------------------------------------------------- */

static int set_values(struct redis *redis, const struct store_request *request, struct store_reply *reply)
{
    int n = request->n_keys;
    struct store_slice *pairs = malloc(((size_t)n * 2 + 1) * sizeof *pairs);
    if (pairs == NULL) return redis_no_memory(redis, (size_t)n * 2 * sizeof *pairs);
    for (int i = 0; i < n; i++) {
        pairs[2 * i] = request->keys[i];
        pairs[2 * i + 1] = request->values[i];
    }
    int status = write_number(redis, request, redis_script_set, pairs, 2 * n, reply);
    free(pairs);
    return status;
}

/* Sets *swapped if the key had the expected value, which is now `desired`.  Else the reply has the value, if there is
 * one. */
static int compare_and_set(struct redis *redis, const struct store_request *request, const struct store_slice *expected,
                           const struct store_slice *desired, bool *swapped, struct store_reply *reply)
{
    char limit[16];
    snprintf(limit, sizeof limit, "%d", TUTTI_STORE_VALUE_MAX);
    struct store_slice arguments[] = {request->keys[0], *expected, *desired, slice_of(limit)};
    redisReply *raw;
    int status = redis_write(redis, request, redis_script_compare_set, arguments, 4, &raw, reply);
    if (raw == NULL) return status;
    reply->values = calloc(1, sizeof *reply->values);
    *swapped = raw->type == REDIS_REPLY_STRING;
    if (reply->values == NULL)
        status = redis_no_memory(redis, sizeof *reply->values);
    else if (*swapped)
        status = redis_add_value(redis, desired->data, desired->bytes, reply);
    else if (raw->type != REDIS_REPLY_ARRAY || (raw->elements > 0 && raw->element[0]->type != REDIS_REPLY_STRING))
        status = redis_report_odd(redis, raw);
    else if (raw->elements > 0)
        status = redis_add_value(redis, raw->element[0]->str, raw->element[0]->len, reply);
    freeReplyObject(raw);
    return status;
}

/* ---- add ----------------------------------------------------------------------------------------------------- */

/* Adds with wrap-around, which the server's own addition refuses. */
static int add_wrapping(struct redis *redis, const struct store_request *request, struct store_reply *reply)
{
    struct store_reply seen = {0};
    struct store_slice old = {"", 0};
    char text[24] = "", sum_text[24];
    bool swapped = false;
    int status = TUTTI_OK;
    while (status == TUTTI_OK && !swapped) {
        int64_t sum = (int64_t)((uint64_t)strtoll(text, NULL, 10) + (uint64_t)request->number);
        snprintf(sum_text, sizeof sum_text, "%" PRId64, sum);
        struct store_slice desired = slice_of(sum_text);
        store_reply_free(&seen);
        status = compare_and_set(redis, request, &old, &desired, &swapped, &seen);
        if (status != TUTTI_OK || seen.status != TUTTI_OK) break;
        if (swapped) reply->number = sum;
        size_t bytes = seen.n_values > 0 ? seen.values[0].bytes : 0;
        if (bytes >= sizeof text) bytes = sizeof text - 1;
        if (bytes > 0) memcpy(text, seen.values[0].data, bytes);
        text[bytes] = '\0';
        old = slice_of(text);
    }
    store_reply_free(&seen);
    return status;
}

static int add_number(struct redis *redis, const struct store_request *request, struct store_reply *reply)
{
    char delta[24];
    snprintf(delta, sizeof delta, "%" PRId64, request->number);
    struct store_slice arguments[] = {request->keys[0], slice_of(delta)};
    int status = write_number(redis, request, redis_script_add, arguments, 2, reply);
    if (status != TUTTI_ERR_STORE || strstr(error_text(), "would overflow") == NULL) return status;
    return add_wrapping(redis, request, reply);
}

/* ---- reads ---------------------------------------------------------------------------------------------------- */

static int read_number(struct redis *redis, const struct store_request *request, const char *text, int64_t *number)
{
    redisReply *raw;
    int status = redis_read(redis, request, text, &raw);
    if (status != TUTTI_OK) return status;
    if (raw->type == REDIS_REPLY_ARRAY)
        *number = raw->elements == 0; /* of missing keys */
    else if (raw->type == REDIS_REPLY_INTEGER)
        *number = raw->integer;
    else
        status = redis_report_odd(redis, raw);
    freeReplyObject(raw);
    return status;
}

/* ---- requests ------------------------------------------------------------------------------------------------ */

static int apply(struct redis *redis, const struct store_request *request, struct store_reply *reply)
{
    const struct store_slice *values = request->values;
    char limit[16];
    bool swapped;
    switch ((enum store_op)request->op) {
    case STORE_SET:
        return set_values(redis, request, reply);
    case STORE_GET:
    case STORE_WAIT:
        return redis_wait(redis, request, reply);
    case STORE_CHECK:
        return read_number(redis, request, redis_script_missing, &reply->number);
    case STORE_ADD:
        return add_number(redis, request, reply);
    case STORE_COMPARE_SET:
        return compare_and_set(redis, request, &values[0], &values[1], &swapped, reply);
    case STORE_DELETE:
        return write_number(redis, request, redis_script_delete,
                            (struct store_slice[]){request->keys[0], slice_of(request->number == 1 ? "1" : "0")}, 2,
                            reply);
    case STORE_APPEND:
        snprintf(limit, sizeof limit, "%d", TUTTI_STORE_VALUE_MAX);
        return write_number(redis, request, redis_script_append,
                            (struct store_slice[]){request->keys[0], values[0], slice_of(limit)}, 3, reply);
    case STORE_NUM_KEYS:
        return read_number(redis, request, redis_script_count, &reply->number);
    case STORE_NUM_REQUESTS:
        reply->number = atomic_load(&redis->n_requests);
        return TUTTI_OK;
    case STORE_OP_END:
        break;
    }
    return error_set(TUTTI_ERR_UNSUPPORTED, "%s has no operation %d", redis->base.name, request->op);
}

static int call_redis(tutti_store *store, const struct store_request *request, struct store_reply *reply)
{
    struct redis *redis = (struct redis *)store;
    atomic_fetch_add_explicit(&redis->n_requests, 1, memory_order_relaxed);
    int status = apply(redis, request, reply);
    if (status != TUTTI_OK) store_reply_free(reply);
    return status;
}

/* ---- opening and closing ------------------------------------------------------------------------------------- */

/* Removes this store's links from the server.  The last one takes the job's record of writes with it. */
static void unregister_links(struct redis *redis)
{
    struct redis_link *link = redis->idle[REDIS_CALLS];
    int n = 2;
    for (int use = 0; use < REDIS_USES; use++)
        for (const struct redis_link *at = redis->idle[use]; at != NULL; at = at->next) n++;
    const char **parts = malloc((size_t)n * sizeof *parts);
    size_t *bytes = malloc((size_t)n * sizeof *bytes);
    if (link != NULL && redis_link_is_usable(link) && parts != NULL && bytes != NULL) {
        redisReply *raw = NULL;
        enum redis_retry retry;
        n = 0;
        parts[n++] = "HDEL";
        parts[n++] = redis->target.calls_key;
        for (int use = 0; use < REDIS_USES; use++)
            for (const struct redis_link *at = redis->idle[use]; at != NULL; at = at->next) parts[n++] = at->id;
        for (int i = 0; i < n; i++) bytes[i] = strlen(parts[i]);
        redis_link_call(link, &redis->target, &(struct redis_command){n, parts, bytes}, clock_deadline_ns(CLOSE_MS),
                        &raw, &retry);
        if (raw != NULL) freeReplyObject(raw);
    }
    free(parts);
    free(bytes);
}

static void close_redis(tutti_store *store)
{
    struct redis *redis = (struct redis *)store;
    bool forked = store_is_forked(store);
    if (!forked) unregister_links(redis);
    for (int use = 0; use < REDIS_USES; use++)
        while (redis->idle[use] != NULL) {
            struct redis_link *link = redis->idle[use];
            redis->idle[use] = link->next;
            redis_link_free(link, forked);
        }
    if (!forked) pthread_mutex_destroy(&redis->lock);
    token_wipe(&redis->target, sizeof redis->target);
    free(redis);
}

static const struct store_class redis_class = {.call = call_redis, .close = close_redis};

/* Opens the first connection, until the store's timeout: the server may start after its clients. */
static int connect_first(struct redis *redis)
{
    int64_t timeout_ms = redis->base.timeout_ms, warn_ns = clock_deadline_ns(WARN_MS);
    int64_t deadline_ns = clock_deadline_ns(timeout_ms);
    if (warn_ns > deadline_ns) warn_ns = deadline_ns;
    const struct redis_command ping = {1, (const char *[]){"PING"}, (const size_t[]){4}};
    redisReply *raw = NULL;
    struct redis_link *link = redis_borrow_link(redis, REDIS_CALLS);
    if (link == NULL) return TUTTI_ERR_NO_MEMORY;
    int status = redis_call_link(redis, link, &ping, (struct redis_limits){warn_ns, warn_ns}, &raw);
    if (status == TUTTI_ERR_STORE && warn_ns < deadline_ns && atomic_load(&redis->down)) {
        log_write(LOG_WARN, LOG_STORE, "still waiting for the store: %s", error_text());
        status = redis_call_link(redis, link, &ping, (struct redis_limits){deadline_ns, deadline_ns}, &raw);
    }
    if (raw != NULL && raw->type == REDIS_REPLY_ERROR) status = redis_report_odd(redis, raw);
    if (raw != NULL) freeReplyObject(raw);
    redis_return_link(redis, REDIS_CALLS, link);
    return status == TUTTI_ERR_STORE ? error_prefix(status, "gave up after %" PRId64 " ms", timeout_ms) : status;
}

static int parse_target(const char *url, struct redis_target *target)
{
    int status = redis_url_parse(url, env_string("TUTTI_JOB_ID", NULL), &target->url);
    if (status == TUTTI_OK) status = token_init(); /* for random numbers */
    if (status != TUTTI_OK) return status;
    if (target->url.password[0] == '\0')
        snprintf(target->url.password, sizeof target->url.password, "%s", env_string("TUTTI_REDIS_PASSWORD", ""));
    address_text(target->url.host, target->url.port, target->text);
    snprintf(target->data_key, sizeof target->data_key, "tutti:{%s}", target->url.job); /* {}: one slot of a cluster */
    snprintf(target->calls_key, sizeof target->calls_key, "tutti:{%s}:calls", target->url.job);
    return TUTTI_OK;
}

int tutti_store_redis_sized(const char *url, const tutti_store_opts *opts, size_t opts_bytes, tutti_store **store)
{
    tutti_store_opts known;
    if (url == NULL || store == NULL)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "tutti_store_redis: %s is NULL; pass it",
                         url == NULL ? "url" : "store");
    *store = NULL;
    int status = SIZED_READ(tutti_store_opts, opts, opts_bytes, &known);
    if (status != TUTTI_OK) return status;
    struct redis *redis = calloc(1, sizeof *redis);
    if (redis == NULL)
        return error_set(TUTTI_ERR_NO_MEMORY, "tutti_store_redis: out of memory for %zu bytes", sizeof *redis);
    pthread_mutex_init(&redis->lock, NULL);
    status = store_base_init(&redis->base, &redis_class, opts);
    if (status == TUTTI_OK) status = parse_target(url, &redis->target);
    snprintf(redis->base.name, sizeof redis->base.name, "redis store %.200s job %.60s", redis->target.text,
             redis->target.url.job);
    if (status == TUTTI_OK) status = connect_first(redis);
    if (status != TUTTI_OK) {
        close_redis(&redis->base);
        return status;
    }
    *store = &redis->base;
    return TUTTI_OK;
}
