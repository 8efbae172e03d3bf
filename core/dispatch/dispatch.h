/* Dispatches operations through one backend entry: natively, as a message or as a plan. */
#ifndef DISPATCH_H
#define DISPATCH_H

#include <tutti/backend.h>

struct backend_entry;
struct tutti_group;
struct tutti_work;

/* Bit that marks the tags of messages; tags of collectives lack it. */
#define DISPATCH_MESSAGE_TAG (UINT64_C(1) << 63)

/* Dispatches work through an entry whose backend takes its tensors.  Returns TUTTI_REQUEST_PENDING, also if the work
 * has ended meanwhile, or an error if nothing has begun. */
int dispatch_through(struct tutti_work *work, const struct backend_entry *entry);

/* Returns the entry whose backend takes a checked send or receive as a message, or is asked to do a collective by
 * itself.  NULL: op may take another way. */
const struct backend_entry *dispatch_entry(const struct tutti_group *group, const tutti_op *op);

/* Dispatches a blocking caller's op, or a message, before it has a work.  Uses the fields of work from `fingerprint`
 * on, uncleared.  Returns TUTTI_REQUEST_DONE if op has completed, and TUTTI_REQUEST_PENDING if the caller must turn
 * work into op's work.  Otherwise nothing has begun, and route_work finds the reason.  entry: dispatch_entry of
 * op, or NULL if it is not known. */
int dispatch_at_once(struct tutti_work *work, const struct tutti_group *group, const tutti_op *op, uint64_t fingerprint,
                     const struct backend_entry *entry);

/* Hands work to its backend, after a barrier has shown that all ranks call the same operation.  Returns an error if the
 * backend refuses it. */
int dispatch_compared(struct tutti_work *work);

#endif
