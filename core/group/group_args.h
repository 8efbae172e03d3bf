/* What a new group is made from. */
#ifndef GROUP_ARGS_H
#define GROUP_ARGS_H

#include <stdbool.h>
#include <stdint.h>
#include <tutti/store.h>
#include <tutti/types.h>

struct backend_spec;
struct engine_hooks;
struct tutti_group;

struct group_args {
    const struct backend_spec *names; /* backends by device, parsed */
    struct tutti_group *parent;       /* NULL: the first group of a tree */
    struct tutti_group *whole;        /* all of whose ranks make groups now, by color; NULL: only the members call */
    int color;
    tutti_store *store; /* of a group made with a store: borrowed; the group makes a prefix of it */
    bool is_shared;     /* first group of a tree: groups made with a store share it, and it gets no handle */
    const struct engine_hooks *hooks; /* first group of a tree: for its engine */
    uint64_t id;
    uint64_t key;    /* with a parent: identifies the creation, and may be alike for lists of members that differ */
    uint64_t number; /* among the groups that all ranks of the parent make; 0: members_only */
    bool survivors;  /* of a parent that has failed, or is about to */
    bool may_pend;   /* it need not be made before its first use */
    bool splits;     /* no group is made: the ranks exchange color and split_key */
    int split_key;
    const char *name;
    int rank, size;
    const int *global_ranks;                     /* NULL: 0 .. size - 1 */
    int local_rank, local_world_size, node_rank; /* -1 if the launcher has not said */
    int64_t timeout_ms;
    int64_t open_timeout_ms; /* of each wait for other ranks while the group is made; 0: timeout_ms */
    tutti_device device;
    bool high_priority;
    const char *algorithm; /* NULL: the root's */
};

#endif
