/* In-memory store of one process: the table, a mutex, and one condition variable on which waiting calls sleep. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/sized.h"
#include "portable/waits.h"
#include "store/store_impl.h"
#include "store/table.h"

struct memory {
    tutti_store base;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct table table;
};

/* Sleeps until the table changes.  Returns false if the deadline has passed. */
static bool wait_for_change(struct memory *memory, int64_t deadline_ns)
{
    if (deadline_ns == CLOCK_NEVER) return pthread_cond_wait(&memory->changed, &memory->lock) == 0;
    if (deadline_ns <= clock_now_ns()) return false;
    struct timespec until = clock_timespec(deadline_ns);
    return waits_condition(&memory->changed, &memory->lock, &until) != ETIMEDOUT;
}

static int call_memory(tutti_store *store, const struct store_request *request, struct store_reply *reply)
{
    struct memory *memory = (struct memory *)store;
    int missing;
    pthread_mutex_lock(&memory->lock);
    memory->table.n_requests++;
    while (!table_apply(&memory->table, request, reply, &missing)) {
        if (wait_for_change(memory, request->deadline_ns)) continue;
        if (!table_apply(&memory->table, request, reply, &missing)) table_timeout(&memory->table, request, reply);
        break;
    }
    if (store_op_writes(request->op)) pthread_cond_broadcast(&memory->changed);
    pthread_mutex_unlock(&memory->lock);
    return TUTTI_OK;
}

static void close_memory(tutti_store *store)
{
    struct memory *memory = (struct memory *)store;
    bool forked = store_is_forked(store);
    table_free(&memory->table);
    if (!forked) { /* in a forked child, a thread that no longer exists may hold them */
        pthread_mutex_destroy(&memory->lock);
        pthread_cond_destroy(&memory->changed);
    }
    free(memory);
}

static const struct store_class memory_class = {.call = call_memory, .close = close_memory};

static void init_lock(struct memory *memory)
{
    waits_condition_init(&memory->changed);
    pthread_mutex_init(&memory->lock, NULL);
}

int tutti_store_memory_sized(const tutti_store_opts *opts, size_t opts_bytes, tutti_store **store)
{
    tutti_store_opts known;
    if (store == NULL)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                         "tutti_store_memory: store is NULL; pass an address for the handle");
    *store = NULL;
    int status = SIZED_READ(tutti_store_opts, opts, opts_bytes, &known);
    if (status != TUTTI_OK) return status;
    struct memory *memory = calloc(1, sizeof *memory);
    if (memory == NULL)
        return error_set(TUTTI_ERR_NO_MEMORY, "tutti_store_memory: out of memory for %zu bytes", sizeof *memory);
    status = store_base_init(&memory->base, &memory_class, opts);
    if (status == TUTTI_OK) status = store_max_bytes(&memory->table.max_bytes);
    if (status != TUTTI_OK) {
        free(memory);
        return status;
    }
    snprintf(memory->base.name, sizeof memory->base.name, "memory store");
    init_lock(memory);
    *store = &memory->base;
    return TUTTI_OK;
}
