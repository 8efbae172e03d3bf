/* A group of some of another one's ranks. */
#ifndef SUBGROUP_H
#define SUBGROUP_H

#include <tutti/tutti.h>

/* Which of a parent's groups it is. */
struct subgroup_id {
    uint64_t id;     /* of the group */
    uint64_t key;    /* by which its members find each other, also where they think differently of the list */
    uint64_t number; /* among those that all ranks of the parent call for; 0: another kind */
    bool survivors;  /* the parent may have failed */
    bool may_pend;   /* it need not be made before its first use */
};

/* Opens the group of n global ranks of the parent; a handle for an outsider where this rank is none of them.  color:
 * the same for those of the group; others have another one, or none and a negative number. */
int subgroup_open(struct tutti_group *parent, const int *ranks, int n, const struct subgroup_id *id, int color,
                  const tutti_group_opts *opts, tutti_group **group);

#endif
