/* Handles the messages of other ranks about a group that is being made. */
#ifndef CREATION_RECEIVE_H
#define CREATION_RECEIVE_H

#include <stddef.h>

struct creation;
struct tutti_group;

/* Handles the messages that arrived before this rank called.  Lock held. */
void creation_receive_early(struct creation *creation);

/* Posts an event for a control message to the tree's first group.  May be called within a backend's entry. */
void creation_receive_message(struct tutti_group *root, int peer, const void *message, size_t bytes);

#endif
