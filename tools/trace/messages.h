/* Finds the sends and receives that belong together, and how long each rank waited in them.
 *
 * Messages of one pair of ranks and one tag arrive in the order in which they were sent.  A receive waits until the
 * send has been called.  A send waits for the receive only if it ended after it was called: other sends were buffered.
 */
#ifndef TRACE_MESSAGES_H
#define TRACE_MESSAGES_H

#include "trace/load.h"

/* Sets wait_ns of each message whose two sides are there.  Returns false if out of memory. */
bool messages_find(struct load *load);

#endif
