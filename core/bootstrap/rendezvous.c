#include "bootstrap/rendezvous.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/env.h"
#include "base/error.h"
#include "base/token.h"
#include "bootstrap/launcher.h"
#include "bootstrap/liveness.h"
#include "bootstrap/registration.h"
#include "bootstrap/rendezvous_spec.h"
#include "store/redis_url.h"
#include "store/store_impl.h"

enum {
    RENDEZVOUS_LINGER_MS = 1000,
    RENDEZVOUS_RETRY_MS = 1500,
    RENDEZVOUS_ENDING_MS = 5000,
    RENDEZVOUS_PAUSE_MS = 10,
    RENDEZVOUS_CLEAR_MS = 1000
};

/* Merges a number from two sources.  Either may leave it out; if both have it, they must agree. */
static int merge_number(const char *what, int given, int *found)
{
    if (given < 0) return TUTTI_OK;
    if (*found >= 0 && *found != given)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "%s is %d by argument and %d by the init method; give it once",
                         what, given, *found);
    *found = given;
    return TUTTI_OK;
}

static int check_ranks(const struct rendezvous_spec *spec)
{
    if (spec->rank < 0 || spec->world_size < 1)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                         "the rendezvous needs rank and world_size, by argument or in the init method; %s is missing",
                         spec->rank < 0 ? "rank" : "world_size");
    if (spec->rank >= spec->world_size)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "rank is %d; in a world of %d it must be 0 to %d", spec->rank,
                         spec->world_size, spec->world_size - 1);
    return TUTTI_OK;
}

static int read_spec(const struct rendezvous_args *args, struct rendezvous_spec *spec)
{
    int status = TUTTI_OK;
    *spec = (struct rendezvous_spec){
        .rank = -1, .world_size = -1, .local_rank = -1, .local_world_size = -1, .node_rank = -1};
    char text[REDIS_URL_TEXT_MAX];
    if (args->store != NULL && args->init_method != NULL)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                         "init_method \"%.200s\" and a store are both given; give one of them",
                         redis_url_hide(args->init_method, text));
    if (args->rank < -1 || args->world_size == 0 || args->world_size < -1)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                         "rank is %d and world_size is %d; use -1 for a value that is not given", args->rank,
                         args->world_size);
    bool given = args->rank >= 0 && args->world_size > 0;
    bool env = args->init_method == NULL || strcmp(args->init_method, "env://") == 0;
    if (args->store == NULL && given && env)
        status = rendezvous_spec_from_env_as(args->rank, args->world_size, spec);
    else if (args->store == NULL)
        status = rendezvous_spec_parse(args->init_method, spec);
    if (status == TUTTI_OK && spec->kind == RENDEZVOUS_REDIS && !given && spec->rank < 0 && spec->world_size < 0)
        status = rendezvous_spec_add_ranks(spec);
    if (status == TUTTI_OK) status = merge_number("rank", args->rank, &spec->rank);
    if (status == TUTTI_OK) status = merge_number("world_size", args->world_size, &spec->world_size);
    return status == TUTTI_OK ? check_ranks(spec) : status;
}

/* Number of worlds that this process has had in the launcher's store, which outlives each of them.  All ranks of a job
 * create and destroy their worlds in the same order, so all have the same number. */
static atomic_int n_worlds;

/* The key in the launcher's store that holds the number of worlds before this one, for newcomers. */
#define WORLDS "tutti/worlds"

/* Makes out->store a prefix of the launcher's store that no earlier world of the job has used.  Deletes the keys of the
 * world before the last one: all ranks had to leave it in order to register in the last one. */
static int use_unused_prefix(const struct rendezvous_spec *spec, struct rendezvous *out)
{
    char prefix[32];
    int before = atomic_load(&n_worlds), status = TUTTI_OK;
    if (before == 0) {
        out->store = store_retain(out->launcher);
        return TUTTI_OK;
    }
    snprintf(prefix, sizeof prefix, "again/%d/", before - 2);
    if (spec->rank == 0 && before > 2) store_clear(out->launcher, prefix);
    snprintf(prefix, sizeof prefix, "%d", before);
    if (spec->rank == 0) status = tutti_store_set(out->launcher, WORLDS, prefix, strlen(prefix));
    snprintf(prefix, sizeof prefix, "again/%d", before);
    return status == TUTTI_OK ? tutti_store_prefix(out->launcher, prefix, &out->store) : status;
}

static int open_redis_world(int before, struct rendezvous *out)
{
    char prefix[32];
    snprintf(prefix, sizeof prefix, "world/%d", before);
    return tutti_store_prefix(out->launcher, prefix, &out->store);
}

/* Opens the part of the job's redis store that belongs to this world.  The server outlives the job's worlds, and a
 * launcher may start the job's ranks again.  A newcomer has no rank yet, and looks for its world later. */
static int open_redis(const struct rendezvous_spec *spec, const tutti_store_opts *opts, struct rendezvous *out)
{
    char prefix[32], number[16];
    int before = atomic_load(&n_worlds);
    tutti_store *whole = NULL;
    snprintf(prefix, sizeof prefix, "start/%.16s", env_string("TUTTI_RESTART_COUNT", "0"));
    int status = tutti_store_redis(spec->path, opts, &whole);
    if (status == TUTTI_OK) status = tutti_store_prefix(whole, prefix, &out->launcher);
    tutti_store_free(whole);
    snprintf(number, sizeof number, "%d", before);
    if (status == TUTTI_OK && before > 0 && spec->rank == 0)
        status = tutti_store_set(out->launcher, WORLDS, number, strlen(number));
    return status == TUTTI_OK ? open_redis_world(before, out) : status;
}

static int open_store(const struct rendezvous_args *args, struct rendezvous_spec *spec, int64_t timeout_ms,
                      struct rendezvous *out)
{
    tutti_store **store = spec->launcher_hosts_store ? &out->launcher : &out->store;
    tutti_store_opts opts = {.timeout_ms = timeout_ms,
                             .server = spec->rank == 0 && !spec->launcher_hosts_store,
                             .world_size = spec->world_size > 0 ? spec->world_size : 0};
    if (args->store != NULL) {
        out->store = store_retain(args->store);
        return TUTTI_OK;
    }
    if (spec->via_launcher) return launcher_open(spec, timeout_ms, store);
    if (spec->kind == RENDEZVOUS_TCP) {
        int status = tutti_store_tcp(spec->host, spec->port, &opts, store);
        if (status == TUTTI_OK && spec->launcher_hosts_store) status = use_unused_prefix(spec, out);
        return status == TUTTI_ERR_STORE && !opts.server
                   ? error_prefix(status, "%s store cannot be reached",
                                  spec->launcher_hosts_store ? "the launcher's" : "rank 0's")
                   : status;
    }
    if (spec->kind == RENDEZVOUS_FILE) return tutti_store_file(spec->path, &opts, store);
    if (spec->kind == RENDEZVOUS_REDIS) return open_redis(spec, &opts, out);
    return tutti_store_memory(&opts, store);
}

/* Registers all ranks in the store.  *meet says how it went. */
static int register_all(const struct rendezvous_args *args, const struct rendezvous_spec *spec, int64_t timeout_ms,
                        struct rendezvous *out, struct registration *meet)
{
    *meet =
        (struct registration){.rank = spec->rank,
                              .world_size = spec->world_size,
                              .timeout_ms = timeout_ms,
                              .file = spec->kind == RENDEZVOUS_FILE ? spec->path : NULL,
                              .left_over = spec->kind == RENDEZVOUS_REDIS
                                               ? "give the job another name (redis://host:port/JOB, or TUTTI_JOB_ID)"
                                               : NULL};
    int status = tutti_store_prefix(out->store, args->prefix == NULL ? "tutti/world" : args->prefix, &meet->store);
    if (status == TUTTI_OK) status = registration_complete(meet);
    tutti_store_free(meet->store);
    meet->store = NULL;
    return status;
}

/* Copies the places of this rank and of the store. */
static void copy_places(const struct rendezvous_spec *spec, struct rendezvous *out)
{
    out->local_rank = spec->local_rank;
    out->local_world_size = spec->local_world_size;
    out->node_rank = spec->node_rank;
    strcpy(out->address, spec->host);
    out->port = spec->port;
    out->rank0_hosts = spec->kind == RENDEZVOUS_TCP && !spec->launcher_hosts_store;
    out->on_server = spec->kind == RENDEZVOUS_REDIS;
}

static int copy_result(const struct rendezvous_spec *spec, struct rendezvous *out)
{
    out->rank = spec->rank;
    out->world_size = spec->world_size;
    copy_places(spec, out);
    out->hosts = out->rank0_hosts && spec->rank == 0;
    out->clears = out->on_server;
    if (spec->kind != RENDEZVOUS_FILE || spec->rank != 0) return TUTTI_OK;
    out->remove = strdup(spec->path);
    return out->remove != NULL
               ? TUTTI_OK
               : error_set(TUTTI_ERR_NO_MEMORY, "rendezvous: out of memory for the path %.200s", spec->path);
}

/* True if the store belongs to an earlier job that is ending (it had this rank too, or the connection broke), so that a
 * retry is right.  Keeps the error message. */
static bool store_was_ending(const struct rendezvous_args *args, const struct rendezvous_spec *spec, tutti_store *store,
                             int status)
{
    bool left = false, joined = true, settled = true;
    if (spec->kind != RENDEZVOUS_TCP || spec->launcher_hosts_store || spec->via_launcher || spec->rank == 0)
        return false;
    if (status != TUTTI_ERR_MISMATCH) return status == TUTTI_ERR_STORE;
    char text[ERROR_TEXT_MAX], rank[300], verdict[300];
    const char *prefix = args->prefix == NULL ? "tutti/world" : args->prefix;
    const char *left_key[1] = {"tutti/left"}, *rank_key[1] = {rank}, *verdict_key[1] = {verdict};
    snprintf(text, sizeof text, "%s", error_text());
    snprintf(rank, sizeof rank, "%.255s/rank/%d", prefix, spec->rank);
    snprintf(verdict, sizeof verdict, "%.255s/verdict", prefix);
    int checked = tutti_store_check(store, left_key, 1, &left); /* a rank of that job has left */
    /* The client may also have reached the next job's store, where this rank is not registered and the verdict is
     * open. */
    if (checked == TUTTI_OK && !left) checked = tutti_store_check(store, rank_key, 1, &joined);
    if (checked == TUTTI_OK && !joined) checked = tutti_store_check(store, verdict_key, 1, &settled);
    error_set(status, "%s", text);
    return left || !settled || checked == TUTTI_ERR_STORE;
}

static void drop_stores(struct rendezvous *out)
{
    tutti_store_free(out->store);
    tutti_store_free(out->launcher);
    out->store = out->launcher = NULL;
}

/* Deletes the keys of a rendezvous that has failed, once all ranks that had registered know of the failure.  The server
 * would keep them, and the job's next attempt would find them. */
static void forget_failure(const struct rendezvous_args *args, tutti_store *store)
{
    char key[300];
    const char *prefix = args->prefix == NULL ? "tutti/world" : args->prefix;
    int64_t joined = 0, failed = 0;
    snprintf(key, sizeof key, "%.255s/failed", prefix);
    bool counted = tutti_store_add(store, key, 1, &failed) == TUTTI_OK;
    snprintf(key, sizeof key, "%.255s/joined", prefix);
    if (counted && tutti_store_add(store, key, 0, &joined) == TUTTI_OK && failed >= joined) store_clear_all(store);
}

static int try_once(const struct rendezvous_args *args, struct rendezvous_spec *spec, int64_t open_ms,
                    int64_t timeout_ms, struct rendezvous *out, bool *again)
{
    int64_t begun = clock_now_ns();
    struct registration meet;
    int status = open_store(args, spec, open_ms, out);
    *again = false;
    if (status != TUTTI_OK) {
        drop_stores(out);
        return status;
    }
    int64_t left = timeout_ms == TUTTI_INFINITE ? timeout_ms : timeout_ms - (clock_now_ns() - begun) / 1000000;
    status = register_all(args, spec, left < 1 ? 1 : left, out, &meet);
    if (status == TUTTI_OK && (spec->launcher_hosts_store || spec->kind == RENDEZVOUS_REDIS))
        atomic_fetch_add(&n_worlds, 1);
    if (status == TUTTI_OK) status = copy_result(spec, out);
    if (status == TUTTI_OK) return status;
    /* The file of an earlier world is removed by its rank 0, which may return later than other ranks. */
    *again = (meet.in_use && spec->rank != 0) || meet.failed_before || store_was_ending(args, spec, out->store, status);
    char text[ERROR_TEXT_MAX];
    snprintf(text, sizeof text, "%s", error_text());
    if (spec->kind == RENDEZVOUS_REDIS && meet.registered) forget_failure(args, out->store);
    tutti_store_linger(out->store, RENDEZVOUS_LINGER_MS); /* the other ranks must read the reason too */
    error_set(status, "%s", text);
    drop_stores(out);
    return status;
}

/* Trusts the launcher's reports of ended ranks only if the ranks have the numbers that it gave them. */
static bool check_launcher_ranks(const struct rendezvous_spec *spec)
{
    int64_t rank = -1, size = -1;
    bool set = spec->launcher_hosts_store && env_int("RANK", -1, 0, INT32_MAX, &rank) == TUTTI_OK &&
               env_int("WORLD_SIZE", -1, 1, INT32_MAX, &size) == TUTTI_OK;
    liveness_trust_launcher(set && rank == spec->rank && size == spec->world_size);
    return set && rank == spec->rank && size == spec->world_size;
}

/* Returns the timeout of a retry.  It is short after a lost connection, because the next store starts soon or not at
 * all.  It is the remaining time if the job of that store had ended. */
static int64_t retry_timeout(const struct rendezvous_spec *spec, int64_t timeout_ms, int status)
{
    if (spec->kind == RENDEZVOUS_REDIS && timeout_ms < RENDEZVOUS_RETRY_MS)
        return RENDEZVOUS_RETRY_MS; /* the server has just answered: a shorter time would only change the error */
    return status == TUTTI_ERR_STORE && timeout_ms > RENDEZVOUS_RETRY_MS ? RENDEZVOUS_RETRY_MS : timeout_ms;
}

int rendezvous_join(const struct rendezvous_args *args, struct rendezvous *out)
{
    *out = (struct rendezvous){.rank = -1, .world_size = -1, .local_rank = -1, .local_world_size = -1, .node_rank = -1};
    int64_t timeout_ms = args->timeout_ms;
    if (timeout_ms < 0)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "rendezvous: timeout_ms is %" PRId64 "; it must not be negative",
                         timeout_ms);
    if (timeout_ms == 0 || timeout_ms == TUTTI_DEFAULT_TIMEOUT) timeout_ms = STORE_DEFAULT_TIMEOUT_MS;
    struct rendezvous_spec *spec = malloc(sizeof *spec);
    if (spec == NULL) return error_set(TUTTI_ERR_NO_MEMORY, "rendezvous: out of memory for %zu bytes", sizeof *spec);
    int64_t deadline_ns = clock_deadline_ns(timeout_ms), again_ns = clock_deadline_ns(RENDEZVOUS_ENDING_MS);
    bool again = false;
    int status = read_spec(args, spec);
    if (status == TUTTI_OK) out->launcher_ranks = check_launcher_ranks(spec);
    if (status == TUTTI_OK) status = try_once(args, spec, timeout_ms, timeout_ms, out, &again);
    while (again && clock_now_ns() < deadline_ns && clock_now_ns() < again_ns) {
        usleep(RENDEZVOUS_PAUSE_MS * 1000);
        int64_t left = timeout_ms == TUTTI_INFINITE ? timeout_ms : (deadline_ns - clock_now_ns()) / 1000000;
        if (left < 1) left = 1;
        status = try_once(args, spec, retry_timeout(spec, left, status), left, out, &again);
    }
    token_wipe(spec, sizeof *spec); /* a URL may hold a password */
    free(spec);
    return status;
}

/* Deletes the world's keys if all other ranks have left.  A failure is harmless: the keys expire.  So it does not wait
 * for a server that is away. */
static void clear_store(const struct rendezvous *rendezvous)
{
    char text[ERROR_TEXT_MAX];
    char key[32];
    snprintf(key, sizeof key, "gone/%" PRIu64, rendezvous->generation);
    struct store_slice gone = {key, strlen(key)};
    struct store_request request = {.op = STORE_ADD, .n_keys = 1, .keys = &gone, .number = 1, .prompt = true};
    struct store_reply left;
    snprintf(text, sizeof text, "%s", error_text());
    request.deadline_ns = clock_deadline_ns(RENDEZVOUS_CLEAR_MS);
    tutti_store_set_timeout(rendezvous->store, RENDEZVOUS_CLEAR_MS);
    int status = store_call(rendezvous->store, &request, &left);
    if (status == TUTTI_OK && left.number == rendezvous->world_size) status = store_clear_all(rendezvous->store);
    if (status != TUTTI_OK) error_set(status, "%s", text);
}

/* ---- newcomers -------------------------------------------------------------------------------------------------- */

/* Reads a number at the start of a text in the store; fallback if there is none. */
static int read_stored(tutti_store *store, const char *key, int fallback, int *number)
{
    char text[64];
    size_t bytes = 0;
    *number = fallback;
    int status = tutti_store_get(store, key, text, sizeof text - 1, &bytes, 0);
    if (status != TUTTI_OK) return status == TUTTI_ERR_TIMEOUT ? TUTTI_OK : status;
    text[bytes] = '\0';
    long value = strtol(text, NULL, 10);
    *number = value > 0 && value <= INT32_MAX ? (int)value : fallback;
    return TUTTI_OK;
}

/* Uses the part of the store that the job's present world uses. */
static int find_present_world(struct rendezvous *out)
{
    int before = 0;
    char prefix[32];
    int status = read_stored(out->launcher, WORLDS, 0, &before);
    if (status != TUTTI_OK) return status;
    atomic_store(&n_worlds, before + 1);
    tutti_store_free(out->store);
    out->store = NULL;
    if (out->on_server) return open_redis_world(before, out);
    if (before == 0) out->store = store_retain(out->launcher);
    snprintf(prefix, sizeof prefix, "again/%d", before);
    return before == 0 ? TUTTI_OK : tutti_store_prefix(out->launcher, prefix, &out->store);
}

static int open_late(const struct rendezvous_args *args, struct rendezvous_spec *spec, int64_t timeout_ms,
                     struct rendezvous *out)
{
    int status = args->store == NULL ? read_spec(args, spec) : TUTTI_OK;
    if (status != TUTTI_OK) return status;
    if (spec->via_launcher)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                         "a newcomer cannot find the store through this launcher; use one that hosts the store, such "
                         "as tutti-run, or pass init_method or a store");
    if (args->store == NULL && spec->kind == RENDEZVOUS_ALONE)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                         "a newcomer needs the address of the job's store; set MASTER_ADDR, MASTER_PORT, RANK and "
                         "WORLD_SIZE, or pass init_method or a store");
    spec->rank = spec->rank == 0 ? 1 : spec->rank; /* a newcomer serves no store */
    status = open_store(args, spec, timeout_ms, out);
    copy_places(spec, out);
    if (status == TUTTI_OK && out->launcher != NULL) status = find_present_world(out);
    if (status == TUTTI_OK) status = read_stored(out->store, "tutti/world/size", -1, &out->world_size);
    if (status != TUTTI_OK) return status;
    out->launcher_ranks = spec->launcher_hosts_store;
    return TUTTI_OK;
}

int rendezvous_join_late(const struct rendezvous_args *args, struct rendezvous *out)
{
    int64_t timeout_ms = args->timeout_ms > 0 ? args->timeout_ms : STORE_DEFAULT_TIMEOUT_MS;
    *out = (struct rendezvous){.rank = -1, .world_size = -1, .local_rank = -1, .local_world_size = -1, .node_rank = -1};
    struct rendezvous_spec *spec = calloc(1, sizeof *spec);
    if (spec == NULL) return error_set(TUTTI_ERR_NO_MEMORY, "rendezvous: out of memory for %zu bytes", sizeof *spec);
    spec->rank = spec->world_size = spec->local_rank = spec->local_world_size = spec->node_rank = -1;
    int status = open_late(args, spec, timeout_ms, out);
    if (status != TUTTI_OK) drop_stores(out);
    token_wipe(spec, sizeof *spec); /* a URL may hold a password */
    free(spec);
    return status;
}

void rendezvous_regrouped(struct rendezvous *rendezvous, int world_size, uint64_t generation)
{
    rendezvous->world_size = world_size;
    rendezvous->generation = generation;
    rendezvous->clears = rendezvous->on_server;
}

void rendezvous_leave(struct rendezvous *rendezvous)
{
    if (rendezvous->remove != NULL)
        unlink(rendezvous->remove); /* the other ranks have it open, and the next run must not find it */
    free(rendezvous->remove);
    if (rendezvous->clears) clear_store(rendezvous);
    drop_stores(rendezvous);
    *rendezvous =
        (struct rendezvous){.rank = -1, .world_size = -1, .local_rank = -1, .local_world_size = -1, .node_rank = -1};
}
