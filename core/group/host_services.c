#include "group/host_services.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/env.h"
#include "base/error.h"
#include "base/forked.h"
#include "base/log.h"
#include "base/reduce.h"
#include "base/token.h"
#include "bootstrap/liveness.h"
#include "bootstrap/rendezvous.h"
#include "diagnose/control.h"
#include "group/backend_events.h"
#include "group/group.h"
#include "group/processes.h"
#include "progress/engine_step.h"
#include "progress/work.h"

static void host_log(int level, const char *format, ...)
{
    if (level < LOG_ERROR || level > LOG_DEBUG || !log_enabled(level)) return;
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    log_write(level, "%s", text);
}

static int64_t host_now_ns(void)
{
    return clock_now_ns();
}

static char store_address[RENDEZVOUS_HOST_MAX];

void host_services_set_store_address(const char *address)
{
    snprintf(store_address, sizeof store_address, "%s", address);
}

static const char *host_env(const char *name)
{
    bool store = strcmp(name, "TUTTI_STORE_ADDR") == 0 && store_address[0] != '\0';
    return env_string(name, store ? store_address : NULL);
}

static void host_reduce(tutti_dtype dtype, tutti_reduce_op op, void *data, const void *a, const void *b, int64_t n)
{
    reduce_fn reduce = reduce_find(dtype, op);
    if (reduce != NULL) reduce(data, a, b, n);
}

static void host_average(tutti_dtype dtype, void *data, int64_t n, int64_t divisor)
{
    if (reduce_find(dtype, TUTTI_AVG) != NULL && divisor > 0) reduce_average(dtype, data, data, n, divisor);
}

/* The group whose backend this thread is opening: its ranks wait for each other's entries in the store. */
static _Thread_local struct tutti_group *opening;

void host_set_opening(struct tutti_group *group)
{
    opening = group;
}

static int host_store_get(tutti_store *store, const char *key, void *buffer, size_t capacity, size_t *bytes,
                          int64_t timeout_ms)
{
    if (opening != NULL) engine_step_works(opening->engine); /* with what the backend has completed while it waits */
    if (opening == NULL || timeout_ms <= LIVENESS_LOOK_MS)
        return tutti_store_get(store, key, buffer, capacity, bytes, timeout_ms);
    int64_t deadline_ns = clock_deadline_ns(timeout_ms);
    for (;;) {
        int status = tutti_store_get(store, key, buffer, capacity, bytes, LIVENESS_LOOK_MS);
        if (status != TUTTI_ERR_TIMEOUT) return status;
        status = processes_check(opening);
        if (status != TUTTI_OK) return status;
        if (clock_now_ns() > deadline_ns)
            return error_set(TUTTI_ERR_TIMEOUT, "store: \"%s\" was not there within %" PRIi64 " ms", key, timeout_ms);
    }
}

/* The last rank to count itself says so; by then all entries are there. */
static int host_store_gather(tutti_store *store, const char *key, const char *part, const void *entry,
                             size_t entry_bytes, int32_t n, void *all, size_t capacity, size_t *bytes,
                             int64_t timeout_ms)
{
    char entries[256], count[128], done[128];
    int64_t came = 0;
    snprintf(entries, sizeof entries, "%.100s/part/%.100s", key, part);
    snprintf(count, sizeof count, "%.100s/came", key);
    snprintf(done, sizeof done, "%.100s/all", key);
    int status = tutti_store_append(store, entries, entry, entry_bytes);
    if (status == TUTTI_OK) status = tutti_store_add(store, count, 1, &came);
    if (status == TUTTI_OK && came == n)
        status = tutti_store_set(store, done, "", 0);
    else if (status == TUTTI_OK)
        status = host_store_get(store, done, NULL, 0, bytes, timeout_ms);
    return status == TUTTI_OK ? tutti_store_get(store, entries, all, capacity, bytes, timeout_ms) : status;
}

/* Without a token the key is zero: see SECURITY.md. */
static void host_token_mac(uint8_t mac[32], const void *message, size_t bytes)
{
    uint8_t token[TUTTI_TOKEN_BYTES] = {0};
    bool present = false;
    if (token_get(token, &present) != TUTTI_OK || !present) memset(token, 0, sizeof token);
    token_mac(mac, token, message, bytes);
}

static void host_complete(tutti_request *request, int status)
{
    if (control_owns(request))
        control_complete(request, status);
    else
        work_complete(request, status);
}

const tutti_host host_services = {
    .abi = TUTTI_BACKEND_ABI,
    .size = sizeof(tutti_host),
    .complete = host_complete,
    .error = error_set,
    .log = host_log,
    .now_ns = host_now_ns,
    .env = host_env,
    .reduce = host_reduce,
    .store_set = tutti_store_set,
    .store_get = host_store_get,
    .token_mac = host_token_mac,
    .token_equal = token_equal,
    .random = token_random,
    .notified = backend_events_notified,
    .peer_lost = backend_events_peer_lost,
    .failed = backend_events_failed,
    .took = work_took,
    .reduce_many = reduce_many,
    .average = host_average,
    .forked_gives_up = forked_gives_up,
    .forked_forgets = forked_forgets,
    .store_append = tutti_store_append,
    .store_gather = host_store_gather,
};
