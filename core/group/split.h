/* Exchanges the choices of all ranks of a group that is split.
 *
 * If the tree's backend has `tell`, the ranks send their choices to the lowest one, which sends them to all (see
 * creation.h).  Otherwise the choices go through the store.
 */
#ifndef SPLIT_H
#define SPLIT_H

struct subgroup_id;
struct tutti_group;

struct split_choice {
    int color, key, rank; /* color and key, and the global rank that chose them */
};

/* Fills one entry for each rank of the parent, in rank order.  All ranks of the parent call it, with the same id. */
int split_exchange(struct tutti_group *parent, const struct subgroup_id *id, int color, int key,
                   struct split_choice *all);

#endif
