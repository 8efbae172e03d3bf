/* Collectives over several hosts: the position of each rank, for the builders in hierarchy.c and hierarchy_blocks.c.
 *
 * The ranks of each host are divided into lanes of consecutive ranks, as many as the host with the fewest ranks has
 * ranks.  The first rank of a lane is its leader.  The data is cut into as many slices, and leader i of each host sends
 * and receives slice i over the network.  Steps within a host come before or after that.  The "leaders" algorithms are
 * the same with one lane per host, for messages that are too small to be cut.
 *
 * On root's host, root is the first rank, so it is a leader. */
#ifndef COLL_HIERARCHY_H
#define COLL_HIERARCHY_H

#include "parts.h"

struct hierarchy {
    const struct coll_args *args;
    const struct coll_hosts *hosts;
    struct coll_hosts *own; /* allocated if the arguments have no hosts */
    int slices;
    int host;            /* this rank's host */
    int n_local, index;  /* number of ranks on it, and this rank's index among them */
    int lane;            /* this rank's lane */
    bool is_leader;      /* this rank is its lane's leader */
    int *local;          /* the host's ranks, by index */
    int *across;         /* the leaders of this rank's lane, by host */
    int64_t *count, *at; /* for the blocks of a part; one entry per rank of the group */
    int64_t *block;      /* the offset of each rank's block in an area (hierarchy_blocks.c) */
};

/* Initialises with one lane per host, or as many as possible.  Returns false if out of memory, which it records in the
 * plan. */
bool hierarchy_open(struct plan *plan, const struct coll_args *args, bool one, struct hierarchy *hierarchy);
void hierarchy_close(struct hierarchy *hierarchy);

/* hierarchy_ranks returns the number of ranks of a host, and hierarchy_rank the rank at an index of it.
 * hierarchy_leader returns the index of the leader of lane i on it (for i = slices: one past the last index). */
int hierarchy_ranks(const struct hierarchy *hierarchy, int host);
int hierarchy_rank(const struct hierarchy *hierarchy, int host, int index);
int hierarchy_leader(const struct hierarchy *hierarchy, int host, int lane);

/* hierarchy_within returns the arguments of a part within the host, and hierarchy_between those of a part between the
 * leaders of this lane on all hosts. */
struct coll_args hierarchy_within(const struct hierarchy *hierarchy, tutti_kind kind, int64_t count);
struct coll_args hierarchy_between(const struct hierarchy *hierarchy, tutti_kind kind, int64_t count);

/* Fills count and at for a part within the host in which only leaders have a block: slice i of numel elements. */
void hierarchy_slices(struct hierarchy *hierarchy, int64_t numel);

#endif
