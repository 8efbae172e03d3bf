/* Submits operations: checks them, launches them and waits for them. */
#ifndef SUBMIT_H
#define SUBMIT_H

#include <tutti/backend.h>
#include <tutti/tutti.h>

struct tutti_work;

/* Checks and launches op on opts' group.  Waits for it unless opts ask for a Work.  The caller sets op's kind, tensors,
 * root (a global rank unless opts->group_rank), reduce_op, splits and list.  This function sets the rest.  opts_bytes
 * is the size of opts in the program. */
int submit(tutti_op *op, const tutti_opts *opts, size_t opts_bytes);

/* Does the same, but always returns a Work. */
int submit_async(tutti_op *op, const tutti_opts *opts, size_t opts_bytes, tutti_work **work);

#endif
