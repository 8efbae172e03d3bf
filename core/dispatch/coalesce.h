/* Coalesces the calls of a thread between tutti_coalesce_begin and _end: keeps them, then launches them together.
 *
 * Small reductions and broadcasts of one kind that follow each other are packed into one message.  Their inputs are
 * copied side by side, one operation runs over all, and its result is copied back.
 */
#ifndef COALESCE_H
#define COALESCE_H

#include <stdatomic.h>
#include <tutti/backend.h>
#include <tutti/tutti.h>

struct tutti_group;
struct tutti_work;

extern atomic_int coalesce_n_open; /* number of threads of the process that coalesce */
bool coalesce_is_mine(const struct tutti_group *group);

/* True if this thread coalesces on the group. */
static inline bool coalesce_is_open(const struct tutti_group *group)
{
    /* No thread coalesces in nearly all calls, and reading the thread's own state costs a call.  relaxed: see
     * coalesce_begin. */
    return atomic_load_explicit(&coalesce_n_open, memory_order_relaxed) > 0 && coalesce_is_mine(group);
}

/* Keeps a checked operation until the end of the range. */
int coalesce_add(struct tutti_group *group, const tutti_op *op, const tutti_opts *opts);

/* Marks a range of operations for the backends, which may start them together.  coalesce_unmark ends the range after
 * status, and keeps the first error and its message. */
int coalesce_mark(struct tutti_group *group);
int coalesce_unmark(struct tutti_group *group, int status);

#endif
