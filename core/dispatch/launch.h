/* Launches operations: each gets its place in its group, and is dispatched unless it has to wait for the memory of an
 * earlier one. */
#ifndef LAUNCH_H
#define LAUNCH_H

#include <stdbool.h>
#include <tutti/backend.h>
#include <tutti/tutti.h>

struct packing;
struct tutti_group;
struct tutti_work;

/* Waits for staged operations that must end before op is dispatched.  Returns an error if the group has become unusable
 * meanwhile. */
int launch_after_staged(struct tutti_group *group, const tutti_op *op);

/* Launches a checked op of a usable group.  The caller gets a reference to *work. */
int launch_operation(struct tutti_group *group, tutti_op *op, uint64_t fingerprint, const tutti_opts *opts, bool async,
                     struct tutti_work **work);

/* Launches a part of a coalesced operation, after launch_after_staged.  parent ends when all its parts have ended.  The
 * part owns packing (may be NULL), also on an error.  Sets *staged if the next part may have to wait for this one. */
int launch_part(struct tutti_group *group, tutti_op *op, const tutti_opts *opts, struct tutti_work *parent,
                struct packing *packing, bool *staged);

/* Returns the error of an operation that could not begin because its peer is lost.  This is the failure that caused the
 * loss, if it is known. */
int launch_explain_loss(struct tutti_group *group, const tutti_op *op);

/* Launches the works of the group tree that waited for the memory of a work that has ended. */
void launch_unblocked(struct tutti_group *first);

#endif
