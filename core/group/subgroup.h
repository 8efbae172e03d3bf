/* Makes a group of some of its parent's ranks. */
#ifndef SUBGROUP_H
#define SUBGROUP_H

#include <tutti/tutti.h>

/* Identifies one of a parent's subgroups. */
struct subgroup_id {
    uint64_t id;     /* id of the group */
    uint64_t key;    /* by which its members find each other, even if their lists differ */
    uint64_t number; /* number among the groups that all ranks of the parent make; 0: members_only */
    bool survivors;  /* the parent may have failed */
    bool may_pend;   /* the group need not be made before its first use */
};

/* Opens the group of n global ranks of the parent, or a non-member's handle if this rank is none of them.  color is the
 * same on all members.  A rank of another group passes another color, a rank of no
 * group a negative one. */
int subgroup_open(struct tutti_group *parent, const int *ranks, int n, const struct subgroup_id *id, int color,
                  const tutti_group_opts *opts, tutti_group **group);

#endif
