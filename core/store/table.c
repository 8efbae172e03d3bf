#include "store/table.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HASH_NONFATAL_OOM 1 /* uthash ends the process otherwise */
#include <uthash.h>

struct table_entry {
    UT_hash_handle hh;
    uint8_t *value;
    size_t bytes, capacity;
    size_t key_bytes;
    char key[];
};

enum {
    ENTRY_COST = sizeof(struct table_entry) + 64
};                            /* what a key costs besides its bytes: a flood of tiny keys counts */
enum { CAPACITY_KEPT = 256 }; /* so much room a value may keep, however short it becomes */

static struct table_entry *table_find(const struct table *table, const struct store_slice *key)
{
    struct table_entry *entry;
    HASH_FIND(hh, table->entries, key->data, key->bytes, entry);
    return entry;
}

static void table_remove(struct table *table, struct table_entry *entry)
{
    HASH_DELETE(hh, table->entries, entry);
    table->bytes -= ENTRY_COST + entry->key_bytes + entry->bytes;
    free(entry->value);
    free(entry);
}

static bool table_full(const struct table *table, size_t more, struct store_reply *reply)
{
    if (more <= table->max_bytes - table->bytes) return false;
    store_reply_error(reply, TUTTI_ERR_STORE,
                      "the store is full: it holds %zu of at most %zu bytes and %zu more were asked for "
                      "(TUTTI_STORE_MAX_BYTES sets the limit)",
                      table->bytes, table->max_bytes, more);
    return true;
}

static struct table_entry *table_insert(struct table *table, const struct store_slice *key, struct store_reply *reply)
{
    struct table_entry *entry = calloc(1, sizeof *entry + key->bytes);
    if (entry != NULL) {
        entry->key_bytes = key->bytes;
        memcpy(entry->key, key->data, key->bytes);
        HASH_ADD_KEYPTR(hh, table->entries, entry->key, entry->key_bytes, entry);
        if (entry->hh.tbl != NULL) { /* NULL: uthash was out of memory */
            table->bytes += ENTRY_COST + key->bytes;
            return entry;
        }
        free(entry);
    }
    store_reply_error(reply, TUTTI_ERR_NO_MEMORY, "the store is out of memory");
    return NULL;
}

/* Gives back what a much shorter value leaves unused: only the value counts for the limit, so the room of many large
 * ones that have become short would be without one. */
static void entry_shrink(struct table_entry *entry, size_t bytes)
{
    if (entry->capacity <= CAPACITY_KEPT || bytes > entry->capacity / 4) return;
    uint8_t *value = realloc(entry->value, bytes > 0 ? bytes : 1);
    if (value == NULL) return;
    entry->value = value;
    entry->capacity = bytes > 0 ? bytes : 1;
}

/* Makes room for bytes; doubling, so that many appends stay linear. */
static bool entry_reserve(struct table_entry *entry, size_t bytes)
{
    if (bytes <= entry->capacity) {
        entry_shrink(entry, bytes);
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

/* Replaces key's value by data, or appends data to it; the key is made when absent. */
static int table_write(struct table *table, const struct store_slice *key, const struct store_slice *data, bool append,
                       struct store_reply *reply)
{
    struct table_entry *entry = table_find(table, key);
    size_t old = entry == NULL ? 0 : entry->bytes;
    size_t size = (append ? old : 0) + data->bytes;
    if (size > TUTTI_STORE_VALUE_MAX)
        return store_reply_error(reply, TUTTI_ERR_INVALID_ARGUMENT, "the value would have %zu bytes; the limit is %d",
                                 size, TUTTI_STORE_VALUE_MAX);
    bool made = entry == NULL;
    size_t more = (size > old ? size - old : 0) + (made ? ENTRY_COST + key->bytes : 0);
    if (more > 0 && table_full(table, more, reply)) return reply->status;
    if (made) entry = table_insert(table, key, reply);
    if (entry == NULL) return reply->status;
    if (!entry_reserve(entry, size)) {
        if (made) table_remove(table, entry);
        return store_reply_error(reply, TUTTI_ERR_NO_MEMORY, "the store is out of memory");
    }
    if (data->bytes > 0) memcpy(entry->value + (append ? old : 0), data->data, data->bytes);
    table->bytes = table->bytes - old + size;
    entry->bytes = size;
    return TUTTI_OK;
}

static int table_missing(const struct table *table, const struct store_request *request)
{
    for (int i = 0; i < request->n_keys; i++)
        if (table_find(table, &request->keys[i]) == NULL) return i;
    return -1;
}

static bool reply_add_value(struct store_reply *reply, const void *data, size_t bytes)
{
    void *copy = malloc(bytes > 0 ? bytes : 1);
    if (copy == NULL) return false;
    if (bytes > 0) memcpy(copy, data, bytes);
    reply->values[reply->n_values++] = (tutti_bytes){copy, bytes};
    return true;
}

/* As many values as fit into one reply, and one at least; the client asks again for the others. */
static void table_get(const struct table *table, const struct store_request *request, struct store_reply *reply)
{
    size_t bytes = 0;
    reply->values = calloc((size_t)request->n_keys + 1, sizeof *reply->values);
    bool ok = reply->values != NULL;
    for (int i = 0; ok && i < request->n_keys; i++) {
        struct table_entry *entry = table_find(table, &request->keys[i]);
        bytes += entry->bytes + 8;
        if (i > 0 && bytes > STORE_BATCH_BYTES) return;
        ok = reply_add_value(reply, entry->value, entry->bytes);
    }
    if (!ok) store_reply_error(reply, TUTTI_ERR_NO_MEMORY, "the store is out of memory");
}

static int entry_integer(const struct table_entry *entry, int64_t *value)
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

static void table_add(struct table *table, const struct store_request *request, struct store_reply *reply)
{
    int64_t value = 0;
    struct table_entry *entry = table_find(table, request->keys);
    if (entry != NULL && entry_integer(entry, &value) != 0) {
        store_reply_error(reply, TUTTI_ERR_STORE,
                          "the value is no decimal integer: it has %zu bytes, beginning \"%.*s\"", entry->bytes,
                          (int)(entry->bytes < 20 ? entry->bytes : 20), entry->bytes > 0 ? (char *)entry->value : "");
        return;
    }
    int64_t sum = (int64_t)((uint64_t)value + (uint64_t)request->number);
    char text[24];
    int length = snprintf(text, sizeof text, "%" PRId64, sum);
    struct store_slice slice = {text, (size_t)length};
    if (table_write(table, request->keys, &slice, false, reply) == TUTTI_OK) reply->number = sum;
}

static void table_compare_set(struct table *table, const struct store_request *request, struct store_reply *reply)
{
    const struct store_slice *expected = &request->values[0];
    struct table_entry *entry = table_find(table, request->keys);
    bool equal = expected->bytes == (entry == NULL ? 0 : entry->bytes);
    if (equal && expected->bytes > 0) equal = memcmp(expected->data, entry->value, expected->bytes) == 0;
    reply->values = calloc(1, sizeof *reply->values);
    if (reply->values == NULL) {
        store_reply_error(reply, TUTTI_ERR_NO_MEMORY, "the store is out of memory");
        return;
    }
    if (equal && table_write(table, request->keys, &request->values[1], false, reply) != TUTTI_OK) return;
    entry = table_find(table, request->keys);
    if (entry != NULL && !reply_add_value(reply, entry->value, entry->bytes))
        store_reply_error(reply, TUTTI_ERR_NO_MEMORY, "the store is out of memory");
}

static bool entry_begins(const struct table_entry *entry, const struct store_slice *prefix)
{
    return entry->key_bytes >= prefix->bytes && memcmp(entry->key, prefix->data, prefix->bytes) == 0;
}

static void table_count(const struct table *table, const struct store_slice *prefix, struct store_reply *reply)
{
    struct table_entry *entry, *next;
    HASH_ITER(hh, table->entries, entry, next)
    if (entry_begins(entry, prefix)) reply->number++;
}

static void table_clear(struct table *table, const struct store_slice *prefix, struct store_reply *reply)
{
    struct table_entry *entry, *next;
    HASH_ITER(hh, table->entries, entry, next)
    {
        if (!entry_begins(entry, prefix)) continue;
        table_remove(table, entry);
        reply->number++;
    }
}

static void table_delete(struct table *table, const struct store_slice *key, struct store_reply *reply)
{
    struct table_entry *entry = table_find(table, key);
    reply->number = entry != NULL;
    if (entry != NULL) table_remove(table, entry);
}

bool table_apply(struct table *table, const struct store_request *request, struct store_reply *reply, int *missing)
{
    *reply = (struct store_reply){.status = TUTTI_OK};
    switch ((enum store_op)request->op) {
    case STORE_SET:
        for (int i = 0; i < request->n_keys; i++)
            if (table_write(table, &request->keys[i], &request->values[i], false, reply) != TUTTI_OK) break;
        return true;
    case STORE_GET:
    case STORE_WAIT:
        *missing = table_missing(table, request);
        if (*missing >= 0) return false;
        if (request->op == STORE_GET) table_get(table, request, reply);
        return true;
    case STORE_CHECK:
        reply->number = table_missing(table, request) < 0;
        return true;
    case STORE_ADD:
        table_add(table, request, reply);
        return true;
    case STORE_COMPARE_SET:
        table_compare_set(table, request, reply);
        return true;
    case STORE_DELETE:
        if (request->number == 1)
            table_clear(table, request->keys, reply);
        else
            table_delete(table, request->keys, reply);
        return true;
    case STORE_APPEND:
        table_write(table, request->keys, &request->values[0], true, reply);
        return true;
    case STORE_NUM_KEYS:
        table_count(table, request->keys, reply);
        return true;
    case STORE_NUM_REQUESTS:
        reply->number = table->n_requests;
        return true;
    case STORE_OP_END:
        break;
    }
    store_reply_error(reply, TUTTI_ERR_STORE, "operation %d is unknown to this store", request->op);
    return true;
}

void table_timeout(const struct table *table, const struct store_request *request, struct store_reply *reply)
{
    enum { NAMED = 4 };
    char names[STORE_TEXT_MAX - 80];
    size_t used = 0;
    int missing = 0;
    for (int i = 0; i < request->n_keys; i++) {
        if (table_find(table, &request->keys[i]) != NULL || missing++ >= NAMED) continue;
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
    HASH_ITER(hh, table->entries, entry, next) table_remove(table, entry);
}
