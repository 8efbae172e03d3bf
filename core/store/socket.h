/* Connected sockets of the clients of stores: waits have deadlines, and the loss of the server's host is detected. */
#ifndef STORE_SOCKET_H
#define STORE_SOCKET_H

#include <netdb.h>
#include <stdbool.h>
#include <stdint.h>

/* Waits until the socket is ready for events.  Returns 1 if ready, 0 at the deadline, -1 with errno set on an error. */
int socket_poll(int fd, short events, int64_t deadline_ns);

/* Connects to the first of these addresses that accepts.  Returns a socket that does not block, or -1 with errno set.
 * Close it with socket_close: a forked child gives up its copy. */
int socket_connect(const struct addrinfo *list, int64_t deadline_ns);
void socket_close(int fd);

/* True if connecting may succeed later although it failed with this errno. */
bool socket_is_transient(int error);

#endif
