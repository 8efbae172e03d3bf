/* The first cause of a group's failure, kept in the group's store.
 *
 * A rank that finds a failure by itself offers its reason to the store before it tells anybody and before it closes a
 * connection; the first reason counts.  A rank that sees a connection end therefore learns why its peer has left, even
 * if the two were not connected when the peer could report it. */
#ifndef CAUSE_H
#define CAUSE_H

#include "base/error.h"

struct tutti_group;

/* Offers status and text as the cause of the group's failure.  Where another rank has offered one before and this one
 * may be its consequence (a lost peer, an unreachable store), text becomes that cause's and its status is returned;
 * else status.  Waits for the store for a moment at most.  Under the lock. */
int cause_settle(struct tutti_group *group, int status, char text[ERROR_TEXT_MAX]);

#endif
