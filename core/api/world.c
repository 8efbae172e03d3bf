/* The default group: made by tutti_init_process_group, closed by tutti_destroy_process_group. */
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "api/hooks.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/sized.h"
#include "bootstrap/liveness.h"
#include "bootstrap/rendezvous.h"
#include "group/default_group.h"
#include "group/group.h"
#include "group/group_args.h"
#include "group/host_services.h"
#include "group/shared_transport.h"
#include "plugin/registry.h"
#include "store/store_impl.h"

enum {
    DEFAULT_TIMEOUT_MS = 30 * 60 * 1000,
    CUDA_TIMEOUT_MS = 10 * 60 * 1000,
    LEAVE_MS = 2000,
    LEAVE_FAILED_MS = 1000,
    LINGER_MS = 1000
};

static struct {
    pthread_mutex_t lock; /* held by init and destroy */
    struct rendezvous rendezvous;
    bool ending; /* the default group is being closed */
} world = {.lock = PTHREAD_MUTEX_INITIALIZER};

bool tutti_is_initialized(void)
{
    return default_group_peek(NULL) != NULL;
}

bool tutti_is_backend_available(const char *name)
{
    const tutti_backend *backend = NULL;
    if (name != NULL) return registry_load(name, &host_services, &backend) == TUTTI_OK;
    error_set(TUTTI_ERR_INVALID_ARGUMENT, "is_backend_available: name is NULL; pass one such as \"tcp\"");
    return false;
}

static int check_init(const tutti_init_opts *opts)
{
    if (opts->timeout_ms < 0 || opts->store_timeout_ms < 0)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                         "init: timeout_ms is %lld and store_timeout_ms %lld; they must not be negative",
                         (long long)opts->timeout_ms, (long long)opts->store_timeout_ms);
    if (opts->rank < 0)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "init: rank is %d; it must not be negative", opts->rank);
    if (opts->world_size < 0)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "init: world_size is %d; it must not be negative",
                         opts->world_size);
    if (opts->rank > 0 && opts->world_size == 0)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "init: rank is %d without a world_size; give both or neither",
                         opts->rank);
    return group_check_device("init", opts->device);
}

/* True if the backend takes only CUDA tensors.  One that cannot be loaded is reported when the group is opened. */
static bool takes_only_cuda(const char *name)
{
    const tutti_backend *backend = NULL;
    return registry_load(name, &host_services, &backend) == TUTTI_OK && !group_takes_device(backend, 0);
}

static tutti_device default_device(const tutti_init_opts *opts, const struct backend_spec *names, int local_rank)
{
    if (opts->device.type != 0) return opts->device;
    bool only_cuda = names->by_device ? names->n[0] == 0 : takes_only_cuda(names->name[0][0]);
    return only_cuda ? (tutti_device){TUTTI_CUDA, local_rank > 0 ? local_rank : 0} : (tutti_device){TUTTI_CPU, 0};
}

/* Writes to the store why this rank has no group, for the ranks that wait for it.  The text names a lost rank itself;
 * any other failure is attributed to this rank. */
static void report_failure(int status, const char *text)
{
    static const char key[] = "tutti/world/lost";
    char own[ERROR_TEXT_MAX + 24];
    snprintf(own, sizeof own, "rank %d: %s", world.rendezvous.rank, text);
    liveness_report_lost(world.rendezvous.store, key, status, status == TUTTI_ERR_PEER_LOST ? text : own);
}

static int open_world(const char *backend, const tutti_init_opts *opts)
{
    struct backend_spec names;
    int status = backend_spec_parse(backend, &names);
    if (status == TUTTI_OK) status = check_init(opts);
    if (status != TUTTI_OK) return status;
    struct rendezvous_args meeting = {
        .init_method = opts->init_method,
        .store = opts->store,
        .rank = opts->world_size > 0 ? opts->rank : -1,
        .world_size = opts->world_size > 0 ? opts->world_size : -1,
        .timeout_ms = opts->store_timeout_ms,
    };
    status = rendezvous_join(&meeting, &world.rendezvous);
    if (status != TUTTI_OK) return status;
    log_set_rank(world.rendezvous.rank);
    host_services_set_store_address(world.rendezvous.address);
    struct group_args args = {
        .names = &names,
        .store = world.rendezvous.store,
        .hooks = &library_hooks,
        .id = 1,
        .name = "world",
        .rank = world.rendezvous.rank,
        .size = world.rendezvous.world_size,
        .local_rank = world.rendezvous.local_rank,
        .local_world_size = world.rendezvous.local_world_size,
        .node_rank = world.rendezvous.node_rank,
        .device = default_device(opts, &names, world.rendezvous.local_rank),
    };
    args.timeout_ms = opts->timeout_ms > 0             ? opts->timeout_ms
                      : args.device.type == TUTTI_CUDA ? CUDA_TIMEOUT_MS
                                                       : DEFAULT_TIMEOUT_MS;
    args.open_timeout_ms = opts->store_timeout_ms > 0 ? opts->store_timeout_ms : STORE_DEFAULT_TIMEOUT_MS;
    struct tutti_group *group = NULL;
    status = group_open(&args, &group);
    if (status != TUTTI_OK) {
        char text[ERROR_TEXT_MAX];
        strcpy(text, error_text());
        report_failure(status, text);
        if (world.rendezvous.hosts) tutti_store_linger(world.rendezvous.store, LINGER_MS);
        rendezvous_leave(&world.rendezvous);
        return error_set(status, "%s", text);
    }
    engine_lock(group->engine);
    group->rank0_hosts_store = world.rendezvous.rank0_hosts;
    engine_unlock(group->engine);
    default_group_set(group);
    return TUTTI_OK;
}

int tutti_init_process_group_sized(const char *backend, const tutti_init_opts *opts, size_t opts_bytes)
{
    static const tutti_init_opts defaults;
    tutti_init_opts copy;
    int status = SIZED_READ(tutti_init_opts, opts, opts_bytes, &copy);
    if (status != TUTTI_OK) return status;
    pthread_mutex_lock(&world.lock);
    if (world.ending)
        status = error_set(TUTTI_ERR_INVALID_ARGUMENT,
                           "init: the default group is being destroyed; wait until destroy_process_group has returned");
    else if (tutti_is_initialized())
        status = error_set(TUTTI_ERR_INVALID_ARGUMENT,
                           "init: the default group exists already; destroy it first or call tutti_new_group");
    else
        status = open_world(backend, opts != NULL ? opts : &defaults);
    pthread_mutex_unlock(&world.lock);
    return status;
}

static void publish_departure(const struct tutti_group *group)
{
    int64_t left = 0;
    tutti_store_set_timeout(group->store, LEAVE_MS); /* the process that hosts the store may have stopped */
    if (tutti_store_add(group->store, "left", 1, &left) != TUTTI_OK) return;
    if (left == group->size) tutti_store_set(group->store, "all_left", "", 0);
}

/* Keeps the store of the rank that hosts it until the others have left, within limits: they may still look up
 * addresses.  After a failure some never leave, and the others find its cause in the store (cause.h). */
static void await_others(tutti_store *hosted, int64_t deadline)
{
    const char *keys[1] = {"all_left"};
    if (hosted != NULL) tutti_store_wait(hosted, keys, 1, clock_left_ms(deadline));
    tutti_store_free(hosted);
}

/* Destroys the default group.  Takes no lock while it waits for callbacks, because these may call this function. */
static int destroy_world(int64_t delivery_ms)
{
    pthread_mutex_lock(&world.lock);
    struct tutti_group *group = default_group_set(NULL);
    if (group != NULL) world.ending = !engine_is_forked(group->engine);
    pthread_mutex_unlock(&world.lock);
    if (group == NULL)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                         "destroy_process_group: there is no default group; call tutti_init_process_group first");
    if (engine_is_forked(group->engine)) return TUTTI_OK;
    int64_t deadline = clock_deadline_ns(LEAVE_MS); /* the time that group_close takes counts */
    engine_lock(group->engine);
    bool parts = group->size > 1 && !group->failed;
    engine_unlock(group->engine);
    bool hosts = world.rendezvous.hosts && parts, last = world.rendezvous.hosts && group->size > 1 && !parts;
    int64_t failed_deadline = clock_deadline_ns(LEAVE_FAILED_MS);
    tutti_store *hosted = NULL; /* outlives the group */
    if (hosts) tutti_store_prefix(world.rendezvous.store, "tutti", &hosted);
    if (parts) publish_departure(group);
    group_close(group, delivery_ms);
    await_others(hosted, deadline);
    if (last) tutti_store_linger(world.rendezvous.store, clock_left_ms(failed_deadline));
    pthread_mutex_lock(&world.lock);
    rendezvous_leave(&world.rendezvous);
    memset(&world.rendezvous, 0, sizeof world.rendezvous);
    world.ending = false;
    pthread_mutex_unlock(&world.lock);
    return TUTTI_OK;
}

int tutti_destroy_process_group_within(tutti_group *group, int64_t delivery_ms)
{
    if (delivery_ms < 0)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                         "destroy_process_group: delivery_ms is %" PRId64 "; it must not be negative", delivery_ms);
    if (group == NULL || group == default_group_peek(NULL)) return destroy_world(delivery_ms);
    shared_transport_close_group(group, delivery_ms);
    return TUTTI_OK;
}

int tutti_destroy_process_group(tutti_group *group)
{
    return tutti_destroy_process_group_within(group, TUTTI_DEFAULT_TIMEOUT);
}
