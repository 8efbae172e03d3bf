/* Which operations of a group wait for earlier ones.
 *
 * Collectives of a group complete as if run in the order of issue: one that writes what an earlier one still uses waits
 * for it.  Messages wait for their copies alone, where there are such.
 */
#ifndef ORDER_H
#define ORDER_H

#include <tutti/backend.h>

struct tutti_work;

/* Before work joins its group's works: notes whether its memory lies apart from all of theirs, so that who issues many
 * need not compare each with all others. */
void order_enlist(struct tutti_work *work);

/* Whether work, the latest of its group or held back before, may not begin yet. */
bool order_must_wait(const struct tutti_work *work);

/* Whether two operations may not be under way at once because of the memory they use. */
bool order_conflicts(const tutti_op *a, const tutti_op *b);

#endif
