#include "group/host_store.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/error.h"
#include "bootstrap/liveness.h"
#include "group/processes.h"
#include "progress/engine_step.h"
#include "state/group_state.h"

/* The group whose backend this thread is opening: its ranks wait for each other's entries in the store. */
static _Thread_local struct tutti_group *opening;

void host_store_set_opening(struct tutti_group *group)
{
    opening = group;
}

int host_store_get(tutti_store *store, const char *key, void *buffer, size_t capacity, size_t *bytes,
                   int64_t timeout_ms)
{
    if (opening != NULL)
        engine_step_works(opening->engine); /* continues works that the backend has completed before this wait */
    if (opening == NULL || timeout_ms <= LIVENESS_CHECK_MS)
        return tutti_store_get(store, key, buffer, capacity, bytes, timeout_ms);
    int64_t deadline_ns = clock_deadline_ns(timeout_ms);
    for (;;) {
        int status = tutti_store_get(store, key, buffer, capacity, bytes, LIVENESS_CHECK_MS);
        if (status != TUTTI_ERR_TIMEOUT) return status;
        status = processes_check(opening);
        if (status != TUTTI_OK) return status;
        if (clock_now_ns() > deadline_ns)
            return error_set(TUTTI_ERR_TIMEOUT, "store: key \"%s\" has not been set within %" PRIi64 " ms", key,
                             timeout_ms);
    }
}

/* Publishes an entry and waits for all of them.  The last rank to count itself sets the key `all`, because by then all
 * entries are in the store. */
int host_store_gather(tutti_store *store, const char *key, const char *part, const void *entry, size_t entry_bytes,
                      int32_t n, void *all, size_t capacity, size_t *bytes, int64_t timeout_ms)
{
    char entries[256], count[128], done[128];
    int64_t n_arrived = 0;
    snprintf(entries, sizeof entries, "%.100s/part/%.100s", key, part);
    snprintf(count, sizeof count, "%.100s/came", key);
    snprintf(done, sizeof done, "%.100s/all", key);
    int status = tutti_store_append(store, entries, entry, entry_bytes);
    if (status == TUTTI_OK) status = tutti_store_add(store, count, 1, &n_arrived);
    if (status == TUTTI_OK && n_arrived == n)
        status = tutti_store_set(store, done, "", 0);
    else if (status == TUTTI_OK)
        status = host_store_get(store, done, NULL, 0, bytes, timeout_ms);
    return status == TUTTI_OK ? tutti_store_get(store, entries, all, capacity, bytes, timeout_ms) : status;
}
