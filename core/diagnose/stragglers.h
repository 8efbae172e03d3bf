/* Stragglers: which ranks an operation waits for, directly or through other ranks.
 *
 * A rank knows which peers it waits for itself.  Those may be in the operation too and wait for others.  Each peer that
 * is asked (health.c) reports the stragglers it knows of, so they become known along any chain or circle of waits.
 * Reports expire.  Otherwise a rank that has caught up would be passed around a circle for good.
 */
#ifndef STRAGGLERS_H
#define STRAGGLERS_H

#include <tutti/backend.h>

#include "op/control_message.h"

struct stragglers;
struct tutti_group;
struct tutti_work;

struct stragglers *stragglers_new(int size);
void stragglers_free(struct stragglers *stragglers);

/* Records that a peer is asked for its position.  Returns false if the previous question is too recent to ask again. */
bool stragglers_record_question(struct stragglers *stragglers, int peer, int64_t now);

/* Records a peer's answer. */
void stragglers_record_answer(struct stragglers *stragglers, int peer, const struct control_message *here, int64_t now);

/* Records that a peer has destroyed the group. */
void stragglers_record_departure(struct stragglers *stragglers, int peer);

/* Records that a peer has sent something else than an answer. */
void stragglers_record_life(struct stragglers *stragglers, int peer, int64_t now);

/* Returns the time since the first question that a peer has not answered, or 0 if it has answered all. */
int64_t stragglers_silent_ms(const struct stragglers *stragglers, int peer, int64_t now);

/* True if this peer has answered a question or shown otherwise that it is alive. */
bool stragglers_has_answered(const struct stragglers *stragglers, int peer);

/* True if this peer has destroyed the group. */
bool stragglers_has_left(const struct stragglers *stragglers, int peer);

/* True if any peer has destroyed the group. */
bool stragglers_any_left(const struct stragglers *stragglers);

/* Returns the peers that the work waits for directly, one entry per rank, or NULL if out of memory.  The caller frees
 * it. */
bool *stragglers_awaited(const struct tutti_work *work);

/* Returns an awaited peer that has destroyed the group, so that the work cannot end, or -1. */
int stragglers_left(const struct tutti_work *work, const bool *awaited);

/* Returns the collective of this sequence number if it is under way, else the earliest one that is, or NULL. */
const struct tutti_work *stragglers_waiting(const struct tutti_group *group, uint64_t sequence);

/* Finds the stragglers of a work: ranks that have not called it, or do not answer.  Returns their number. */
int stragglers_find(const struct tutti_work *work, int64_t now, struct control_position positions[CONTROL_POSITIONS]);

/* Returns the ranks of those stragglers. */
struct rank_set stragglers_set(const struct tutti_work *work, int64_t now);

/* Writes them as text for a timeout: "rank 2 (is at #40 broadcast(..)), rank 3 (no heartbeat for 2.0 s)". */
void stragglers_describe(const struct tutti_work *work, int64_t now, char *text, size_t size);

#endif
