/* Several operations as one: what a thread calls between tutti_coalesce_begin and _end is kept, then started together.
 *
 * Small reductions and broadcasts of one kind that follow each other are packed into one message: their inputs are
 * copied side by side, one operation runs over all, and its result is copied back.
 */
#ifndef COALESCE_H
#define COALESCE_H

#include <stdatomic.h>
#include <tutti/backend.h>
#include <tutti/tutti.h>

struct tutti_group;
struct tutti_work;
struct coalesce_packing;

extern atomic_int coalesce_n_open; /* threads that have begun, of all */
bool coalesce_is_mine(const struct tutti_group *group);

/* Whether this thread has begun to coalesce on the group. */
static inline bool coalesce_is_open(const struct tutti_group *group)
{
    /* What a thread has is looked up by a call; nearly always no thread has anything.  relaxed: see where it is set. */
    return atomic_load_explicit(&coalesce_n_open, memory_order_relaxed) > 0 && coalesce_is_mine(group);
}

/* Keeps a checked operation for the end. */
int coalesce_add(struct tutti_group *group, const tutti_op *op, const tutti_opts *opts);

/* Gives up what an operation that did not begin had packed; NULL is ignored. */
void coalesce_drop(struct coalesce_packing *packing);

/* Tells the backends that what comes between the two may start as one.  The second form is the end, after status: the
 * first error and its sentence stay. */
int coalesce_tell(struct tutti_group *group, bool begin);
int coalesce_tell_end(struct tutti_group *group, int status);

/* A work ends, under the lock: copies a packed one's results to where they belong. */
void coalesce_part_ended(struct tutti_work *work, int status);

#endif
