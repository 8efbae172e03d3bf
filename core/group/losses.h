/* Why connections to ranks have ended. */
#ifndef LOSSES_H
#define LOSSES_H

#include <stdbool.h>

struct tutti_group;

struct loss {
    struct loss *next;
    int peer;  /* global rank */
    bool left; /* it has announced that it leaves */
    char why[200];
};

/* Records the first loss of a rank in the tree's first group.  Lock held. */
void losses_add(struct tutti_group *root, int peer, bool left, const char *why);

/* Returns what is known of the loss of a rank, or NULL.  Lock held. */
const struct loss *losses_find(const struct tutti_group *root, int peer);

void losses_free(struct tutti_group *root);

#endif
