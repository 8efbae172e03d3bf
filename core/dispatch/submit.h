/* The way of a call: it is checked, launched and waited for. */
#ifndef SUBMIT_H
#define SUBMIT_H

#include <tutti/backend.h>
#include <tutti/tutti.h>

struct tutti_work;

/* Checks and launches op on opts' group.  Waits for it unless opts ask for a Work.  op has kind, tensors, root (as the
 * caller gave it), reduce_op, splits and list set; the rest is filled in here.  opts_bytes: the size of opts in the
 * program. */
int submit(tutti_op *op, const tutti_opts *opts, size_t opts_bytes);

/* The same, but always returns a Work. */
int submit_async(tutti_op *op, const tutti_opts *opts, size_t opts_bytes, tutti_work **work);

#endif
