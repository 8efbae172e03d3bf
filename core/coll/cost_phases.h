/* The time of an algorithm's phases on a model of the group: LogGP, with links that the ranks of a host share. */
#ifndef COLL_COST_PHASES_H
#define COLL_COST_PHASES_H

#include "coll.h"

/* Time until the first segment is through, until all are, and for which the busiest processor and link work, in ns. */
struct cost_span {
    double first, all, cpu, link;
};

/* Returns the span of an algorithm without parts, for `bytes` of the whole operation. */
struct cost_span cost_phases(const struct coll_algorithm *algorithm, const struct coll_args *args, double bytes);

/* Returns the link with assumptions in place of what is unknown. */
struct coll_link cost_link(const struct coll_link *given);

/* Returns the time in which a rank copies. */
double cost_copy(double bytes);

#endif
