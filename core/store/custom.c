/* A store of the program's own functions: turns each request into calls of them. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/sized.h"
#include "store/store_impl.h"

struct custom {
    tutti_store base;
    tutti_store_calls calls;
    void *self;
    _Atomic int64_t n_requests;
};

/* A request as the program's functions take it: its keys end with a zero. */
struct call {
    struct custom *custom;
    const struct store_request *request;
    const char **keys;
};

static int64_t left_ms(const struct store_request *request)
{
    if (request->deadline_ns == CLOCK_NEVER) return TUTTI_INFINITE;
    int64_t left_ns = request->deadline_ns - clock_now_ns();
    return left_ns <= 0 ? 0 : (left_ns + 999999) / 1000000;
}

static tutti_bytes bytes_of(const struct store_slice *slice)
{
    return (tutti_bytes){(void *)(uintptr_t)slice->data, slice->bytes};
}

static bool is_sound(const tutti_bytes *value)
{
    return value->bytes <= TUTTI_STORE_VALUE_MAX && (value->data != NULL || value->bytes == 0);
}

/* ---- operations ---------------------------------------------------------------------------------------------- */

static int set_values(const struct call *call)
{
    const struct store_request *request = call->request;
    const tutti_store_calls *calls = &call->custom->calls;
    int status = TUTTI_OK;
    if (request->n_keys > 1 && calls->multi_set != NULL) {
        tutti_bytes *values = calloc((size_t)request->n_keys, sizeof *values);
        if (values == NULL) return error_set(TUTTI_ERR_NO_MEMORY, "out of memory for %d values", request->n_keys);
        for (int i = 0; i < request->n_keys; i++) values[i] = bytes_of(&request->values[i]);
        status = calls->multi_set(call->custom->self, call->keys, values, request->n_keys);
        free(values);
        return status;
    }
    for (int i = 0; i < request->n_keys && status == TUTTI_OK; i++)
        status = calls->set(call->custom->self, call->keys[i], request->values[i].data, request->values[i].bytes);
    return status;
}

static int get_values(const struct call *call, struct store_reply *reply)
{
    const struct store_request *request = call->request;
    const tutti_store_calls *calls = &call->custom->calls;
    int status = TUTTI_OK;
    reply->values = calloc((size_t)request->n_keys, sizeof *reply->values);
    if (reply->values == NULL) return error_set(TUTTI_ERR_NO_MEMORY, "out of memory for %d values", request->n_keys);
    reply->n_values = request->n_keys;
    if (request->n_keys > 1 && calls->multi_get != NULL)
        return calls->multi_get(call->custom->self, call->keys, request->n_keys, reply->values, left_ms(request));
    for (int i = 0; i < request->n_keys && status == TUTTI_OK; i++)
        status = calls->get(call->custom->self, call->keys[i], &reply->values[i], left_ms(request));
    return status;
}

static int compare_and_set(const struct call *call, struct store_reply *reply)
{
    const struct store_slice *values = call->request->values;
    reply->values = calloc(1, sizeof *reply->values);
    if (reply->values == NULL) return error_set(TUTTI_ERR_NO_MEMORY, "out of memory for a value");
    reply->n_values = 1;
    return call->custom->calls.compare_set(call->custom->self, call->keys[0], bytes_of(&values[0]),
                                           bytes_of(&values[1]), &reply->values[0]);
}

/* Appends to *old, the value that the caller has seen, and replaces it by the value after the call.  Sets *done if the
 * key had the old value. */
static int append_to(const struct call *call, tutti_bytes *old, bool *done)
{
    const struct store_slice *tail = &call->request->values[0];
    if (old->bytes + tail->bytes > TUTTI_STORE_VALUE_MAX)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "the value would have %zu bytes and the limit is %d",
                         old->bytes + tail->bytes, TUTTI_STORE_VALUE_MAX);
    tutti_bytes longer = {malloc(old->bytes + tail->bytes + 1), old->bytes + tail->bytes}, now = {NULL, 0};
    if (longer.data == NULL) return error_set(TUTTI_ERR_NO_MEMORY, "out of memory for %zu bytes", longer.bytes);
    if (old->bytes > 0) memcpy(longer.data, old->data, old->bytes);
    memcpy((char *)longer.data + old->bytes, tail->data, tail->bytes);
    int status = call->custom->calls.compare_set(call->custom->self, call->keys[0], *old, longer, &now);
    if (status == TUTTI_OK && !is_sound(&now)) status = error_set(TUTTI_ERR_STORE, "compare_set gave a bad value");
    *done = status == TUTTI_OK && now.bytes == longer.bytes && memcmp(now.data, longer.data, now.bytes) == 0;
    free(longer.data);
    free(old->data);
    *old = now;
    return status;
}

static int append_value(const struct call *call)
{
    const struct store_slice *tail = &call->request->values[0];
    const tutti_store_calls *calls = &call->custom->calls;
    tutti_bytes old = {NULL, 0};
    bool done = false;
    if (calls->append != NULL) return calls->append(call->custom->self, call->keys[0], tail->data, tail->bytes);
    int status = TUTTI_OK;
    while (status == TUTTI_OK && !done) {
        status = append_to(call, &old, &done);
        if (!done && status == TUTTI_OK && left_ms(call->request) == 0)
            status = error_set(TUTTI_ERR_TIMEOUT, "others changed the value all the time");
    }
    free(old.data);
    return status;
}

static int count_keys(const struct call *call, struct store_reply *reply)
{
    const tutti_store_calls *calls = &call->custom->calls;
    if (calls->num_keys == NULL) return error_set(TUTTI_ERR_UNSUPPORTED, "the store has no function num_keys");
    return calls->num_keys(call->custom->self, call->keys[0], &reply->number);
}

static int apply(const struct call *call, struct store_reply *reply)
{
    const struct store_request *request = call->request;
    const tutti_store_calls *calls = &call->custom->calls;
    void *self = call->custom->self;
    bool found = false;
    int status;
    switch (request->op) {
    case STORE_SET:
        return set_values(call);
    case STORE_GET:
        return get_values(call, reply);
    case STORE_WAIT:
        return calls->wait(self, call->keys, request->n_keys, left_ms(request));
    case STORE_CHECK:
        status = calls->check(self, call->keys, request->n_keys, &found);
        reply->number = found;
        return status;
    case STORE_ADD:
        return calls->add(self, call->keys[0], request->number, &reply->number);
    case STORE_COMPARE_SET:
        return compare_and_set(call, reply);
    case STORE_DELETE:
        if (request->number == 1)
            return error_set(TUTTI_ERR_UNSUPPORTED, "the store has no function that deletes keys by prefix");
        status = calls->remove(self, call->keys[0], &found);
        reply->number = found;
        return status;
    case STORE_APPEND:
        return append_value(call);
    case STORE_NUM_KEYS:
        return count_keys(call, reply);
    case STORE_NUM_REQUESTS:
        reply->number = call->custom->n_requests;
        return TUTTI_OK;
    }
    return error_set(TUTTI_ERR_UNSUPPORTED, "the store has no operation %d", request->op);
}

/* ---- requests ------------------------------------------------------------------------------------------------ */

/* Returns the request's keys, each with a zero behind it, in one allocation, or NULL if out of memory. */
static const char **copy_keys(const struct store_request *request)
{
    size_t n = (size_t)request->n_keys, bytes = (n + 1) * sizeof(char *);
    for (size_t i = 0; i < n; i++) bytes += request->keys[i].bytes + 1;
    const char **keys = malloc(bytes);
    if (keys == NULL) return NULL;
    char *at = (char *)(keys + n);
    for (size_t i = 0; i < n; i++) {
        keys[i] = at;
        memcpy(at, request->keys[i].data, request->keys[i].bytes);
        at += request->keys[i].bytes;
        *at++ = '\0';
    }
    return keys;
}

/* Fills the reply of a call that failed.  `before` counts the thread's messages before the call. */
static void describe_failure(struct store_reply *reply, int status, unsigned before)
{
    store_reply_free(reply);
    bool known = status < 0 && status >= TUTTI_ERR_NOT_FOUND;
    if (!known)
        store_reply_error(reply, TUTTI_ERR_STORE, "the program's function returned %d, which is no tutti_status",
                          status);
    else if (error_count() == before)
        store_reply_error(reply, status, "the program's function returned %s", error_name(status));
    else
        store_reply_error(reply, status, "%s", error_text());
}

static int call_custom(tutti_store *store, const struct store_request *request, struct store_reply *reply)
{
    struct custom *custom = (struct custom *)store;
    unsigned before = error_count();
    atomic_fetch_add_explicit(&custom->n_requests, 1, memory_order_relaxed);
    struct call call = {custom, request, copy_keys(request)};
    if (call.keys == NULL)
        return error_set(TUTTI_ERR_NO_MEMORY, "%s: out of memory for %d keys", store->name, request->n_keys);
    int status = apply(&call, reply);
    for (int i = 0; i < reply->n_values && status == TUTTI_OK; i++)
        if (!is_sound(&reply->values[i]))
            status = error_set(TUTTI_ERR_STORE, "the program's function gave a value of %zu bytes at %p",
                               reply->values[i].bytes, reply->values[i].data);
    free(call.keys);
    if (status != TUTTI_OK) describe_failure(reply, status, before);
    return TUTTI_OK;
}

static void close_custom(tutti_store *store)
{
    struct custom *custom = (struct custom *)store;
    if (custom->calls.close != NULL && !store_is_forked(store)) custom->calls.close(custom->self);
    free(custom);
}

static const struct store_class custom_class = {.call = call_custom, .close = close_custom};

/* ---- opening ------------------------------------------------------------------------------------------------- */

/* Returns the name of a function that is missing, or NULL. */
static const char *find_missing(const tutti_store_calls *calls)
{
    return calls->set == NULL           ? "set"
           : calls->get == NULL         ? "get"
           : calls->wait == NULL        ? "wait"
           : calls->check == NULL       ? "check"
           : calls->add == NULL         ? "add"
           : calls->compare_set == NULL ? "compare_set"
           : calls->remove == NULL      ? "remove"
                                        : NULL;
}

int tutti_store_custom_sized(const char *name, const tutti_store_calls *calls, size_t calls_bytes, void *self,
                             const tutti_store_opts *opts, size_t opts_bytes, tutti_store **store)
{
    tutti_store_opts known;
    tutti_store_calls known_calls;
    if (name == NULL || calls == NULL || store == NULL)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "tutti_store_custom: %s is NULL; pass it",
                         name == NULL    ? "name"
                         : calls == NULL ? "calls"
                                         : "store");
    *store = NULL;
    int status = SIZED_READ(tutti_store_opts, opts, opts_bytes, &known);
    if (status == TUTTI_OK) status = SIZED_READ(tutti_store_calls, calls, calls_bytes, &known_calls);
    if (status != TUTTI_OK) return status;
    const char *missing = find_missing(calls);
    if (missing != NULL)
        return error_set(
            TUTTI_ERR_INVALID_ARGUMENT,
            "tutti_store_custom: %.100s has no function %s; the first seven of tutti_store_calls must be set", name,
            missing);
    struct custom *custom = calloc(1, sizeof *custom);
    if (custom == NULL)
        return error_set(TUTTI_ERR_NO_MEMORY, "tutti_store_custom: out of memory for %zu bytes", sizeof *custom);
    status = store_base_init(&custom->base, &custom_class, opts);
    if (status != TUTTI_OK) {
        free(custom);
        return status;
    }
    snprintf(custom->base.name, sizeof custom->base.name, "%.100s", name);
    custom->calls = *calls;
    custom->self = self;
    *store = &custom->base;
    return TUTTI_OK;
}
