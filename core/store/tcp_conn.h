/* One connection at the tcp store's server: its handshake, its requests and its end. */
#ifndef STORE_TCP_CONN_H
#define STORE_TCP_CONN_H

#include "store/tcp_state.h"

/* Accepts the connection that waits at the listener, or leaves it there while the admission limit is reached. */
void conn_accept(struct tcp_server *server);

/* Closes the connection and drops its request.  Its memory is freed later, by the loop. */
void conn_close(struct conn *conn);

/* Has a forked child close the server's sockets: its copies would keep the port in use, and hide the server's end from
 * the clients. */
void conn_forked_gives_up(const uv_tcp_t *tcp);

/* Closes a socket as uv_close does, and unregisters it from conn_forked_gives_up. */
void conn_close_socket(uv_tcp_t *tcp, uv_close_cb closed);

#endif
