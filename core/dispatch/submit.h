/* The way of an operation from its descriptor to a backend: it is checked, put in its place, begun and waited for. */
#ifndef SUBMIT_H
#define SUBMIT_H

#include <tutti/backend.h>
#include <tutti/tutti.h>

struct backend_entry;
struct tutti_group;
struct tutti_work;
struct coalesce_packing;

/* Checks, begins and, unless opts ask for a Work, waits for op on opts' group.  op has kind, tensors, root (as the
 * caller gave it), reduce_op, splits and list set; the rest is filled in here.  opts_bytes: their size in the program.
 */
int submit(tutti_op *op, const tutti_opts *opts, size_t opts_bytes);

/* The same with a Work given out whatever opts say. */
int submit_async(tutti_op *op, const tutti_opts *opts, size_t opts_bytes, tutti_work **work);

/* Waits for what has to end before op may be begun on a group that is usable; an error: it is not any more. */
int submit_make_way(struct tutti_group *group, const tutti_op *op);

/* A part of a coalesced operation, for which way was made: parent ends when all its parts have.  packing (may be NULL)
 * is the part's from here on, also where this fails.  *staged: the next part may have to wait for this one. */
int submit_part(struct tutti_group *group, tutti_op *op, const tutti_opts *opts, struct tutti_work *parent,
                struct coalesce_packing *packing, bool *staged);

/* A part of a staged one, through a entry of its own. */
int submit_staged(struct tutti_work *whole, tutti_op *op, const struct backend_entry *entry);

/* A probe, op, that does not wait: *found says whether opts' source, received_tag and received have been set. */
int submit_look(const tutti_op *op, const tutti_opts *opts, bool *found);

/* Waits for the message that the probe op finds and receives it into memory that it allocates.  opts have source,
 * received_tag and received set. */
int submit_recv_bytes(const tutti_op *op, const tutti_opts *opts, tutti_bytes *out);

/* n messages: all are checked before the first begins. */
int submit_batch(const tutti_p2p_op *ops, int n, const tutti_opts *opts, tutti_work **works);

/* A work has ended: begins those of the family that waited for its memory. */
void submit_unblocked(struct tutti_group *first);

#endif
