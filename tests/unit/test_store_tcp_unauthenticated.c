/* The tcp store and unauthenticated peers: silence, noise, replays, impostors, broken frames. */
#include "loopback.h"
#include "store_tcp.h"

enum {
    AUTH_MS = 1500, /* less than the server's 2 s, because its timers may be a little early */
    TRIES = 5       /* for what must take less: a busy machine may take as long */
};

/* ---- unauthenticated peers -----------------------------------------------------------------------------------------
 */

/* Returns the milliseconds in which the server drops a peer that sends this. */
static int drop_after(uint16_t port, const void *data, size_t bytes, size_t *answer)
{
    int64_t begun = clock_now_ns();
    int fd = store_tcp_connect_plain(port);
    assert_true(send(fd, data, bytes, MSG_NOSIGNAL) == (ssize_t)bytes);
    store_tcp_until_closed(fd, answer);
    return (int)((clock_now_ns() - begun) / 1000000);
}

/* True if the server drops the peer before the time is over in which it must authenticate. */
static bool is_dropped_at_once(uint16_t port, const void *data, size_t bytes, size_t *answer)
{
    int ms = AUTH_MS;
    for (int i = 0; i < TRIES && ms >= AUTH_MS; i++) ms = drop_after(port, data, bytes, answer);
    return ms < AUTH_MS;
}

static void test_unauthenticated_peers_are_dropped(void **state)
{
    (void)state;
    tutti_store *server = store_tcp_serve(store_tcp_token_a);
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
        {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", 27, true, 0}, /* the wrong protocol */
        {noise, sizeof noise, true, 0},
        {hello, 3, false, 0},                       /* a part of a hello */
        {hello, sizeof hello, false, sizeof hello}, /* a hello without a proof */
        {noise, 256, true, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].at_once && !is_dropped_at_once(port, rows[i].data, rows[i].bytes, &bytes))
            fail_msg("row %zu: not dropped at once", i);
        if (!rows[i].at_once && drop_after(port, rows[i].data, rows[i].bytes, &bytes) < AUTH_MS)
            fail_msg("row %zu: dropped early", i);
        assert_int_equal(bytes, rows[i].answer);
    }
    /* more than an unauthenticated peer may send: a hello, and a proof that must wait for the answer */
    uint8_t both[HANDSHAKE_HELLO_BYTES + HANDSHAKE_PROOF_BYTES] = {0};
    memcpy(both, hello, sizeof hello);
    assert_true(is_dropped_at_once(port, both, sizeof both, &bytes));
    OK(tutti_store_add(server, "alive", 1, NULL));
    tutti_store_free(server);
}

static void test_silent_peers_hurt_nobody(void **state)
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
    tutti_store *server = store_tcp_serve(store_tcp_token_a), *client = store_tcp_join(server, store_tcp_token_a);
    for (; n < most; n++) fds[n] = store_tcp_connect_plain(tutti_store_port(server));
    int64_t begun = clock_now_ns();
    for (int i = 0; i < 200; i++) OK(tutti_store_add(client, "n", 1, NULL));
    tutti_store *late = store_tcp_join(server, store_tcp_token_a);
    OK(tutti_store_add(late, "n", 1, NULL));
    assert_true(clock_now_ns() - begun < 10000000000); /* much less than the silent ones have together */
    for (int i = 0; i < n; i++) {
        size_t bytes;
        store_tcp_until_closed(fds[i], &bytes);
        assert_int_equal(bytes, 0);
    }
    tutti_store_free(late);
    tutti_store_free(client);
    tutti_store_free(server);
    free(fds);
    limit.rlim_cur = before;
    setrlimit(RLIMIT_NOFILE, &limit);
}

/* The server has no descriptor left.  It drops the new connection, does not spin, and recovers. */
static void test_out_of_descriptors(void **state)
{
    (void)state;
    pid_t child = fork();
    if (child == 0) {
        tutti_store *server = NULL;
        int fds[256], n = 0;
        tutti_store_opts opts = {.server = true, .token = store_tcp_token_a};
        setrlimit(RLIMIT_NOFILE, &(struct rlimit){200, 200});
        if (tutti_store_tcp("127.0.0.1", 0, &opts, &server) != 0) _exit(1);
        int probe = store_tcp_connect_plain(tutti_store_port(server));
        store_tcp_sleep_ms(50);
        while (n < 256 && (fds[n] = dup(0)) >= 0) n++;
        close(fds[--n]);
        int peer = store_tcp_connect_plain(tutti_store_port(server)); /* takes the server's last descriptor */
        struct timespec cpu, later;
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
        store_tcp_sleep_ms(500);
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &later);
        double used = (double)(later.tv_sec - cpu.tv_sec) + (double)(later.tv_nsec - cpu.tv_nsec) * 1e-9;
        if (used > 0.2) _exit(2);
        if (tutti_store_add(server, "alive", 1, NULL) != 0) _exit(3);
        while (n > 0) close(fds[--n]);
        close(peer);
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

static void test_replayed_handshake(void **state)
{
    (void)state;
    tutti_store *server = store_tcp_serve(store_tcp_token_a);
    struct recording recording;
    uint8_t theirs[HANDSHAKE_HELLO_BYTES], verdict[HANDSHAKE_VERDICT_BYTES];
    size_t bytes;
    close(store_tcp_handshake(tutti_store_port(server), &recording));
    int fd = store_tcp_connect_plain(tutti_store_port(server));
    store_tcp_send(fd, recording.hello, sizeof recording.hello);
    store_tcp_receive(fd, theirs, sizeof theirs);
    store_tcp_send(fd, recording.proof, sizeof recording.proof);
    store_tcp_receive(fd, verdict, sizeof verdict);
    for (size_t i = 0; i < sizeof verdict; i++)
        assert_int_equal(verdict[i], 0); /* the server proves nothing to an unauthenticated peer */
    store_tcp_until_closed(fd, &bytes);
    assert_int_equal(bytes, 0);
    OK(tutti_store_add(server, "alive", 1, NULL));
    tutti_store_free(server);
}

/* Accepts every client without the token, or speaks another protocol. */
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
    uint16_t port;
    int listener = loopback_listen(4, &port);
    pthread_t thread;
    tutti_store *store;
    tutti_store_opts opts = {.token = store_tcp_token_a, .timeout_ms = 5000};
    pthread_create(&thread, NULL, impostor_run, &listener);
    FAILS(tutti_store_tcp("127.0.0.1", port, &opts, &store), TUTTI_ERR_AUTH);
    store_tcp_assert_says("does not have this rank's job token");
    FAILS(tutti_store_tcp("127.0.0.1", port, &opts, &store), TUTTI_ERR_AUTH);
    store_tcp_assert_says("a program that is not a Tutti store");
    pthread_join(thread, NULL);
    close(listener);
}

/* Says hello in another version.  Returns the milliseconds in which the server drops this peer. */
static int drop_of_other_version_after(uint16_t port)
{
    struct handshake shake = {0};
    uint8_t hello[HANDSHAKE_HELLO_BYTES], theirs[HANDSHAKE_HELLO_BYTES];
    size_t bytes;
    int64_t begun = clock_now_ns();
    int fd = store_tcp_connect_plain(port);
    handshake_start(&shake, HANDSHAKE_CLIENT, hello);
    hello[7] = HANDSHAKE_VERSION + 1;
    store_tcp_send(fd, hello, sizeof hello);
    store_tcp_receive(fd, theirs, sizeof theirs);
    assert_int_equal(theirs[7], HANDSHAKE_VERSION);
    store_tcp_until_closed(fd, &bytes);
    return (int)((clock_now_ns() - begun) / 1000000);
}

static void test_other_version(void **state)
{
    (void)state;
    tutti_store *server = store_tcp_serve(store_tcp_token_a);
    int ms = AUTH_MS;
    for (int i = 0; i < TRIES && ms >= AUTH_MS; i++) ms = drop_of_other_version_after(tutti_store_port(server));
    assert_true(ms < AUTH_MS);
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

/* A repeated, altered or unsealed frame, or one of a wrong size, ends the connection and has no effect. */
static void test_bad_frames(void **state)
{
    (void)state;
    tutti_store *server = store_tcp_serve(store_tcp_token_a);
    int64_t value;
    for (int form = 0; form < 6; form++) {
        struct recording recording;
        uint8_t frame[256], answer[256];
        size_t bytes;
        int fd = store_tcp_handshake(tutti_store_port(server), &recording);
        size_t total = make_frame(&recording.out, frame, form == 0);
        if (form == 0) {
            store_tcp_send(fd, frame, total);
            store_tcp_receive(fd, answer, 4 + 24 + SEAL_TAG_BYTES);
        } else if (form == 1) {
            frame[20] ^= 1;
        } else if (form == 2) {
            wire_put_u32(frame, UINT32_MAX);
        } else if (form == 3) {
            wire_put_u32(frame, SEAL_TAG_BYTES);
        } else if (form == 4) {
            memset(frame + 4, 0, total - 4);
        } else {
            total += make_frame(&recording.out, frame + total, 1); /* two frames at once */
        }
        store_tcp_send(fd, frame, total); /* form 0: the frame again */
        store_tcp_until_closed(fd, &bytes);
        assert_int_equal(bytes, 0);
    }
    OK(tutti_store_add(server, "counter", 0, &value));
    assert_int_equal(value, 1);
    tutti_store_free(server);
}

/* ---- a client that asks and does not listen ---------------------------------------------------------------------- */

enum { DEAF_VALUE = 1500, DEAF_REQUESTS = 6000 };

/* Makes a request that replaces value n by n + 1.  The reply contains the new value. */
static size_t make_exchange(struct seal *seal, uint8_t *frame, int n)
{
    char value[2][DEAF_VALUE];
    struct store_slice key = {"k", 1}, values[2];
    for (int i = 0; i < 2; i++) {
        memset(value[i], 0, DEAF_VALUE);
        snprintf(value[i], DEAF_VALUE, "%d", n + i);
        values[i] = (struct store_slice){value[i], n + i == 0 ? 0 : DEAF_VALUE};
    }
    struct store_request request = {
        .op = STORE_COMPARE_SET, .n_keys = 1, .keys = &key, .n_values = 2, .values = values};
    size_t bytes = wire_request_bytes(&request);
    wire_put_u32(frame, (uint32_t)(bytes + SEAL_TAG_BYTES));
    wire_put_request(frame + 4, &request, 1000);
    seal_close(seal, frame + 4, bytes, frame, 4);
    return 4 + bytes + SEAL_TAG_BYTES;
}

/* Waits until the server has handled the request for value n.  Returns false if it has closed the connection. */
static bool deaf_was_heard(tutti_store *server, int n)
{
    char value[DEAF_VALUE] = "";
    int64_t deadline_ns = clock_deadline_ns(20000);
    do {
        size_t bytes;
        OK(tutti_store_get(server, "k", value, sizeof value, &bytes, 20000));
        if (atoi(value) == n) return true;
        if (tutti_store_linger(server, 0) == TUTTI_OK) return false;
    } while (clock_now_ns() < deadline_ns);
    fail_msg("request %d is neither done nor refused", n);
    return false;
}

/* Replies pile up in the server, which keeps at most one. */
static void test_deaf_client(void **state)
{
    (void)state;
    tutti_store *server = store_tcp_serve(store_tcp_token_a);
    struct recording recording;
    uint8_t frame[4096], answer[4 + 24 + 4 + DEAF_VALUE + SEAL_TAG_BYTES];
    int n = 0, fd = store_tcp_handshake(tutti_store_port(server), &recording);
    for (; n < 100; n++) { /* the client reads the replies: no error */
        store_tcp_send(fd, frame, make_exchange(&recording.out, frame, n));
        store_tcp_receive(fd, answer, sizeof answer);
    }
    for (bool heard = true; heard && n < DEAF_REQUESTS; n++) {
        size_t bytes = make_exchange(&recording.out, frame, n);
        heard = send(fd, frame, bytes, MSG_NOSIGNAL) == (ssize_t)bytes && deaf_was_heard(server, n + 1);
    }
    close(fd);
    if (n == DEAF_REQUESTS) fail_msg("the server has taken %d requests of a client that reads no reply", n);
    tutti_store_free(server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unauthenticated_peers_are_dropped),
        cmocka_unit_test(test_silent_peers_hurt_nobody),
        cmocka_unit_test(test_out_of_descriptors),
        cmocka_unit_test(test_replayed_handshake),
        cmocka_unit_test(test_impostor),
        cmocka_unit_test(test_other_version),
        cmocka_unit_test(test_bad_frames),
        cmocka_unit_test(test_deaf_client),
    };
    return token_init() == TUTTI_OK ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
}
