/* What only the tcp store has: strangers, tokens, limits, ports, and servers that come late or die. */
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

static const uint8_t token_a[TUTTI_TOKEN_BYTES] = {1, 2, 3}, token_b[TUTTI_TOKEN_BYTES] = {1, 2, 4},
                     no_token[TUTTI_TOKEN_BYTES];

#define OK(call) check(call, TUTTI_OK, #call, __LINE__)
#define FAILS(call, status) check(call, status, #call, __LINE__)

static void check(int got, int want, const char *call, int line)
{
    if (got != want)
        fail_msg("line %d: %s is %s, not %s: %s", line, call, error_name(got), error_name(want), error_text());
}

static void assert_says(const char *part)
{
    if (strstr(error_text(), part) == NULL) fail_msg("\"%s\" does not say \"%s\"", error_text(), part);
}

static void sleep_ms(int ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL);
}

static tutti_store *serve(const uint8_t *token)
{
    tutti_store *store;
    OK(tutti_store_tcp("127.0.0.1", 0, &(tutti_store_opts){.server = true, .token = token}, &store));
    return store;
}

static tutti_store *join(const tutti_store *server, const uint8_t *token)
{
    tutti_store *store;
    OK(tutti_store_tcp("127.0.0.1", tutti_store_port(server), &(tutti_store_opts){.token = token, .timeout_ms = 20000},
                       &store));
    return store;
}

/* A plain connection, as a stranger makes it. */
static int knock(uint16_t port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

/* Milliseconds until the other side closes; what it sends before is counted into *bytes. */
static int until_closed(int fd, size_t *bytes)
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

/* ---- tokens --------------------------------------------------------------------------------------------------- */

static void test_tokens(void **state)
{
    (void)state;
    const uint8_t *tokens[] = {token_a, token_b, no_token};
    for (int s = 0; s < 3; s++) {
        tutti_store *server = serve(tokens[s]), *client = NULL;
        for (int c = 0; c < 3; c++) {
            int64_t begun = clock_now_ns();
            int status = tutti_store_tcp("127.0.0.1", tutti_store_port(server), &(tutti_store_opts){.token = tokens[c]},
                                         &client);
            FAILS(status, s == c ? TUTTI_OK : TUTTI_ERR_AUTH);
            assert_true(clock_now_ns() - begun < 2000000000);
            if (s == c) {
                OK(tutti_store_set(client, "k", "v", 1));
            } else {
                assert_says("TUTTI_TOKEN");
                assert_null(client);
            }
            tutti_store_free(client);
        }
        OK(tutti_store_add(server, "alive", 1, NULL));
        tutti_store_free(server);
    }
}

static void test_addresses_refused(void **state)
{
    (void)state;
    tutti_store *store;
    static const char *const any[] = {"0.0.0.0", "::", "[::]", "0"};
    for (size_t i = 0; i < sizeof any / sizeof *any; i++) {
        FAILS(
            tutti_store_tcp(any[i], 0, &(tutti_store_opts){.server = true, .token = token_a, .insecure = true}, &store),
            TUTTI_ERR_STORE);
        assert_says("every address");
    }
    FAILS(tutti_store_tcp("192.0.2.1", 0, &(tutti_store_opts){.server = true, .token = token_a}, &store),
          TUTTI_ERR_STORE);
    assert_says("no address of this machine");
    FAILS(tutti_store_tcp("192.0.2.1", 0, &(tutti_store_opts){.server = true, .token = no_token}, &store),
          TUTTI_ERR_STORE);
    assert_says("no job token");
    FAILS(tutti_store_tcp("192.0.2.1", 0, &(tutti_store_opts){.server = true, .token = no_token, .insecure = true},
                          &store),
          TUTTI_ERR_STORE);
    assert_says("no address of this machine"); /* the token was not asked for */
    FAILS(tutti_store_tcp("no such host", 0, &(tutti_store_opts){.server = true, .token = token_a}, &store),
          TUTTI_ERR_STORE);
    assert_says("resolved");
    FAILS(tutti_store_tcp("", 0, &(tutti_store_opts){.server = true}, &store), TUTTI_ERR_INVALID_ARGUMENT);
    FAILS(tutti_store_tcp(NULL, 0, &(tutti_store_opts){.server = true}, &store), TUTTI_ERR_INVALID_ARGUMENT);
    FAILS(tutti_store_tcp("127.0.0.1", 0, NULL, &store), TUTTI_ERR_INVALID_ARGUMENT);
    FAILS(tutti_store_tcp("127.0.0.1", 1, &(tutti_store_opts){.timeout_ms = -1}, &store), TUTTI_ERR_INVALID_ARGUMENT);
}

static void test_ipv6(void **state)
{
    (void)state;
    tutti_store *server = NULL, *client = NULL;
    tutti_store_opts opts = {.server = true, .token = token_a};
    int status = tutti_store_tcp("[::1]", 0, &opts, &server);
    if (status == TUTTI_ERR_STORE) skip(); /* this machine has no IPv6 */
    OK(status);
    OK(tutti_store_tcp("::1", tutti_store_port(server), &(tutti_store_opts){.token = token_a}, &client));
    OK(tutti_store_set(client, "k", "v", 1));
    tutti_store_free(client);
    tutti_store_free(server);
}

/* ---- ports ------------------------------------------------------------------------------------------------------ */

static void test_port_in_use(void **state)
{
    (void)state;
    tutti_store *server = serve(token_a), *second;
    char address[32];
    snprintf(address, sizeof address, "127.0.0.1:%u", tutti_store_port(server));
    int64_t begun = clock_now_ns();
    FAILS(tutti_store_tcp("127.0.0.1", tutti_store_port(server), &(tutti_store_opts){.server = true, .token = token_a},
                          &second),
          TUTTI_ERR_STORE);
    assert_true(clock_now_ns() - begun < 1000000000);
    assert_says(address);
    assert_says("in use");
    OK(tutti_store_add(server, "alive", 1, NULL));
    tutti_store_free(server);
}

static void test_port_again_at_once(void **state)
{
    (void)state;
    tutti_store *server = serve(token_a);
    uint16_t port = tutti_store_port(server);
    for (int i = 0; i < 50; i++) {
        tutti_store *client = join(server, token_a);
        OK(tutti_store_add(client, "n", 1, NULL));
        tutti_store_free(i % 2 ? client : server); /* either side ends first */
        tutti_store_free(i % 2 ? server : client);
        OK(tutti_store_tcp("127.0.0.1", port, &(tutti_store_opts){.server = true, .token = token_a}, &server));
    }
    tutti_store_free(server);
}

/* ---- strangers -------------------------------------------------------------------------------------------------- */

static void test_strangers_are_dropped(void **state)
{
    (void)state;
    tutti_store *server = serve(token_a);
    uint16_t port = tutti_store_port(server);
    struct handshake shake = {0};
    uint8_t hello[HANDSHAKE_HELLO_BYTES], noise[4096];
    size_t bytes;
    token_random(noise, sizeof noise);
    noise[0] = 'x';
    handshake_start(&shake, HANDSHAKE_CLIENT, hello);
    struct {
        const void *data;
        size_t bytes;
        bool at_once;
        size_t answer;
    } rows[] = {
        {"", 0, false, 0},                                  /* silence */
        {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", 27, true, 0}, /* the wrong door */
        {noise, sizeof noise, true, 0},
        {hello, 3, false, 0},                       /* a part of a hello */
        {hello, sizeof hello, false, sizeof hello}, /* a hello, and no proof */
        {noise, 256, true, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int fd = knock(port);
        assert_true(send(fd, rows[i].data, rows[i].bytes, MSG_NOSIGNAL) == (ssize_t)rows[i].bytes);
        int ms = until_closed(fd, &bytes);
        if (rows[i].at_once ? ms > 1500 : ms < 1500 || ms > 4000) fail_msg("row %zu: dropped after %d ms", i, ms);
        assert_int_equal(bytes, rows[i].answer);
    }
    /* more than a stranger may say: a hello and what should have waited for the answer */
    uint8_t both[HANDSHAKE_HELLO_BYTES + HANDSHAKE_PROOF_BYTES] = {0};
    memcpy(both, hello, sizeof hello);
    int fd = knock(port);
    assert_true(send(fd, both, sizeof both, MSG_NOSIGNAL) == (ssize_t)sizeof both);
    assert_true(until_closed(fd, &bytes) < 1500);
    OK(tutti_store_add(server, "alive", 1, NULL));
    tutti_store_free(server);
}

static void test_idle_strangers_hurt_nobody(void **state)
{
    (void)state;
    enum { N = 1000 };
    int *fds = calloc(N, sizeof *fds), n = 0;
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    rlim_t before = limit.rlim_cur;
    limit.rlim_cur = limit.rlim_max < 4096 ? limit.rlim_max : 4096;
    setrlimit(RLIMIT_NOFILE, &limit);
    int most = limit.rlim_cur >= 4096 ? N : 300;
    tutti_store *server = serve(token_a), *client = join(server, token_a);
    for (; n < most; n++) fds[n] = knock(tutti_store_port(server));
    int64_t begun = clock_now_ns();
    for (int i = 0; i < 200; i++) OK(tutti_store_add(client, "n", 1, NULL));
    assert_true(clock_now_ns() - begun < 2000000000);
    tutti_store *late = join(server, token_a);
    OK(tutti_store_add(late, "n", 1, NULL));
    assert_true(clock_now_ns() - begun < 2000000000);
    sleep_ms(2500); /* all of them are gone by then */
    for (int i = 0; i < n; i++) {
        char byte;
        assert_int_equal(recv(fds[i], &byte, 1, MSG_DONTWAIT), 0);
        close(fds[i]);
    }
    tutti_store_free(late);
    tutti_store_free(client);
    tutti_store_free(server);
    free(fds);
    limit.rlim_cur = before;
    setrlimit(RLIMIT_NOFILE, &limit);
}

/* The last to leave is the server, if it waits. */
static void test_linger(void **state)
{
    (void)state;
    tutti_store *server = serve(token_a), *client = join(server, token_a);
    FAILS(tutti_store_linger(NULL, 0), TUTTI_ERR_INVALID_ARGUMENT);
    OK(tutti_store_linger(client, 0));
    FAILS(tutti_store_linger(server, 0), TUTTI_ERR_TIMEOUT);
    assert_non_null(strstr(error_text(), "1 connections are left"));
    tutti_store_free(client);
    OK(tutti_store_linger(server, 20000));
    tutti_store_free(server);
}

/* No descriptor is left for the server: it drops the newcomer, does not spin, and recovers. */
static void test_out_of_descriptors(void **state)
{
    (void)state;
    pid_t child = fork();
    if (child == 0) {
        tutti_store *server = NULL;
        int fds[256], n = 0;
        tutti_store_opts opts = {.server = true, .token = token_a};
        setrlimit(RLIMIT_NOFILE, &(struct rlimit){200, 200});
        if (tutti_store_tcp("127.0.0.1", 0, &opts, &server) != 0) _exit(1);
        int probe = knock(tutti_store_port(server));
        sleep_ms(50);
        while (n < 256 && (fds[n] = dup(0)) >= 0) n++;
        close(fds[--n]);
        int stranger = knock(tutti_store_port(server)); /* takes our last one */
        struct timespec cpu, later;
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
        sleep_ms(500);
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &later);
        double used = (double)(later.tv_sec - cpu.tv_sec) + (double)(later.tv_nsec - cpu.tv_nsec) * 1e-9;
        if (used > 0.2) _exit(2);
        if (tutti_store_add(server, "alive", 1, NULL) != 0) _exit(3);
        while (n > 0) close(fds[--n]);
        close(stranger);
        close(probe);
        tutti_store *client = NULL;
        opts.server = false;
        if (tutti_store_tcp("127.0.0.1", tutti_store_port(server), &opts, &client) != 0) _exit(4);
        tutti_store_free(client);
        tutti_store_free(server);
        _exit(0);
    }
    int result = -1;
    waitpid(child, &result, 0);
    assert_int_equal(result, 0);
}

/* ---- the handshake, recorded and replayed ------------------------------------------------------------------------ */

static void receive(int fd, void *data, size_t bytes)
{
    assert_int_equal(recv(fd, data, bytes, MSG_WAITALL), (ssize_t)bytes);
}

static void transmit(int fd, const void *data, size_t bytes)
{
    assert_int_equal(send(fd, data, bytes, MSG_NOSIGNAL), (ssize_t)bytes);
}

/* A client by hand, so that its bytes can be kept and sent again. */
struct recording {
    uint8_t hello[HANDSHAKE_HELLO_BYTES], proof[HANDSHAKE_PROOF_BYTES];
    struct seal out, in;
};

static int shake_hands(uint16_t port, struct recording *recording)
{
    struct handshake shake = {0};
    uint8_t theirs[HANDSHAKE_HELLO_BYTES], verdict[HANDSHAKE_VERDICT_BYTES];
    memcpy(shake.token, token_a, sizeof token_a);
    int fd = knock(port);
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
    return fd;
}

static void test_replayed_handshake(void **state)
{
    (void)state;
    tutti_store *server = serve(token_a);
    struct recording recording;
    uint8_t theirs[HANDSHAKE_HELLO_BYTES], verdict[HANDSHAKE_VERDICT_BYTES];
    size_t bytes;
    close(shake_hands(tutti_store_port(server), &recording));
    int fd = knock(tutti_store_port(server));
    transmit(fd, recording.hello, sizeof recording.hello);
    receive(fd, theirs, sizeof theirs);
    transmit(fd, recording.proof, sizeof recording.proof);
    receive(fd, verdict, sizeof verdict);
    for (size_t i = 0; i < sizeof verdict; i++)
        assert_int_equal(verdict[i], 0); /* no code of the server for a stranger */
    until_closed(fd, &bytes);
    assert_int_equal(bytes, 0);
    OK(tutti_store_add(server, "alive", 1, NULL));
    tutti_store_free(server);
}

/* Says yes to everybody, without holding the token; or talks of something else altogether. */
static void *impostor_run(void *argument)
{
    int listener = *(int *)argument;
    for (int i = 0; i < 2; i++) {
        struct handshake shake = {0};
        uint8_t hello[HANDSHAKE_HELLO_BYTES], verdict[HANDSHAKE_VERDICT_BYTES] = {1};
        int fd = accept(listener, NULL, NULL);
        ssize_t got = recv(fd, hello, sizeof hello, MSG_WAITALL);
        if (i == 1) {
            got += send(fd, "HTTP/1.1 400 Bad Request\r\n\r\n", 28, MSG_NOSIGNAL);
        } else {
            handshake_start(&shake, HANDSHAKE_SERVER, hello);
            got += send(fd, hello, sizeof hello, MSG_NOSIGNAL);
            got += recv(fd, hello, HANDSHAKE_PROOF_BYTES, MSG_WAITALL);
            got += send(fd, verdict, sizeof verdict, MSG_NOSIGNAL);
        }
        got += recv(fd, hello, 1, 0);
        (void)got;
        close(fd);
    }
    return NULL;
}

static void test_impostor(void **state)
{
    (void)state;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(listener, 4), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &bytes), 0);
    pthread_t thread;
    tutti_store *store;
    tutti_store_opts opts = {.token = token_a, .timeout_ms = 5000};
    pthread_create(&thread, NULL, impostor_run, &listener);
    FAILS(tutti_store_tcp("127.0.0.1", ntohs(address.sin_port), &opts, &store), TUTTI_ERR_AUTH);
    assert_says("does not hold our job token");
    FAILS(tutti_store_tcp("127.0.0.1", ntohs(address.sin_port), &opts, &store), TUTTI_ERR_AUTH);
    assert_says("something else than a Tutti store");
    pthread_join(thread, NULL);
    close(listener);
}

static void test_other_version(void **state)
{
    (void)state;
    tutti_store *server = serve(token_a);
    struct handshake shake = {0};
    uint8_t hello[HANDSHAKE_HELLO_BYTES], theirs[HANDSHAKE_HELLO_BYTES];
    size_t bytes;
    int fd = knock(tutti_store_port(server));
    handshake_start(&shake, HANDSHAKE_CLIENT, hello);
    hello[7] = HANDSHAKE_VERSION + 1;
    transmit(fd, hello, sizeof hello);
    receive(fd, theirs, sizeof theirs);
    assert_int_equal(theirs[7], HANDSHAKE_VERSION);
    assert_true(until_closed(fd, &bytes) < 1500);
    tutti_store_free(server);
}

static size_t make_frame(struct seal *seal, uint8_t *frame, int64_t delta)
{
    struct store_slice key = {"counter", 7};
    struct store_request request = {.op = STORE_ADD, .n_keys = 1, .keys = &key, .number = delta};
    size_t bytes = wire_request_bytes(&request);
    wire_put_u32(frame, (uint32_t)(bytes + SEAL_TAG_BYTES));
    wire_put_request(frame + 4, &request, 0);
    seal_close(seal, frame + 4, bytes, frame, 4);
    return 4 + bytes + SEAL_TAG_BYTES;
}

/* A frame that is repeated, altered, of a wrong size or not sealed ends the connection, and does nothing. */
static void test_bad_frames(void **state)
{
    (void)state;
    tutti_store *server = serve(token_a);
    int64_t value;
    for (int form = 0; form < 6; form++) {
        struct recording recording;
        uint8_t frame[256], answer[256];
        size_t bytes;
        int fd = shake_hands(tutti_store_port(server), &recording);
        size_t total = make_frame(&recording.out, frame, form == 0);
        if (form == 0) {
            transmit(fd, frame, total);
            receive(fd, answer, 4 + 24 + SEAL_TAG_BYTES);
        } else if (form == 1) {
            frame[20] ^= 1;
        } else if (form == 2) {
            wire_put_u32(frame, UINT32_MAX);
        } else if (form == 3) {
            wire_put_u32(frame, SEAL_TAG_BYTES);
        } else if (form == 4) {
            memset(frame + 4, 0, total - 4);
        } else {
            total += make_frame(&recording.out, frame + total, 1); /* two at once */
        }
        transmit(fd, frame, total); /* form 0: once more */
        assert_true(until_closed(fd, &bytes) < 1500);
        assert_int_equal(bytes, 0);
    }
    OK(tutti_store_add(server, "counter", 0, &value));
    assert_int_equal(value, 1);
    tutti_store_free(server);
}

/* ---- limits ------------------------------------------------------------------------------------------------------ */

static void test_flood(void **state)
{
    (void)state;
    setenv("TUTTI_STORE_MAX_BYTES", "4000000", 1);
    tutti_store *server = serve(token_a), *client = join(server, token_a);
    char *value = calloc(1, 1 << 20), key[32];
    int status = TUTTI_OK, n = 0;
    for (; n < 100 && status == TUTTI_OK; n++) {
        snprintf(key, sizeof key, "big/%d", n);
        status = tutti_store_set(client, key, value, 1 << 20);
    }
    FAILS(status, TUTTI_ERR_STORE);
    assert_says("TUTTI_STORE_MAX_BYTES");
    assert_true(n == 4);
    for (n = 0, status = TUTTI_OK; n < 100000 && status == TUTTI_OK; n++) { /* many small keys count as well */
        snprintf(key, sizeof key, "small/%d", n);
        status = tutti_store_set(client, key, "", 0);
    }
    FAILS(status, TUTTI_ERR_STORE);
    assert_true(n < 20000);
    OK(tutti_store_set(client, "big/0", "", 0)); /* shrinking frees */
    OK(tutti_store_set(client, "again", value, 1 << 19));
    tutti_store_free(client);
    tutti_store_free(server);
    free(value);
    unsetenv("TUTTI_STORE_MAX_BYTES");
}

/* Clients that ask for much and take nothing: the server's memory stays bounded, and others are served. */
static void test_slow_readers(void **state)
{
    (void)state;
    enum { N = 24 };
    setenv("TUTTI_STORE_MAX_BYTES", "9000000", 1);
    tutti_store *server = serve(token_a), *client = join(server, token_a);
    char *value = calloc(1, TUTTI_STORE_VALUE_MAX);
    int fds[N];
    OK(tutti_store_set(client, "big", value, TUTTI_STORE_VALUE_MAX));
    struct store_slice key = {"big", 3};
    struct store_request request = {.op = STORE_GET, .n_keys = 1, .keys = &key};
    for (int i = 0; i < N; i++) {
        struct recording recording;
        uint8_t frame[128];
        fds[i] = shake_hands(tutti_store_port(server), &recording);
        size_t bytes = wire_request_bytes(&request);
        wire_put_u32(frame, (uint32_t)(bytes + SEAL_TAG_BYTES));
        wire_put_request(frame + 4, &request, 1000);
        seal_close(&recording.out, frame + 4, bytes, frame, 4);
        transmit(fds[i], frame, 4 + bytes + SEAL_TAG_BYTES);
    }
    for (int i = 0; i < 50; i++) OK(tutti_store_add(client, "n", 1, NULL));
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    assert_true(usage.ru_maxrss < 120 << 10); /* 24 replies would be 192 MiB */
#endif
    for (int i = 0; i < N; i++) close(fds[i]);
    size_t bytes;
    OK(tutti_store_get(client, "big", value, TUTTI_STORE_VALUE_MAX, &bytes, 20000));
    assert_int_equal(bytes, TUTTI_STORE_VALUE_MAX);
    tutti_store_free(client);
    tutti_store_free(server);
    free(value);
    unsetenv("TUTTI_STORE_MAX_BYTES");
}

/* ---- late, dying, stopped ------------------------------------------------------------------------------------------
 */

struct late {
    uint16_t port;
    int status;
    tutti_store *client;
};

static void *late_run(void *argument)
{
    struct late *late = argument;
    tutti_store_opts opts = {.token = token_a, .timeout_ms = 20000};
    late->status = tutti_store_tcp("127.0.0.1", late->port, &opts, &late->client);
    return NULL;
}

static void test_server_late(void **state)
{
    (void)state;
    tutti_store *server = serve(token_a);
    struct late late = {.port = tutti_store_port(server)};
    pthread_t thread;
    tutti_store_free(server);
    pthread_create(&thread, NULL, late_run, &late);
    sleep_ms(1000);
    OK(tutti_store_tcp("127.0.0.1", late.port, &(tutti_store_opts){.server = true, .token = token_a}, &server));
    pthread_join(thread, NULL);
    assert_int_equal(late.status, TUTTI_OK);
    OK(tutti_store_add(late.client, "n", 1, NULL));
    tutti_store_free(late.client);
    tutti_store_free(server);
}

static void test_no_server(void **state)
{
    (void)state;
    tutti_store *server = serve(token_a), *client;
    uint16_t port = tutti_store_port(server);
    char address[32];
    snprintf(address, sizeof address, "127.0.0.1:%u", port);
    tutti_store_free(server);
    int64_t begun = clock_now_ns();
    FAILS(tutti_store_tcp("127.0.0.1", port, &(tutti_store_opts){.token = token_a, .timeout_ms = 300}, &client),
          TUTTI_ERR_STORE);
    int64_t took = clock_now_ns() - begun;
    assert_true(took >= 250000000 && took < 3000000000);
    assert_says(address);
}

/* The server in a process of its own: tells its port, then serves until it is killed. */
static pid_t start_server(uint16_t *port)
{
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    pid_t child = fork();
    if (child == 0) {
        tutti_store *server = NULL;
        if (tutti_store_tcp("127.0.0.1", 0, &(tutti_store_opts){.server = true, .token = token_a}, &server) != 0)
            _exit(1);
        uint16_t mine = tutti_store_port(server);
        if (write(pipes[1], &mine, sizeof mine) != sizeof mine) _exit(1);
        for (;;) pause();
    }
    assert_int_equal(read(pipes[0], port, sizeof *port), sizeof *port);
    close(pipes[0]);
    close(pipes[1]);
    return child;
}

static void *kill_soon(void *argument)
{
    sleep_ms(200);
    kill(*(pid_t *)argument, SIGKILL);
    return NULL;
}

static void test_server_killed(void **state)
{
    (void)state;
    uint16_t port;
    size_t bytes;
    char address[32], c;
    pthread_t thread;
    pid_t child = start_server(&port);
    tutti_store *client;
    OK(tutti_store_tcp("127.0.0.1", port, &(tutti_store_opts){.token = token_a}, &client));
    pthread_create(&thread, NULL, kill_soon, &child);
    int64_t begun = clock_now_ns();
    FAILS(tutti_store_get(client, "never", &c, 1, &bytes, 60000), TUTTI_ERR_STORE);
    assert_true(clock_now_ns() - begun < 2000000000);
    snprintf(address, sizeof address, "127.0.0.1:%u", port);
    assert_says(address);
    FAILS(tutti_store_set(client, "k", "", 0), TUTTI_ERR_STORE);
    assert_says(address);
    assert_true(clock_now_ns() - begun < 3000000000);
    pthread_join(thread, NULL);
    waitpid(child, NULL, 0);
    tutti_store_free(client);
}

/* A server that is stopped cannot answer: the deadline holds, with a little grace. */
static void test_server_stopped(void **state)
{
    (void)state;
    uint16_t port;
    size_t bytes;
    char c;
    pid_t child = start_server(&port);
    tutti_store *client;
    OK(tutti_store_tcp("127.0.0.1", port, &(tutti_store_opts){.token = token_a}, &client));
    kill(child, SIGSTOP);
    int64_t begun = clock_now_ns();
    FAILS(tutti_store_get(client, "k", &c, 1, &bytes, 100), TUTTI_ERR_TIMEOUT);
    assert_true(clock_now_ns() - begun < 5000000000);
    kill(child, SIGCONT);
    OK(tutti_store_set(client, "k", "", 0));
    OK(tutti_store_get(client, "k", &c, 1, &bytes, 5000));
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    tutti_store_free(client);
}

/* Clients that are killed in a wait leave nothing in the server. */
static void test_clients_killed(void **state)
{
    (void)state;
    enum { N = 4 };
    pid_t children[N];
    uint16_t port;
    pid_t host = start_server(&port);
    for (int i = 0; i < N; i++) {
        children[i] = fork();
        if (children[i] != 0) continue;
        tutti_store *client;
        size_t bytes;
        char c;
        tutti_store_opts opts = {.token = token_a};
        if (tutti_store_tcp("127.0.0.1", port, &opts, &client) != 0) _exit(1);
        tutti_store_add(client, "waiting", 1, NULL);
        tutti_store_get(client, "never", &c, 1, &bytes, 60000);
        _exit(1);
    }
    tutti_store *client;
    OK(tutti_store_tcp("127.0.0.1", port, &(tutti_store_opts){.token = token_a}, &client));
    int64_t waiting = 0, count = 0;
    for (int i = 0; i < 500 && waiting < N; i++, sleep_ms(10)) OK(tutti_store_add(client, "waiting", 0, &waiting));
    assert_int_equal(waiting, N);
    for (int i = 0; i < N; i++) {
        int result;
        kill(children[i], SIGKILL);
        waitpid(children[i], &result, 0);
        assert_true(WIFSIGNALED(result));
    }
    OK(tutti_store_set(client, "never", "now", 3)); /* wakes nobody, harms nobody */
    OK(tutti_store_num_keys(client, &count));
    assert_int_equal(count, 2);
    tutti_store_free(client);
    kill(host, SIGKILL);
    waitpid(host, NULL, 0);
}

static void *wait_forever(void *argument)
{
    size_t bytes;
    char c;
    return (void *)(intptr_t)tutti_store_get(argument, "never", &c, 1, &bytes, TUTTI_INFINITE);
}

/* The server ends at once, whoever waits; and it takes no CPU while nobody asks. */
static void test_server_ends_and_idles(void **state)
{
    (void)state;
    tutti_store *server = serve(token_a), *client = join(server, token_a);
    pthread_t thread;
    void *status;
    struct timespec before, after;
    pthread_create(&thread, NULL, wait_forever, client);
    sleep_ms(100);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    sleep_ms(500);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    assert_true((after.tv_sec - before.tv_sec) * 1000000000LL + after.tv_nsec - before.tv_nsec < 5000000);
    int64_t begun = clock_now_ns();
    tutti_store_free(server);
    assert_true(clock_now_ns() - begun < 1000000000);
    pthread_join(thread, &status);
    assert_int_equal((intptr_t)status, TUTTI_ERR_STORE);
    tutti_store_free(client);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokens),
        cmocka_unit_test(test_addresses_refused),
        cmocka_unit_test(test_ipv6),
        cmocka_unit_test(test_port_in_use),
        cmocka_unit_test(test_port_again_at_once),
        cmocka_unit_test(test_strangers_are_dropped),
        cmocka_unit_test(test_idle_strangers_hurt_nobody),
        cmocka_unit_test(test_linger),
        cmocka_unit_test(test_out_of_descriptors),
        cmocka_unit_test(test_replayed_handshake),
        cmocka_unit_test(test_impostor),
        cmocka_unit_test(test_other_version),
        cmocka_unit_test(test_bad_frames),
        cmocka_unit_test(test_flood),
        cmocka_unit_test(test_slow_readers),
        cmocka_unit_test(test_server_late),
        cmocka_unit_test(test_no_server),
        cmocka_unit_test(test_server_killed),
        cmocka_unit_test(test_server_stopped),
        cmocka_unit_test(test_clients_killed),
        cmocka_unit_test(test_server_ends_and_idles),
    };
    return token_init() == TUTTI_OK ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
}
