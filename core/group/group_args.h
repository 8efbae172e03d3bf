/* The arguments of a new group. */
#ifndef GROUP_ARGS_H
#define GROUP_ARGS_H

#include <stdbool.h>
#include <stdint.h>
#include <tutti/store.h>
#include <tutti/types.h>

struct backend_spec;
struct engine_hooks;
struct generation;
struct tutti_group;

struct group_args {
    const struct backend_spec *names; /* backends by device, parsed */
    struct tutti_group *parent;       /* NULL: makes the first group of a tree */
    struct tutti_group
        *whole; /* group whose ranks all make groups in this call, by color; NULL: only the members call */
    int color;
    tutti_store *store;               /* given to create_group; borrowed: the group makes a prefix store in it */
    bool is_shared;                   /* first group of a tree: has no handle, and groups made with a store share it */
    const struct engine_hooks *hooks; /* first group of a tree: hooks of its engine */
    uint64_t id;
    uint64_t key;    /* with a parent: identifies the creation; differing lists of members may have the same key */
    uint64_t number; /* number among the groups that all ranks of the parent make; 0: members_only */
    bool survivors;  /* the parent has failed, or is about to */
    bool may_pend;   /* the group need not be made before its first use */
    int split_key;   /* creation_split only */
    const char *name;
    int rank, size;
    const int *global_ranks;                     /* NULL: 0 .. size - 1 */
    int local_rank, local_world_size, node_rank; /* -1 if the launcher has not set it */
    int64_t timeout_ms;
    int64_t open_timeout_ms; /* for each wait for other ranks while the group is made; 0: timeout_ms */
    tutti_device device;
    bool high_priority;
    const char *algorithm;         /* NULL: the root's applies */
    struct generation *generation; /* made by regroup: the group frees it, even if it cannot be opened; else NULL */
};

#endif
