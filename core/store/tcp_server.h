/* The tcp store's server: one thread with one libuv loop, asleep when nobody asks anything. */
#ifndef STORE_TCP_SERVER_H
#define STORE_TCP_SERVER_H

#include <stdbool.h>
#include <stdint.h>

struct tcp_server;

/* Binds the one address that host names, and serves it.  token may be all zero ("none").  expected: clients, 0:
 * unknown. STORE: the address is in use, not of this machine, a wildcard, or not loopback while there is no token. */
int server_start(const char *host, uint16_t port, const uint8_t token[32], bool insecure, int expected,
                 struct tcp_server **server);

uint16_t server_port(const struct tcp_server *server);

/* The authenticated connections now. */
int server_clients(const struct tcp_server *server);

/* Ends the thread and closes every connection.  In a forked child, which has no such thread, and whose copies of
 * the sockets were closed by fork, nothing. */
void server_stop(struct tcp_server *server, bool forked);

#endif
