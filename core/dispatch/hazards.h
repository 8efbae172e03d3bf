/* Hazards: decides which operations of a group wait for earlier ones.
 *
 * Collectives of a group complete as if run in the order of issue: one that writes memory which an earlier one still
 * uses waits for it.  Messages wait only for their staging copies.
 */
#ifndef HAZARDS_H
#define HAZARDS_H

#include <tutti/backend.h>

struct tutti_work;

/* Records whether work's memory is disjoint from that of its group's pending works, so that a program that issues many
 * need not compare each with all others.  Must be called before work joins the list. */
void hazards_enlist(struct tutti_work *work);

/* True if work, the latest of its group or a blocked one, must wait. */
bool hazards_must_wait(const struct tutti_work *work);

/* True if work, which must wait, holds back the later ones of its group that may go to the same backend.  A search for
 * works that may start ends there, as there may be thousands. */
bool hazards_hold_others(const struct tutti_work *work);

/* True if two operations must not overlap in time because of the memory they use. */
bool hazards_conflicts(const tutti_op *a, const tutti_op *b);

#endif
