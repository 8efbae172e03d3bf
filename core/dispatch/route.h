/* Chooses the backend entry that does an operation. */
#ifndef ROUTE_H
#define ROUTE_H

struct tutti_work;

/* Dispatches work through work->entry, or else through the first entry of its group that takes it.  Stages it if the
 * entry's backend does not take tensors of their device.  Returns TUTTI_REQUEST_PENDING, also if the work has ended
 * meanwhile, or an error if nothing has begun. */
int route_work(struct tutti_work *work);

#endif
