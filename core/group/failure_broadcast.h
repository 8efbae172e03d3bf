/* Sends the cause of a failure to every member and waits for their answers.
 *
 * A rank that leaves after a failure is blamed by ranks that find it gone, unless they get the first cause.  They get
 * it from its control message, which only connected peers receive, or from the store (cause.h).  The rank that hosts
 * the store takes the store with it when its program ends.  So it sends the cause to all members, connected or not,
 * before any call returns the error. */
#ifndef FAILURE_BROADCAST_H
#define FAILURE_BROADCAST_H

struct tutti_group;

/* Sends the group's failure to all members if this rank hosts the store and the failure may be mistaken for another
 * one.  Waits up to 500 ms for the answers, and polls the backends meanwhile.  Lock held, outside of the backends'
 * entries. */
void failure_broadcast_send(struct tutti_group *group);

/* Records that a peer (a group rank) has reported its group's failure too, or is lost, so that failure_broadcast_send
 * need not wait for it.  Does nothing unless a broadcast is under way.  May be called within a backend's entry. */
void failure_broadcast_answered(struct tutti_group *group, int peer);

#endif
