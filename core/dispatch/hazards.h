/* Which operations of a group wait for earlier ones.
 *
 * Collectives of a group complete as if run in the order of issue: one that writes what an earlier one still uses waits
 * for it.  Messages wait for their copies alone, where there are such.
 */
#ifndef HAZARDS_H
#define HAZARDS_H

#include <tutti/backend.h>

struct tutti_work;

/* Before work joins its group's works: notes whether its memory lies apart from all of theirs, so that who issues many
 * need not compare each with all others. */
void hazards_enlist(struct tutti_work *work);

/* Whether work, the latest of its group or held back before, may not begin yet. */
bool hazards_must_wait(const struct tutti_work *work);

/* Whether two operations may not be under way at once because of the memory they use. */
bool hazards_conflicts(const tutti_op *a, const tutti_op *b);

#endif
