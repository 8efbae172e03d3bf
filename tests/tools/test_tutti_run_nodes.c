/* tutti-run: the rendezvous, the job's token, several nodes, and hosts without a loopback interface or with few
 * descriptors. */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <tutti/tutti.h>

#include "launch.h"
#include "loopback.h"

static char self[4096];

static void says_that_a_port_is_taken(void **state)
{
    (void)state;
    uint16_t port;
    int held = loopback_listen(1, &port);
    char option[32];
    snprintf(option, sizeof option, "--master-port=%d", port);
    launch_assert_refused(ARGS(option, "echo", "hello"), 1, "in use");
    close(held);
}

static void takes_the_port_given(void **state)
{
    (void)state;
    char option[32], line[32];
    int port = loopback_free_port();
    snprintf(option, sizeof option, "--master-port=%d", port);
    snprintf(line, sizeof line, "[0] %d\n", port);
    for (int i = 0; i < 5; i++) { /* and immediately again */
        struct launch launch = RUN(option, "sh", "-c", "echo $MASTER_PORT");
        assert_int_equal(launch.status, 0);
        assert_string_equal(launch.out.data, line);
        launch_free(&launch);
    }
}

static void write_token(const char *path, const char *token, mode_t mode)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(token, file);
    fclose(file);
    chmod(path, mode);
}

#define HEX "00112233445566778899aabbccddeeff00112233445566778899AABBCCDDEEFF"

static void two_nodes_share_a_token_file(void **state)
{
    (void)state;
    char path[] = "/tmp/tutti-run-test-XXXXXX", port[32];
    close(mkstemp(path));
    snprintf(port, sizeof port, "--master-port=%d", loopback_free_port());
    static const char script[] = "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $NODE_RANK $(od -An -v -tx1 "
                                 "/proc/self/fd/$TUTTI_TOKEN_FD | tr -d ' \\n')";
    static const char *const tokens[] = {HEX "\n", "0123456789abcdefghijklmnopqrstuv"};
    static const char *const hex[] = {"00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff",
                                      "303132333435363738396162636465666768696a6b6c6d6e6f70717273747576"};
    for (int i = 0; i < 2; i++) {
        write_token(path, tokens[i], 0600);
        struct launch nodes[2];
        for (int node = 0; node < 2; node++)
            nodes[node] =
                launch_start(ARGS("-n", "2", "--nnodes", "2", "--node-rank", node ? "1" : "0", "--master-addr",
                                  "127.0.0.1", port, "--token-file", path, "sh", "-c", script));
        for (int node = 0; node < 2; node++) {
            char line[160];
            launch_finish(&nodes[node]);
            assert_int_equal(nodes[node].status, 0);
            snprintf(line, sizeof line, "[%d] %d/4 1/2 %d %s\n", 2 * node + 1, 2 * node + 1, node, hex[i]);
            assert_has(&nodes[node].out, line);
            launch_free(&nodes[node]);
        }
        launch_nothing_left();
    }
    unlink(path);
}

/* Runs as the program of the next test.  Rank 0, on node 0, ends while rank 1 still uses the store of node 0. */
static int late_rank(void)
{
    tutti_store *store = NULL;
    char byte;
    size_t bytes;
    bool first = strcmp(getenv("RANK"), "0") == 0;
    int status = tutti_store_tcp(getenv("MASTER_ADDR"), (uint16_t)atoi(getenv("MASTER_PORT")), NULL, &store);
    if (status == 0 && first) status = tutti_store_get(store, "here", &byte, 1, &bytes, LAUNCH_HANG_MS);
    if (status == 0 && !first) status = tutti_store_set(store, "here", "", 0);
    for (int i = 0; i < 20 && status == 0 && !first; i++) {
        usleep(10000);
        status = tutti_store_add(store, "count", 1, NULL);
    }
    if (status != 0) fprintf(stderr, "rank %s: %s\n", getenv("RANK"), tutti_last_error());
    tutti_store_free(store);
    return status != 0;
}

static void node_0_serves_until_the_others_have_left(void **state)
{
    (void)state;
    char path[] = "/tmp/tutti-run-test-XXXXXX", port[32];
    close(mkstemp(path));
    write_token(path, HEX, 0600);
    snprintf(port, sizeof port, "--master-port=%d", loopback_free_port());
    struct launch nodes[2];
    for (int node = 0; node < 2; node++)
        nodes[node] = launch_start(ARGS("--nnodes", "2", "--node-rank", node ? "1" : "0", "--master-addr", "127.0.0.1",
                                        port, "--token-file", path, self, "late"));
    for (int node = 0; node < 2; node++) {
        launch_finish(&nodes[node]);
        if (nodes[node].status != 0) fail_msg("node %d: %s", node, nodes[node].err.data);
        launch_free(&nodes[node]);
    }
    launch_nothing_left();
    unlink(path);
}

static void refuses_a_bad_token(void **state)
{
    (void)state;
    char path[] = "/tmp/tutti-run-test-XXXXXX";
    close(mkstemp(path));
    write_token(path, HEX, 0644);
    launch_assert_refused(ARGS("--token-file", path, "true"), 1, "is accessible to others (mode 0644)");
    write_token(path, "too short", 0600);
    launch_assert_refused(ARGS("--token-file", path, "true"), 1, "neither 32 bytes nor 64 hex digits");
    unlink(path);
    launch_assert_refused(ARGS("--token-file", path, "true"), 1, "cannot open the token file");
    launch_assert_refused(ARGS("--token-file", "/dev/zero", "true"), 1, "not a regular file");
    launch_assert_refused(ARGS("--nnodes=2", "--node-rank=0", "--master-addr=127.0.0.1", "--master-port=4", "true"), 1,
                          "--token-file");
    setenv("TUTTI_TOKEN", "xyz", 1);
    launch_assert_refused(ARGS("true"), 1, "TUTTI_TOKEN");
    setenv("TUTTI_TOKEN", HEX, 1);
    struct launch launch = RUN("sh", "-c", "head -c 2 /proc/self/fd/$TUTTI_TOKEN_FD | od -An -tx1");
    assert_string_equal(launch.out.data, "[0]  00 11\n");
    launch_free(&launch);
    unsetenv("TUTTI_TOKEN");
}

/* The loopback interface of a new network namespace is down. */
static void a_host_without_loopback(void **state)
{
    (void)state;
    if (system("unshare -rn true 2>/dev/null") != 0) {
        print_message("skipped: network namespaces are not permitted here\n");
        skip();
    }
    launch_assert_refused(ARGS("unshare", "-rn", launch_path(), "-n", "2", "true"), 1, "check that lo is up");
}

static void no_file_may_be_written(void **state)
{
    (void)state;
    launch_assert_refused(ARGS("sh", "-c", "ulimit -f 0; exec \"$0\" true", launch_path()), 1,
                          "cannot keep the job token in a memfd: File too large (see ulimit -f)");
}

/* The launcher raises its own limit.  The ranks keep the original one. */
static void many_ranks_and_few_descriptors(void **state)
{
    (void)state;
    struct launch launch =
        RUN("sh", "-c", "ulimit -Sn 32 && \"$0\" -n 40 sh -c 'ulimit -Sn' | grep -c ' 32$'", launch_path());
    assert_string_equal(launch.out.data, "[0] 40\n");
    launch_free(&launch);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "late") == 0) return late_rank();
    if (realpath("/proc/self/exe", self) == NULL) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(says_that_a_port_is_taken),    cmocka_unit_test(takes_the_port_given),
        cmocka_unit_test(two_nodes_share_a_token_file), cmocka_unit_test(node_0_serves_until_the_others_have_left),
        cmocka_unit_test(refuses_a_bad_token),          cmocka_unit_test(a_host_without_loopback),
        cmocka_unit_test(no_file_may_be_written),       cmocka_unit_test(many_ranks_and_few_descriptors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
