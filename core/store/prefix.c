/* Prefix store: forwards requests to another store with a prefix before each key. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "store/store_impl.h"

struct prefix {
    tutti_store base;
    tutti_store *base_store;
    size_t bytes;
    char text[]; /* ends with '/' */
};

/* Returns the prefixed keys and their bytes in one allocation, or NULL if out of memory. */
static struct store_slice *prefix_all_keys(const struct prefix *prefix, const struct store_request *request)
{
    size_t n = (size_t)request->n_keys, bytes = n * sizeof(struct store_slice);
    for (size_t i = 0; i < n; i++) bytes += prefix->bytes + request->keys[i].bytes;
    struct store_slice *keys = malloc(bytes);
    if (keys == NULL) return NULL;
    char *at = (char *)(keys + n);
    for (size_t i = 0; i < n; i++) {
        keys[i] = (struct store_slice){at, prefix->bytes + request->keys[i].bytes};
        memcpy(at, prefix->text, prefix->bytes);
        memcpy(at + prefix->bytes, request->keys[i].data, request->keys[i].bytes);
        at += keys[i].bytes;
    }
    return keys;
}

static int call_prefix(tutti_store *store, const struct store_request *request, struct store_reply *reply)
{
    struct prefix *prefix = (struct prefix *)store;
    for (int i = 0; i < request->n_keys; i++)
        if (request->keys[i].bytes > TUTTI_STORE_KEY_MAX - prefix->bytes) {
            store_reply_error(reply, TUTTI_ERR_INVALID_ARGUMENT,
                              "a key has %zu bytes including its prefix and the limit is %d; shorten it",
                              request->keys[i].bytes + prefix->bytes, TUTTI_STORE_KEY_MAX);
            return TUTTI_OK;
        }
    struct store_slice *keys = prefix_all_keys(prefix, request);
    if (keys == NULL)
        return error_set(TUTTI_ERR_NO_MEMORY, "%s: out of memory for %d keys", store->name, request->n_keys);
    struct store_request prefixed = *request;
    prefixed.keys = keys;
    int status = prefix->base_store->class->call(prefix->base_store, &prefixed, reply);
    free(keys);
    return status;
}

static void close_prefix(tutti_store *store)
{
    struct prefix *prefix = (struct prefix *)store;
    tutti_store_free(prefix->base_store);
    free(prefix);
}

static uint16_t port_of_prefix(const tutti_store *store)
{
    return tutti_store_port(((const struct prefix *)store)->base_store);
}

static const struct store_class prefix_class = {.call = call_prefix, .close = close_prefix, .port = port_of_prefix};

int tutti_store_prefix(tutti_store *base, const char *prefix_text, tutti_store **store)
{
    if (base == NULL || prefix_text == NULL || store == NULL)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "tutti_store_prefix: base, prefix and store must not be NULL");
    *store = NULL;
    enum { PREFIX_MAX = 255 }; /* a batch of keys must still fit into one frame */
    size_t bytes = strnlen(prefix_text, PREFIX_MAX + 1);
    if (bytes == 0 || bytes > PREFIX_MAX)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "tutti_store_prefix: the prefix has %s bytes; use 1 to %d",
                         bytes == 0 ? "no" : "too many", PREFIX_MAX);
    struct prefix *prefix = calloc(1, sizeof *prefix + bytes + 2);
    if (prefix == NULL)
        return error_set(TUTTI_ERR_NO_MEMORY, "tutti_store_prefix: out of memory for prefix \"%s\"", prefix_text);
    prefix->base.class = &prefix_class;
    atomic_init(&prefix->base.references, 1);
    atomic_init(&prefix->base.timeout_ms, base->timeout_ms);
    prefix->base.pid = base->pid;
    struct text name = text_in(prefix->base.name, sizeof prefix->base.name);
    text_add_some(&name, base->name, 200);
    text_add(&name, "/");
    text_add_some(&name, prefix_text, 60);
    prefix->base_store = store_retain(base);
    memcpy(prefix->text, prefix_text, bytes);
    prefix->text[bytes] = '/';
    prefix->bytes = bytes + 1;
    *store = &prefix->base;
    return TUTTI_OK;
}
