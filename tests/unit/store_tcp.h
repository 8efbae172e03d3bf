/* Servers, clients and unauthenticated peers for the tests of the tcp store.  Functions fail the test on an error. */
#ifndef TESTS_STORE_TCP_H
#define TESTS_STORE_TCP_H

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/error.h"
#include "store/handshake.h"
#include "store/store_impl.h"
#include "store/wire.h"
#include "store_check.h"

extern const uint8_t store_tcp_token_a[TUTTI_TOKEN_BYTES], store_tcp_token_b[TUTTI_TOKEN_BYTES],
    store_tcp_no_token[TUTTI_TOKEN_BYTES];

/* Checks that the last error contains a text. */
void store_tcp_assert_says(const char *part);

void store_tcp_sleep_ms(int ms);

/* Return a server on a free loopback port, and a client of a server. */
tutti_store *store_tcp_serve(const uint8_t *token);
tutti_store *store_tcp_join(const tutti_store *server, const uint8_t *token);

/* Returns a plain connection, as an unauthenticated peer makes it. */
int store_tcp_connect_plain(uint16_t port);

/* Waits until the other side closes.  Returns the milliseconds, and counts the bytes received before in *bytes. */
int store_tcp_until_closed(int fd, size_t *bytes);

void store_tcp_receive(int fd, void *data, size_t bytes);
void store_tcp_send(int fd, const void *data, size_t bytes);

/* A client's handshake, for a replay, and the keys that it led to. */
struct recording {
    uint8_t hello[HANDSHAKE_HELLO_BYTES], proof[HANDSHAKE_PROOF_BYTES];
    struct seal out, in;
};

/* Do the client's handshake on a given connection, or on a new one, which is returned. */
void store_tcp_handshake_on(int fd, struct recording *recording);
int store_tcp_handshake(uint16_t port, struct recording *recording);

#endif
