/* The tcp store when many clients join at once, and when unauthenticated peers take the places that clients need. */
#include "store_tcp.h"

#include "usage.h"

/* Connects n clients.  None sends a byte before all are connected, and none may be dropped for another one.  Returns
 * false if this takes almost as long as the server lets a client be silent. */
static bool joins_at_once(int n)
{
    enum { SILENT_MS = 1500 };
    tutti_store *server = store_tcp_serve(store_tcp_token_a);
    struct recording recording;
    int *fds = calloc((size_t)n, sizeof *fds), joined = 0;
    int64_t limit_ns = clock_deadline_ns(SILENT_MS);
    for (int i = 0; i < n; i++) fds[i] = store_tcp_connect_plain(tutti_store_port(server));
    for (; joined < n && clock_now_ns() < limit_ns; joined++) store_tcp_handshake_on(fds[joined], &recording);
    for (int i = 0; i < n; i++) close(fds[i]);
    free(fds);
    tutti_store_free(server);
    return joined == n;
}

/* A slow machine is asked for fewer clients. */
static void test_burst(void **state)
{
    (void)state;
    enum { MOST = 1500, LEAST = 90 };
    int n = MOST;
    if (!usage_allow_fds(8 * MOST)) skip();
    while (!joins_at_once(n) && n >= LEAST) n /= 2;
    if (n < LEAST) fail_msg("%d clients take too long to join", LEAST);
}

/* ---- a server that has few descriptors --------------------------------------------------------------------------- */

enum { FEW = 400 };

struct served {
    pid_t child;
    int gate; /* the server runs until this is closed */
    uint16_t port;
};

static int serve_with_few(int gate, int out, int32_t world_size)
{
    tutti_store *server = NULL;
    char byte;
    tutti_store_opts opts = {.server = true, .token = store_tcp_token_a, .world_size = world_size};
    setrlimit(RLIMIT_NOFILE, &(struct rlimit){FEW, FEW});
    if (tutti_store_tcp("127.0.0.1", 0, &opts, &server) != TUTTI_OK) return 1;
    uint16_t port = tutti_store_port(server);
    if (write(out, &port, sizeof port) != sizeof port) return 2;
    if (read(gate, &byte, 1) != 0) return 3;
    tutti_store_free(server);
    return 0;
}

static struct served start_with_few(int32_t world_size)
{
    struct served served;
    int gate[2], out[2];
    assert_int_equal(pipe2(gate, O_CLOEXEC), 0);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    served.child = fork();
    if (served.child == 0) {
        close(gate[1]);
        _exit(serve_with_few(gate[0], out[1], world_size));
    }
    close(gate[0]);
    close(out[1]);
    served.gate = gate[1];
    assert_int_equal(read(out[0], &served.port, sizeof served.port), sizeof served.port);
    close(out[0]);
    return served;
}

static void end_server(const struct served *served)
{
    int status = -1;
    close(served->gate);
    assert_int_equal(waitpid(served->child, &status, 0), served->child);
    assert_int_equal(status, 0);
}

struct joiner {
    uint16_t port;
    tutti_store *store;
    int status;
};

static void *join_once(void *argument)
{
    struct joiner *joiner = argument;
    tutti_store_opts opts = {.token = store_tcp_token_a, .timeout_ms = 30000};
    joiner->status = tutti_store_tcp("127.0.0.1", joiner->port, &opts, &joiner->store);
    if (joiner->status == TUTTI_OK) joiner->status = tutti_store_add(joiner->store, "n", 1, NULL);
    return NULL;
}

/* Connects more clients at once than there are places for unauthenticated peers.  All must get in eventually. */
static void check_joins(int32_t world_size)
{
    enum { N = 250 };
    static struct joiner joiner[N];
    pthread_t thread[N];
    struct served served = start_with_few(world_size);
    for (int i = 0; i < N; i++) {
        joiner[i] = (struct joiner){.port = served.port};
        assert_int_equal(pthread_create(&thread[i], NULL, join_once, &joiner[i]), 0);
    }
    for (int i = 0; i < N; i++) pthread_join(thread[i], NULL);
    for (int i = 0; i < N; i++) OK(joiner[i].status);
    int64_t n;
    OK(tutti_store_add(joiner[0].store, "n", 0, &n));
    assert_int_equal(n, N);
    for (int i = 0; i < N; i++) tutti_store_free(joiner[i].store);
    end_server(&served);
}

static void test_joins_beyond_the_limit(void **state)
{
    (void)state;
    if (!usage_allow_fds(1024)) skip();
    check_joins(0);
    check_joins(250);
}

/* Silent connections take every place, and more of them wait.  A client still joins soon. */
static void test_unauthenticated_peers_keep_nobody_out(void **state)
{
    (void)state;
    enum { N = 600 };
    int fds[N];
    if (!usage_allow_fds(2048)) skip();
    struct served served = start_with_few(0);
    for (int i = 0; i < N; i++) fds[i] = store_tcp_connect_plain(served.port);
    int64_t begun = clock_now_ns();
    struct joiner joiner = {.port = served.port};
    join_once(&joiner);
    OK(joiner.status);
    int64_t took_ms = (clock_now_ns() - begun) / 1000000;
    if (took_ms > 15000) fail_msg("a client joins after %lld ms", (long long)took_ms);
    tutti_store_free(joiner.store);
    for (int i = 0; i < N; i++) close(fds[i]);
    end_server(&served);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_burst),
        cmocka_unit_test(test_joins_beyond_the_limit),
        cmocka_unit_test(test_unauthenticated_peers_keep_nobody_out),
    };
    return token_init() == TUTTI_OK ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
}
