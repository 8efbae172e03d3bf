/* Several hosts: where each rank stands, for the builders in hierarchy.c and hierarchy_blocks.c.
 *
 * The data is cut into as many slices as the host with the most ranks has ranks, and on each host each rank carries its
 * slices over the network: one, or several side by side where the host has fewer ranks.  What is done within a host
 * comes before, or after, that.  "leaders" is the same with a single slice, which the first rank of each host carries,
 * for messages that are too small to be cut.
 *
 * On root's host root comes first, so it carries slice 0.
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
    int first, next;     /* the slices that this rank carries; with leaders most carry none */
    int *local;          /* the host's ranks, by place */
    int *across;         /* by host: the carriers of one slice (hierarchy_across) */
    int64_t *count, *at; /* for the blocks of a part: as many as the group has ranks */
    int64_t *block;      /* of each rank: where its block lies in an area (hierarchy_blocks.c) */
};

/* With one slice, or as many as can be carried.  False: out of memory, which the plan knows. */
bool hierarchy_open(struct plan *plan, const struct coll_args *args, bool one, struct hierarchy *hierarchy);
void hierarchy_close(struct hierarchy *hierarchy);

/* How many ranks a host has; the rank at a place of it; the place there that carries a slice (for one beyond the last:
 * behind the last place); the first slice that a place of this host carries. */
int hierarchy_ranks(const struct hierarchy *hierarchy, int host);
int hierarchy_rank(const struct hierarchy *hierarchy, int host, int place);
int hierarchy_carrier(const struct hierarchy *hierarchy, int host, int slice);
int hierarchy_first(const struct hierarchy *hierarchy, int place);

/* Fills across: who carries this slice. */
void hierarchy_across(struct hierarchy *hierarchy, int slice);

/* The arguments of a part within the host, and of one between the carriers of a slice. */
struct coll_args hierarchy_within(const struct hierarchy *hierarchy, tutti_kind kind, int64_t count);
struct coll_args hierarchy_between(const struct hierarchy *hierarchy, tutti_kind kind, int64_t count);

#endif
