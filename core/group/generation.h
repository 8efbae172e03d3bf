/* Generations of a group: the groups that regroup makes in its place, one after the other.
 *
 * A group that init or create_group made is generation 0.  A later one has the number of the meeting by which it was
 * made.  Its store keys have that number, so those of earlier generations never match.  The newest generation is in the
 * store under "regroup/current", for newcomers, and for ranks that the others have left behind. */
#ifndef GENERATION_H
#define GENERATION_H

#include <stdint.h>
#include <tutti/store.h>

struct tutti_group;

struct generation {
    uint64_t number, previous; /* its own, and that of the generation before it */
    int n;                     /* number of ranks; 0: unknown */
    int *old_rank;             /* by rank; -1: a newcomer; NULL: all are new */
    int64_t *member;           /* numbers of the processes, by rank */
    int n_skipped;
    int64_t *skipped;      /* processes that were not waited for */
    tutti_store *store;    /* where the ranks meet; borrowed */
    tutti_store *launcher; /* has the launcher's list of members; borrowed, or NULL */
};

/* Makes generation 0 of n ranks, whose numbers are their ranks. */
int generation_first(int n, tutti_store *store, tutti_store *launcher, struct generation **first);

/* Allocates a generation with room for n ranks and n_skipped skipped processes, or returns NULL. */
struct generation *generation_new(int n, int n_skipped);
void generation_free(struct generation *generation);

/* Writes the generation to the store, unless a newer one is there. */
int generation_publish(const struct generation *generation);

/* Reads the newest generation from the store.  *newest is NULL if none has been written; else it has no old ranks. */
int generation_read(tutti_store *store, struct generation **newest);

/* Returns PEER_LOST, naming the rank, if the launcher has seen a member's process end. */
int generation_check_launcher(const struct generation *generation);

#endif
