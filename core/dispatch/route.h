/* Which backend entry of its group takes an operation. */
#ifndef ROUTE_H
#define ROUTE_H

struct tutti_work;

/* Dispatches work through the first entry of its group that takes it, staged if the entry's backend does not take
 * tensors of their device; or through work->entry.  Returns TUTTI_REQUEST_PENDING, also if the work has ended
 * meanwhile, or an error if nothing has begun. */
int route_work(struct tutti_work *work);

#endif
