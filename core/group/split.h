/* What each rank of a group chooses when it is split: how all of them learn it.
 *
 * Where the family's backend has `tell`, the ranks hand their choices to the lowest one, which tells them to all (see
 * making.h).  Else they go through the store.
 */
#ifndef SPLIT_H
#define SPLIT_H

struct subgroup_id;
struct tutti_group;

struct split_choice {
    int color, key, rank; /* the rank is global */
};

/* Fills one entry for each rank of the parent, in their order.  All ranks of the parent call it, with the same id. */
int split_exchange(struct tutti_group *parent, const struct subgroup_id *id, int color, int key,
                   struct split_choice *all);

#endif
