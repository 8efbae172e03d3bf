/* The default group: made by tutti_init_process_group, replaced by tutti_regroup, closed by
 * tutti_destroy_process_group. */
#include "api/world.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "api/hooks.h"
#include "base/clock.h"
#include "base/env.h"
#include "base/error.h"
#include "base/log.h"
#include "base/sized.h"
#include "bootstrap/liveness.h"
#include "bootstrap/rendezvous.h"
#include "diagnose/recorder.h"
#include "group/default_group.h"
#include "group/generation.h"
#include "group/group.h"
#include "group/group_args.h"
#include "group/group_check.h"
#include "group/host_services.h"
#include "group/regroup.h"
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
    bool ending;                 /* the default group is being closed, or replaced */
    bool is_handed_out;          /* the program has the default group's handle */
    struct tutti_group *retired; /* was the default group; another thread may still be in a call on it */
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

/* Leaves the rendezvous after a failure, and returns its status with its message.  tells: the other ranks wait for this
 * one.  Closes the group, unless it is NULL.  Its buffers would be on the stack of threads with small ones, if the
 * compiler put them into its callers. */
static __attribute__((noinline)) int leave(int status, bool tells, struct tutti_group *group)
{
    char text[ERROR_TEXT_MAX];
    snprintf(text, sizeof text, "%s", error_text());
    if (group != NULL) group_close(group, 0);
    if (tells) report_failure(status, text);
    if (tells && world.rendezvous.hosts) tutti_store_linger(world.rendezvous.store, LINGER_MS);
    rendezvous_leave(&world.rendezvous);
    return error_set(status, "%s", text);
}

/* Returns the arguments of the default group, but for its store, rank and size. */
static struct group_args make_args(const tutti_init_opts *opts, const struct backend_spec *names)
{
    struct group_args args = {
        .names = names,
        .hooks = &library_hooks,
        .id = 1,
        .name = "world",
        .local_rank = world.rendezvous.local_rank,
        .local_world_size = world.rendezvous.local_world_size,
        .node_rank = world.rendezvous.node_rank,
        .device = default_device(opts, names, world.rendezvous.local_rank),
    };
    host_services_set_store_address(world.rendezvous.address);
    args.timeout_ms = opts->timeout_ms > 0             ? opts->timeout_ms
                      : args.device.type == TUTTI_CUDA ? CUDA_TIMEOUT_MS
                                                       : DEFAULT_TIMEOUT_MS;
    args.open_timeout_ms = opts->store_timeout_ms > 0 ? opts->store_timeout_ms : STORE_DEFAULT_TIMEOUT_MS;
    return args;
}

static tutti_store *launchers_store(void)
{
    return world.rendezvous.launcher_ranks ? world.rendezvous.launcher : NULL;
}

/* Makes a group the default one. */
static int install(struct tutti_group *group)
{
    int status = TUTTI_OK;
    if (group->generation == NULL)
        status = generation_first(group->size, world.rendezvous.store, launchers_store(), &group->generation);
    if (status != TUTTI_OK) return leave(status, false, group);
    engine_lock(group->engine);
    group->rank0_hosts_store = world.rendezvous.rank0_hosts;
    engine_unlock(group->engine);
    default_group_set(group);
    return TUTTI_OK;
}

/* Joins the ranks of a job that is under way, as a newcomer. */
static int join_world(const struct rendezvous_args *meeting, const struct backend_spec *names,
                      const tutti_init_opts *opts)
{
    struct tutti_group *group = NULL;
    int status = rendezvous_join_late(meeting, &world.rendezvous);
    if (status != TUTTI_OK) return status;
    struct group_args args = make_args(opts, names);
    struct regroup regroup = {.store = world.rendezvous.store,
                              .launcher = launchers_store(),
                              .name = args.name,
                              .args = &args,
                              .timeout_ms = args.open_timeout_ms};
    status = regroup_join(&regroup, world.rendezvous.world_size, &group);
    if (status == TUTTI_OK) {
        log_set_rank(group->rank);
        rendezvous_regrouped(&world.rendezvous, group->size, group->generation->number);
        return install(group);
    }
    return leave(status, false, NULL);
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
    recorder_start();
    if (opts->newcomer || env_bool("TUTTI_NEWCOMER", false)) return join_world(&meeting, &names, opts);
    status = rendezvous_join(&meeting, &world.rendezvous);
    if (status != TUTTI_OK) return status;
    log_set_rank(world.rendezvous.rank);
    struct group_args args = make_args(opts, &names);
    args.store = world.rendezvous.store;
    args.rank = world.rendezvous.rank;
    args.size = world.rendezvous.world_size;
    struct tutti_group *group = NULL;
    status = group_open(&args, &group);
    return status == TUTTI_OK ? install(group) : leave(status, true, NULL);
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
                           "init: the default group is being destroyed or replaced; wait until destroy_process_group "
                           "or regroup has returned");
    else if (tutti_is_initialized())
        status = error_set(TUTTI_ERR_INVALID_ARGUMENT,
                           "init: the default group exists already; destroy it first or call tutti_new_group");
    else
        status = open_world(backend, opts != NULL ? opts : &defaults);
    pthread_mutex_unlock(&world.lock);
    return status;
}

/* Tells the ranks of a next job that they have met the store of this one, by the name of the first generation's
 * counter. Leaves the timeout of the store alone, which may be the program's.  Returns false if the store does not
 * answer. */
static bool mark_store_left(void)
{
    struct store_slice key = {"tutti/left", strlen("tutti/left")};
    struct store_request request = {
        .op = STORE_ADD, .n_keys = 1, .keys = &key, .number = 1, .deadline_ns = clock_deadline_ns(LEAVE_MS)};
    struct store_reply reply;
    return store_call(world.rendezvous.store, &request, &reply) == TUTTI_OK;
}

/* Counts this rank as one that has left. */
static void publish_departure(const struct tutti_group *group)
{
    int64_t left = 0;
    bool first = group->generation == NULL || group->generation->number == 0;
    tutti_store_set_timeout(group->store, LEAVE_MS); /* the process that hosts the store may have stopped */
    if (!first && !mark_store_left()) return;
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

/* Drops the handle of the default group before this one. */
static void drop_retired(void)
{
    struct tutti_group *retired = world.retired;
    world.retired = NULL;
    if (retired != NULL) group_drop(retired);
}

/* Destroys the default group.  Takes no lock while it waits for callbacks, because these may call this function. */
static int destroy_world(int64_t delivery_ms)
{
    pthread_mutex_lock(&world.lock);
    bool replaces = world.ending && default_group_peek(NULL) != NULL;
    struct tutti_group *group = replaces ? NULL : default_group_set(NULL);
    if (group != NULL) world.ending = !engine_is_forked(group->engine);
    pthread_mutex_unlock(&world.lock);
    if (replaces)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                         "destroy_process_group: another thread is in tutti_regroup; wait until it has returned");
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
    if (hosts) hosted = store_retain(group->store);
    if (parts) publish_departure(group);
    group_close(group, delivery_ms);
    await_others(hosted, deadline);
    if (last) tutti_store_linger(world.rendezvous.store, clock_left_ms(failed_deadline));
    pthread_mutex_lock(&world.lock);
    rendezvous_leave(&world.rendezvous);
    memset(&world.rendezvous, 0, sizeof world.rendezvous);
    drop_retired();
    world.ending = world.is_handed_out = false;
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

/* ---- regroup --------------------------------------------------------------------------------------------------- */

/* Keeps init, destroy and other calls of regroup out.  Sets *group to the default group. */
static int begin_regroup(struct tutti_group **group)
{
    pthread_mutex_lock(&world.lock);
    *group = group_for_call(NULL);
    int status = *group == NULL ? TUTTI_ERR_INVALID_ARGUMENT : TUTTI_OK;
    if (status == TUTTI_OK && world.ending)
        status = error_set(TUTTI_ERR_INVALID_ARGUMENT,
                           "regroup: another thread regroups or destroys the default group; wait until it has");
    if (status == TUTTI_OK) world.ending = true;
    pthread_mutex_unlock(&world.lock);
    return status;
}

/* Makes next the default group, and ends the old one.  Its handle stays: the program's, or world.retired. */
static void replace_default(struct tutti_group *old, struct tutti_group *next, bool hands_out)
{
    engine_lock(next->engine);
    next->rank0_hosts_store = old->rank0_hosts_store;
    engine_unlock(next->engine);
    log_set_rank(next->rank);
    default_group_set(next);
    group_end(old, 0);
    pthread_mutex_lock(&world.lock);
    rendezvous_regrouped(&world.rendezvous, next->size, next->generation->number);
    drop_retired();
    if (!world.is_handed_out) world.retired = old;
    world.is_handed_out = hands_out;
    pthread_mutex_unlock(&world.lock);
}

int world_regroup(const tutti_regroup_opts *opts, tutti_group **next)
{
    struct tutti_group *old = NULL, *made = NULL;
    int status = begin_regroup(&old);
    if (status != TUTTI_OK) return status;
    status = regroup_group(old, opts->world_size, group_timeout(old, opts->timeout_ms), &made);
    if (status == TUTTI_OK) replace_default(old, made, next != NULL);
    if (status == TUTTI_OK && next != NULL) *next = made;
    pthread_mutex_lock(&world.lock);
    world.ending = false;
    pthread_mutex_unlock(&world.lock);
    return status;
}
