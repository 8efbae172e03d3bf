#include "group/host_services.h"

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
#include "base/reduce_clock.h"
#include "base/token.h"
#include "bootstrap/rendezvous.h"
#include "diagnose/control_channel.h"
#include "group/backend_events.h"
#include "group/host_store.h"
#include "progress/work.h"

static void host_log(int level, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    log_vas("plugin", level, format, args);
    va_end(args);
}

static void host_log_as(const char *subsystem, int level, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    log_vas(subsystem, level, format, args);
    va_end(args);
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
    uint64_t begin = reduce_clock_begin(n);
    if (reduce != NULL) reduce(data, a, b, n);
    reduce_clock_end(begin);
}

static __attribute__((noinline)) void reduce_many_timed(tutti_dtype dtype, tutti_reduce_op op, void *data,
                                                        const void *const *src, int32_t n_src, int64_t n)
{
    uint64_t begin = reduce_clock_begin(n);
    reduce_many(dtype, op, data, src, n_src, n);
    reduce_clock_end(begin);
}

static void host_reduce_many(tutti_dtype dtype, tutti_reduce_op op, void *data, const void *const *src, int32_t n_src,
                             int64_t n)
{
    if (reduce_clock_measures(n))
        reduce_many_timed(dtype, op, data, src, n_src, n);
    else /* by far the most calls: nothing is left to do after it */
        reduce_many(dtype, op, data, src, n_src, n);
}

static void host_average(tutti_dtype dtype, void *data, int64_t n, int64_t divisor)
{
    uint64_t begin = reduce_clock_begin(n);
    if (reduce_find(dtype, TUTTI_AVG) != NULL && divisor > 0) reduce_average(dtype, data, data, n, divisor);
    reduce_clock_end(begin);
}

/* Computes a code under the job token.  Without a token the key is zero: see SECURITY.md. */
static void host_token_mac(uint8_t mac[32], const void *message, size_t bytes)
{
    uint8_t token[TUTTI_TOKEN_BYTES] = {0};
    bool present = false;
    if (token_get(token, &present) != TUTTI_OK || !present) memset(token, 0, sizeof token);
    token_mac(mac, token, message, bytes);
}

static void host_complete(tutti_request *request, int status)
{
    if (control_channel_owns(request))
        control_channel_complete(request, status);
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
    .reduce_many = host_reduce_many,
    .average = host_average,
    .forked_gives_up = forked_gives_up,
    .forked_forgets = forked_forgets,
    .store_append = tutti_store_append,
    .store_gather = host_store_gather,
    .log_as = host_log_as,
};
