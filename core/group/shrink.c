/* Makes a smaller group of the survivors of a group.
 *
 * The ranks agree through the store.  Each enters itself, and enters the ranks that it knows to be gone: lost, or given
 * up by a timeout.  A rank that finds every rank either entered or gone proposes the entered ones.  The first proposal
 * is the decision for all ranks.  A rank whose timeout has passed proposes that no rank survives.
 *
 * Ranks without any entry are waited for as long as an operation would be.  They may be computing, and are notified of
 * the failure by their next call.
 *
 * Two ranks that have both entered but have lost each other cannot be in one group.  The one with the greater number is
 * left out, and gets an error. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "group/group_check.h"
#include "group/group_id.h"
#include "group/subgroup.h"
#include "progress/engine.h"

enum { LOOK_MS = 20, TURN_MS = 5, TURNS_MS_MOST = 200, KEY = 96 };

struct shrink {
    struct tutti_group *group;
    uint64_t number; /* number of this shrink_group call on the group */
    int size;
    bool *in;        /* ranks that have entered themselves */
    bool *gone;      /* ranks that any rank has entered as gone */
    bool *published; /* ranks that this rank has entered as gone */
    char *members;   /* the decision: 'y' or 'n' for each rank */
};

static void write_key(const struct shrink *shrink, const char *what, int rank, char key[KEY])
{
    snprintf(key, KEY, "shrink/%016" PRIx64 "/%" PRIu64 "/%s/%d", shrink->group->id, shrink->number, what, rank);
}

static int is_set(const struct shrink *shrink, const char *what, int rank, bool *there)
{
    char key[KEY];
    write_key(shrink, what, rank, key);
    return tutti_store_check(shrink->group->store, (const char *[]){key}, 1, there);
}

/* ---- knowledge of this rank -------------------------------------------------------------------------------------- */

/* True if this rank knows that another one is gone.  Sets *lost if the connection has ended; otherwise a timeout of the
 * group gave the rank up. */
static bool is_known_gone(const struct tutti_group *group, int rank, bool *lost)
{
    *lost = group->root->lost[group->global_ranks[rank]];
    return *lost || rank_set_has(&group->given_up, rank);
}

/* Publishes the ranks that are gone, unless published before. */
static int publish_gone(struct shrink *shrink)
{
    struct tutti_group *group = shrink->group;
    int status = TUTTI_OK;
    for (int rank = 0; rank < shrink->size && status == TUTTI_OK; rank++) {
        bool lost = false;
        engine_lock(group->engine);
        bool gone = rank != group->rank && is_known_gone(group, rank, &lost);
        engine_unlock(group->engine);
        if (!gone || shrink->published[rank]) continue;
        char key[KEY], own[16];
        snprintf(own, sizeof own, "%d ", group->rank);
        write_key(shrink, lost ? "lost" : "late", rank, key);
        status = tutti_store_append(group->store, key, own, strlen(own));
        shrink->published[rank] = true;
    }
    return status;
}

/* ---- knowledge of all ranks -------------------------------------------------------------------------------------- */

/* Reads which ranks have entered or are gone.  Sets *complete if this holds for every rank. */
static int read_ranks(struct shrink *shrink, bool *complete)
{
    int status = TUTTI_OK;
    *complete = true;
    for (int rank = 0; rank < shrink->size && status == TUTTI_OK; rank++) {
        bool lost = false, late = false;
        if (!shrink->in[rank]) status = is_set(shrink, "in", rank, &shrink->in[rank]);
        if (shrink->in[rank] || status != TUTTI_OK) continue;
        status = is_set(shrink, "lost", rank, &lost);
        if (status == TUTTI_OK && !lost) status = is_set(shrink, "late", rank, &late);
        shrink->gone[rank] = lost || late;
        *complete &= shrink->gone[rank];
    }
    return status;
}

/* Reads the ranks that have published this one as lost, as numbers and blanks.  *text is freed by the caller, or NULL
 * if there are none. */
static int read_reporters(const struct shrink *shrink, int rank, char **text)
{
    char key[KEY];
    tutti_bytes bytes = {0};
    write_key(shrink, "lost", rank, key);
    int status = tutti_store_multi_get(shrink->group->store, (const char *[]){key}, 1, &bytes, 0);
    *text = NULL;
    if (status != TUTTI_OK) return status == TUTTI_ERR_TIMEOUT ? TUTTI_OK : status;
    *text = strndup(bytes.data, bytes.bytes);
    tutti_bytes_free(&bytes, 1);
    return *text != NULL ? TUTTI_OK
                         : error_set(TUTTI_ERR_NO_MEMORY, "out of memory for the ranks that have lost rank %d", rank);
}

/* Excludes one of each pair of entered ranks that have lost each other. */
static int exclude_unconnected(struct shrink *shrink)
{
    int status = TUTTI_OK;
    for (int rank = 0; rank < shrink->size && status == TUTTI_OK; rank++) {
        char *text = NULL;
        if (shrink->in[rank]) status = read_reporters(shrink, rank, &text);
        if (text == NULL) continue;
        char *at = text, *next = NULL;
        for (long other = strtol(at, &next, 10); next != at; other = strtol(at, &next, 10)) {
            at = next;
            if (other < 0 || other >= shrink->size || !shrink->in[other]) continue;
            shrink->members[other > rank ? other : rank] = 'n';
        }
        free(text);
    }
    return status;
}

/* Proposes the members.  The first proposal is the decision. */
static int propose(struct shrink *shrink, const char *key)
{
    size_t bytes = 0;
    for (int rank = 0; rank < shrink->size; rank++) shrink->members[rank] = shrink->in[rank] ? 'y' : 'n';
    int status = exclude_unconnected(shrink);
    if (status != TUTTI_OK) return status;
    return tutti_store_compare_set(shrink->group->store, key, "", 0, shrink->members, (size_t)shrink->size, NULL, 0,
                                   &bytes);
}

/* Proposes that no rank survives, unless there is a proposal.  Without one, a rank that calls later would continue with
 * ranks that leave now. */
static int give_up(struct shrink *shrink, const char *key)
{
    size_t bytes = 0;
    memset(shrink->members, 'n', (size_t)shrink->size);
    return tutti_store_compare_set(shrink->group->store, key, "", 0, shrink->members, (size_t)shrink->size, NULL, 0,
                                   &bytes);
}

/* Reads the decision.  Returns TIMEOUT if there is none yet. */
static int read_decision(struct shrink *shrink, const char *key, int64_t timeout_ms)
{
    size_t bytes = 0;
    int status = tutti_store_get(shrink->group->store, key, shrink->members, (size_t)shrink->size, &bytes, timeout_ms);
    if (status != TUTTI_OK) return status;
    if (bytes != (size_t)shrink->size)
        return error_set(TUTTI_ERR_STORE, "the list of survivors in the store has %zu bytes instead of %d", bytes,
                         shrink->size);
    return TUTTI_OK;
}

static int report_no_survivors(const struct shrink *shrink)
{
    char text[300] = "";
    size_t used = 0;
    bool has_entered = shrink->in[shrink->group->rank];
    for (int rank = 0; has_entered && rank < shrink->size && used < sizeof text; rank++)
        if (!shrink->in[rank] && !shrink->gone[rank])
            used += (size_t)snprintf(text + used, sizeof text - used, "%srank %d", used > 0 ? ", " : "",
                                     shrink->group->global_ranks[rank]);
    if (used > 0)
        return error_set(TUTTI_ERR_TIMEOUT,
                         "shrink_group of group %s: these have not called it and are not known to be lost: %s",
                         shrink->group->name, text);
    return error_set(TUTTI_ERR_TIMEOUT,
                     "shrink_group of group %s: the other ranks have given up waiting for rank %d or for others",
                     shrink->group->name, shrink->group->global_ranks[shrink->group->rank]);
}

static int agree(struct shrink *shrink)
{
    struct tutti_group *group = shrink->group;
    int64_t deadline = clock_deadline_ns(group->timeout_ms);
    /* The ranks check at different times, so that usually one of them proposes for all. */
    int64_t wait_ms = group->rank * TURN_MS < TURNS_MS_MOST ? group->rank * TURN_MS : TURNS_MS_MOST;
    char key[KEY], decision[KEY];
    write_key(shrink, "in", group->rank, key);
    snprintf(decision, sizeof decision, "shrink/%016" PRIx64 "/%" PRIu64 "/members", group->id, shrink->number);
    int status = publish_gone(shrink);
    if (status == TUTTI_OK) status = tutti_store_set(group->store, key, "", 0);
    while (status == TUTTI_OK) {
        status = read_decision(shrink, decision, wait_ms);
        if (status != TUTTI_ERR_TIMEOUT) break;
        bool complete = false;
        status = publish_gone(shrink);
        if (status == TUTTI_OK) status = read_ranks(shrink, &complete);
        if (status == TUTTI_OK && complete) status = propose(shrink, decision);
        if (status == TUTTI_OK && !complete && clock_now_ns() >= deadline) {
            status = give_up(shrink, decision);
            complete = true;
        }
        wait_ms = complete ? 0 : LOOK_MS;
    }
    tutti_store_delete(group->store, key, NULL); /* a rank that reads the entries later finds the decision first */
    if (status == TUTTI_OK && memchr(shrink->members, 'y', (size_t)shrink->size) == NULL)
        return report_no_survivors(shrink);
    return status == TUTTI_OK ? TUTTI_OK : error_prefix(status, "shrink_group of group %s", group->name);
}

/* ---- the smaller group ------------------------------------------------------------------------------------- */

static int open_smaller(struct shrink *shrink, tutti_group **smaller)
{
    struct tutti_group *group = shrink->group;
    if (shrink->members[group->rank] != 'y')
        return error_set(
            TUTTI_ERR_ABORTED,
            "shrink_group: the survivors of group %s continue without this rank (%d), which others lost or gave up",
            group->name, group->global_ranks[group->rank]);
    int *ranks = calloc((size_t)shrink->size, sizeof *ranks), n = 0;
    if (ranks == NULL) return error_set(TUTTI_ERR_NO_MEMORY, "shrink_group: out of memory for %d ranks", shrink->size);
    for (int rank = 0; rank < shrink->size; rank++)
        if (shrink->members[rank] == 'y') ranks[n++] = group->global_ranks[rank];
    uint64_t id = group_id_mix(group_id_mix(group->id, UINT64_C(0x736872696e6b)), shrink->number);
    int status = subgroup_open(group, ranks, n, &(struct subgroup_id){.id = id, .key = id, .survivors = true}, 0,
                               &(tutti_group_opts){.members_only = true}, smaller);
    free(ranks);
    return status;
}

static int check(struct tutti_group *group)
{
    if (group->rank < 0)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                         "shrink_group: this rank is not in group %s; only members may call this", group->name);
    return group_check_open(group);
}

int tutti_shrink_group(tutti_group *group, tutti_group **smaller)
{
    group = group_for_call(group);
    if (group == NULL) return TUTTI_ERR_INVALID_ARGUMENT;
    if (smaller == NULL)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "shrink_group: smaller is NULL; pass an address for the handle");
    engine_lock(group->engine);
    int status = check(group);
    struct shrink shrink = {.group = group, .number = status == TUTTI_OK ? ++group->shrinks : 0, .size = group->size};
    engine_unlock(group->engine);
    if (status != TUTTI_OK) return status;
    size_t n = (size_t)shrink.size;
    shrink.in = calloc(3 * n, sizeof *shrink.in);
    shrink.members = malloc(n);
    shrink.gone = shrink.in + n;
    shrink.published = shrink.gone + n;
    bool allocated = shrink.in != NULL && shrink.members != NULL;
    status =
        allocated ? agree(&shrink) : error_set(TUTTI_ERR_NO_MEMORY, "out of memory to shrink group %s", group->name);
    if (status == TUTTI_OK) status = open_smaller(&shrink, smaller);
    free(shrink.in);
    free(shrink.members);
    return status;
}
