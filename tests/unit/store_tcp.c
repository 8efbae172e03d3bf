#include "store_tcp.h"

#include <time.h>

const uint8_t store_tcp_token_a[TUTTI_TOKEN_BYTES] = {1, 2, 3}, store_tcp_token_b[TUTTI_TOKEN_BYTES] = {1, 2, 4},
              store_tcp_no_token[TUTTI_TOKEN_BYTES];

void store_tcp_assert_says(const char *part)
{
    if (strstr(error_text(), part) == NULL) fail_msg("\"%s\" does not say \"%s\"", error_text(), part);
}

void store_tcp_sleep_ms(int ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL);
}

tutti_store *store_tcp_serve(const uint8_t *token)
{
    tutti_store *store;
    OK(tutti_store_tcp("127.0.0.1", 0, &(tutti_store_opts){.server = true, .token = token}, &store));
    return store;
}

tutti_store *store_tcp_join(const tutti_store *server, const uint8_t *token)
{
    tutti_store *store;
    OK(tutti_store_tcp("127.0.0.1", tutti_store_port(server), &(tutti_store_opts){.token = token, .timeout_ms = 20000},
                       &store));
    return store;
}

int store_tcp_connect_plain(uint16_t port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0),
        window = 4096; /* small, so that an unread reply is noticed soon */
    assert_true(fd >= 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &window, sizeof window);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

int store_tcp_until_closed(int fd, size_t *bytes)
{
    char buffer[4096];
    int64_t begun = clock_now_ns();
    *bytes = 0;
    for (;;) {
        struct pollfd entry = {.fd = fd, .events = POLLIN};
        if (poll(&entry, 1, 10000) == 0) fail_msg("the server keeps an unauthenticated connection for 10 s");
        ssize_t got = recv(fd, buffer, sizeof buffer, 0);
        if (got <= 0) break;
        *bytes += (size_t)got;
    }
    close(fd);
    return (int)((clock_now_ns() - begun) / 1000000);
}

void store_tcp_receive(int fd, void *data, size_t bytes)
{
    assert_int_equal(recv(fd, data, bytes, MSG_WAITALL), (ssize_t)bytes);
}

void store_tcp_send(int fd, const void *data, size_t bytes)
{
    assert_int_equal(send(fd, data, bytes, MSG_NOSIGNAL), (ssize_t)bytes);
}

void store_tcp_handshake_on(int fd, struct recording *recording)
{
    struct handshake shake = {0};
    uint8_t theirs[HANDSHAKE_HELLO_BYTES], verdict[HANDSHAKE_VERDICT_BYTES];
    memcpy(shake.token, store_tcp_token_a, sizeof store_tcp_token_a);
    handshake_start(&shake, HANDSHAKE_CLIENT, recording->hello);
    store_tcp_send(fd, recording->hello, sizeof recording->hello);
    store_tcp_receive(fd, theirs, sizeof theirs);
    assert_int_equal(handshake_take_hello(&shake, HANDSHAKE_CLIENT, theirs), HANDSHAKE_OK);
    handshake_prove(&shake, HANDSHAKE_CLIENT, recording->proof);
    store_tcp_send(fd, recording->proof, sizeof recording->proof);
    store_tcp_receive(fd, verdict, sizeof verdict);
    assert_int_equal(verdict[0], 1);
    assert_true(handshake_verify(&shake, HANDSHAKE_SERVER, verdict + 8));
    handshake_keys(&shake, &recording->out, &recording->in);
}

int store_tcp_handshake(uint16_t port, struct recording *recording)
{
    int fd = store_tcp_connect_plain(port);
    store_tcp_handshake_on(fd, recording);
    return fd;
}
