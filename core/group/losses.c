#include "group/losses.h"

#include <stdio.h>
#include <stdlib.h>

#include "state/group_state.h"

const struct loss *losses_find(const struct tutti_group *root, int peer)
{
    const struct loss *loss = root->losses;
    while (loss != NULL && loss->peer != peer) loss = loss->next;
    return loss;
}

void losses_add(struct tutti_group *root, int peer, bool left, const char *why)
{
    struct loss *loss = losses_find(root, peer) == NULL ? calloc(1, sizeof *loss) : NULL;
    if (loss == NULL) return; /* known, or out of memory: then the reason is missing */
    loss->peer = peer;
    loss->left = left;
    snprintf(loss->why, sizeof loss->why, "%s", why);
    loss->next = root->losses;
    root->losses = loss;
}

void losses_free(struct tutti_group *root)
{
    while (root->losses != NULL) {
        struct loss *loss = root->losses;
        root->losses = loss->next;
        free(loss);
    }
}
