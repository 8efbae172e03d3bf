/* Sends messages about a group that is being made, and decides the verdict. */
#ifndef CREATION_DECIDE_H
#define CREATION_DECIDE_H

#include "group/creation_state.h"

/* Returns a message about this creation. */
struct creation_message creation_message_of(const struct creation *creation, enum creation_type type);

/* Sends a message to a global rank.  Returns TUTTI_OK or PEER_LOST. */
int creation_send(struct tutti_group *root, int peer, const struct creation_message *message);
int creation_send_proposal(struct creation *creation, int peer);

/* Answers a peer's message with this rank's whereabouts if the peer has asked for them, otherwise with a verdict. */
void creation_answer(struct tutti_group *root, int peer, const struct creation_message *to, int status,
                     const char *text);

/* Sets this rank's verdict.  With `notify`, a leader sends it to all members, and a member to its leader. */
void creation_decide(struct creation *creation, int status, const char *text, bool notify);

/* Decides TIMEOUT and names the stragglers. */
void creation_decide_late(struct creation *creation);

/* creation_fail_made fails a group on all members after a verdict of OK.  creation_send_failed only sends the failure,
 * over the tree's first group, because members may not have opened this one yet. */
void creation_fail_made(struct creation *creation, int status, const char *text);
void creation_send_failed(struct creation *creation, int status, const char *text);

#endif
