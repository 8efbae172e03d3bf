/* Which ranks of a group that is being opened are still there.
 *
 * A backend sees the end of a peer through its link to it; before there is one, nobody would.  So each rank says which
 * process of which machine it is, and whoever has to wait for the others looks whether those of its own machine live.
 */
#ifndef ALIVE_H
#define ALIVE_H

enum { ALIVE_LOOK_MS = 200 /* so often, where it takes so long */ };

struct tutti_group;

/* Says which process this is, in the group's store. */
int alive_publish(struct tutti_group *group);

/* PEER_LOST, naming it, if a rank of this machine has ended without a goodbye. */
int alive_check(struct tutti_group *group);

#endif
