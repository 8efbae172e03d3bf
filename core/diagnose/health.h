/* What ranks tell each other besides their data: "I failed, because", "where are you?", "here I am", "I have left"
 * (which backends say).
 *
 * A rank that has waited for a while asks the peers it waits for.  The question carries the fingerprint of its own
 * operation, so two ranks that wait for each other in different operations find out even though no data flows; the
 * answers give a timeout its text (stragglers.h).  Notes are best effort; nothing waits for one.
 */
#ifndef HEALTH_H
#define HEALTH_H

#include <stdbool.h>
#include <tutti/backend.h>

struct health;
struct stragglers;
struct note;
struct tutti_group;
struct tutti_work;

struct health *health_new(int size);
void health_free(struct health *health);

/* A collective was issued: its fingerprint is kept for a while, to be compared with what peers ask. */
void health_issued(struct health *health, uint64_t sequence, uint64_t fingerprint);

/* Asks the peers that an operation waits for where they are; collectives are compared with theirs.  A peer that has
 * destroyed the group before, so that the operation cannot end; -1: none. */
int health_ask(const struct tutti_work *work);

/* Encodes the control message that says how the group failed, from which collective on.  Returns its length. */
size_t health_failure(const struct tutti_group *group, uint8_t wire[]);

/* Tells all peers that the group failed, how, and from which collective on. */
void health_tell(struct tutti_group *group);

/* Answers a peer that asks where this rank is, and passes the question on.  False, with a text, if the two ranks' calls
 * differ: the group has to fail. */
bool health_answer(struct tutti_group *group, int peer, const struct note *ask, char *text, size_t size);

/* A peer says where it is. */
void health_heard(struct tutti_group *group, int peer, const struct note *here);

/* A peer has destroyed the group. */
void health_left(struct tutti_group *group, int peer);

/* Returns what the peers have answered.  health owns it. */
struct stragglers *health_stragglers(const struct health *health);

/* "rank 1 called X, rank 0 called Y" */
void health_describe_mismatch(const struct tutti_group *group, int peer, uint64_t theirs, uint64_t mine, char *text,
                              size_t size);

#endif
