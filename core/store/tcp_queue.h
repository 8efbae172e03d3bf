/* Requests that wait at the tcp store's server: for a key, or for buffer memory.  Pure lists without I/O.
 *
 * A request that waits for keys is in the queue of its first missing key.  A request whose reply may be large is parked
 * while too many bytes are buffered.
 */
#ifndef STORE_TCP_QUEUE_H
#define STORE_TCP_QUEUE_H

#include "store/tcp_state.h"

/* Puts the connection into the queue of a key.  Returns false if out of memory. */
bool queue_join(struct conn *conn, const struct store_slice *key);

/* Takes the connection out of its queue, if it is in one. */
void queue_leave(struct conn *conn);

/* Takes every connection out of the queue of a key that now exists, and calls run for each. */
void queue_wake(struct tcp_server *server, const struct store_slice *key, void (*run)(struct conn *conn));

/* True if too many bytes are buffered besides `own`.  Parked requests do not count: they would wait for themselves. */
bool queue_is_crowded(const struct tcp_server *server, size_t own);

void queue_park(struct conn *conn);

/* Takes the connection out of the parked ones, if it is one. */
void queue_unpark(struct conn *conn);

/* Calls run for parked connections, oldest first, as long as there is memory. */
void queue_resume_parked(struct tcp_server *server, void (*run)(struct conn *conn));

/* Returns the part of server->buffered that is the connection's frame. */
size_t queue_counted_bytes(const struct conn *conn);

#endif
