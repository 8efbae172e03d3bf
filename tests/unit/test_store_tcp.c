/* Properties of the tcp store alone: tokens, limits, ports, and servers that start late or die. */
#include "store_tcp.h"

#include <dlfcn.h>
#include <malloc.h>
#include <netdb.h>

#include "loopback.h"

#define SOON_NS INT64_C(15000000000) /* for what must not take until a timeout of 20 s or more */

/* ---- tokens --------------------------------------------------------------------------------------------------- */

static void test_tokens(void **state)
{
    (void)state;
    const uint8_t *tokens[] = {store_tcp_token_a, store_tcp_token_b, store_tcp_no_token};
    for (int s = 0; s < 3; s++) {
        tutti_store *server = store_tcp_serve(tokens[s]), *client = NULL;
        for (int c = 0; c < 3; c++) {
            int64_t begun = clock_now_ns();
            int status = tutti_store_tcp("127.0.0.1", tutti_store_port(server), &(tutti_store_opts){.token = tokens[c]},
                                         &client);
            FAILS(status, s == c ? TUTTI_OK : TUTTI_ERR_AUTH);
            assert_true(clock_now_ns() - begun < SOON_NS);
            if (s == c) {
                OK(tutti_store_set(client, "k", "v", 1));
            } else {
                store_tcp_assert_says("TUTTI_TOKEN");
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
        FAILS(tutti_store_tcp(
                  any[i], 0, &(tutti_store_opts){.server = true, .token = store_tcp_token_a, .insecure = true}, &store),
              TUTTI_ERR_STORE);
        store_tcp_assert_says("every address");
    }
    FAILS(tutti_store_tcp("192.0.2.1", 0, &(tutti_store_opts){.server = true, .token = store_tcp_token_a}, &store),
          TUTTI_ERR_STORE);
    store_tcp_assert_says("is not an address of this host");
    FAILS(tutti_store_tcp("192.0.2.1", 0, &(tutti_store_opts){.server = true, .token = store_tcp_no_token}, &store),
          TUTTI_ERR_STORE);
    store_tcp_assert_says("no job token");
    FAILS(tutti_store_tcp("192.0.2.1", 0,
                          &(tutti_store_opts){.server = true, .token = store_tcp_no_token, .insecure = true}, &store),
          TUTTI_ERR_STORE);
    store_tcp_assert_says("is not an address of this host"); /* the token is not needed to refuse the address */
    FAILS(tutti_store_tcp("no such host", 0, &(tutti_store_opts){.server = true, .token = store_tcp_token_a}, &store),
          TUTTI_ERR_STORE);
    store_tcp_assert_says("cannot resolve");
    FAILS(tutti_store_tcp("", 0, &(tutti_store_opts){.server = true}, &store), TUTTI_ERR_INVALID_ARGUMENT);
    FAILS(tutti_store_tcp(NULL, 0, &(tutti_store_opts){.server = true}, &store), TUTTI_ERR_INVALID_ARGUMENT);
    FAILS(tutti_store_tcp("127.0.0.1", 0, NULL, &store), TUTTI_ERR_INVALID_ARGUMENT);
    FAILS(tutti_store_tcp("127.0.0.1", 1, &(tutti_store_opts){.timeout_ms = -1}, &store), TUTTI_ERR_INVALID_ARGUMENT);
}

static void test_ipv6(void **state)
{
    (void)state;
    tutti_store *server = NULL, *client = NULL;
    tutti_store_opts opts = {.server = true, .token = store_tcp_token_a};
    int status = tutti_store_tcp("[::1]", 0, &opts, &server);
    if (status == TUTTI_ERR_STORE) skip(); /* this machine has no IPv6 */
    OK(status);
    OK(tutti_store_tcp("::1", tutti_store_port(server), &(tutti_store_opts){.token = store_tcp_token_a}, &client));
    OK(tutti_store_set(client, "k", "v", 1));
    tutti_store_free(client);
    tutti_store_free(server);
}

/* ---- ports ------------------------------------------------------------------------------------------------------ */

static void test_port_in_use(void **state)
{
    (void)state;
    tutti_store *server = store_tcp_serve(store_tcp_token_a), *second;
    char address[32];
    snprintf(address, sizeof address, "127.0.0.1:%u", tutti_store_port(server));
    int64_t begun = clock_now_ns();
    FAILS(tutti_store_tcp("127.0.0.1", tutti_store_port(server),
                          &(tutti_store_opts){.server = true, .token = store_tcp_token_a}, &second),
          TUTTI_ERR_STORE);
    assert_true(clock_now_ns() - begun < SOON_NS);
    store_tcp_assert_says(address);
    store_tcp_assert_says("in use");
    OK(tutti_store_add(server, "alive", 1, NULL));
    tutti_store_free(server);
}

static void test_port_again_at_once(void **state)
{
    (void)state;
    tutti_store *server;
    uint16_t port = loopback_free_port();
    OK(tutti_store_tcp("127.0.0.1", port, &(tutti_store_opts){.server = true, .token = store_tcp_token_a}, &server));
    for (int i = 0; i < 50; i++) {
        tutti_store *client = store_tcp_join(server, store_tcp_token_a);
        OK(tutti_store_add(client, "n", 1, NULL));
        tutti_store_free(i % 2 ? client : server); /* either side ends first */
        tutti_store_free(i % 2 ? server : client);
        OK(tutti_store_tcp("127.0.0.1", port, &(tutti_store_opts){.server = true, .token = store_tcp_token_a},
                           &server));
    }
    tutti_store_free(server);
}

/* ---- a name with several addresses ------------------------------------------------------------------------------- */

/* Resolves "several.test" to 127.0.0.3 and 127.0.0.1, in this order. */
int getaddrinfo(const char *host, const char *service, const struct addrinfo *hints, struct addrinfo **list)
{
    int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    *(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
    if (host == NULL || strcmp(host, "several.test") != 0) return real(host, service, hints, list);
    int status = real("127.0.0.3", service, hints, list);
    return status == 0 ? real("127.0.0.1", service, hints, &(*list)->ai_next) : status;
}

/* The first address never answers, as if a router dropped the packets. */
static void test_silent_address(void **state)
{
    (void)state;
    enum { FILL = 4 };
    tutti_store *server = store_tcp_serve(store_tcp_token_a), *client;
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons(tutti_store_port(server)),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK + 2)};
    int silent = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), fds[FILL];
    assert_int_equal(bind(silent, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(silent, 0), 0);
    for (int i = 0; i < FILL; i++) { /* more than the queue holds: the rest is dropped */
        fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        (void)connect(fds[i], (struct sockaddr *)&address, sizeof address);
    }
    OK(tutti_store_tcp("several.test", tutti_store_port(server),
                       &(tutti_store_opts){.token = store_tcp_token_a, .timeout_ms = 15000}, &client));
    OK(tutti_store_set(client, "key", "", 0));
    tutti_store_free(client);
    for (int i = 0; i < FILL; i++) close(fds[i]);
    close(silent);
    tutti_store_free(server);
}

/* ---- late, dying, stopped ---------------------------------------------------------------------------------------- */

struct late {
    uint16_t port;
    int status;
    tutti_store *client;
};

static void *late_run(void *argument)
{
    struct late *late = argument;
    tutti_store_opts opts = {.token = store_tcp_token_a, .timeout_ms = 20000};
    late->status = tutti_store_tcp("127.0.0.1", late->port, &opts, &late->client);
    return NULL;
}

static void test_server_late(void **state)
{
    (void)state;
    tutti_store *server;
    struct late late = {.port = loopback_free_port()};
    pthread_t thread;
    pthread_create(&thread, NULL, late_run, &late);
    store_tcp_sleep_ms(1000);
    OK(tutti_store_tcp("127.0.0.1", late.port, &(tutti_store_opts){.server = true, .token = store_tcp_token_a},
                       &server));
    pthread_join(thread, NULL);
    assert_int_equal(late.status, TUTTI_OK);
    OK(tutti_store_add(late.client, "n", 1, NULL));
    tutti_store_free(late.client);
    tutti_store_free(server);
}

static void test_no_server(void **state)
{
    (void)state;
    tutti_store *client;
    uint16_t port = loopback_free_port();
    char address[32];
    snprintf(address, sizeof address, "127.0.0.1:%u", port);
    int64_t begun = clock_now_ns();
    FAILS(
        tutti_store_tcp("127.0.0.1", port, &(tutti_store_opts){.token = store_tcp_token_a, .timeout_ms = 300}, &client),
        TUTTI_ERR_STORE);
    int64_t took = clock_now_ns() - begun;
    assert_true(took >= 250000000 && took < SOON_NS);
    store_tcp_assert_says(address);
}

/* Forks a server, which reports its port and serves until it is killed. */
static pid_t start_server(uint16_t *port)
{
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    pid_t child = fork();
    if (child == 0) {
        tutti_store *server = NULL;
        if (tutti_store_tcp("127.0.0.1", 0, &(tutti_store_opts){.server = true, .token = store_tcp_token_a}, &server) !=
            0)
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
    store_tcp_sleep_ms(200);
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
    OK(tutti_store_tcp("127.0.0.1", port, &(tutti_store_opts){.token = store_tcp_token_a}, &client));
    pthread_create(&thread, NULL, kill_soon, &child);
    int64_t begun = clock_now_ns();
    FAILS(tutti_store_get(client, "never", &c, 1, &bytes, 60000), TUTTI_ERR_STORE);
    assert_true(clock_now_ns() - begun < SOON_NS);
    snprintf(address, sizeof address, "127.0.0.1:%u", port);
    store_tcp_assert_says(address);
    FAILS(tutti_store_set(client, "k", "", 0), TUTTI_ERR_STORE);
    store_tcp_assert_says(address);
    assert_true(clock_now_ns() - begun < 2 * SOON_NS);
    pthread_join(thread, NULL);
    waitpid(child, NULL, 0);
    tutti_store_free(client);
}

/* A stopped server cannot answer.  The deadline holds, with a little grace. */
static void test_server_stopped(void **state)
{
    (void)state;
    uint16_t port;
    size_t bytes;
    char c;
    pid_t child = start_server(&port);
    tutti_store *client;
    OK(tutti_store_tcp("127.0.0.1", port, &(tutti_store_opts){.token = store_tcp_token_a}, &client));
    kill(child, SIGSTOP);
    int64_t begun = clock_now_ns();
    FAILS(tutti_store_get(client, "k", &c, 1, &bytes, 100), TUTTI_ERR_TIMEOUT);
    assert_true(clock_now_ns() - begun < SOON_NS);
    kill(child, SIGCONT);
    OK(tutti_store_set(client, "k", "", 0));
    OK(tutti_store_get(client, "k", &c, 1, &bytes, 20000));
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
        tutti_store_opts opts = {.token = store_tcp_token_a};
        if (tutti_store_tcp("127.0.0.1", port, &opts, &client) != 0) _exit(1);
        tutti_store_add(client, "waiting", 1, NULL);
        tutti_store_get(client, "never", &c, 1, &bytes, 60000);
        _exit(1);
    }
    tutti_store *client;
    OK(tutti_store_tcp("127.0.0.1", port, &(tutti_store_opts){.token = store_tcp_token_a}, &client));
    int64_t waiting = 0, count = 0;
    for (int i = 0; i < 2000 && waiting < N; i++, store_tcp_sleep_ms(10))
        OK(tutti_store_add(client, "waiting", 0, &waiting));
    assert_int_equal(waiting, N);
    for (int i = 0; i < N; i++) {
        int result;
        kill(children[i], SIGKILL);
        waitpid(children[i], &result, 0);
        assert_true(WIFSIGNALED(result));
    }
    OK(tutti_store_set(client, "never", "now", 3)); /* nobody waits for it any more */
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

/* Returns true if the process uses next to no CPU during half a second. */
static bool is_idle(void)
{
    struct timespec before, after;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    store_tcp_sleep_ms(500);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
#ifdef __SANITIZE_THREAD__
    return true; /* a sanitizer's own thread uses more */
#endif
    return (after.tv_sec - before.tv_sec) * 1000000000LL + after.tv_nsec - before.tv_nsec < 5000000;
}

/* The server ends at once, even if clients wait, and takes no CPU without requests. */
static void test_server_ends_and_idles(void **state)
{
    (void)state;
    tutti_store *server = store_tcp_serve(store_tcp_token_a), *client = store_tcp_join(server, store_tcp_token_a);
    pthread_t thread;
    void *status;
    bool idle = false; /* idle once earlier work has ended, which takes a while on a slow machine */
    pthread_create(&thread, NULL, wait_forever, client);
    for (int i = 0; i < 10 && !idle; i++) idle = is_idle();
    assert_true(idle);
    int64_t begun = clock_now_ns();
    tutti_store_free(server);
    assert_true(clock_now_ns() - begun < SOON_NS);
    pthread_join(thread, &status);
    assert_int_equal((intptr_t)status, TUTTI_ERR_STORE);
    tutti_store_free(client);
}

/* Runs in a child, without asserts, which would print. */
static int serve_without_streams(void)
{
    tutti_store *server, *client;
    const char *value = "v";
    for (int fd = 0; fd <= STDERR_FILENO; fd++) close(fd);
    if (tutti_store_tcp("127.0.0.1", 0, &(tutti_store_opts){.server = true}, &server) != TUTTI_OK) return 1;
    if (tutti_store_tcp("127.0.0.1", tutti_store_port(server), NULL, &client) != TUTTI_OK) return 2;
    if (write(STDERR_FILENO, "a line of the program", 21) != 21) return 3; /* goes to no connection */
    if (tutti_store_set(client, "k", value, 1) != TUTTI_OK) return 4;
    tutti_store_free(client);
    tutti_store_free(server);
    return 0;
}

/* A daemon's stdin, stdout and stderr are closed.  No descriptor of the store takes their numbers. */
static void test_no_streams(void **state)
{
    (void)state;
    int status = -1;
    pid_t child = fork();
    if (child == 0) _exit(serve_without_streams());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* Forks a child that runs until the write end of *gate is closed. */
static pid_t start_child(int *gate)
{
    int ends[2];
    char c;
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    pid_t child = fork();
    if (child == 0) {
        close(ends[1]);
        _exit(read(ends[0], &c, 1) != 0);
    }
    close(ends[0]);
    *gate = ends[1];
    return child;
}

/* A child that outlives its parent's store keeps neither the port nor a connection. */
static void test_forked_child_keeps_nothing(void **state)
{
    (void)state;
    int gate, status = -1;
    tutti_store *server = store_tcp_serve(store_tcp_token_a), *client = store_tcp_join(server, store_tcp_token_a);
    uint16_t port = tutti_store_port(server);
    OK(tutti_store_set(client, "k", "", 0));
    pid_t child = start_child(&gate);
    tutti_store_free(client);
    OK(tutti_store_linger(server, 20000)); /* the server has seen the client leave */
    tutti_store_free(server);
    OK(tutti_store_tcp("127.0.0.1", port, &(tutti_store_opts){.server = true, .token = store_tcp_token_a}, &server));
    tutti_store_free(server);
    close(gate);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void *open_in_vain(void *argument)
{
    tutti_store *store = NULL;
    int port = *(int *)argument;
    return tutti_store_tcp("127.0.0.1", (uint16_t)port,
                           &(tutti_store_opts){.token = store_tcp_token_a, .timeout_ms = 1000}, &store) == TUTTI_OK
               ? argument
               : NULL;
}

/* A child is forked while another thread is in the handshake with a server.  The server still sees the connection end.
 */
static void test_forked_amid_a_handshake(void **state)
{
    (void)state;
    uint16_t free_port;
    int listener = loopback_listen(1, &free_port), port = free_port, gate, status = -1;
    pthread_t thread;
    char hello[256];
    void *opened;
    assert_int_equal(pthread_create(&thread, NULL, open_in_vain, &port), 0);
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(recv(fd, hello, 1, 0) == 1); /* the handshake has begun */
    pid_t child = start_child(&gate);
    pthread_join(thread, &opened);
    assert_null(opened);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){.tv_sec = 10}, sizeof(struct timeval));
    ssize_t got;
    do got = recv(fd, hello, sizeof hello, 0);
    while (got > 0);
    close(gate);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(got, 0);
    close(fd);
    close(listener);
}

/* The server may wait, and then leaves last. */
static void test_linger(void **state)
{
    (void)state;
    tutti_store *server = store_tcp_serve(store_tcp_token_a), *client = store_tcp_join(server, store_tcp_token_a);
    FAILS(tutti_store_linger(NULL, 0), TUTTI_ERR_INVALID_ARGUMENT);
    OK(tutti_store_linger(client, 0));
    FAILS(tutti_store_linger(server, 0), TUTTI_ERR_TIMEOUT);
    assert_non_null(strstr(error_text(), "1 clients are still connected"));
    tutti_store_free(client);
    OK(tutti_store_linger(server, 20000));
    tutti_store_free(server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokens),
        cmocka_unit_test(test_addresses_refused),
        cmocka_unit_test(test_ipv6),
        cmocka_unit_test(test_port_in_use),
        cmocka_unit_test(test_port_again_at_once),
        cmocka_unit_test(test_no_streams),
        cmocka_unit_test(test_forked_child_keeps_nothing),
        cmocka_unit_test(test_forked_amid_a_handshake),
        cmocka_unit_test(test_linger),
        cmocka_unit_test(test_silent_address),
        cmocka_unit_test(test_server_late),
        cmocka_unit_test(test_no_server),
        cmocka_unit_test(test_server_killed),
        cmocka_unit_test(test_server_stopped),
        cmocka_unit_test(test_clients_killed),
        cmocka_unit_test(test_server_ends_and_idles),
    };
    return token_init() == TUTTI_OK ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
}
