/* The state of the tcp store's server and of one connection: data alone.  All of it belongs to the server's thread,
 * except n_clients. */
#ifndef STORE_TCP_STATE_H
#define STORE_TCP_STATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <uv.h>

#include "store/handshake.h"
#include "store/table.h"
#include "store/wire.h"

enum {
    CONN_AUTH_MS = 2000,     /* time to complete the handshake */
    CONN_AUTH_BYTES = 256,   /* most bytes read from an unauthenticated peer */
    CONN_STALL_MS = 60000,   /* time for a client to read a reply */
    CONN_BUFFER_BYTES = 4096 /* buffer per client; a larger frame gets a larger buffer until it is done */
};

enum conn_state { CONN_HELLO, CONN_PROOF, CONN_READY, CONN_CLOSING };

struct conn_queue; /* the connections that wait for one key: tcp_queue.c */

struct conn {
    uv_tcp_t tcp;
    uv_timer_t timer; /* limits the current state: the handshake, a wait for a key, or an unread reply */
    struct tcp_server *server;
    struct conn *prev, *next; /* in server->unauthenticated or server->clients */
    uint64_t accepted_ms;     /* time of accept, by the loop's clock */
    enum conn_state state;
    int handles; /* libuv handles that are not closed yet */
    struct handshake shake;
    struct seal in, out;
    uint8_t handshake_buffer[CONN_AUTH_BYTES];
    uint8_t *buffer; /* handshake_buffer, or allocated once authenticated */
    size_t fill, capacity;
    /* the current request, if busy; its slices point into buffer */
    bool busy;
    struct store_request request;
    struct store_slice *slices;
    struct conn_queue *queue; /* the queue in which the request waits for a key, or NULL */
    bool parked;              /* the request waits for buffer memory */
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
    struct conn *unauthenticated, *clients; /* utlist; the oldest first */
    struct conn *parked;
    struct conn_queue *queues; /* uthash by key */
    int n_unauthenticated;
    int expected;        /* number of clients according to the caller; 0: unknown */
    bool accept_pending; /* a connection waits at the listener until the limit admits it: see tcp_admission.h */
    size_t buffered;     /* bytes of frames and replies in memory, beyond CONN_BUFFER_BYTES per client */
    size_t parked_bytes; /* the part of `buffered` that is frames of parked requests */
    unsigned refused;    /* number of refusals, for the log */
    bool stopping, warned;
    atomic_int n_clients; /* also read by other threads */
};

#endif
