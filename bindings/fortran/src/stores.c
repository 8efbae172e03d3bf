/* Fortran module: stores.  Each function is store.h's of the same name. */
#include "convert.h"

/* Fills the options of a store.  token is a string of TUTTI_TOKEN_BYTES bytes, or absent. */
static int fill_opts(tutti_store_opts *opts, const int64_t *timeout_ms, const CFI_cdesc_t *token)
{
    opts->timeout_ms = tuttif_ms(timeout_ms, 0);
    if (token == NULL) return TUTTI_OK;
    if (token->elem_len != TUTTI_TOKEN_BYTES)
        return tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT, "the token has %zu bytes; it needs %d", token->elem_len,
                               TUTTI_TOKEN_BYTES);
    opts->token = token->base_addr;
    return TUTTI_OK;
}

TUTTIF_API void tuttif_store_tcp(const CFI_cdesc_t *host, int port, tuttif_store *store, const bool *server,
                                 const CFI_cdesc_t *token, const bool *insecure, const int *world_size,
                                 const int64_t *timeout_ms, int *stat)
{
    tutti_store_opts opts = {.server = tuttif_flag(server),
                             .insecure = tuttif_flag(insecure),
                             .world_size = world_size != NULL ? *world_size : 0};
    TUTTIF_HELD char *name = NULL;
    store->handle = NULL;
    int status = fill_opts(&opts, timeout_ms, token);
    if (status == TUTTI_OK) status = tuttif_text(host, &name);
    if (status == TUTTI_OK && (port < 0 || port > UINT16_MAX))
        status = tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT, "the port is %d; it must be 0 to 65535", port);
    if (status == TUTTI_OK) status = tutti_store_tcp(name, (uint16_t)port, &opts, &store->handle);
    tuttif_finish("tutti_store_tcp", status, stat);
}

/* Opens a file store, or a redis store if `redis`. */
TUTTIF_API void tuttif_store_named(bool redis, const CFI_cdesc_t *name, tuttif_store *store, const int64_t *timeout_ms,
                                   int *stat)
{
    tutti_store_opts opts = {.timeout_ms = tuttif_ms(timeout_ms, 0)};
    TUTTIF_HELD char *text = NULL;
    store->handle = NULL;
    int status = tuttif_text(name, &text);
    if (status == TUTTI_OK)
        status = redis ? tutti_store_redis(text, &opts, &store->handle) : tutti_store_file(text, &opts, &store->handle);
    tuttif_finish(redis ? "tutti_store_redis" : "tutti_store_file", status, stat);
}

TUTTIF_API void tuttif_store_memory(tuttif_store *store, const int64_t *timeout_ms, int *stat)
{
    const tutti_store_opts opts = {.timeout_ms = tuttif_ms(timeout_ms, 0)};
    store->handle = NULL;
    tuttif_finish("tutti_store_memory", tutti_store_memory(&opts, &store->handle), stat);
}

TUTTIF_API void tuttif_store_prefix(const tuttif_store *base, const CFI_cdesc_t *prefix, tuttif_store *store, int *stat)
{
    tutti_store *from = base->handle;
    TUTTIF_HELD char *text = NULL;
    store->handle = NULL;
    int status = tuttif_text(prefix, &text);
    if (status == TUTTI_OK) status = tutti_store_prefix(from, text, &store->handle);
    tuttif_finish("tutti_store_prefix", status, stat);
}

TUTTIF_API void tuttif_store_free(tuttif_store *store)
{
    tutti_store_free(store->handle);
    store->handle = NULL;
}

TUTTIF_API int tuttif_store_port(const tuttif_store *store)
{
    return tutti_store_port(store->handle);
}

/* ---- keys and values --------------------------------------------------------------------------------------- */

TUTTIF_API void tuttif_store_set(const tuttif_store *store, const CFI_cdesc_t *key, const CFI_cdesc_t *value, int *stat)
{
    TUTTIF_HELD char *name = NULL;
    int status = tuttif_text(key, &name);
    if (status == TUTTI_OK) status = tutti_store_set(store->handle, name, value->base_addr, value->elem_len);
    tuttif_finish("tutti_store_set", status, stat);
}

TUTTIF_API void tuttif_store_append(const tuttif_store *store, const CFI_cdesc_t *key, const CFI_cdesc_t *value,
                                    int *stat)
{
    TUTTIF_HELD char *name = NULL;
    int status = tuttif_text(key, &name);
    if (status == TUTTI_OK) status = tutti_store_append(store->handle, name, value->base_addr, value->elem_len);
    tuttif_finish("tutti_store_append", status, stat);
}

/* Sets *value to a copy that the caller frees with tutti_bytes_free. */
TUTTIF_API void tuttif_store_get(const tuttif_store *store, const CFI_cdesc_t *key, tutti_bytes *value,
                                 const int64_t *timeout_ms, int *stat)
{
    TUTTIF_HELD char *name = NULL;
    *value = (tutti_bytes){NULL, 0};
    int status = tuttif_text(key, &name);
    if (status == TUTTI_OK)
        status = tutti_store_multi_get(store->handle, &(const char *){name}, 1, value,
                                       tuttif_ms(timeout_ms, TUTTI_DEFAULT_TIMEOUT));
    tuttif_finish("tutti_store_get", status, stat);
}

TUTTIF_API void tuttif_store_add(const tuttif_store *store, const CFI_cdesc_t *key, int64_t delta, int64_t *value,
                                 int *stat)
{
    TUTTIF_HELD char *name = NULL;
    int status = tuttif_text(key, &name);
    if (status == TUTTI_OK) status = tutti_store_add(store->handle, name, delta, value);
    tuttif_finish("tutti_store_add", status, stat);
}

TUTTIF_API void tuttif_store_wait(const tuttif_store *store, const CFI_cdesc_t *keys, const int64_t *timeout_ms,
                                  int *stat)
{
    TUTTIF_HELD const char **names = NULL;
    int status = tuttif_texts(keys, &names);
    if (status == TUTTI_OK)
        status =
            tutti_store_wait(store->handle, names, tuttif_length(keys), tuttif_ms(timeout_ms, TUTTI_DEFAULT_TIMEOUT));
    tuttif_finish("tutti_store_wait", status, stat);
}

TUTTIF_API void tuttif_store_check(const tuttif_store *store, const CFI_cdesc_t *keys, bool *present, int *stat)
{
    TUTTIF_HELD const char **names = NULL;
    int status = tuttif_texts(keys, &names);
    *present = false;
    if (status == TUTTI_OK) status = tutti_store_check(store->handle, names, tuttif_length(keys), present);
    tuttif_finish("tutti_store_check", status, stat);
}

/* Copies the value after the call to buffer if it fits, and sets *bytes to its size. */
TUTTIF_API void tuttif_store_compare_set(const tuttif_store *store, const CFI_cdesc_t *key, const CFI_cdesc_t *expected,
                                         const CFI_cdesc_t *desired, char *buffer, size_t capacity, size_t *bytes,
                                         int *stat)
{
    TUTTIF_HELD char *name = NULL;
    *bytes = 0;
    int status = tuttif_text(key, &name);
    if (status == TUTTI_OK)
        status = tutti_store_compare_set(store->handle, name, expected->base_addr, expected->elem_len,
                                         desired->base_addr, desired->elem_len, buffer, capacity, bytes);
    tuttif_finish("tutti_store_compare_set", status, stat);
}

TUTTIF_API void tuttif_store_delete(const tuttif_store *store, const CFI_cdesc_t *key, bool *existed, int *stat)
{
    TUTTIF_HELD char *name = NULL;
    int status = tuttif_text(key, &name);
    if (status == TUTTI_OK) status = tutti_store_delete(store->handle, name, existed);
    tuttif_finish("tutti_store_delete", status, stat);
}

TUTTIF_API void tuttif_store_num_keys(const tuttif_store *store, int64_t *count, int *stat)
{
    tuttif_finish("tutti_store_num_keys", tutti_store_num_keys(store->handle, count), stat);
}

TUTTIF_API void tuttif_store_barrier(const tuttif_store *store, const CFI_cdesc_t *name, int world_size,
                                     const int64_t *timeout_ms, int *stat)
{
    TUTTIF_HELD char *text = NULL;
    int status = tuttif_text(name, &text);
    if (status == TUTTI_OK)
        status = tutti_store_barrier(store->handle, text, world_size, tuttif_ms(timeout_ms, TUTTI_DEFAULT_TIMEOUT));
    tuttif_finish("tutti_store_barrier", status, stat);
}
