/* Servers, clients and strangers for the tests of the tcp store. */
#ifndef STORE_TCP_TEST_H
#define STORE_TCP_TEST_H

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
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/error.h"
#include "store/handshake.h"
#include "store/store_impl.h"
#include "store/wire.h"

#define UNUSED __attribute__((unused)) /* not every test needs all of it */

UNUSED static const uint8_t token_a[TUTTI_TOKEN_BYTES] = {1, 2, 3}, token_b[TUTTI_TOKEN_BYTES] = {1, 2, 4},
                            no_token[TUTTI_TOKEN_BYTES];

#define OK(call) check(call, TUTTI_OK, #call, __LINE__)
#define FAILS(call, status) check(call, status, #call, __LINE__)

UNUSED static void check(int got, int want, const char *call, int line)
{
    if (got != want)
        fail_msg("line %d: %s is %s, not %s: %s", line, call, error_name(got), error_name(want), error_text());
}

UNUSED static void assert_says(const char *part)
{
    if (strstr(error_text(), part) == NULL) fail_msg("\"%s\" does not say \"%s\"", error_text(), part);
}

UNUSED static void sleep_ms(int ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL);
}

UNUSED static tutti_store *serve(const uint8_t *token)
{
    tutti_store *store;
    OK(tutti_store_tcp("127.0.0.1", 0, &(tutti_store_opts){.server = true, .token = token}, &store));
    return store;
}

UNUSED static tutti_store *join(const tutti_store *server, const uint8_t *token)
{
    tutti_store *store;
    OK(tutti_store_tcp("127.0.0.1", tutti_store_port(server), &(tutti_store_opts){.token = token, .timeout_ms = 20000},
                       &store));
    return store;
}

/* A plain connection, as a stranger makes it. */
UNUSED static int knock(uint16_t port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), window = 4096; /* what it does not take is soon felt */
    assert_true(fd >= 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &window, sizeof window);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

/* Milliseconds until the other side closes; what it sends before is counted into *bytes. */
UNUSED static int until_closed(int fd, size_t *bytes)
{
    char buffer[4096];
    int64_t begun = clock_now_ns();
    *bytes = 0;
    for (;;) {
        struct pollfd entry = {.fd = fd, .events = POLLIN};
        if (poll(&entry, 1, 10000) == 0) fail_msg("the server keeps a stranger for 10 s");
        ssize_t got = recv(fd, buffer, sizeof buffer, 0);
        if (got <= 0) break;
        *bytes += (size_t)got;
    }
    close(fd);
    return (int)((clock_now_ns() - begun) / 1000000);
}

UNUSED static void receive(int fd, void *data, size_t bytes)
{
    assert_int_equal(recv(fd, data, bytes, MSG_WAITALL), (ssize_t)bytes);
}

UNUSED static void transmit(int fd, const void *data, size_t bytes)
{
    assert_int_equal(send(fd, data, bytes, MSG_NOSIGNAL), (ssize_t)bytes);
}

/* A client by hand, so that its bytes can be kept and sent again. */
struct recording {
    uint8_t hello[HANDSHAKE_HELLO_BYTES], proof[HANDSHAKE_PROOF_BYTES];
    struct seal out, in;
};

UNUSED static void shake_hands_on(int fd, struct recording *recording)
{
    struct handshake shake = {0};
    uint8_t theirs[HANDSHAKE_HELLO_BYTES], verdict[HANDSHAKE_VERDICT_BYTES];
    memcpy(shake.token, token_a, sizeof token_a);
    handshake_start(&shake, HANDSHAKE_CLIENT, recording->hello);
    transmit(fd, recording->hello, sizeof recording->hello);
    receive(fd, theirs, sizeof theirs);
    assert_int_equal(handshake_take_hello(&shake, HANDSHAKE_CLIENT, theirs), HANDSHAKE_OK);
    handshake_prove(&shake, HANDSHAKE_CLIENT, recording->proof);
    transmit(fd, recording->proof, sizeof recording->proof);
    receive(fd, verdict, sizeof verdict);
    assert_int_equal(verdict[0], 1);
    assert_true(handshake_verify(&shake, HANDSHAKE_SERVER, verdict + 8));
    handshake_keys(&shake, &recording->out, &recording->in);
}

UNUSED static int shake_hands(uint16_t port, struct recording *recording)
{
    int fd = knock(port);
    shake_hands_on(fd, recording);
    return fd;
}

#endif
