/* Estimates how long an algorithm takes, from the phases of which its row in parts.h says it consists.
 *
 * An algorithm runs for one piece of the data after the other, and pieces overlap.  So its time is that of one piece,
 * and for each further piece the time for which the busiest processor or link works on it.  This is the LogGP model
 * with links that the ranks of a host share. */
#ifndef COLL_COST_H
#define COLL_COST_H

#include "coll.h"

/* Returns the estimated time in ns, or INFINITY if the algorithm makes no sense for these hosts.  Returns the same on
 * all ranks: it depends only on kind, sizes, hosts and link. */
double cost_estimate(const struct coll_algorithm *algorithm, const struct coll_args *args);

/* Return the elements and the bytes of the whole operation as far as all ranks know them, so they never differ between
 * ranks.  If blocks differ, only all_gather and reduce_scatter show every rank all counts; other kinds, for which 0 is
 * returned, have one algorithm for that case. */
int64_t cost_elements(const struct coll_args *args);
double cost_bytes(const struct coll_args *args);

/* Returns the first algorithm that supports the shapes and whose estimate is within 3 % of the lowest, and sets the
 * estimates of all, by coll_nth's number, unless estimates is NULL. */
const struct coll_algorithm *cost_cheapest(const struct coll_args *args, double *estimates);

/* True if the algorithm supports these blocks. */
bool cost_supports(const struct coll_algorithm *algorithm, const struct coll_args *args);

#endif
