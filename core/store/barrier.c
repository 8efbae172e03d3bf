/* Store barrier, built from the other store operations, so every kind of store has it.
 *
 * Each caller increments one shared counter.  Every world_size arrivals form a generation, which has its own key: the
 * last arrival sets it and the others wait for it.  When a generation is complete, all its members have left the
 * previous one, so the last arrival deletes the previous key.  A barrier thus keeps two keys, however often it is
 * used. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "store/store_impl.h"

enum { BARRIER_KEY_MAX = TUTTI_STORE_KEY_MAX + 80 };

struct barrier {
    tutti_store *store;
    const char *name;
    int world_size;
    int64_t generation;
    char key[BARRIER_KEY_MAX];
};

static const char *format_barrier_key(struct barrier *barrier, int64_t generation)
{
    int used = snprintf(barrier->key, sizeof barrier->key, "%s/%d/", barrier->name, barrier->world_size);
    if (generation < 0)
        snprintf(barrier->key + used, sizeof barrier->key - (size_t)used, "arrived");
    else
        snprintf(barrier->key + used, sizeof barrier->key - (size_t)used, "%" PRId64, generation);
    return barrier->key;
}

static int release_generation(struct barrier *barrier)
{
    int status = tutti_store_set(barrier->store, format_barrier_key(barrier, barrier->generation), "", 0);
    if (status == TUTTI_OK && barrier->generation > 0)
        status = tutti_store_delete(barrier->store, format_barrier_key(barrier, barrier->generation - 1), NULL);
    return status;
}

/* Builds the TIMEOUT error with the number of arrivals.  Returns OK if the last rank has arrived in the meantime. */
static int report_stragglers(struct barrier *barrier, int64_t timeout_ms)
{
    int64_t arrived = 0;
    int status = tutti_store_add(barrier->store, format_barrier_key(barrier, -1), 0, &arrived);
    if (status != TUTTI_OK) return status;
    arrived -= barrier->generation * barrier->world_size;
    if (arrived >= barrier->world_size) return TUTTI_OK;
    return error_set(TUTTI_ERR_TIMEOUT,
                     "store barrier \"%.80s\": %" PRId64 " of %d ranks arrived within %" PRId64 " ms", barrier->name,
                     arrived, barrier->world_size, timeout_ms);
}

static int arrive_and_wait(struct barrier *barrier, int64_t timeout_ms)
{
    int64_t arrived = 0;
    int status = tutti_store_add(barrier->store, format_barrier_key(barrier, -1), 1, &arrived);
    if (status != TUTTI_OK) return status;
    barrier->generation = (arrived - 1) / barrier->world_size;
    if (arrived % barrier->world_size == 0) return release_generation(barrier);
    const char *key = format_barrier_key(barrier, barrier->generation);
    status = tutti_store_wait(barrier->store, &key, 1, timeout_ms);
    return status == TUTTI_ERR_TIMEOUT ? report_stragglers(barrier, timeout_ms) : status;
}

int tutti_store_barrier(tutti_store *store, const char *name, int world_size, int64_t timeout_ms)
{
    if (store == NULL || name == NULL || *name == '\0')
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "store barrier: %s",
                         store == NULL  ? "store is NULL"
                         : name == NULL ? "name is NULL"
                                        : "name is empty");
    if (world_size < 1)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "store barrier \"%.80s\": world_size is %d; it must be 1 or more",
                         name, world_size);
    if (timeout_ms < 0)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                         "store barrier \"%.80s\": timeout_ms is %" PRId64 "; it must be 0 or more", name, timeout_ms);
    if (timeout_ms == TUTTI_DEFAULT_TIMEOUT) timeout_ms = store->timeout_ms;
    struct barrier *barrier = malloc(sizeof *barrier); /* too large for the stack of a small thread */
    if (barrier == NULL)
        return error_set(TUTTI_ERR_NO_MEMORY, "store barrier: out of memory for %zu bytes", sizeof *barrier);
    *barrier = (struct barrier){.store = store, .name = name, .world_size = world_size};
    int status = arrive_and_wait(barrier, timeout_ms);
    free(barrier);
    return status;
}
