/* How a work goes to a backend: which door, natively, as a message, as a plan, or on copies. */
#ifndef BEGIN_H
#define BEGIN_H

#include <tutti/backend.h>

struct tutti_work;

/* Begins it through the first of its group's doors that takes it, or through its own.  TUTTI_REQUEST_PENDING, also where
 * it has ended meanwhile; an error if nothing was begun. */
int begin_work(struct tutti_work *work);

/* All ranks have called what work is: its backend begins it.  An error: it could not. */
int begin_compared(struct tutti_work *work);

#endif
