/* How a work goes to a backend: which entry, natively, as a message, as a plan, or on copies. */
#ifndef DISPATCH_H
#define DISPATCH_H

#include <tutti/backend.h>

struct tutti_group;
struct tutti_work;

/* Begins it through the first of its group's entries that takes it, or through its own.  TUTTI_REQUEST_PENDING, also
 * where it has ended meanwhile; an error if nothing was begun. */
int dispatch_work(struct tutti_work *work);

/* Begins op of a blocking caller before it has a work.  work lends its fields from `fingerprint` on, uncleared. Returns
 * TUTTI_REQUEST_DONE if op has completed, and TUTTI_REQUEST_PENDING if the caller must make work its work.  Otherwise
 * nothing has begun, and dispatch_work finds out why. */
int dispatch_at_once(struct tutti_work *work, const struct tutti_group *group, const tutti_op *op,
                     uint64_t fingerprint);

/* All ranks have called what work is: its backend begins it.  An error: it could not. */
int dispatch_compared(struct tutti_work *work);

#endif
