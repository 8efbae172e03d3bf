/* One connection at the server, and what connections share.  All of it belongs to the server's thread. */
#ifndef STORE_TCP_CONN_H
#define STORE_TCP_CONN_H

#include <pthread.h>
#include <stdatomic.h>
#include <uv.h>

#include "store/handshake.h"
#include "store/table.h"
#include "store/wire.h"

enum {
    CONN_AUTH_MS = 2000,     /* to prove the token */
    CONN_AUTH_BYTES = 256,   /* all that is taken from a stranger */
    CONN_STALL_MS = 60000,   /* for a client to take a reply */
    CONN_BUFFER_BYTES = 4096 /* kept per client; larger frames get a larger buffer while they last */
};

enum conn_state { CONN_HELLO, CONN_PROOF, CONN_READY, CONN_CLOSING };

struct conn_queue; /* the connections that wait for one key */

struct conn {
    uv_tcp_t tcp;
    uv_timer_t timer; /* for the state: the handshake, a wait, or a reply that is not taken */
    struct tcp_server *server;
    struct conn *prev, *next; /* in server->strangers or server->clients */
    uint64_t accepted_ms;     /* by the loop's clock */
    enum conn_state state;
    int handles; /* not closed yet */
    struct handshake shake;
    struct seal in, out;
    uint8_t early[CONN_AUTH_BYTES];
    uint8_t *buffer; /* early, or malloc'ed once ready */
    size_t fill, capacity;
    /* the request at work, if any: its slices point into buffer */
    bool busy;
    struct store_request request;
    struct store_slice *slices;
    struct conn_queue *queue; /* not NULL: it waits for a key */
    bool parked;              /* it waits for buffer memory */
    struct conn *queue_prev, *queue_next;
};

struct tcp_server {
    uv_loop_t loop;
    uv_tcp_t listener;
    uv_async_t stop;
    pthread_t thread;
    uint8_t token[TOKEN_BYTES];
    uint16_t port;
    struct table table;
    struct conn *strangers, *clients; /* utlist; the oldest first */
    struct conn *parked;
    struct conn_queue *queues; /* uthash by key */
    int n_strangers;
    int expected;        /* clients, as the caller says; 0: unknown */
    bool accept_pending; /* a connection waits at the listener until there is room: see tcp_admission.h */
    size_t buffered;     /* bytes of frames and replies in memory, beyond CONN_BUFFER_BYTES a client */
    size_t parked_bytes; /* of these, frames of those that are parked */
    unsigned refused;    /* for the log */
    bool stopping, warned;
    atomic_int n_clients;
};

/* Takes the connection that is waiting at the listener, or leaves it there until there is room. */
void conn_accept(struct tcp_server *server);

void conn_close(struct conn *conn);

/* A forked child has no part in the server's sockets: it would keep the port, and the clients from seeing our end. */
void conn_forked_gives_up(const uv_tcp_t *tcp);

/* As uv_close. */
void conn_close_socket(uv_tcp_t *tcp, uv_close_cb closed);

#endif
