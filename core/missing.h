/* Whom an operation waits for in the end.
 *
 * A rank knows which peers it waits for itself.  Those may be in the operation too and wait for others; each tells,
 * when it is asked (health.c), whom it waits for in the end, so that the ranks that are missing become known along
 * any chain and round any circle of waits.  What is told grows old, or a rank that came after all would be handed
 * round a circle for good.
 */
#ifndef MISSING_H
#define MISSING_H

#include <tutti/backend.h>

#include "note.h"

struct missing;
struct tutti_group;
struct tutti_work;

struct missing *missing_new(int size);
void missing_free(struct missing *missing);

/* The peer was asked where it is, or is to be asked: false where that was only just done. */
bool missing_asked(struct missing *missing, int peer, int64_t now);

/* It answered. */
void missing_heard(struct missing *missing, int peer, const struct note *here, int64_t now);

/* It has destroyed the group. */
void missing_leaves(struct missing *missing, int peer);

/* Whether any has. */
bool missing_any_left(const struct missing *missing);

/* Which peers the work waits for itself, one entry a rank; NULL when out of memory.  The caller frees it. */
bool *missing_awaited(const struct tutti_work *work);

/* One of those without which the work cannot end, because it has destroyed the group before; -1: none. */
int missing_left(const struct tutti_work *work, const bool *awaited);

/* The collective in which the group stands: the one of this sequence if it is under way, else the earliest that is;
 * NULL: none. */
const struct tutti_work *missing_waiting(const struct tutti_group *group, uint64_t sequence);

/* The ranks that work waits for in the end and that have not called it or do not answer; how many. */
int missing_find(const struct tutti_work *work, int64_t now, struct note_place places[NOTE_PLACES]);

/* The same without where they are. */
struct note_ranks missing_set(const struct tutti_work *work, int64_t now);

/* The same as text, for a timeout: "rank 2 (is at #40 broadcast(..)), rank 3 (no heartbeat for 2.0 s)". */
void missing_describe(const struct tutti_work *work, int64_t now, char *text, size_t size);

#endif
