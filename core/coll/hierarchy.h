/* Several hosts: where each rank stands, for the builders in hierarchy.c and hierarchy_blocks.c.
 *
 * The ranks of each host are cut into as many flocks as the host with the fewest ranks can have, one behind the other;
 * the first rank of a flock is its carrier.  The data is cut into as many slices, and carrier i of each host carries
 * slice i over the network: what is done within a host comes before, or after, that.  "leaders" is the same with one
 * flock a host, for messages that are too small to be cut.
 *
 * On root's host root comes first, so it is a carrier.
 */
#ifndef COLL_HIERARCHY_H
#define COLL_HIERARCHY_H

#include "parts.h"

struct hierarchy {
    const struct coll_args *args;
    const struct coll_hosts *hosts;
    struct coll_hosts *own; /* where the arguments have no hosts */
    int slices;
    int host;            /* this rank's */
    int n_local, place;  /* ranks on it, and this rank's place among them */
    int flock;           /* this rank's */
    bool carries;        /* it is its flock's carrier */
    int *local;          /* the host's ranks, by place */
    int *across;         /* the carriers of this rank's flock, by host */
    int64_t *count, *at; /* for the blocks of a part: as many as the group has ranks */
    int64_t *block;      /* of each rank: where its block lies in an area (hierarchy_blocks.c) */
};

/* With one flock a host, or as many as can be.  False: out of memory, which the plan knows. */
bool hierarchy_open(struct plan *plan, const struct coll_args *args, bool one, struct hierarchy *hierarchy);
void hierarchy_close(struct hierarchy *hierarchy);

/* How many ranks a host has; the rank at a place of it; the place of the carrier of flock i there (for i = slices:
 * behind the last). */
int hierarchy_ranks(const struct hierarchy *hierarchy, int host);
int hierarchy_rank(const struct hierarchy *hierarchy, int host, int place);
int hierarchy_carrier(const struct hierarchy *hierarchy, int host, int flock);

/* The arguments of a part within the host, of one between the hosts' carriers of this flock. */
struct coll_args hierarchy_within(const struct hierarchy *hierarchy, tutti_kind kind, int64_t count);
struct coll_args hierarchy_between(const struct hierarchy *hierarchy, tutti_kind kind, int64_t count);

/* Fills count and at for a part within the host in which only carriers have a block: slice i of numel elements. */
void hierarchy_slices(struct hierarchy *hierarchy, int64_t numel);

#endif
