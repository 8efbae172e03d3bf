/* A meeting: ranks agree through the store on who is in the next group.  Shrinking and regrouping are meetings.
 *
 * Each rank enters the meeting's log (meeting_log.h), and notes there which others it knows to be gone.  Once every
 * rank that is awaited has entered or is gone, the first of those who have entered asks all others whether they are
 * still there, because some may have waited for long.  When they have answered it writes the decision.  If it dies
 * before that, the next one takes its place. */
#ifndef MEETING_H
#define MEETING_H

#include "group/launcher_members.h"
#include "group/meeting_log.h"

struct tutti_group;

struct meeting {
    tutti_store *store;
    const char *key;
    const char *what;          /* begins error messages: "regroup" */
    struct tutti_group *group; /* the old group, which knows lost ranks; NULL on a newcomer */
    const int64_t *numbers;    /* numbers of the old group's members, by rank; the awaited ones */
    int n_numbers;             /* 0: unknown; then others decide */
    const int64_t *skipped;    /* numbers that earlier meetings did not wait for */
    int n_skipped;
    tutti_store *launcher; /* has the launcher's list of members; or NULL */
    int64_t number;        /* this rank's */
    int old_rank;          /* -1: this rank is a newcomer */
    int world_size;        /* newcomers are awaited until so many have met; 0: those that the launcher has started */
    bool over_links;       /* members use the old group's connections, and a timeout makes nobody a member */
    int64_t timeout_ms;

    /* the result */
    struct meeting_log log;
    struct launcher_members members;
    bool entered; /* this rank has entered the log, before the decision */

    /* state */
    char *text;
    char process[LIVENESS_NAME_MAX];
    unsigned char *noted; /* by old rank: what this rank has noted of it */
    bool met;             /* this newcomer has met a survivor */
    int n_asks, n_answers;
    int64_t asked_ns;    /* time of this rank's question; 0: none */
    int64_t complete_ns; /* time since when all awaited ranks are there or gone; 0: they are not */
    int64_t lost_ns;     /* time since when ranks are lost without the launcher having seen their end; 0: none */
};

/* Meets.  Returns OK with meeting->log decided, with or without this rank among the members; TIMEOUT for a newcomer
 * that nobody met in time; ABORTED if the log has been deleted, because the others have gone on; or the store's errors.
 */
int meeting_hold(struct meeting *meeting);

/* Reads the log again, and the launcher's list. */
int meeting_read(struct meeting *meeting);

/* Returns a member that has certainly died, or NULL: its process on this host has ended, or the launcher says so. */
const struct attendee *meeting_find_dead(const struct meeting *meeting);

/* Appends a line to the log. */
int meeting_write(struct meeting *meeting, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Sleeps between two looks at the log. */
void meeting_pause(const struct meeting *meeting, int64_t deadline_ns);

void meeting_end(struct meeting *meeting);

#endif
