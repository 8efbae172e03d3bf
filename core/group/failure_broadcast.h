/* Sends the cause of a failure to every member and waits for their answers.
 *
 * A rank that leaves after a failure is named by those that find it gone, unless they learn the first cause: from its
 * control message, which only connected peers get, or from the store (cause.h).  The rank that hosts the store takes
 * the store with it when its program ends.  So it sends the cause to all members, connected or not, before any call
 * returns the error. */
#ifndef FAILURE_BROADCAST_H
#define FAILURE_BROADCAST_H

struct tutti_group;

/* Sends the group's failure to all members if this rank hosts the store and the failure may be mistaken for another
 * one.  Waits for the answers, 500 ms at most, and drives the backends meanwhile.  Under the lock, outside of the
 * backends' entries. */
void failure_broadcast_send(struct tutti_group *group);

/* A peer (a rank of the group) says that its group has failed, too, or is lost: failure_broadcast_send need not wait
 * for it. Does nothing unless the group spreads a failure.  May be called within a backend's entry. */
void failure_broadcast_answered(struct tutti_group *group, int peer);

#endif
