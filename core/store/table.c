#include "store/table.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HASH_NONFATAL_OOM 1 /* by default uthash exits the process */
#include <uthash.h>

struct table_entry {
    UT_hash_handle hh;
    uint8_t *value;
    size_t bytes, capacity;
    size_t key_bytes;
    char key[];
};

enum {
    ENTRY_COST = sizeof(struct table_entry) + 64, /* overhead per key, so that many tiny keys count too */
    CAPACITY_KEPT = 256                           /* a value that shrinks keeps up to this capacity */
};

static struct table_entry *find_entry(const struct table *table, const struct store_slice *key)
{
    struct table_entry *entry;
    HASH_FIND(hh, table->entries, key->data, key->bytes, entry);
    return entry;
}

static void remove_entry(struct table *table, struct table_entry *entry)
{
    HASH_DELETE(hh, table->entries, entry);
    table->bytes -= ENTRY_COST + entry->key_bytes + entry->bytes;
    free(entry->value);
    free(entry);
}

static bool refuse_if_full(const struct table *table, size_t more, struct store_reply *reply)
{
    if (more <= table->max_bytes - table->bytes) return false;
    store_reply_error(reply, TUTTI_ERR_STORE,
                      "the store is full: it holds %zu of at most %zu bytes and the request needs %zu more; raise "
                      "TUTTI_STORE_MAX_BYTES",
                      table->bytes, table->max_bytes, more);
    return true;
}

static struct table_entry *insert_entry(struct table *table, const struct store_slice *key, struct store_reply *reply)
{
    struct table_entry *entry = calloc(1, sizeof *entry + key->bytes);
    if (entry != NULL) {
        entry->key_bytes = key->bytes;
        memcpy(entry->key, key->data, key->bytes);
        HASH_ADD_KEYPTR(hh, table->entries, entry->key, entry->key_bytes, entry);
        if (entry->hh.tbl != NULL) { /* uthash leaves it NULL if out of memory */
            table->bytes += ENTRY_COST + key->bytes;
            return entry;
        }
        free(entry);
    }
    store_reply_error(reply, TUTTI_ERR_NO_MEMORY, "the store is out of memory");
    return NULL;
}

/* Frees the unused capacity of a value that became much shorter.  Only value bytes count towards the limit, so without
 * this the capacity of many shrunken values would be unlimited. */
static void shrink_value(struct table_entry *entry, size_t bytes)
{
    if (entry->capacity <= CAPACITY_KEPT || bytes > entry->capacity / 4) return;
    uint8_t *value = realloc(entry->value, bytes > 0 ? bytes : 1);
    if (value == NULL) return;
    entry->value = value;
    entry->capacity = bytes > 0 ? bytes : 1;
}

/* Reserves capacity for bytes.  The capacity doubles, so n appends cost O(n). */
static bool reserve_value(struct table_entry *entry, size_t bytes)
{
    if (bytes <= entry->capacity) {
        shrink_value(entry, bytes);
        return true;
    }
    size_t capacity = entry->capacity == 0 ? bytes : 2 * entry->capacity;
    if (capacity < bytes) capacity = bytes;
    uint8_t *value = realloc(entry->value, capacity);
    if (value == NULL) return false;
    entry->value = value;
    entry->capacity = capacity;
    return true;
}

/* Replaces the value of key, or appends to it; creates the key if absent. */
static int write_value(struct table *table, const struct store_slice *key, const struct store_slice *data, bool append,
                       struct store_reply *reply)
{
    struct table_entry *entry = find_entry(table, key);
    size_t old = entry == NULL ? 0 : entry->bytes;
    size_t size = (append ? old : 0) + data->bytes;
    if (size > TUTTI_STORE_VALUE_MAX)
        return store_reply_error(reply, TUTTI_ERR_INVALID_ARGUMENT,
                                 "the value would have %zu bytes and the limit is %d; use several keys", size,
                                 TUTTI_STORE_VALUE_MAX);
    bool created = entry == NULL;
    size_t more = (size > old ? size - old : 0) + (created ? ENTRY_COST + key->bytes : 0);
    if (more > 0 && refuse_if_full(table, more, reply)) return reply->status;
    if (created) entry = insert_entry(table, key, reply);
    if (entry == NULL) return reply->status;
    if (!reserve_value(entry, size)) {
        if (created) remove_entry(table, entry);
        return store_reply_error(reply, TUTTI_ERR_NO_MEMORY, "the store is out of memory");
    }
    if (data->bytes > 0) memcpy(entry->value + (append ? old : 0), data->data, data->bytes);
    table->bytes = table->bytes - old + size;
    entry->bytes = size;
    return TUTTI_OK;
}

static int first_missing_key(const struct table *table, const struct store_request *request)
{
    for (int i = 0; i < request->n_keys; i++)
        if (find_entry(table, &request->keys[i]) == NULL) return i;
    return -1;
}

static bool add_reply_value(struct store_reply *reply, const void *data, size_t bytes)
{
    void *copy = malloc(bytes > 0 ? bytes : 1);
    if (copy == NULL) return false;
    if (bytes > 0) memcpy(copy, data, bytes);
    reply->values[reply->n_values++] = (tutti_bytes){copy, bytes};
    return true;
}

/* Returns as many values as fit into one reply, and at least one.  The client requests the rest again. */
static void apply_get(const struct table *table, const struct store_request *request, struct store_reply *reply)
{
    size_t bytes = 0;
    reply->values = calloc((size_t)request->n_keys + 1, sizeof *reply->values);
    bool ok = reply->values != NULL;
    for (int i = 0; ok && i < request->n_keys; i++) {
        struct table_entry *entry = find_entry(table, &request->keys[i]);
        bytes += entry->bytes + 8;
        if (i > 0 && bytes > STORE_BATCH_BYTES) return;
        ok = add_reply_value(reply, entry->value, entry->bytes);
    }
    if (!ok) store_reply_error(reply, TUTTI_ERR_NO_MEMORY, "the store is out of memory");
}

static int parse_integer(const struct table_entry *entry, int64_t *value)
{
    char text[24];
    if (entry->bytes == 0 || entry->bytes >= sizeof text) return -1;
    memcpy(text, entry->value, entry->bytes);
    text[entry->bytes] = '\0';
    char *end;
    errno = 0;
    *value = strtoll(text, &end, 10);
    return errno == 0 && end == text + entry->bytes ? 0 : -1;
}

static void apply_add(struct table *table, const struct store_request *request, struct store_reply *reply)
{
    int64_t value = 0;
    struct table_entry *entry = find_entry(table, request->keys);
    if (entry != NULL && parse_integer(entry, &value) != 0) {
        store_reply_error(reply, TUTTI_ERR_STORE,
                          "the value is not a decimal integer: it has %zu bytes and begins with \"%.*s\"", entry->bytes,
                          (int)(entry->bytes < 20 ? entry->bytes : 20), entry->bytes > 0 ? (char *)entry->value : "");
        return;
    }
    int64_t sum = (int64_t)((uint64_t)value + (uint64_t)request->number);
    char text[24];
    int length = snprintf(text, sizeof text, "%" PRId64, sum);
    struct store_slice slice = {text, (size_t)length};
    if (write_value(table, request->keys, &slice, false, reply) == TUTTI_OK) reply->number = sum;
}

static void apply_compare_set(struct table *table, const struct store_request *request, struct store_reply *reply)
{
    const struct store_slice *expected = &request->values[0];
    struct table_entry *entry = find_entry(table, request->keys);
    bool equal = expected->bytes == (entry == NULL ? 0 : entry->bytes);
    if (equal && expected->bytes > 0) equal = memcmp(expected->data, entry->value, expected->bytes) == 0;
    reply->values = calloc(1, sizeof *reply->values);
    if (reply->values == NULL) {
        store_reply_error(reply, TUTTI_ERR_NO_MEMORY, "the store is out of memory");
        return;
    }
    if (equal && write_value(table, request->keys, &request->values[1], false, reply) != TUTTI_OK) return;
    entry = find_entry(table, request->keys);
    if (entry != NULL && !add_reply_value(reply, entry->value, entry->bytes))
        store_reply_error(reply, TUTTI_ERR_NO_MEMORY, "the store is out of memory");
}

static bool has_prefix(const struct table_entry *entry, const struct store_slice *prefix)
{
    return entry->key_bytes >= prefix->bytes && memcmp(entry->key, prefix->data, prefix->bytes) == 0;
}

static void apply_count(const struct table *table, const struct store_slice *prefix, struct store_reply *reply)
{
    struct table_entry *entry, *next;
    HASH_ITER(hh, table->entries, entry, next)
    if (has_prefix(entry, prefix)) reply->number++;
}

static void apply_clear(struct table *table, const struct store_slice *prefix, struct store_reply *reply)
{
    struct table_entry *entry, *next;
    HASH_ITER(hh, table->entries, entry, next)
    {
        if (!has_prefix(entry, prefix)) continue;
        remove_entry(table, entry);
        reply->number++;
    }
}

static void apply_delete(struct table *table, const struct store_slice *key, struct store_reply *reply)
{
    struct table_entry *entry = find_entry(table, key);
    reply->number = entry != NULL;
    if (entry != NULL) remove_entry(table, entry);
}

bool table_apply(struct table *table, const struct store_request *request, struct store_reply *reply, int *missing)
{
    *reply = (struct store_reply){.status = TUTTI_OK};
    switch ((enum store_op)request->op) {
    case STORE_SET:
        for (int i = 0; i < request->n_keys; i++)
            if (write_value(table, &request->keys[i], &request->values[i], false, reply) != TUTTI_OK) break;
        return true;
    case STORE_GET:
    case STORE_WAIT:
        *missing = first_missing_key(table, request);
        if (*missing >= 0) return false;
        if (request->op == STORE_GET) apply_get(table, request, reply);
        return true;
    case STORE_CHECK:
        reply->number = first_missing_key(table, request) < 0;
        return true;
    case STORE_ADD:
        apply_add(table, request, reply);
        return true;
    case STORE_COMPARE_SET:
        apply_compare_set(table, request, reply);
        return true;
    case STORE_DELETE:
        if (request->number == 1)
            apply_clear(table, request->keys, reply);
        else
            apply_delete(table, request->keys, reply);
        return true;
    case STORE_APPEND:
        write_value(table, request->keys, &request->values[0], true, reply);
        return true;
    case STORE_NUM_KEYS:
        apply_count(table, request->keys, reply);
        return true;
    case STORE_NUM_REQUESTS:
        reply->number = table->n_requests;
        return true;
    case STORE_OP_END:
        break;
    }
    store_reply_error(reply, TUTTI_ERR_STORE,
                      "this store does not know operation %d; all ranks must run the same release", request->op);
    return true;
}

void table_timeout(const struct table *table, const struct store_request *request, struct store_reply *reply)
{
    enum { NAMED = 4 };
    char names[STORE_TEXT_MAX - 80] = "";
    size_t used = 0;
    int missing = 0;
    for (int i = 0; i < request->n_keys; i++) {
        if (find_entry(table, &request->keys[i]) != NULL || missing++ >= NAMED) continue;
        used += (size_t)snprintf(names + used, sizeof names - used, "%s\"%.*s\"", used > 0 ? ", " : "",
                                 (int)(request->keys[i].bytes < 60 ? request->keys[i].bytes : 60),
                                 (const char *)request->keys[i].data);
    }
    *reply = (struct store_reply){0};
    store_reply_error(reply, TUTTI_ERR_TIMEOUT, "%d of %d keys missing: %s%s", missing, request->n_keys, names,
                      missing > NAMED ? ", ..." : "");
}

void table_free(struct table *table)
{
    struct table_entry *entry, *next;
    HASH_ITER(hh, table->entries, entry, next) remove_entry(table, entry);
}
