/* Control messages by which ranks find out why an operation does not end: failures of the group, questions for a peer's
 * position, answers, and departures (which backends send).
 *
 * A rank that has waited for a while asks the peers it waits for.  The question carries the fingerprint of its own
 * operation.  So two ranks that wait for each other in different operations find out even though no data flows.  The
 * answers supply the error message of a timeout (stragglers.h).  Messages are best effort: no operation waits for
 * one. */
#ifndef HEALTH_H
#define HEALTH_H

#include <stdbool.h>
#include <tutti/backend.h>

struct health;
struct stragglers;
struct control_message;
struct tutti_group;
struct tutti_work;

struct health *health_new(int size);
void health_free(struct health *health);

/* Keeps the fingerprint of an issued collective for a while, to compare it with peers' questions. */
void health_issued(struct health *health, uint64_t sequence, uint64_t fingerprint);

/* Asks the peers that an operation waits for where they are, and compares collectives with theirs.  Returns a peer that
 * has destroyed the group, so that the operation cannot complete, or -1. */
int health_ask(const struct tutti_work *work);

/* Asks a peer for a sign of life.  Returns false if it was asked a moment ago. */
bool health_probe(struct tutti_group *group, int peer);

/* Records that a peer has sent the failure of the group, as it does when it is asked. */
void health_receive_failure(struct tutti_group *group, int peer);

/* Encodes the control message with the group's failure and the first collective that it affects.  Returns its
 * length. */
size_t health_failure(const struct tutti_group *group, uint8_t wire[]);

/* Sends that message to all peers. */
void health_send_failure(struct tutti_group *group);

/* Answers a peer that asks where this rank is, and passes the question on.  Returns false, with an error message, if
 * the two ranks' calls differ, which must fail the group. */
bool health_answer(struct tutti_group *group, int peer, const struct control_message *ask, char *text, size_t size);

/* Handles a peer's answer. */
void health_receive_position(struct tutti_group *group, int peer, const struct control_message *here);

/* Records that a peer has destroyed the group. */
void health_receive_left(struct tutti_group *group, int peer);

/* Returns the positions that peers have reported.  health owns them. */
struct stragglers *health_stragglers(const struct health *health);

/* Writes "rank 1 called X, rank 0 called Y". */
void health_describe_mismatch(const struct tutti_group *group, int peer, uint64_t theirs, uint64_t mine, char *text,
                              size_t size);

#endif
