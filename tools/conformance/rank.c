#include "conformance/rank.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "conformance/input.h"
#include "conformance/meeting.h"

const char *const where_names[GROUPS] = {"world", "members_only", "split", "reversed"};

int rank_store(tutti_store **store)
{
    tutti_store *whole = NULL;
    const char *port = getenv("MASTER_PORT");
    int status = tutti_store_tcp(getenv("MASTER_ADDR"), (uint16_t)atoi(port != NULL ? port : "0"), NULL, &whole);
    if (status == TUTTI_OK) status = tutti_store_prefix(whole, "conformance", store);
    tutti_store_free(whole); /* its prefix store keeps a reference */
    return status;
}

/* ---- the groups ------------------------------------------------------------------------------------------------- */

static void close_groups(struct rank *rank)
{
    for (int i = GROUPS - 1; i >= 0; i--)
        if (rank->groups[i] != NULL) tutti_destroy_process_group(rank->groups[i]);
    memset(rank->groups, 0, sizeof rank->groups);
}

/* Makes a group of all ranks, without rank 1 if there are three or more.  The last ranks come first. */
static int open_members(struct rank *rank, const tutti_group_opts *opts)
{
    int members[RANKS_MAX], n = 0;
    bool in = false;
    for (int i = rank->size - 1; i >= 0; i--) {
        if (i == 1 && rank->size > 2) continue;
        members[n++] = i;
        in |= i == rank->rank;
    }
    tutti_group_opts alone = *opts;
    alone.members_only = true;
    return in ? tutti_new_group(members, n, &alone, &rank->groups[MEMBERS_ONLY]) : TUTTI_OK;
}

static int open_groups(struct rank *rank)
{
    char prefix[64];
    int reversed[RANKS_MAX];
    tutti_store *store = NULL;
    snprintf(prefix, sizeof prefix, "from%d", rank->at);
    for (int i = 0; i < rank->size; i++) reversed[i] = rank->size - 1 - i;
    tutti_group_opts world = {.timeout_ms = rank->options->timeout_ms, .name = "world"};
    if (rank->options->cuda) world.device = (tutti_device){TUTTI_CUDA, rank->rank};
    int status = tutti_store_prefix(rank->store, prefix, &store);
    if (status == TUTTI_OK)
        status =
            tutti_create_group(rank->options->backend, store, rank->rank, rank->size, &world, &rank->groups[WORLD]);
    tutti_store_free(store);
    if (status != TUTTI_OK) return status;
    tutti_group_opts opts = {.parent = rank->groups[WORLD]};
    status = open_members(rank, &opts);
    if (status == TUTTI_OK) status = tutti_split_group(rank->rank % 2, -rank->rank, &opts, &rank->groups[SPLIT]);
    if (status == TUTTI_OK) status = tutti_new_group(reversed, rank->size, &opts, &rank->groups[REVERSED]);
    return status;
}

int rank_own_group(struct rank *rank, int64_t timeout_ms, tutti_group **group)
{
    int all[RANKS_MAX];
    for (int i = 0; i < rank->size; i++) all[i] = i;
    return tutti_new_group(all, rank->size,
                           &(tutti_group_opts){.parent = rank->groups[WORLD], .timeout_ms = timeout_ms, .name = "own"},
                           group);
}

/* ---- the result of a case ---------------------------------------------------------------------------------------- */

static struct result *result_of(struct rank *rank)
{
    return scoreboard_result(rank->scoreboard, rank->at, rank->rank);
}

enum verdict rank_fail(struct rank *rank, const char *format, ...)
{
    char text[TEXT_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    memcpy(result_of(rank)->text, text, sizeof text);
    return FAILED;
}

enum verdict rank_skip(struct rank *rank)
{
    snprintf(result_of(rank)->text, TEXT_MAX, "%s", tutti_last_error());
    return SKIPPED;
}

enum verdict rank_status(struct rank *rank, const char *file, int line, const char *what, int status)
{
    if (status == TUTTI_ERR_UNSUPPORTED) return rank_skip(rank);
    const char *slash = strrchr(file, '/');
    return rank_fail(rank, "%s:%d: %s: %s: %s", slash != NULL ? slash + 1 : file, line, what,
                     tutti_status_string(status), tutti_last_error());
}

void rank_bits(struct rank *rank, const void *data, size_t bytes)
{
    uint64_t hash = bytes;
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ ((const uint8_t *)data)[i]) * UINT64_C(0x100000001b3);
    result_of(rank)->bits = input_mix(result_of(rank)->bits, hash);
}

void rank_entered(struct rank *rank)
{
    meeting_arrive(rank);
}

enum verdict rank_left(struct rank *rank)
{
    for (int i = 0; i < rank->size; i++)
        if (!meeting_has_arrived(rank, i)) return rank_fail(rank, "this rank left before rank %d had entered", i);
    return PASSED;
}

void rank_meet(struct rank *rank)
{
    meeting_arrive(rank);
    for (int i = 0; i < rank->size; i++)
        for (int turns = 0; !meeting_has_arrived(rank, i); turns++) usleep(turns < 100 ? 0 : 200);
}

/* ---- the loop over the cases ------------------------------------------------------------------------------------- */

static uint64_t hash_name(const char *name)
{
    uint64_t hash = 0;
    for (; *name != '\0'; name++) hash = input_mix(hash, (uint8_t)*name);
    return hash;
}

static bool applies(const struct rank *rank, const struct check *check)
{
    return rank->size >= check->min_ranks && !(check->processes && rank->options->threads) &&
           !(check->spawned && (rank->options->threads || rank->options->join));
}

static void run_case(struct rank *rank, const struct check *check)
{
    struct result *result = result_of(rank);
    int64_t start = scoreboard_now_ns();
    rank->check = check;
    rank->met = 0;
    rank->seed = input_mix(rank->options->seed, hash_name(check->name)); /* not by index, which a filter changes */
    enum verdict verdict = check->run(rank);
    result->seconds = (float)((double)(scoreboard_now_ns() - start) / 1e9);
    /* End the others' operations: they may wait for a call that this rank does not make. */
    if (verdict == FAILED && rank->size > 1) {
        for (int i = GROUPS - 1; i >= 0; i--)
            if (rank->groups[i] != NULL && tutti_get_rank(rank->groups[i]) >= 0)
                tutti_abort(rank->groups[i], "a case failed on this rank");
    }
    result->verdict = verdict;
}

/* True if the groups can still be used.  All ranks return the same. */
static bool all_well(struct rank *rank, const struct check *check)
{
    char text[TEXT_MAX];
    return scoreboard_fold(rank->scoreboard, rank->at, check, text, sizeof text) != FAILED;
}

static int no_groups(struct rank *rank)
{
    scoreboard_end(rank->scoreboard, "rank %d of %d has no groups: %s", rank->rank, rank->size, tutti_last_error());
    return 1;
}

int rank_run(struct scoreboard *scoreboard, const struct options *options, const struct cases *cases,
             tutti_store *store, int number)
{
    struct rank rank = {
        .scoreboard = scoreboard, .options = options, .store = store, .rank = number, .size = scoreboard->ranks};
    struct rank_state *state = &scoreboard->states[number];
    atomic_store(&state->pid, options->threads ? 0 : getpid());
    rank.at = scoreboard->first;
    if (open_groups(&rank) != TUTTI_OK) return no_groups(&rank);
    for (; rank.at < cases->n; rank.at++) {
        const struct check *check = &cases->check[rank.at];
        if (!applies(&rank, check)) continue;
        atomic_store(&state->since_ns, scoreboard_now_ns());
        atomic_store(&state->at, rank.at);
        run_case(&rank, check);
        if (!meeting_after(&rank)) return 1;
        if (all_well(&rank, check)) continue;
        if (!meeting_again(&rank)) return 1;
        close_groups(&rank);
        if (open_groups(&rank) != TUTTI_OK) return no_groups(&rank);
    }
    close_groups(&rank);
    atomic_store(&state->at, cases->n);
    return 0;
}
