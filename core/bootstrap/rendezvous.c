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
#include "bootstrap/launcher.h"
#include "bootstrap/liveness.h"
#include "bootstrap/rendezvous_meet.h"
#include "bootstrap/rendezvous_place.h"
#include "store/store_impl.h"

enum { RENDEZVOUS_LINGER_MS = 1000, RENDEZVOUS_AGAIN_MS = 1500, RENDEZVOUS_ENDING_MS = 5000, RENDEZVOUS_NAP_MS = 10 };

/* One number from two sources: either may leave it out, both must agree. */
static int rendezvous_merge(const char *what, int given, int *found)
{
    if (given < 0) return TUTTI_OK;
    if (*found >= 0 && *found != given)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "%s is %d by argument and %d by the init method: give it once",
                         what, given, *found);
    *found = given;
    return TUTTI_OK;
}

static int rendezvous_check(const struct place *place)
{
    if (place->rank < 0 || place->world_size < 1)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                         "the rendezvous needs rank and world_size, by argument or in the init method: %s is missing",
                         place->rank < 0 ? "rank" : "world_size");
    if (place->rank >= place->world_size)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "rank is %d; in a world of %d it must be 0 to %d", place->rank,
                         place->world_size, place->world_size - 1);
    return TUTTI_OK;
}

static int rendezvous_locate(const struct rendezvous_args *args, struct place *place)
{
    int status = TUTTI_OK;
    *place = (struct place){.rank = -1, .world_size = -1, .local_rank = -1, .local_world_size = -1, .node_rank = -1};
    if (args->store != NULL && args->init_method != NULL)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                         "init_method \"%.200s\" and a store are given: either says where to meet", args->init_method);
    if (args->rank < -1 || args->world_size == 0 || args->world_size < -1)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "rank is %d and world_size is %d; -1 stands for not given",
                         args->rank, args->world_size);
    bool given = args->rank >= 0 && args->world_size > 0;
    bool env = args->init_method == NULL || strcmp(args->init_method, "env://") == 0;
    if (args->store == NULL && given && env)
        status = place_from_env_as(args->rank, args->world_size, place);
    else if (args->store == NULL)
        status = place_find(args->init_method, place);
    if (status == TUTTI_OK) status = rendezvous_merge("rank", args->rank, &place->rank);
    if (status == TUTTI_OK) status = rendezvous_merge("world_size", args->world_size, &place->world_size);
    return status == TUTTI_OK ? rendezvous_check(place) : status;
}

/* How many worlds this process has had in its launcher's store, which outlives each of them.  All ranks of a job begin
 * and end their worlds in the same order, so all have the same number. */
static atomic_int rendezvous_worlds;

/* A part of the launcher's store that no earlier world of the job has used.  The last world but one is forgotten: to
 * meet in the one after it, all had to leave it. */
static int rendezvous_fresh(int rank, tutti_store **store)
{
    char prefix[32];
    tutti_store *whole = *store;
    int before = atomic_load(&rendezvous_worlds);
    if (before == 0) return TUTTI_OK;
    snprintf(prefix, sizeof prefix, "again/%d/", before - 2);
    if (rank == 0 && before > 2) store_clear(whole, prefix);
    snprintf(prefix, sizeof prefix, "again/%d", before);
    int status = tutti_store_prefix(whole, prefix, store);
    if (status != TUTTI_OK) *store = NULL;
    tutti_store_free(whole);
    return status;
}

static int rendezvous_open(const struct rendezvous_args *args, struct place *place, int64_t timeout_ms,
                           tutti_store **store)
{
    tutti_store_opts opts = {.timeout_ms = timeout_ms,
                             .server = place->rank == 0 && !place->hosted,
                             .world_size = place->world_size > 0 ? place->world_size : 0};
    if (args->store != NULL) {
        *store = store_retain(args->store);
        return TUTTI_OK;
    }
    if (place->by_launcher) return launcher_open(place, timeout_ms, store);
    if (place->kind == PLACE_TCP) {
        int status = tutti_store_tcp(place->host, place->port, &opts, store);
        if (status == TUTTI_OK && place->hosted) status = rendezvous_fresh(place->rank, store);
        return status == TUTTI_ERR_STORE && !opts.server
                   ? error_prefix(status, "%s store cannot be reached", place->hosted ? "the launcher's" : "rank 0's")
                   : status;
    }
    if (place->kind == PLACE_FILE) return tutti_store_file(place->path, &opts, store);
    return tutti_store_memory(&opts, store);
}

/* *in_use: it failed because an earlier job has the file. */
static int rendezvous_meet(const struct rendezvous_args *args, const struct place *place, int64_t timeout_ms,
                           struct rendezvous *out, bool *in_use)
{
    struct meet meet = {.rank = place->rank,
                        .world_size = place->world_size,
                        .timeout_ms = timeout_ms,
                        .file = place->kind == PLACE_FILE ? place->path : NULL};
    int status = tutti_store_prefix(out->store, args->prefix == NULL ? "tutti/world" : args->prefix, &meet.store);
    if (status == TUTTI_OK) status = meet_all(&meet);
    tutti_store_free(meet.store);
    *in_use = meet.in_use;
    return status;
}

static int rendezvous_keep(const struct place *place, struct rendezvous *out)
{
    out->rank = place->rank;
    out->world_size = place->world_size;
    out->local_rank = place->local_rank;
    out->local_world_size = place->local_world_size;
    out->node_rank = place->node_rank;
    strcpy(out->address, place->host);
    out->port = place->port;
    out->rank0_hosts = place->kind == PLACE_TCP && !place->hosted;
    out->hosts = out->rank0_hosts && place->rank == 0;
    if (place->kind != PLACE_FILE || place->rank != 0) return TUTTI_OK;
    out->remove = strdup(place->path);
    return out->remove != NULL ? TUTTI_OK : error_set(TUTTI_ERR_NO_MEMORY, "rendezvous: out of memory");
}

/* Whether what answered is the store of an earlier job that is ending (it had this rank, too, or broke off), so that
 * trying again is right.  Keeps the sentence. */
static bool rendezvous_was_ending(const struct rendezvous_args *args, const struct place *place, tutti_store *store,
                                  int status)
{
    bool left = false, joined = true, settled = true;
    if (place->kind != PLACE_TCP || place->hosted || place->by_launcher || place->rank == 0) return false;
    if (status != TUTTI_ERR_MISMATCH) return status == TUTTI_ERR_STORE;
    char text[ERROR_TEXT_MAX], rank[300], verdict[300];
    const char *prefix = args->prefix == NULL ? "tutti/world" : args->prefix;
    const char *left_key[1] = {"tutti/left"}, *rank_key[1] = {rank}, *verdict_key[1] = {verdict};
    snprintf(text, sizeof text, "%s", error_text());
    snprintf(rank, sizeof rank, "%.255s/rank/%d", prefix, place->rank);
    snprintf(verdict, sizeof verdict, "%.255s/verdict", prefix);
    int checked = tutti_store_check(store, left_key, 1, &left); /* a rank of that job has said goodbye */
    /* Or the client has found the next job's store meanwhile, where this rank is not and all is open. */
    if (checked == TUTTI_OK && !left) checked = tutti_store_check(store, rank_key, 1, &joined);
    if (checked == TUTTI_OK && !joined) checked = tutti_store_check(store, verdict_key, 1, &settled);
    error_set(status, "%s", text);
    return left || !settled || checked == TUTTI_ERR_STORE;
}

static int rendezvous_try(const struct rendezvous_args *args, struct place *place, int64_t open_ms, int64_t timeout_ms,
                          struct rendezvous *out, bool *again)
{
    int64_t begun = clock_now_ns();
    bool in_use = false;
    int status = rendezvous_open(args, place, open_ms, &out->store);
    *again = false;
    if (status != TUTTI_OK) return status;
    int64_t left = timeout_ms == TUTTI_INFINITE ? timeout_ms : timeout_ms - (clock_now_ns() - begun) / 1000000;
    status = rendezvous_meet(args, place, left < 1 ? 1 : left, out, &in_use);
    if (status == TUTTI_OK && place->hosted) atomic_fetch_add(&rendezvous_worlds, 1);
    if (status == TUTTI_OK) status = rendezvous_keep(place, out);
    if (status == TUTTI_OK) return status;
    /* A file is removed by its world's rank 0, which may come back after others. */
    *again = (in_use && place->rank != 0) || rendezvous_was_ending(args, place, out->store, status);
    char text[ERROR_TEXT_MAX];
    snprintf(text, sizeof text, "%s", error_text());
    tutti_store_linger(out->store, RENDEZVOUS_LINGER_MS); /* the others must hear why, too */
    error_set(status, "%s", text);
    tutti_store_free(out->store);
    out->store = NULL;
    return status;
}

/* The launcher tells of its ranks' ends by the numbers that it gave them. */
static void rendezvous_heed_launcher(const struct place *place)
{
    int64_t rank = -1, size = -1;
    bool set = place->hosted && env_int("RANK", -1, 0, INT32_MAX, &rank) == TUTTI_OK &&
               env_int("WORLD_SIZE", -1, 1, INT32_MAX, &size) == TUTTI_OK;
    liveness_heed_launcher(set && rank == place->rank && size == place->world_size);
}

/* Where a store broke off, a little time for the next one to be there; where its job had come to its end, all. */
static int64_t rendezvous_patience(int64_t timeout_ms, int status)
{
    return status == TUTTI_ERR_STORE && timeout_ms > RENDEZVOUS_AGAIN_MS ? RENDEZVOUS_AGAIN_MS : timeout_ms;
}

int rendezvous_join(const struct rendezvous_args *args, struct rendezvous *out)
{
    *out = (struct rendezvous){.rank = -1, .world_size = -1, .local_rank = -1, .local_world_size = -1, .node_rank = -1};
    int64_t timeout_ms = args->timeout_ms;
    if (timeout_ms < 0) return error_set(TUTTI_ERR_INVALID_ARGUMENT, "rendezvous: timeout_ms is %" PRId64, timeout_ms);
    if (timeout_ms == 0 || timeout_ms == TUTTI_DEFAULT_TIMEOUT) timeout_ms = STORE_DEFAULT_TIMEOUT_MS;
    struct place *place = malloc(sizeof *place);
    if (place == NULL) return error_set(TUTTI_ERR_NO_MEMORY, "rendezvous: out of memory");
    int64_t deadline_ns = clock_deadline_ns(timeout_ms), again_ns = clock_deadline_ns(RENDEZVOUS_ENDING_MS);
    bool again = false;
    int status = rendezvous_locate(args, place);
    if (status == TUTTI_OK) rendezvous_heed_launcher(place);
    if (status == TUTTI_OK) status = rendezvous_try(args, place, timeout_ms, timeout_ms, out, &again);
    while (again && clock_now_ns() < deadline_ns && clock_now_ns() < again_ns) {
        usleep(RENDEZVOUS_NAP_MS * 1000);
        int64_t left = timeout_ms == TUTTI_INFINITE ? timeout_ms : (deadline_ns - clock_now_ns()) / 1000000;
        if (left < 1) left = 1;
        status = rendezvous_try(args, place, rendezvous_patience(left, status), left, out, &again);
    }
    free(place);
    return status;
}

void rendezvous_leave(struct rendezvous *rendezvous)
{
    if (rendezvous->remove != NULL)
        unlink(rendezvous->remove); /* the others have it open; the next run must not find it */
    free(rendezvous->remove);
    tutti_store_free(rendezvous->store);
    *rendezvous =
        (struct rendezvous){.rank = -1, .world_size = -1, .local_rank = -1, .local_world_size = -1, .node_rank = -1};
}
