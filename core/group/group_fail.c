#include "group/group_fail.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "diagnose/health.h"
#include "diagnose/recorder.h"
#include "group/cause.h"
#include "group/entries.h"
#include "group/failure_broadcast.h"
#include "progress/work.h"

enum { HOLD_BACK_NS = 200 * 1000 * 1000 };

/* Returns the sequence number of the first collective that has not completed. */
static uint64_t find_failed_sequence(const struct tutti_group *group)
{
    const struct tutti_work *work;
    TAILQ_FOREACH(work, &group->works, group_link)
    {
        if (!work->point_to_point) return work->op.sequence;
    }
    return group->sequence + 1;
}

static bool has_collective_before(const struct tutti_group *group, uint64_t sequence)
{
    const struct tutti_work *work;
    TAILQ_FOREACH(work, &group->works, group_link)
    {
        if (!work->point_to_point && work->op.sequence < sequence) return true;
    }
    return false;
}

static void fail_group(struct tutti_group *group, int status, const char *text, bool propagate, bool settled);

static void apply_reported(struct tutti_group *group)
{
    if (!group->failed && has_collective_before(group, group->reported_sequence) &&
        clock_now_ns() - group->reported_ns < HOLD_BACK_NS)
        return;
    int status = group->reported_status;
    group->reported_status = TUTTI_OK;
    group->engine->n_reported--;
    if (group->reported_sequence == UINT64_MAX && TAILQ_EMPTY(&group->works))
        return;                                            /* all works have completed, so the next operation fails */
    bool settled = group->reported_sequence != UINT64_MAX; /* the peer that reported it has published the cause */
    if (!group->failed)
        fail_group(group, status, group->reported_text != NULL ? group->reported_text : "", true, settled);
}

void group_fail_report(struct tutti_group *group, int status, const char *text, uint64_t sequence)
{
    if (group->reported_status != TUTTI_OK) return;
    group->reported_status = status;
    free(group->reported_text);
    group->reported_text = strdup(text);
    group->reported_sequence = sequence;
    group->reported_ns = clock_now_ns();
    group->engine->n_reported++;
    apply_reported(group);
}

void group_fail_apply_reported(struct tutti_group *first)
{
    struct tutti_group *group;
    TAILQ_FOREACH(group, &first->tree, tree_link)
    {
        if (group->reported_status != TUTTI_OK) apply_reported(group);
    }
}

/* True if the other ranks timed out waiting for this one.  Its own operations did not time out. */
static bool was_given_up(const struct tutti_group *group)
{
    return rank_set_has(&group->given_up, group->rank);
}

/* Writes the error message, which is sent to the other ranks too. */
static void describe_disowned(const struct tutti_group *group, char text[ERROR_TEXT_MAX])
{
    snprintf(text, ERROR_TEXT_MAX,
             "rank %d: the program closed descriptors that the library uses; a program may close only descriptors that "
             "it has opened itself",
             group->rank >= 0 ? group->global_ranks[group->rank] : -1);
}

/* Prefixes a failure of this rank itself with its number, because the other ranks report it as theirs. */
static void name_rank(const struct tutti_group *group, int status, char text[ERROR_TEXT_MAX])
{
    char name[32], named[ERROR_TEXT_MAX];
    bool own = status == TUTTI_ERR_SYSTEM || status == TUTTI_ERR_NO_MEMORY || status == TUTTI_ERR_BACKEND;
    if (!own || group->rank < 0) return;
    snprintf(name, sizeof name, "rank %d: ", group->global_ranks[group->rank]);
    if (strstr(text, name) != NULL) return;
    snprintf(named, sizeof named, "%s%.900s", name, text);
    memcpy(text, named, sizeof named);
}

static void record_failure(struct tutti_group *group, int status, const char *text)
{
    group->failed = status;
    group->failed_text = strdup(text);
    log_write(LOG_INFO, LOG_GROUP, "group %s failed: %s: %s", group->name, error_name(status), text);
    group->failed_sequence = find_failed_sequence(group);
    bool every_ranks = status == TUTTI_ERR_MISMATCH || status == TUTTI_ERR_PEER_LOST;
    group->failure_returned = !every_ranks || has_collective_before(group, UINT64_MAX);
}

/* Replaces a consequence that this rank has detected by the cause that a peer has sent.  A peer that fails sends its
 * cause and leaves, and both may arrive before apply_reported acts on the cause, which it does after a moment.  Returns
 * true if that peer has offered the cause to the others. */
static bool prefer_reported(struct tutti_group *group, int *status, char text[ERROR_TEXT_MAX])
{
    if (group->reported_status == TUTTI_OK || !cause_may_be_elsewhere(*status)) return false;
    *status = group->reported_status;
    snprintf(text, ERROR_TEXT_MAX, "%s", group->reported_text != NULL ? group->reported_text : "");
    group->reported_status = TUTTI_OK;
    group->engine->n_reported--;
    return group->reported_sequence != UINT64_MAX;
}

/* Fails the group.  settled: the rank that found the failure has published its cause. */
static void fail_group(struct tutti_group *group, int status, const char *text, bool propagate, bool settled)
{
    char copy[ERROR_TEXT_MAX]; /* copied, because text may belong to a work */
    bool is_cause = group->failed == TUTTI_OK && engine_is_disowned(group->engine);
    snprintf(copy, sizeof copy, "%s", text);
    if (is_cause) describe_disowned(group, copy);
    if (is_cause) status = TUTTI_ERR_SYSTEM; /* the failure that was reported is a consequence */
    bool fails = group->failed == TUTTI_OK;
    if (fails) {
        if (propagate && !settled && !is_cause) settled = prefer_reported(group, &status, copy);
        if (propagate && !settled && !group->shut && !is_cause) {
            name_rank(group, status, copy);
            status = cause_settle(group, status, copy);
        }
        record_failure(group, status, copy);
        recorder_keep_waits(group);
        if (propagate && !group->shut) health_send_failure(group);
        if (propagate && !group->shut) failure_broadcast_send(group);
        group->engine->hooks->group_failed(group);
    }
    if (status == TUTTI_ERR_TIMEOUT && was_given_up(group)) status = TUTTI_ERR_ABORTED;
    entries_abort(group);
    engine_alert(group->engine);
    struct tutti_work *work, *next;
    for (work = TAILQ_FIRST(&group->works); work != NULL; work = next) {
        next = TAILQ_NEXT(work, group_link);
        if (work->draining || work->parts > 0) continue; /* a parent ends with its last part */
        free(work->text);
        work->text = NULL;
        work_withdraw(work, status, copy);
    }
    if (fails) recorder_failed(group, status, copy); /* last, because peers wait for the failure */
}

void group_fail(struct tutti_group *group, int status, const char *text, bool propagate)
{
    fail_group(group, status, text, propagate, false);
}

/* Fails the groups of the tree that descend from origin, or all if it is NULL. */
static void fail_all(struct tutti_group *first, const struct tutti_group *origin, int status, const char *text)
{
    struct tutti_group *group;
    TAILQ_FOREACH(group, &first->tree, tree_link)
    {
        if (origin != NULL && group->origin != origin) continue;
        if (group->rank >= 0 && !group->failed && !group->shut) group_fail(group, status, text, true);
    }
}

void group_fail_descendants(struct tutti_group *origin, int status, const char *text)
{
    if (origin->root != NULL) fail_all(origin->root, origin, status, text);
}

void group_fail_disowned(struct tutti_group *first)
{
    fail_all(first, NULL, TUTTI_ERR_SYSTEM, "");
}

void group_fail_starved(struct tutti_group *first)
{
    char text[80];
    snprintf(text, sizeof text, "rank %d is out of memory for a control message", first->global_ranks[first->rank]);
    fail_all(first, NULL, TUTTI_ERR_NO_MEMORY, text);
}
