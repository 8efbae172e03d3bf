/* Waiting for keys on a redis server: the call subscribes to the first key that is missing, checks again, and sleeps
 * until a message.  Polls are rare. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "store/redis_calls.h"
#include "store/redis_scripts.h"

enum {
    RECHECK_MS = 5000, /* a waiting call asks again so often: a server that fails over loses messages */
    CONFIRM_MS = 1000
};

/* Copies the values of a get's reply.  The server is another program, so its reply is checked. */
static int take_values(const struct redis *redis, const struct store_request *request, const redisReply *raw,
                       struct store_reply *reply)
{
    if (raw->type != REDIS_REPLY_ARRAY || raw->elements < 1 || raw->elements > (size_t)request->n_keys)
        return redis_report_odd(redis, raw);
    reply->values = calloc(raw->elements, sizeof *reply->values);
    if (reply->values == NULL) return redis_no_memory(redis, raw->elements * sizeof *reply->values);
    int status = TUTTI_OK;
    for (size_t i = 0; i < raw->elements && status == TUTTI_OK; i++)
        status = raw->element[i]->type == REDIS_REPLY_STRING
                     ? redis_add_value(redis, raw->element[i]->str, raw->element[i]->len, reply)
                     : redis_report_odd(redis, raw->element[i]);
    return status;
}

/* ---- subscriptions -------------------------------------------------------------------------------------------------
 */

/* A subscription to the key that a call waits for. */
struct listener {
    struct redis_link *link; /* NULL: none yet */
    int key;                 /* of the request; -1: not subscribed */
};

/* True if the reply is a push of this kind, such as "message". */
static bool is_push(const redisReply *raw, const char *kind)
{
    return raw->type == REDIS_REPLY_ARRAY && raw->elements == 3 && raw->element[0]->type == REDIS_REPLY_STRING &&
           strcmp(raw->element[0]->str, kind) == 0;
}

/* True if the reply confirms the subscription to the channel, and not one that an earlier call has left. */
static bool confirms(const redisReply *raw, const struct store_slice *channel)
{
    return is_push(raw, "subscribe") && raw->element[1]->type == REDIS_REPLY_STRING &&
           raw->element[1]->len == channel->bytes && memcmp(raw->element[1]->str, channel->data, channel->bytes) == 0;
}

/* Receives until the server confirms the subscription.  Before that a message of an earlier key may arrive.  Without a
 * confirmation in time the call subscribes again, on a new connection. */
static int await_confirmation(struct redis *redis, struct listener *listener, const struct store_slice *channel,
                              redisReply *raw)
{
    enum redis_retry retry = REDIS_FINAL;
    int64_t deadline_ns = clock_deadline_ns(CONFIRM_MS);
    int status = TUTTI_OK;
    while (status == TUTTI_OK && raw != NULL && !confirms(raw, channel)) {
        if (raw->type == REDIS_REPLY_ERROR) status = redis_report_odd(redis, raw);
        freeReplyObject(raw);
        raw = NULL;
        if (status == TUTTI_OK) status = redis_link_receive(listener->link, &redis->target, deadline_ns, &raw, &retry);
    }
    bool confirmed = raw != NULL;
    if (confirmed) freeReplyObject(raw);
    if (confirmed || (status != TUTTI_OK && retry != REDIS_AWAY)) return status;
    redis_link_disconnect(listener->link, false);
    listener->key = -1; /* subscribes again */
    return TUTTI_OK;
}

/* Subscribes to the key.  The caller then checks the key again, which may have been set before. */
static int subscribe(struct redis *redis, const struct store_request *request, int key, struct listener *listener)
{
    const struct store_slice *slice = &request->keys[key];
    size_t name = strlen(redis->target.data_key), n = name + 1 + slice->bytes;
    char *channel = malloc(n + 1);
    if (channel == NULL) return redis_no_memory(redis, n);
    memcpy(channel, redis->target.data_key, name);
    channel[name] = ':';
    memcpy(channel + name + 1, slice->data, slice->bytes);
    const char *parts[] = {"SUBSCRIBE", channel};
    const size_t bytes[] = {strlen(parts[0]), n};
    struct redis_command command = {2, parts, bytes};
    redisReply *raw = NULL;
    if (listener->link == NULL) listener->link = redis_borrow_link(redis, REDIS_MESSAGES);
    int status = listener->link == NULL
                     ? TUTTI_ERR_NO_MEMORY
                     : redis_call_link(redis, listener->link, &command, redis_limits(redis, request), &raw);
    listener->key = key;
    if (status == TUTTI_OK)
        status = await_confirmation(redis, listener, &(struct store_slice){channel, n}, raw);
    else
        listener->key = -1;
    free(channel);
    return status;
}

/* Sleeps until a message arrives, or until the deadline or RECHECK_MS.  If the connection ends, the call subscribes
 * again. */
static void await_message(struct redis *redis, struct listener *listener, int64_t deadline_ns)
{
    redisReply *raw;
    enum redis_retry retry;
    int64_t recheck_ns = clock_deadline_ns(RECHECK_MS);
    int status = redis_link_receive(listener->link, &redis->target, recheck_ns < deadline_ns ? recheck_ns : deadline_ns,
                                    &raw, &retry);
    if (raw != NULL) freeReplyObject(raw);
    if (status == TUTTI_OK) return;
    redis_link_disconnect(listener->link, false);
    listener->key = -1;
}

/* Ends the subscriptions and drops the messages that have arrived.  Returns false if the connection is of no use. */
static bool unsubscribe(struct redis *redis, struct redis_link *link)
{
    const struct redis_command command = {1, (const char *[]){"UNSUBSCRIBE"}, (const size_t[]){11}};
    redisReply *raw;
    enum redis_retry retry;
    int64_t left = 1, deadline_ns = clock_deadline_ns(CONFIRM_MS);
    int status = redis_link_call(link, &redis->target, &command, deadline_ns, &raw, &retry);
    while (status == TUTTI_OK && raw != NULL) {
        bool ended = is_push(raw, "unsubscribe");
        if (ended) left = redis_number(raw->element[2]);
        freeReplyObject(raw);
        if (ended && left == 0) return true;
        status = redis_link_receive(link, &redis->target, deadline_ns, &raw, &retry);
    }
    return false;
}

/* Keeps the connection for the next wait. */
static void end_listening(struct redis *redis, struct listener *listener)
{
    if (listener->link == NULL) return;
    char text[ERROR_TEXT_MAX];
    snprintf(text, sizeof text, "%s", error_text()); /* the wait's own */
    if (listener->link->fd >= 0 && !unsubscribe(redis, listener->link)) {
        redis_link_disconnect(listener->link, false);
        error_set(TUTTI_ERR_STORE, "%s", text);
    }
    redis_return_link(redis, REDIS_MESSAGES, listener->link);
}

static int report_missing(struct redis *redis, const struct store_request *request, const redisReply *raw,
                          struct store_reply *reply)
{
    enum { NAMED = 4 };
    char names[STORE_TEXT_MAX - 80] = "";
    size_t used = 0;
    if (raw->type != REDIS_REPLY_ARRAY) return redis_report_odd(redis, raw);
    for (size_t i = 0; i < raw->elements && i < NAMED; i++) {
        int64_t at = redis_number(raw->element[i]) - 1;
        if (at < 0 || at >= request->n_keys) return redis_report_odd(redis, raw->element[i]);
        const struct store_slice *key = &request->keys[at];
        used += (size_t)snprintf(names + used, sizeof names - used, "%s\"%.*s\"", used > 0 ? ", " : "",
                                 (int)(key->bytes < 60 ? key->bytes : 60), (const char *)key->data);
    }
    store_reply_error(reply, TUTTI_ERR_TIMEOUT, "%zu of %d keys missing: %s%s", raw->elements, request->n_keys, names,
                      raw->elements > NAMED ? ", ..." : "");
    return TUTTI_OK;
}

/* Builds the TIMEOUT reply.  Sets *again if the last key has been set in the meantime. */
static int end_wait(struct redis *redis, const struct store_request *request, struct store_reply *reply, bool *again)
{
    redisReply *raw;
    *again = false;
    if (request->n_keys == 1) { /* polls ask for one key: spare the server a second request */
        store_reply_error(reply, TUTTI_ERR_TIMEOUT, "1 of 1 keys missing: \"%.*s\"",
                          (int)(request->keys->bytes < 60 ? request->keys->bytes : 60),
                          (const char *)request->keys->data);
        return TUTTI_OK;
    }
    int status = redis_read(redis, request, redis_script_missing, &raw);
    if (status != TUTTI_OK) return status;
    *again = raw->type == REDIS_REPLY_ARRAY && raw->elements == 0;
    if (!*again) status = report_missing(redis, request, raw, reply);
    freeReplyObject(raw);
    return status;
}

/* Runs the request's script once.  *missing is the first key that does not exist, or -1: then the reply is complete. */
static int try_keys(struct redis *redis, const struct store_request *request, struct store_reply *reply, int *missing)
{
    redisReply *raw;
    bool get = request->op == STORE_GET;
    int status = redis_read(redis, request, get ? redis_script_get : redis_script_missing, &raw);
    *missing = -1;
    if (status != TUTTI_OK) return status;
    const redisReply *first = get ? raw : raw->elements > 0 ? raw->element[0] : NULL;
    if (first != NULL && first->type == REDIS_REPLY_INTEGER) {
        int64_t at = first->integer - 1;
        if (at >= 0 && at < request->n_keys) *missing = (int)at;
    }
    if (*missing < 0 && get) status = take_values(redis, request, raw, reply);
    if (*missing < 0 && !get && (raw->type != REDIS_REPLY_ARRAY || raw->elements > 0))
        status = redis_report_odd(redis, raw);
    freeReplyObject(raw);
    return status;
}

int redis_wait(struct redis *redis, const struct store_request *request, struct store_reply *reply)
{
    struct listener listener = {NULL, -1};
    int missing = -1, status;
    for (bool again = true;;) {
        status = try_keys(redis, request, reply, &missing);
        if (status != TUTTI_OK || missing < 0) break;
        if (clock_now_ns() >= request->deadline_ns) {
            status = end_wait(redis, request, reply, &again);
            if (status != TUTTI_OK || !again) break;
        } else if (listener.key != missing) {
            status = subscribe(redis, request, missing, &listener);
            if (status != TUTTI_OK) break;
        } else {
            await_message(redis, &listener, request->deadline_ns);
        }
    }
    end_listening(redis, &listener);
    return status;
}
