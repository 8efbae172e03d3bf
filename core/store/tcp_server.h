/* Server of the tcp store: one thread with one libuv loop.  It sleeps while there are no requests. */
#ifndef STORE_TCP_SERVER_H
#define STORE_TCP_SERVER_H

#include <stdbool.h>
#include <stdint.h>

struct tcp_server;

/* Binds the one address that host names and serves it.  An all-zero token means none.  expected is the number of
 * clients, 0 if unknown.  Returns STORE if the address is in use, is not an address of this host, is a wildcard, or is
 * not loopback and there is no token. */
int server_start(const char *host, uint16_t port, const uint8_t token[32], bool insecure, int expected,
                 struct tcp_server **server);

uint16_t server_port(const struct tcp_server *server);

/* Returns the number of authenticated connections. */
int server_clients(const struct tcp_server *server);

/* Stops the thread and closes every connection.  Does nothing in a forked child: it has no such thread, and the fork
 * has closed its copies of the sockets. */
void server_stop(struct tcp_server *server, bool forked);

#endif
