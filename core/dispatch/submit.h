/* Submits operations: checks them, launches them and waits for them. */
#ifndef SUBMIT_H
#define SUBMIT_H

#include <tutti/backend.h>
#include <tutti/tutti.h>

struct checked_call;
struct tutti_group;
struct tutti_work;

/* Checks and launches op on opts' group.  Waits for it unless opts ask for a Work.  The caller sets op's kind, tensors,
 * root (a global rank unless opts->group_rank), reduce_op, splits and list.  This function sets the rest.  opts_bytes
 * is the size of opts in the program. */
int submit(tutti_op *op, const tutti_opts *opts, size_t opts_bytes);

/* Does the same, but always returns a Work. */
int submit_async(tutti_op *op, const tutti_opts *opts, size_t opts_bytes, tutti_work **work);

/* Does the same with the library's own options.  out: where an asynchronous call gets its Work, or NULL. */
int submit_to(tutti_op *op, const tutti_opts *opts, tutti_work **out);

/* Passes the work of a call to the caller, or waits for it and frees it if out is NULL.  Releases the lock. */
int submit_finish(struct tutti_group *group, struct tutti_work *work, tutti_work **out);

/* Dispatches a checked op that is blocking or a message without a Work: most of them complete at once.  Returns
 * TUTTI_REQUEST_DONE, with a work in *out if it is async, or TUTTI_REQUEST_PENDING and a work in *out.  Returns
 * UNSUPPORTED if nothing has begun and launch_operation may do it.  Any other error is the operation's result.  call:
 * what the check has found.  Lock held. */
int submit_at_once(struct tutti_group *group, tutti_op *op, const struct checked_call *call, const tutti_opts *opts,
                   struct tutti_work **out);

#endif
