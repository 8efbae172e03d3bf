/* A round is a meeting, and the attempt of its members to open the group.  All members write to the meeting's log
 * whether they have opened it.  If all have, it is made; the first failure before that ends the round, and the next one
 * begins.  So all members agree here, too. */
#include "group/regroup_round.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "group/group.h"
#include "group/group_fail.h"
#include "group/group_id.h"
#include "group/meeting.h"
#include "store/store_impl.h"

void regroup_round_key(uint64_t round, char key[REGROUP_KEY])
{
    snprintf(key, REGROUP_KEY, "regroup/%" PRIu64, round);
}

static void write_group_prefix(uint64_t round, char key[REGROUP_KEY])
{
    snprintf(key, REGROUP_KEY, "regroup/group/%" PRIu64, round);
}

/* ---- the new generation -------------------------------------------------------------------------------------- */

static int compare_attendees(const void *a, const void *b)
{
    const struct attendee *x = *(const struct attendee *const *)a, *y = *(const struct attendee *const *)b;
    if ((x->old_rank < 0) != (y->old_rank < 0)) return x->old_rank < 0 ? 1 : -1;
    if (x->old_rank != y->old_rank) return x->old_rank < y->old_rank ? -1 : 1;
    return (x > y) - (x < y); /* newcomers in the order of their arrival */
}

static const struct attendee **sort_members(const struct meeting *meeting)
{
    int n = 0;
    const struct attendee **sorted = calloc((size_t)meeting->log.n + 1, sizeof *sorted);
    if (sorted == NULL) return NULL;
    for (int i = 0; i < meeting->log.n; i++)
        if (attendee_stays(&meeting->log.attendee[i])) sorted[n++] = &meeting->log.attendee[i];
    qsort(sorted, (size_t)n, sizeof *sorted, compare_attendees);
    return sorted;
}

/* Fills in the processes that are not waited for any longer: those of earlier meetings, and of this one. */
static void fill_skipped(struct generation *next, const struct generation *old, const struct meeting *meeting)
{
    int n = 0;
    for (int i = 0; i < old->n_skipped; i++) next->skipped[n++] = old->skipped[i];
    for (int i = 0; i < meeting->log.n; i++) {
        const struct attendee *attendee = &meeting->log.attendee[i];
        if (attendee->skipped && !attendee->in) next->skipped[n++] = attendee->number;
    }
    next->n_skipped = n;
}

/* Makes the generation that a meeting has decided on. */
static struct generation *make_generation(const struct regroup *regroup, const struct meeting *meeting, uint64_t round)
{
    int n = meeting_log_count(&meeting->log);
    const struct attendee **sorted = sort_members(meeting);
    struct generation *next = sorted != NULL ? generation_new(n, regroup->old->n_skipped + meeting->log.n) : NULL;
    if (next != NULL) {
        next->number = round;
        next->previous = regroup->old->number;
        next->store = regroup->store;
        next->launcher = regroup->launcher;
        for (int i = 0; i < n; i++) {
            next->old_rank[i] = sorted[i]->old_rank;
            next->member[i] = sorted[i]->number;
        }
        fill_skipped(next, regroup->old, meeting);
    }
    free(sorted);
    return next;
}

/* Deletes the keys of the generation before the old one, and of the rounds between them.  No rank uses them: to be in
 * the old generation, all had to leave that one. */
static void clear_store(const struct regroup *regroup)
{
    char key[REGROUP_KEY];
    for (uint64_t round = regroup->old->previous; round < regroup->old->number; round++) {
        if (round == 0) continue;
        regroup_round_key(round, key);
        tutti_store_delete(regroup->store, key, NULL);
        write_group_prefix(round, key);
        strcat(key, "/");
        store_clear(regroup->store, key);
    }
}

/* ---- opening ------------------------------------------------------------------------------------------------- */

/* Returns the part of a process's name that is the same on its host. */
static const char *scope_of(const struct attendee *attendee)
{
    int used = 0;
    return sscanf(attendee->process, "%*d %*u %n", &used) == 0 && used > 0 ? attendee->process + used : "";
}

/* Counts ranks by host, from the names of their processes.  The launcher's numbers hold no longer. */
static void count_hosts(const struct meeting *meeting, int64_t number, struct group_args *args)
{
    const struct attendee **sorted = sort_members(meeting);
    const struct attendee *own = meeting_log_find(&meeting->log, number);
    args->local_rank = args->local_world_size = args->node_rank = -1;
    for (int i = 0, hosts = 0; sorted != NULL && sorted[i] != NULL && scope_of(own)[0] != '\0'; i++) {
        bool here = strcmp(scope_of(sorted[i]), scope_of(own)) == 0, first = true;
        for (int k = 0; k < i && first; k++) first = strcmp(scope_of(sorted[k]), scope_of(sorted[i])) != 0;
        if (here && first) {
            args->node_rank = hosts;
            args->local_world_size = 0;
        }
        hosts += first;
        if (sorted[i] == own) args->local_rank = args->local_world_size;
        args->local_world_size += here;
    }
    free(sorted);
}

static int open_group(const struct regroup *regroup, const struct meeting *meeting, uint64_t round,
                      struct tutti_group **next)
{
    char prefix[REGROUP_KEY];
    struct group_args args = *regroup->args;
    struct generation *generation = make_generation(regroup, meeting, round);
    if (generation == NULL) return error_set(TUTTI_ERR_NO_MEMORY, "regroup: out of memory for group %s", args.name);
    args.size = generation->n;
    args.id = group_id_mix(args.id, round);
    for (int rank = 0; rank < generation->n; rank++)
        if (generation->member[rank] == regroup->number) args.rank = rank;
    if (args.local_world_size >= 0) count_hosts(meeting, regroup->number, &args);
    write_group_prefix(round, prefix);
    int status = tutti_store_prefix(regroup->store, prefix, &args.store);
    if (status != TUTTI_OK) {
        generation_free(generation);
        return status;
    }
    args.generation = generation; /* belongs to the group from here on, even if it cannot be opened */
    status = group_open(&args, next);
    tutti_store_free(args.store);
    return status;
}

/* Returns a rank of the new group whose connection has ended, or -1. */
static int find_lost(struct tutti_group *group)
{
    int lost = -1;
    engine_lock(group->engine);
    for (int rank = 0; rank < group->size && lost < 0; rank++)
        if (group->root->lost[rank]) lost = rank;
    engine_unlock(group->engine);
    return lost;
}

/* Ends the round with a failure if a member has died. */
static int watch_members(struct meeting *meeting, struct tutti_group *next, bool late)
{
    const struct attendee *dead = meeting_find_dead(meeting);
    int lost = next != NULL ? find_lost(next) : -1, status = TUTTI_ERR_PEER_LOST;
    if (dead != NULL)
        return meeting_write(meeting, "fail %" PRId64 " %d process %" PRId64 " has ended", meeting->number, status,
                             dead->number);
    if (lost >= 0)
        return meeting_write(meeting, "fail %" PRId64 " %d rank %d of the new group is lost", meeting->number, status,
                             lost);
    if (late)
        return meeting_write(meeting, "fail %" PRId64 " %d not all ranks have opened the group in time",
                             meeting->number, TUTTI_ERR_TIMEOUT);
    return TUTTI_OK;
}

/* Waits until the group is made or has failed on all members.  Returns OK with meeting->log. */
static int await_members(struct meeting *meeting, struct tutti_group *next, int64_t timeout_ms)
{
    int64_t deadline = clock_deadline_ns(timeout_ms);
    for (;;) {
        int status = meeting_read(meeting);
        if (status != TUTTI_OK || meeting->log.status != 0 || meeting_log_is_made(&meeting->log)) return status;
        status = watch_members(meeting, next, clock_now_ns() >= deadline);
        if (status != TUTTI_OK) return status;
        meeting_pause(meeting, deadline);
    }
}

static int report_failed_round(const struct regroup *regroup, const struct meeting *meeting)
{
    return error_set(meeting->log.status, "regroup of group %s: %s", regroup->name, meeting->log.text);
}

/* Opens the group and agrees with the other members on whether it is made. */
static int open_with_others(struct regroup *regroup, struct meeting *meeting, uint64_t round, struct tutti_group **next)
{
    char text[ERROR_TEXT_MAX] = "";
    struct tutti_group *opened = NULL;
    if (meeting->log.status != 0) return report_failed_round(regroup, meeting);
    int status = open_group(regroup, meeting, round, &opened);
    if (status != TUTTI_OK) snprintf(text, sizeof text, "%s", error_text());
    int wrote = status == TUTTI_OK
                    ? meeting_write(meeting, "made %" PRId64, regroup->number)
                    : meeting_write(meeting, "fail %" PRId64 " %d %.300s", regroup->number, status, text);
    if (wrote == TUTTI_OK) wrote = await_members(meeting, opened, regroup->args->open_timeout_ms);
    if (wrote == TUTTI_OK && meeting->log.status == 0 && opened != NULL) {
        *next = opened;
        return TUTTI_OK;
    }
    if (wrote != TUTTI_OK) snprintf(text, sizeof text, "%s", error_text());
    if (opened != NULL) {
        engine_lock(opened->engine); /* failed, so that closing it waits for no rank */
        group_fail(opened, TUTTI_ERR_ABORTED, "not all ranks have opened the group", false);
        engine_unlock(opened->engine);
        group_close(opened, 0);
    }
    return wrote != TUTTI_OK ? error_set(wrote, "%s", text) : report_failed_round(regroup, meeting);
}

/* ---- rounds -------------------------------------------------------------------------------------------------- */

int regroup_report_left_behind(const struct regroup *regroup)
{
    return error_set(TUTTI_ERR_ABORTED,
                     "regroup: the survivors of group %s have gone on without this rank (%d), which they took for dead "
                     "or did not wait for any longer; destroy the group and join them as a newcomer",
                     regroup->name, regroup->group->rank);
}

/* Stores what the newest generation is.  A failure only delays newcomers and ranks that were left behind. */
static void publish(const struct regroup *regroup, const struct tutti_group *next)
{
    if (generation_publish(next->generation) != TUTTI_OK)
        log_write(LOG_INFO, LOG_GROUP, "group %s: its members cannot be stored: %s", next->name, error_text());
    if (next->rank == 0) clear_store(regroup);
}

/* A newcomer goes on to the next round, whose old generation is the one that this round has made. */
static int take_generation(struct regroup *regroup, const struct meeting *meeting, uint64_t round)
{
    struct generation *made = make_generation(regroup, meeting, round);
    if (made == NULL) return error_set(TUTTI_ERR_NO_MEMORY, "regroup: out of memory for group %s", regroup->name);
    generation_free(regroup->old);
    regroup->old = made;
    return TUTTI_OK;
}

static bool may_succeed_later(int status)
{
    return status == TUTTI_ERR_PEER_LOST || status == TUTTI_ERR_TIMEOUT || status == TUTTI_ERR_ABORTED;
}

static int finish_round(struct regroup *regroup, struct meeting *meeting, uint64_t round, struct tutti_group **next,
                        bool *again)
{
    const struct attendee *own = meeting_log_find(&meeting->log, regroup->number);
    bool stays = own != NULL && attendee_stays(own);
    int status = TUTTI_OK;
    *again = false;
    if (stays && meeting->entered) {
        status = open_with_others(regroup, meeting, round, next);
        *again = may_succeed_later(status);
        regroup->progressed = meeting_find_dead(meeting) != NULL;
        if (*again) log_write(LOG_INFO, LOG_GROUP, "%s; the ranks meet again", error_text());
        if (status == TUTTI_OK) publish(regroup, *next);
        return status;
    }
    if (stays && meeting->log.status == 0) /* an earlier call of this rank has given this round up */
        status = meeting_write(meeting, "fail %" PRId64 " %d it has called regroup again", regroup->number,
                               TUTTI_ERR_ABORTED);
    if (status == TUTTI_OK) status = await_members(meeting, NULL, regroup->args->open_timeout_ms);
    if (status != TUTTI_OK) return status;
    bool made = meeting->log.status == 0;
    if (made && regroup->group != NULL) return regroup_report_left_behind(regroup);
    *again = true;
    regroup->progressed = made || meeting_find_dead(meeting) != NULL;
    return made ? take_generation(regroup, meeting, round) : TUTTI_OK;
}

int regroup_round_run(struct regroup *regroup, uint64_t round, struct tutti_group **next, bool *again)
{
    char key[REGROUP_KEY];
    regroup_round_key(round, key);
    struct meeting meeting = {.store = regroup->store,
                              .key = key,
                              .what = "regroup",
                              .group = regroup->group,
                              .numbers = regroup->old->member,
                              .n_numbers = regroup->old->n,
                              .skipped = regroup->old->skipped,
                              .n_skipped = regroup->old->n_skipped,
                              .launcher = regroup->launcher,
                              .number = regroup->number,
                              .old_rank = regroup->group != NULL ? regroup->group->rank : -1,
                              .world_size = regroup->world_size,
                              .timeout_ms = regroup->timeout_ms};
    *again = false;
    int status = meeting_hold(&meeting);
    if (status == TUTTI_OK) status = finish_round(regroup, &meeting, round, next, again);
    meeting_end(&meeting);
    return status;
}
