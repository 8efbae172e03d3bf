#include "group/meeting.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "progress/engine.h"
#include "state/group_state.h"

enum {
    LOOK_MS = 10,   /* time between two looks at the log, with few ranks */
    RANKS_A_MS = 1, /* with more, one more ms for so many: the store's load stays bounded */
    LOOK_MOST_MS = 1000,
    TURN_MS = 100,     /* time after which the next rank decides in place of one that does not */
    ANSWER_MS = 5000,  /* time for an answer of a rank on another host */
    LAUNCHER_MS = 3000 /* time for the launcher to see the end of a rank whose connection has ended */
};

/* What a rank has noted of another one.  A rank that is late may be lost later. */
enum { NOTED_LATE = 1, NOTED_LOST };

/* ---- the log ------------------------------------------------------------------------------------------------ */

int meeting_write(struct meeting *meeting, const char *format, ...)
{
    char line[MEETING_TEXT + LIVENESS_NAME_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line - 1, format, args);
    va_end(args);
    line[strcspn(line, "\n")] = '\0';
    strcat(line, "\n");
    return tutti_store_append(meeting->store, meeting->key, line, strlen(line));
}

static int read_text(struct meeting *meeting)
{
    tutti_bytes bytes = {0};
    int status = tutti_store_multi_get(meeting->store, (const char *[]){meeting->key}, 1, &bytes, 0);
    if (status != TUTTI_OK && status != TUTTI_ERR_TIMEOUT) return status;
    free(meeting->text);
    meeting->text = strndup(bytes.bytes > 0 ? bytes.data : "", bytes.bytes);
    tutti_bytes_free(&bytes, 1);
    return meeting->text != NULL ? TUTTI_OK : error_set(TUTTI_ERR_NO_MEMORY, "out of memory for the log of a meeting");
}

int meeting_read(struct meeting *meeting)
{
    int status = read_text(meeting);
    if (status == TUTTI_OK) status = meeting_log_read(&meeting->log, meeting->text);
    if (status == TUTTI_OK) status = launcher_members_read(&meeting->members, meeting->launcher);
    if (status == TUTTI_OK && meeting->over_links) meeting_log_exclude_unconnected(&meeting->log);
    return status;
}

void meeting_pause(const struct meeting *meeting, int64_t deadline_ns)
{
    int ms = LOOK_MS + meeting->log.n / RANKS_A_MS, left = clock_left_ms(deadline_ns);
    if (ms > LOOK_MOST_MS) ms = LOOK_MOST_MS;
    if (left >= 0 && left < ms) ms = left;
    usleep(ms > 0 ? (useconds_t)ms * 1000 : 1000);
}

/* ---- gone members ------------------------------------------------------------------------------------------- */

/* True if this rank knows that another one is gone.  Sets *lost if the connection has ended; otherwise a timeout of the
 * group gave the rank up. */
static bool is_known_gone(const struct tutti_group *group, int rank, bool *lost)
{
    *lost = group->root != NULL && group->root->lost[group->global_ranks[rank]];
    return *lost || rank_set_has(&group->given_up, rank);
}

/* Notes the ranks that the old group knows to be gone, unless noted before. */
static int write_gone(struct meeting *meeting)
{
    struct tutti_group *group = meeting->group;
    int status = TUTTI_OK;
    for (int rank = 0; group != NULL && rank < meeting->n_numbers && status == TUTTI_OK; rank++) {
        bool lost = false;
        engine_lock(group->engine);
        bool gone = rank != group->rank && is_known_gone(group, rank, &lost);
        engine_unlock(group->engine);
        unsigned char note = lost ? NOTED_LOST : NOTED_LATE;
        if (!gone || meeting->noted[rank] >= note) continue;
        status = meeting_write(meeting, "%s %" PRId64 " %" PRId64, lost ? "lost" : "late", meeting->numbers[rank],
                               meeting->number);
        meeting->noted[rank] = note;
    }
    return status;
}

static bool has_ended(const struct meeting *meeting, const struct attendee *attendee)
{
    return launcher_members_ended(&meeting->members, attendee->number) ||
           (attendee->process[0] != '\0' && liveness_ended(attendee->process) != 0);
}

const struct attendee *meeting_find_dead(const struct meeting *meeting)
{
    for (int i = 0; i < meeting->log.n; i++) {
        const struct attendee *attendee = &meeting->log.attendee[i];
        if (attendee_stays(attendee) && attendee->number != meeting->number && has_ended(meeting, attendee))
            return attendee;
    }
    return NULL;
}

/* Notes attendees that have died. */
static int write_dead(struct meeting *meeting, bool *wrote)
{
    int status = TUTTI_OK;
    for (int i = 0; i < meeting->log.n && status == TUTTI_OK; i++) {
        const struct attendee *attendee = &meeting->log.attendee[i];
        if (attendee->dead || attendee->number == meeting->number || !has_ended(meeting, attendee)) continue;
        status = meeting_write(meeting, "dead %" PRId64 " %" PRId64, attendee->number, meeting->number);
        *wrote = true;
    }
    return status;
}

/* ---- awaited members ---------------------------------------------------------------------------------------- */

static bool is_skipped(const struct meeting *meeting, int64_t number)
{
    for (int i = 0; i < meeting->n_skipped; i++)
        if (meeting->skipped[i] == number) return true;
    return false;
}

/* True if a member of the old group has entered or is gone.  A launcher that replaces ranks sees their ends a moment
 * after their connections have ended.  It then announces their replacements. */
static bool is_settled(struct meeting *meeting, int64_t number)
{
    const struct attendee *attendee = meeting_log_find(&meeting->log, number);
    if (launcher_members_ended(&meeting->members, number)) return true;
    if (attendee == NULL) return false;
    if (attendee->in || attendee->dead || attendee->skipped) return true;
    if (attendee->late && meeting->over_links) return true;
    if (!attendee->lost || !meeting->members.present) return attendee->lost;
    if (meeting->lost_ns == 0) meeting->lost_ns = clock_now_ns();
    return clock_now_ns() - meeting->lost_ns > (int64_t)LAUNCHER_MS * 1000000;
}

/* True if a process that the launcher has started comes to this meeting, and has not come yet. */
static bool is_coming(const struct meeting *meeting, const struct launcher_member *member)
{
    const struct attendee *attendee = meeting_log_find(&meeting->log, member->number);
    if (member->ended || is_skipped(meeting, member->number)) return false;
    for (int i = 0; i < meeting->n_numbers; i++)
        if (meeting->numbers[i] == member->number) return false; /* see is_settled */
    return attendee == NULL || !(attendee->in || attendee->dead || attendee->skipped);
}

static bool has_survivors(const struct meeting *meeting)
{
    for (int i = 0; i < meeting->log.n; i++)
        if (attendee_stays(&meeting->log.attendee[i]) && meeting->log.attendee[i].old_rank >= 0) return true;
    return false;
}

static bool is_newcomer(const struct meeting *meeting)
{
    return meeting->group == NULL;
}

/* True if newcomers may go on without survivors: the launcher has seen the end of all. */
static bool all_have_ended(const struct meeting *meeting)
{
    for (int i = 0; i < meeting->n_numbers; i++)
        if (!launcher_members_ended(&meeting->members, meeting->numbers[i])) return false;
    return meeting->n_numbers > 0;
}

static bool is_complete(struct meeting *meeting)
{
    if (!has_survivors(meeting) && !all_have_ended(meeting)) return false;
    for (int i = 0; i < meeting->n_numbers; i++)
        if (!is_settled(meeting, meeting->numbers[i])) return false;
    for (int i = 0; i < meeting->members.n; i++)
        if (is_coming(meeting, &meeting->members.member[i])) return false;
    return meeting->n_numbers > 0 && meeting_log_count(&meeting->log) >= meeting->world_size;
}

/* ---- the decision ------------------------------------------------------------------------------------------- */

/* Returns how many attendees would decide before this rank. */
static int find_turn(const struct meeting *meeting)
{
    int turn = 0;
    for (int i = 0; i < meeting->log.n && meeting->log.attendee[i].number != meeting->number; i++)
        turn += attendee_stays(&meeting->log.attendee[i]);
    return turn;
}

/* True if all attendees have been heard of after this rank's question.  Notes those as dead that do not answer, unless
 * their processes run on this host. */
static int check_answers(struct meeting *meeting, bool *all)
{
    int asked = meeting_log_asked(meeting->text, meeting->number), status = TUTTI_OK;
    bool late = clock_now_ns() - meeting->asked_ns > (int64_t)ANSWER_MS * 1000000;
    *all = true;
    for (int i = 0; i < meeting->log.n && status == TUTTI_OK; i++) {
        const struct attendee *attendee = &meeting->log.attendee[i];
        if (!attendee_stays(attendee) || attendee->number == meeting->number || attendee->heard > asked) continue;
        *all = false;
        if (late && !liveness_is_running(attendee->process))
            status = meeting_write(meeting, "dead %" PRId64 " %" PRId64, attendee->number, meeting->number);
    }
    return status;
}

/* Takes the next step towards the decision.  Sets *wrote if the log must be read again at once. */
static int promote(struct meeting *meeting, bool *wrote)
{
    int64_t now = clock_now_ns();
    bool all = false;
    if (!is_complete(meeting)) {
        meeting->complete_ns = meeting->asked_ns = 0;
        return TUTTI_OK;
    }
    if (meeting->complete_ns == 0) meeting->complete_ns = now;
    if (now - meeting->complete_ns < (int64_t)find_turn(meeting) * TURN_MS * 1000000) return TUTTI_OK;
    if (meeting->asked_ns == 0) {
        meeting->asked_ns = now;
        *wrote = true;
        return meeting_write(meeting, "ask %" PRId64 " %d", meeting->number, ++meeting->n_asks);
    }
    int status = check_answers(meeting, &all);
    if (status != TUTTI_OK || !all) return status;
    *wrote = true;
    return meeting_write(meeting, "decide %" PRId64, meeting->number);
}

/* Notes the ranks that this one has waited for in vain, so that later meetings do not wait for them either. */
static int write_skipped(struct meeting *meeting)
{
    int status = TUTTI_OK;
    for (int i = 0; i < meeting->n_numbers && status == TUTTI_OK; i++)
        if (!is_settled(meeting, meeting->numbers[i]))
            status = meeting_write(meeting, "skip %" PRId64 " %" PRId64, meeting->numbers[i], meeting->number);
    for (int i = 0; i < meeting->members.n && status == TUTTI_OK; i++)
        if (is_coming(meeting, &meeting->members.member[i]))
            status =
                meeting_write(meeting, "skip %" PRId64 " %" PRId64, meeting->members.member[i].number, meeting->number);
    return status;
}

/* Acts at the timeout.  Survivors go on without those who have not come, unless the new group uses the old one's
 * connections: then nobody does, because a rank that comes later would go on with ranks that leave now.  A newcomer
 * leaves: its time began before that of the survivors, who may still wait for each other. */
static int give_up(struct meeting *meeting)
{
    if (meeting->over_links) return meeting_write(meeting, "none %" PRId64, meeting->number);
    if (is_newcomer(meeting) || !has_survivors(meeting)) return meeting_write(meeting, "out %" PRId64, meeting->number);
    int status = write_skipped(meeting);
    return status == TUTTI_OK ? meeting_write(meeting, "decide %" PRId64, meeting->number) : status;
}

/* Answers questions, and denies to be dead. */
static int answer(struct meeting *meeting, bool *wrote)
{
    const struct attendee *own = meeting_log_find(&meeting->log, meeting->number);
    if (own == NULL || (!own->dead && meeting_log_asked(meeting->text, -1) < own->heard)) return TUTTI_OK;
    *wrote = true;
    return meeting_write(meeting, "here %" PRId64 " %d", meeting->number, ++meeting->n_answers);
}

static int take_step(struct meeting *meeting, bool *wrote)
{
    *wrote = false;
    int status = meeting_read(meeting);
    if (status != TUTTI_OK || meeting->log.decided) return status;
    status = answer(meeting, wrote);
    if (status == TUTTI_OK) status = write_gone(meeting);
    if (status == TUTTI_OK) status = write_dead(meeting, wrote);
    return status == TUTTI_OK && !*wrote ? promote(meeting, wrote) : status;
}

static int enter(struct meeting *meeting)
{
    int status = meeting_read(meeting); /* it may be over */
    if (status != TUTTI_OK || meeting->log.decided) return status;
    liveness_name(meeting->process);
    status = write_gone(meeting);
    if (status != TUTTI_OK) return status;
    meeting->entered = true;
    return meeting_write(meeting, "in %" PRId64 " %d %s", meeting->number, meeting->old_rank, meeting->process);
}

static int report_timeout(const struct meeting *meeting)
{
    const char *who = has_survivors(meeting) ? "not all ranks of the group have" : "no rank of the group has";
    return error_set(TUTTI_ERR_TIMEOUT, "%s: %s come to meet this newcomer within %.3f s", meeting->what, who,
                     (double)meeting->timeout_ms / 1000);
}

/* The log is deleted two generations later.  A rank that was stopped for so long finds itself in none. */
static int report_deleted(const struct meeting *meeting)
{
    return error_set(TUTTI_ERR_ABORTED,
                     "%s: the others have gone on without this rank, and the log of their meeting has been deleted",
                     meeting->what);
}

/* True if the deadline has passed.  A newcomer's time begins anew when the first survivor has come. */
static bool is_over(struct meeting *meeting, int64_t *deadline)
{
    if (is_newcomer(meeting) && !meeting->met && has_survivors(meeting)) {
        meeting->met = true;
        *deadline = clock_deadline_ns(meeting->timeout_ms);
    }
    return clock_now_ns() >= *deadline;
}

int meeting_hold(struct meeting *meeting)
{
    int64_t deadline = clock_deadline_ns(meeting->timeout_ms);
    bool wrote = true, over = false;
    meeting->noted = calloc((size_t)meeting->n_numbers + 1, sizeof *meeting->noted);
    if (meeting->noted == NULL)
        return error_set(TUTTI_ERR_NO_MEMORY, "%s: out of memory for %d ranks", meeting->what, meeting->n_numbers);
    int status = enter(meeting);
    while (status == TUTTI_OK && !meeting->log.decided) {
        if (!wrote) meeting_pause(meeting, over ? CLOCK_NEVER : deadline);
        status = take_step(meeting, &wrote);
        if (status != TUTTI_OK || meeting->log.decided) break;
        const struct attendee *own = meeting_log_find(&meeting->log, meeting->number);
        if (own == NULL) return report_deleted(meeting);
        if (over && !own->in) return report_timeout(meeting);
        if (over || !is_over(meeting, &deadline)) continue;
        over = wrote = true;
        status = give_up(meeting);
    }
    return status;
}

void meeting_end(struct meeting *meeting)
{
    meeting_log_free(&meeting->log);
    launcher_members_free(&meeting->members);
    free(meeting->text);
    free(meeting->noted);
    meeting->text = NULL;
    meeting->noted = NULL;
}
