/* Which ranks of a group that is being opened are still there, and which ranks have left a file behind.
 *
 * A backend sees the end of a peer through its link to it; before there is one, nobody would.  So each rank says which
 * process of which machine it is, and whoever has to wait for the others looks whether those of its own machine live.
 * Its own are those whose process numbers it knows: a container on the same host counts its own, and may have its name.
 */
#ifndef ALIVE_H
#define ALIVE_H

enum {
    ALIVE_LOOK_MS = 200, /* so often, where it takes so long */
    ALIVE_NAME_MAX = 96
};

struct tutti_group;

/* Which process of which machine this is. */
void alive_name(char name[ALIVE_NAME_MAX]);

/* The number of the process of this name if it is of this machine and has ended, else 0: it lives, or one cannot know.
 */
int alive_ended(const char *name);

/* Says which process this is, in the group's store, and learns whose turn it is there: what earlier groups have left
 * is not this one's. */
int alive_publish(struct tutti_group *group);

/* PEER_LOST, naming it, if a rank of this machine has ended without a goodbye. */
int alive_check(struct tutti_group *group);

#endif
