/* Public store operations: each checks its arguments once and passes one request to the kind of store. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/env.h"
#include "base/error.h"
#include "base/streams.h"
#include "store/store_impl.h"

static const char *const op_names[STORE_OP_END] = {
    [STORE_SET] = "set",           [STORE_GET] = "get",
    [STORE_WAIT] = "wait",         [STORE_CHECK] = "check",
    [STORE_ADD] = "add",           [STORE_COMPARE_SET] = "compare_set",
    [STORE_DELETE] = "delete",     [STORE_APPEND] = "append",
    [STORE_NUM_KEYS] = "num_keys", [STORE_NUM_REQUESTS] = "num_requests",
};

/* ---- common functions ------------------------------------------------------------------------------------------ */

static int check_timeout(int64_t timeout_ms)
{
    if (timeout_ms >= 0) return TUTTI_OK;
    return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                     "store: timeout_ms is %" PRId64 "; it must be 0 or more, TUTTI_INFINITE or TUTTI_DEFAULT_TIMEOUT",
                     timeout_ms);
}

static int64_t default_timeout_ms(int64_t timeout_ms)
{
    return timeout_ms == 0 || timeout_ms == TUTTI_DEFAULT_TIMEOUT ? STORE_DEFAULT_TIMEOUT_MS : timeout_ms;
}

int store_base_init(tutti_store *store, const struct store_class *class, const tutti_store_opts *opts)
{
    int64_t timeout_ms = opts == NULL ? 0 : opts->timeout_ms;
    int status = check_timeout(timeout_ms);
    if (status != TUTTI_OK) return status;
    streams_fill();
    store->class = class;
    atomic_init(&store->references, 1);
    atomic_init(&store->timeout_ms, default_timeout_ms(timeout_ms));
    store->pid = getpid();
    return TUTTI_OK;
}

int store_max_bytes(size_t *bytes)
{
    int64_t value = 0;
    int status = env_int("TUTTI_STORE_MAX_BYTES", STORE_DEFAULT_MAX_BYTES, 1 << 16, INT64_MAX / 4, &value);
    *bytes = (size_t)value;
    return status;
}

bool store_op_writes(int op)
{
    return op == STORE_SET || op == STORE_ADD || op == STORE_COMPARE_SET || op == STORE_DELETE || op == STORE_APPEND;
}

int store_reply_error(struct store_reply *reply, int status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(reply->text, sizeof reply->text, format, args);
    va_end(args);
    reply->status = status;
    return status;
}

void store_reply_free(struct store_reply *reply)
{
    tutti_bytes_free(reply->values, reply->n_values);
    free(reply->values);
    reply->values = NULL;
    reply->n_values = 0;
}

bool store_is_forked(const tutti_store *store)
{
    return store->pid != getpid();
}

tutti_store *store_retain(tutti_store *store)
{
    atomic_fetch_add_explicit(&store->references, 1, memory_order_relaxed);
    return store;
}

void tutti_store_free(tutti_store *store)
{
    if (store == NULL) return;
    /* acq_rel: other holders' accesses happen before the close */
    if (atomic_fetch_sub_explicit(&store->references, 1, memory_order_acq_rel) == 1) store->class->close(store);
}

uint16_t tutti_store_port(const tutti_store *store)
{
    return store == NULL || store->class->port == NULL ? 0 : store->class->port(store);
}

int tutti_store_set_timeout(tutti_store *store, int64_t timeout_ms)
{
    if (store == NULL)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "store_set_timeout: store is NULL; open a store first");
    int status = check_timeout(timeout_ms);
    if (status == TUTTI_OK) store->timeout_ms = default_timeout_ms(timeout_ms);
    return status;
}

int tutti_store_linger(tutti_store *store, int64_t timeout_ms)
{
    if (store == NULL) return error_set(TUTTI_ERR_INVALID_ARGUMENT, "store linger: store is NULL; open a store first");
    int status = check_timeout(timeout_ms);
    if (status != TUTTI_OK || store->class->linger == NULL || store->pid != getpid()) return status;
    return store->class->linger(
        store, clock_deadline_ns(timeout_ms == TUTTI_DEFAULT_TIMEOUT ? store->timeout_ms : timeout_ms));
}

void tutti_bytes_free(tutti_bytes *values, int n)
{
    for (int i = 0; values != NULL && i < n; i++) {
        free(values[i].data);
        values[i] = (tutti_bytes){0};
    }
}

/* True if the number of values fits the request.  A server is another program, so its replies are checked.  Only get
 * and compare_set return values. */
static bool reply_fits(const struct store_request *request, const struct store_reply *reply)
{
    if (request->op == STORE_GET) return reply->n_values >= 1 && reply->n_values <= request->n_keys;
    return reply->n_values <= (request->op == STORE_COMPARE_SET ? 1 : 0);
}

int store_call(tutti_store *store, const struct store_request *request, struct store_reply *reply)
{
    *reply = (struct store_reply){0};
    if (store_is_forked(store))
        return error_set(TUTTI_ERR_STORE,
                         "%s was opened by process %d and cannot be used in its forked child %d; open a store there",
                         store->name, (int)store->pid, (int)getpid());
    int status = store->class->call(store, request, reply);
    if (status != TUTTI_OK) return status;
    if (reply->status == TUTTI_OK && reply_fits(request, reply)) return TUTTI_OK;
    store_reply_free(reply);
    if (reply->status == TUTTI_OK) store_reply_error(reply, TUTTI_ERR_STORE, "the reply does not fit the request");
    const struct store_slice *key = request->n_keys > 0 ? &request->keys[0] : &(struct store_slice){"", 0};
    return error_set(reply->status, "%s: %s \"%.*s\"%s: %s", store->name, op_names[request->op],
                     (int)(key->bytes < 80 ? key->bytes : 80), (const char *)key->data,
                     request->n_keys > 1 ? " and others" : "", reply->text);
}

/* ---- arguments ---------------------------------------------------------------------------------------------- */

static int check_key(const char *op, const char *key, struct store_slice *slice)
{
    if (key == NULL) return error_set(TUTTI_ERR_INVALID_ARGUMENT, "store %s: key is NULL; pass a key", op);
    size_t bytes = strnlen(key, TUTTI_STORE_KEY_MAX + 1);
    if (bytes == 0 || bytes > TUTTI_STORE_KEY_MAX)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "store %s: the key %s; it must have 1 to %d bytes", op,
                         bytes == 0 ? "is empty" : "is too long", TUTTI_STORE_KEY_MAX);
    *slice = (struct store_slice){key, bytes};
    return TUTTI_OK;
}

static int check_value(const char *op, const void *value, size_t bytes, struct store_slice *slice)
{
    if (value == NULL && bytes > 0)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "store %s: value is NULL but bytes is %zu; pass the value", op,
                         bytes);
    if (bytes > TUTTI_STORE_VALUE_MAX)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                         "store %s: the value has %zu bytes and the limit is %d; shorten it", op, bytes,
                         TUTTI_STORE_VALUE_MAX);
    *slice = (struct store_slice){value == NULL ? "" : value, bytes};
    return TUTTI_OK;
}

static int check_handle(const char *op, const tutti_store *store)
{
    return store != NULL ? TUTTI_OK
                         : error_set(TUTTI_ERR_INVALID_ARGUMENT, "store %s: store is NULL; open a store first", op);
}

static int make_deadline(const tutti_store *store, int64_t timeout_ms, int64_t *deadline_ns)
{
    int status = check_timeout(timeout_ms);
    *deadline_ns = clock_deadline_ns(timeout_ms == TUTTI_DEFAULT_TIMEOUT ? store->timeout_ms : timeout_ms);
    return status;
}

/* Executes a request on one key.  The caller has checked the values. */
static int call_one_key(tutti_store *store, int op, const char *key, int n_values, const struct store_slice *values,
                        int64_t number, int64_t timeout_ms, struct store_reply *reply)
{
    struct store_slice slice;
    struct store_request request = {
        .op = op, .n_keys = 1, .keys = &slice, .n_values = n_values, .values = values, .number = number};
    *reply = (struct store_reply){0};
    int status = check_handle(op_names[op], store);
    if (status == TUTTI_OK) status = check_key(op_names[op], key, &slice);
    if (status == TUTTI_OK) status = make_deadline(store, timeout_ms, &request.deadline_ns);
    return status == TUTTI_OK ? store_call(store, &request, reply) : status;
}

/* ---- one key ------------------------------------------------------------------------------------------------ */

int tutti_store_set(tutti_store *store, const char *key, const void *value, size_t bytes)
{
    struct store_slice slice;
    struct store_reply reply;
    int status = check_value("set", value, bytes, &slice);
    return status != TUTTI_OK ? status
                              : call_one_key(store, STORE_SET, key, 1, &slice, 0, TUTTI_DEFAULT_TIMEOUT, &reply);
}

int tutti_store_get(tutti_store *store, const char *key, void *buffer, size_t capacity, size_t *bytes,
                    int64_t timeout_ms)
{
    if (bytes == NULL || (buffer == NULL && capacity > 0))
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "store get: %s is NULL; pass an address",
                         bytes == NULL ? "bytes" : "buffer");
    struct store_reply reply;
    *bytes = 0;
    int status = call_one_key(store, STORE_GET, key, 0, NULL, 0, timeout_ms, &reply);
    if (status == TUTTI_OK) {
        *bytes = reply.values[0].bytes;
        if (*bytes > capacity)
            status = error_set(TUTTI_ERR_INVALID_ARGUMENT,
                               "store get \"%.80s\": the value has %zu bytes and the buffer %zu; pass a larger buffer",
                               key, *bytes, capacity);
        else if (*bytes > 0)
            memcpy(buffer, reply.values[0].data, *bytes);
    }
    store_reply_free(&reply);
    return status;
}

int tutti_store_add(tutti_store *store, const char *key, int64_t delta, int64_t *value)
{
    struct store_reply reply;
    int status = call_one_key(store, STORE_ADD, key, 0, NULL, delta, TUTTI_DEFAULT_TIMEOUT, &reply);
    if (status == TUTTI_OK && value != NULL) *value = reply.number;
    return status;
}

int tutti_store_compare_set(tutti_store *store, const char *key, const void *expected, size_t expected_bytes,
                            const void *desired, size_t desired_bytes, void *buffer, size_t capacity, size_t *bytes)
{
    struct store_slice values[2];
    struct store_reply reply;
    if (buffer == NULL && capacity > 0)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                         "store compare_set: buffer is NULL but capacity is %zu; pass a buffer", capacity);
    int status = check_value("compare_set", expected, expected_bytes, &values[0]);
    if (status == TUTTI_OK) status = check_value("compare_set", desired, desired_bytes, &values[1]);
    if (status != TUTTI_OK) return status;
    status = call_one_key(store, STORE_COMPARE_SET, key, 2, values, 0, TUTTI_DEFAULT_TIMEOUT, &reply);
    if (status == TUTTI_OK) {
        size_t size = reply.n_values > 0 ? reply.values[0].bytes : 0;
        if (bytes != NULL) *bytes = size;
        if (size > 0 && size <= capacity) memcpy(buffer, reply.values[0].data, size);
    }
    store_reply_free(&reply);
    return status;
}

int store_offer(tutti_store *store, const char *key, const void *value, size_t value_bytes, void *buffer,
                size_t capacity, size_t *bytes, int64_t timeout_ms)
{
    struct store_slice name = {key, strlen(key)}, values[2] = {{"", 0}, {value, value_bytes}};
    struct store_request request = {.op = STORE_COMPARE_SET,
                                    .n_keys = 1,
                                    .keys = &name,
                                    .n_values = 2,
                                    .values = values,
                                    .deadline_ns = clock_deadline_ns(timeout_ms),
                                    .prompt = true};
    struct store_reply reply;
    int status = store_call(store, &request, &reply);
    *bytes = status == TUTTI_OK && reply.n_values > 0 ? reply.values[0].bytes : 0;
    if (*bytes > 0 && *bytes <= capacity) memcpy(buffer, reply.values[0].data, *bytes);
    store_reply_free(&reply);
    return status;
}

int tutti_store_delete(tutti_store *store, const char *key, bool *existed)
{
    struct store_reply reply;
    int status = call_one_key(store, STORE_DELETE, key, 0, NULL, 0, TUTTI_DEFAULT_TIMEOUT, &reply);
    if (status == TUTTI_OK && existed != NULL) *existed = reply.number != 0;
    return status;
}

int store_clear(tutti_store *store, const char *prefix)
{
    struct store_reply reply;
    return call_one_key(store, STORE_DELETE, prefix, 0, NULL, 1, TUTTI_DEFAULT_TIMEOUT, &reply);
}

int store_clear_all(tutti_store *store)
{
    struct store_slice all = {"", 0};
    struct store_request request = {.op = STORE_DELETE, .n_keys = 1, .keys = &all, .number = 1};
    struct store_reply reply;
    request.deadline_ns = clock_deadline_ns(store->timeout_ms);
    return store_call(store, &request, &reply);
}

int tutti_store_append(tutti_store *store, const char *key, const void *value, size_t bytes)
{
    struct store_slice slice;
    struct store_reply reply;
    int status = check_value("append", value, bytes, &slice);
    return status != TUTTI_OK ? status
                              : call_one_key(store, STORE_APPEND, key, 1, &slice, 0, TUTTI_DEFAULT_TIMEOUT, &reply);
}

/* Executes a request that returns one number about the whole store. */
static int count_whole_store(tutti_store *store, int op, int64_t *count)
{
    int status = check_handle(op_names[op], store);
    if (status != TUTTI_OK) return status;
    if (count == NULL)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "store %s: count is NULL; pass an address for the result",
                         op_names[op]);
    struct store_slice all = {"", 0};
    struct store_request request = {.op = op, .n_keys = 1, .keys = &all};
    struct store_reply reply;
    status = make_deadline(store, TUTTI_DEFAULT_TIMEOUT, &request.deadline_ns);
    if (status == TUTTI_OK) status = store_call(store, &request, &reply);
    if (status == TUTTI_OK) *count = reply.number;
    return status;
}

int tutti_store_num_keys(tutti_store *store, int64_t *count)
{
    return count_whole_store(store, STORE_NUM_KEYS, count);
}

int tutti_store_num_requests(tutti_store *store, int64_t *count)
{
    return count_whole_store(store, STORE_NUM_REQUESTS, count);
}

/* ---- many keys ---------------------------------------------------------------------------------------------- */

/* Arguments of a call on n keys.  Both arrays share one allocation, owned by `keys`. */
struct many_keys {
    struct store_slice *keys, *values;
    int64_t deadline_ns;
};

static int init_many(struct many_keys *many, tutti_store *store, int op, const char *const *keys,
                     const tutti_bytes *values, int n, int64_t timeout_ms)
{
    const char *name = op_names[op];
    *many = (struct many_keys){0};
    int status = check_handle(name, store);
    if (status != TUTTI_OK) return status;
    if (n < 0 || (n > 0 && keys == NULL))
        return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                         n < 0 ? "store %s: n is %d; it must be 0 or more"
                               : "store %s: keys is NULL but n is %d; pass the keys",
                         name, n);
    status = make_deadline(store, timeout_ms, &many->deadline_ns);
    if (status != TUTTI_OK) return status;
    many->keys = calloc(2 * (size_t)n + 1, sizeof *many->keys);
    if (many->keys == NULL) return error_set(TUTTI_ERR_NO_MEMORY, "store %s: out of memory for %d keys", name, n);
    many->values = many->keys + n;
    for (int i = 0; i < n && status == TUTTI_OK; i++) {
        status = check_key(name, keys[i], &many->keys[i]);
        if (status == TUTTI_OK && values != NULL)
            status = check_value(name, values[i].data, values[i].bytes, &many->values[i]);
    }
    if (status != TUTTI_OK) free(many->keys);
    return status;
}

/* Returns how many keys from `first` on fit, with their values, into one request. */
static int batch_size(const struct many_keys *many, int first, int n)
{
    size_t bytes = 0;
    int count = 0;
    for (int i = first; i < n && count < STORE_BATCH_KEYS; i++, count++) {
        bytes += many->keys[i].bytes + many->values[i].bytes + 8;
        if (count > 0 && bytes > STORE_BATCH_BYTES) break;
    }
    return count;
}

/* Executes the next request of the call, starting at key `first`; sets *count to the keys it covers. */
static int call_next_batch(tutti_store *store, int op, const struct many_keys *many, int first, int n,
                           struct store_reply *reply, int *count)
{
    *count = batch_size(many, first, n);
    struct store_request request = {.op = op,
                                    .n_keys = *count,
                                    .keys = many->keys + first,
                                    .n_values = op == STORE_SET ? *count : 0,
                                    .values = many->values + first,
                                    .deadline_ns = many->deadline_ns};
    return store_call(store, &request, reply);
}

int tutti_store_wait(tutti_store *store, const char *const *keys, int n, int64_t timeout_ms)
{
    struct many_keys many;
    struct store_reply reply;
    int status = init_many(&many, store, STORE_WAIT, keys, NULL, n, timeout_ms);
    if (status != TUTTI_OK) return status;
    for (int i = 0, count = 0; i < n && status == TUTTI_OK; i += count)
        status = call_next_batch(store, STORE_WAIT, &many, i, n, &reply, &count);
    free(many.keys);
    return status;
}

int tutti_store_check(tutti_store *store, const char *const *keys, int n, bool *present)
{
    if (present == NULL)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "store check: present is NULL; pass an address for the result");
    struct many_keys many;
    struct store_reply reply;
    int status = init_many(&many, store, STORE_CHECK, keys, NULL, n, TUTTI_DEFAULT_TIMEOUT);
    if (status != TUTTI_OK) return status;
    bool all = true;
    for (int i = 0, count = 0; i < n && status == TUTTI_OK && all; i += count) {
        status = call_next_batch(store, STORE_CHECK, &many, i, n, &reply, &count);
        all = reply.number != 0;
    }
    if (status == TUTTI_OK) *present = all;
    free(many.keys);
    return status;
}

int tutti_store_multi_set(tutti_store *store, const char *const *keys, const tutti_bytes *values, int n)
{
    if (values == NULL && n > 0)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "store set: values is NULL but n is %d; pass the values", n);
    struct many_keys many;
    struct store_reply reply;
    int status = init_many(&many, store, STORE_SET, keys, values, n, TUTTI_DEFAULT_TIMEOUT);
    if (status != TUTTI_OK) return status;
    for (int i = 0, count = 0; i < n && status == TUTTI_OK; i += count)
        status = call_next_batch(store, STORE_SET, &many, i, n, &reply, &count);
    free(many.keys);
    return status;
}

int tutti_store_multi_get(tutti_store *store, const char *const *keys, int n, tutti_bytes *values, int64_t timeout_ms)
{
    if (values == NULL && n > 0)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                         "store get: values is NULL but n is %d; pass an array for the values", n);
    struct many_keys many;
    struct store_reply reply;
    int status = init_many(&many, store, STORE_GET, keys, NULL, n, timeout_ms);
    if (status != TUTTI_OK) return status;
    int got = 0;
    while (got < n && status == TUTTI_OK) {
        int count;
        status = call_next_batch(store, STORE_GET, &many, got, n, &reply, &count);
        for (int i = 0; status == TUTTI_OK && i < reply.n_values; i++) {
            values[got++] = reply.values[i];
            reply.values[i] = (tutti_bytes){0}; /* now owned by the caller */
        }
        store_reply_free(&reply);
    }
    if (status != TUTTI_OK) tutti_bytes_free(values, got);
    free(many.keys);
    return status;
}
