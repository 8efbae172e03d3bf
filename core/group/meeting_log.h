/* The log of a meeting: text under one key of the store, to which every rank that meets appends lines.
 *
 * The store keeps the order of the lines, so all ranks that have read up to the same line know the same.  The first
 * line "decide" ends the meeting: the members are those who are in by the lines before it.  The lines after it say
 * whether the members could make their group.
 *
 *   in M R PROCESS    member M meets; it had rank R in the old group (-1: it is a newcomer)
 *   lost M BY         BY's connection to M has ended
 *   late M BY         BY gave M up after a timeout
 *   ask BY N          BY asks all who are in whether they are still there
 *   here M N          M is still there
 *   dead M BY         M's process has ended, or M does not answer
 *   out M             M does not wait any longer
 *   skip M BY         M did not come in time and is not waited for in later meetings either
 *   decide BY, none BY  the decision: those who are in, or nobody
 *   made M            M has opened the group
 *   fail M STATUS TEXT  M could not
 *
 * BY is a member's number.  The numbers N make the lines of one writer differ. */
#ifndef MEETING_LOG_H
#define MEETING_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bootstrap/liveness.h"

enum { MEETING_TEXT = 400 };

/* What the log says about one member. */
struct attendee {
    int64_t number;
    int old_rank; /* -1: a newcomer */
    bool in, dead, lost, late, skipped, made;
    int heard; /* line of its last sign of life */
    char process[LIVENESS_NAME_MAX];
};

struct meeting_pair {
    int64_t one, other;
};

/* All zero before the first read. */
struct meeting_log {
    struct attendee *attendee; /* in the order in which they are first mentioned */
    int n, capacity;
    struct meeting_pair *pair; /* `other` has lost its connection to `one` */
    int n_pairs, pair_capacity;
    bool decided, none;
    int status; /* of the first "fail", if it came before the last "made"; else 0 */
    char text[MEETING_TEXT];
    int64_t failed_by;
};

/* Reads the log from its start.  Lines that are malformed are ignored.  Returns NO_MEMORY. */
int meeting_log_read(struct meeting_log *log, const char *text);
void meeting_log_free(struct meeting_log *log);

/* Returns what the log says about a member, or NULL. */
struct attendee *meeting_log_find(const struct meeting_log *log, int64_t number);

/* Returns the line of the last question of a member, or -1. */
int meeting_log_asked(const char *text, int64_t by);

/* True if the attendee is one of the members. */
static inline bool attendee_stays(const struct attendee *attendee)
{
    return attendee->in && !attendee->dead;
}

/* Takes out one of each pair of attendees that have lost each other, the one with the greater number. */
void meeting_log_exclude_unconnected(struct meeting_log *log);

/* Counts the attendees that stay. */
int meeting_log_count(const struct meeting_log *log);

/* True if all members have made the group. */
bool meeting_log_is_made(const struct meeting_log *log);

#endif
