/* Counters of groups, in memory that tutti-info may read while the process runs (tutti/stats.h). */
#ifndef CORE_STATS_H
#define CORE_STATS_H

#include <stdbool.h>
#include <tutti/stats.h>

/* Returns zeroed counters, or NULL if out of memory.  They are published unless TUTTI_STATS is off, there are too many
 * groups, or the system refuses a memfd. */
tutti_stats *stats_take(void);

/* Frees them.  The last ones of the process take the file with them.  Ignores NULL. */
void stats_give(tutti_stats *stats);

/* Says which group they count for. */
void stats_label(tutti_stats *stats, const char *name, int rank, int world, int global_rank, bool is_tree);

#endif
