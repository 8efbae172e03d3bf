/* tutti-run on several nodes whose ranks restart together, with nodes that join, leave and are lost.  The nodes are
 * launchers on one host. */
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launch.h"
#include "loopback.h"
#include "run/plan.h"
#include "train/scratch_folder.h"

static char token[] = "/tmp/tutti-run-test-XXXXXX", endpoint[64];
static uint16_t port;

/* ---- texts in the store ----------------------------------------------------------------------------------------- */

static void reports_are_checked(void **state)
{
    (void)state;
    struct plan_report report = {7, 2, true, PLAN_FAILED, 3, 4, -1, -1, "host", "rank 3 on host exited with code 3"},
                       read;
    char text[PLAN_REPORT_MAX];
    plan_write_report(&report, text);
    assert_true(plan_read_report(text, &read));
    assert_memory_equal(&read, &report, sizeof read);
    static const char *const wrong[] = {"",
                                        "x",
                                        "1 2 1 2 3 4",
                                        "1 2 1 9 3 4 -1 -1 host r",
                                        "1 2 1 -1 3 4 -1 -1 host r",
                                        "1 -2 1 2 3 4 -1 -1 host r",
                                        "1 2 1 2 3 0 -1 -1 host r",
                                        "1 2 1 2 3 4 -2 -1 host r"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) assert_false(plan_read_report(wrong[i], &read));
    assert_true(plan_read_report("1 2 1 2 3 4 -1 -1 ho\033st a\nb", &read)); /* no control characters on a terminal */
    assert_string_equal(read.host, "ho?st");
    assert_string_equal(read.reason, "a?b");
}

static void plans_are_checked(void **state)
{
    (void)state;
    struct plan plan;
    assert_true(plan_read("5 run 2 1 4000 1:2 7:3 9:1", 7, &plan));
    assert_true(plan.serial == 5 && plan.verb == PLAN_RUN && plan.round == 2 && plan.restarts == 1);
    assert_true(plan.port == 4000 && plan.n_nodes == 3 && plan.world_size == 6);
    assert_true(plan.node_rank == 1 && plan.first_rank == 2);
    assert_true(plan.first_member == -1);
    assert_true(plan_read("5 run 2 1 4000 0:2 7:3+9", 7, &plan) && plan.first_rank == 2 && plan.first_member == 9);
    assert_true(plan_read("5 run 2 1 4000 1:2", 7, &plan) && plan.node_rank == -1);
    assert_true(plan_read("6 over 0 3 the reason", 7, &plan));
    assert_true(plan.verb == PLAN_OVER && plan.status == 3);
    assert_string_equal(plan.reason, "the reason");
    static const char *const wrong[] = {"",
                                        "5 run",
                                        "5 walk 2 1 why",
                                        "5 run 2 1 0 1:2",
                                        "5 run 2 1 70000 1:2",
                                        "5 run 2 1 4000",
                                        "5 run 2 1 4000 1:0",
                                        "5 run 2 1 4000 1:2 x",
                                        "5 run 2 1 4000 1:2x",
                                        "5 run 2 1 4000 1:2+",
                                        "5 run 2 1 4000 1:2+-1",
                                        "5 run -1 1 4000 1:2",
                                        "5 run 2 1 4000 1:999999999 2:999999999 3:999999999"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) assert_false(plan_read(wrong[i], 1, &plan));
}

/* ---- nodes ------------------------------------------------------------------------------------------------------ */

/* Starts a launcher of one job that finds the others at the endpoint. */
#define NODE(nodes, ...)                                                                                               \
    launch_start(ARGS("-n", "2", "--nnodes", nodes, "--rdzv-endpoint", endpoint, "--token-file", token, "--timeout",   \
                      "100", "--backoff=0.05", __VA_ARGS__))
#define QUICK "--rdzv-conf", "last_call_timeout=0.2,join_timeout=80"

/* After this time without a word a node is lost.  A starved one is not. */
#define SILENT_MS "2000"
#define SILENT_S "2"

#define TELL "echo round $TUTTI_RESTART_COUNT rank $RANK of $WORLD_SIZE node $GROUP_RANK; "
#define FOREVER "exec sleep 600"

static void choose_endpoint(void)
{
    port = loopback_free_port();
    snprintf(endpoint, sizeof endpoint, "127.0.0.1:%d", port);
}

static int set_up(void **state)
{
    choose_endpoint();
    return scratch_folder_make(state);
}

static void finish(struct launch *launch, int status)
{
    launch_finish(launch);
    if (launch->status != status) fail_msg("status %d: %s%s", launch->status, launch->out.data, launch->err.data);
}

/* Rank 3 fails once rank 0 runs. */
static void ranks_of_two_nodes_restart_together(void **state)
{
    (void)state;
    static const char script[] = TELL "test $TUTTI_RESTART_COUNT = 1 && exit 0; test $RANK = 0 && touch $0/0; "
                                      "test $RANK = 3 && { " AWAIT("0") "exit 7; }; " FOREVER;
    char option[32];
    snprintf(option, sizeof option, "--master-port=%d", port);
    struct launch nodes[2];
    for (int node = 1; node >= 0; node--)
        nodes[node] = launch_start(ARGS("-n", "2", "--nnodes=2", "--node-rank", node ? "1" : "0", option,
                                        "--master-addr=127.0.0.1", "--token-file", token, "--max-restarts=2",
                                        "--backoff=0.05", "sh", "-c", script, folder));
    for (int node = 0; node < 2; node++) {
        char line[64];
        finish(&nodes[node], 0);
        snprintf(line, sizeof line, "[%d] round 1 rank %d of 4 node %d\n", 2 * node, 2 * node, node);
        assert_has(&nodes[node].out, line);
    }
    assert_has(&nodes[0].err, "ending the ranks of this node: rank 3 on ");
    assert_has(&nodes[0].err, "restart 1 of 2 in 0.05 s, because rank 3 on ");
    for (int node = 0; node < 2; node++) launch_free(&nodes[node]);
    launch_nothing_left();
}

static void all_nodes_end_with_the_status_of_the_failure(void **state)
{
    (void)state;
    struct launch nodes[2];
    for (int i = 0; i < 2; i++)
        nodes[i] = NODE("2", "--max-restarts=1", "sh", "-c", TELL "test $RANK = 3 && exit 7; " FOREVER);
    for (int i = 0; i < 2; i++) {
        finish(&nodes[i], 7);
        assert_has(&nodes[i].err, "exited with code 7; 1 of 1 restarts are used\n");
        launch_free(&nodes[i]);
    }
    launch_nothing_left();
}

/* The first node runs alone, then with a second one, which is killed, then alone. */
static void nodes_join_and_are_lost(void **state)
{
    (void)state;
    static const char script[] = TELL "test $TUTTI_RESTART_COUNT = 2 || " FOREVER;
    setenv("TUTTI_SILENT_MS", SILENT_MS, 1);
    struct launch first = NODE("1:2", QUICK, "sh", "-c", script);
    launch_expect(&first, " of 2 node 0\n", 2);
    struct launch second = NODE("1:2", QUICK, "sh", "-c", script);
    launch_expect(&second, " of 4 node 1\n", 2);
    launch_expect(&first, " of 4 node 0\n", 2);
    kill(second.pid, SIGKILL);
    finish(&second, 128 + SIGKILL);
    finish(&first, 0);
    unsetenv("TUTTI_SILENT_MS");
    assert_int_equal(text_count(first.out.data, "round 2 rank "), 2);
    assert_has(&first.err, " joins\n");
    assert_has(&first.err, "restart 1 of 3 in 0.05 s, because node ");
    assert_has(&first.err, "is lost: silent for " SILENT_S " s\n");
    launch_free(&first);
    launch_free(&second);
    launch_nothing_left();
}

/* A node leaves by a signal, and the job waits for another one in its place. */
static void a_node_takes_the_place_of_one_that_left(void **state)
{
    (void)state;
    static const char script[] = TELL "test $TUTTI_RESTART_COUNT = 1 || " FOREVER;
    struct launch nodes[3];
    for (int i = 0; i < 2; i++) {
        nodes[i] = NODE("2", "--max-restarts=1", QUICK, "sh", "-c", script);
        if (i == 0) loopback_await(port); /* the first one runs the store */
    }
    launch_expect(&nodes[1], "round 0 ", 2);
    kill(nodes[1].pid, SIGTERM);
    finish(&nodes[1], 128 + SIGTERM);
    nodes[2] = NODE("2", "--max-restarts=1", QUICK, "sh", "-c", script);
    finish(&nodes[2], 0);
    finish(&nodes[0], 0);
    assert_has(&nodes[2].out, "round 1 rank 3 of 4 node 1\n");
    assert_has(&nodes[0].err, "leaves: it got a signal\n");
    for (int i = 0; i < 3; i++) launch_free(&nodes[i]);
    launch_nothing_left();
}

/* The others go on when a node is killed.  A third one, which has waited, starts members in its place. */
static void a_spare_node_replaces_a_lost_one(void **state)
{
    (void)state;
    static const char script[] =
        "trap 'exit 0' USR1; echo member $TUTTI_MEMBER rank $RANK node $GROUP_RANK ${TUTTI_NEWCOMER-no}; "
        "test $TUTTI_MEMBER -lt 4 || exit 0; test $RANK -lt 2 || " FOREVER "; while :; do sleep 0.02; done";
    setenv("TUTTI_SILENT_MS", SILENT_MS, 1);
    struct launch nodes[3];
    for (int i = 0; i < 3; i++) {
        nodes[i] = NODE("2", "--replace=2", QUICK, "sh", "-c", script);
        if (i == 1) launch_expect(&nodes[1], "member ", 2);
        if (i == 0) loopback_await(port);
    }
    launch_expect(&nodes[0], "rank 0 node 0 no\n", 1);
    launch_expect(&nodes[0], "rank 1 node 0 no\n", 1);
    kill(nodes[1].pid, SIGKILL);
    finish(&nodes[1], 128 + SIGKILL);
    launch_expect(&nodes[2], "member 4 rank 2 node 1 1\n", 1);
    launch_expect(&nodes[2], "member 5 rank 3 node 1 1\n", 1);
    kill(nodes[0].pid, SIGUSR1);
    finish(&nodes[0], 0);
    finish(&nodes[2], 0);
    unsetenv("TUTTI_SILENT_MS");
    assert_has(&nodes[0].err, "is lost: silent for " SILENT_S " s; the other nodes go on\n");
    assert_has(&nodes[0].err, "members 4 to 5 start on node ");
    for (int i = 0; i < 3; i++) launch_free(&nodes[i]);
    launch_nothing_left();
}

/* Reads until stderr contains a message n times. */
static void await_message(struct launch *launch, const char *message, int n)
{
    int64_t deadline = launch_now_ms() + LAUNCH_HANG_MS;
    while (text_count(launch->err.data, message) < n) launch_step(launch, deadline);
}

/* A spare node needs more replacements than there are, so those are left for single members. */
static void refused_replacements_are_given_back(void **state)
{
    (void)state;
    static const char script[] =
        "test $RANK -lt 2 || " FOREVER "; test $TUTTI_MEMBER -lt 4 || { echo last $TUTTI_MEMBER; exit 0; }; "
        "trap 'exit $((3 * RANK))' USR1; echo ready; while :; do sleep 0.02; done";
    setenv("TUTTI_SILENT_MS", SILENT_MS, 1);
    struct launch nodes[3];
    for (int i = 0; i < 3; i++) {
        nodes[i] = NODE("2", "--replace=1", QUICK, "sh", "-c", script);
        if (i == 1) launch_expect(&nodes[0], "ready\n", 2);
        if (i == 0) loopback_await(port);
    }
    kill(nodes[1].pid, SIGKILL);
    finish(&nodes[1], 128 + SIGKILL);
    await_message(&nodes[0], "fewer than 2 of 1 replacements are left\n", 1);
    kill(nodes[0].pid, SIGUSR1);
    finish(&nodes[0], 0);
    finish(&nodes[2], 0);
    unsetenv("TUTTI_SILENT_MS");
    assert_has(&nodes[0].err, "member 4 starts in its place");
    assert_has(&nodes[0].out, "last 4\n");
    for (int i = 0; i < 3; i++) launch_free(&nodes[i]);
    launch_nothing_left();
}

/* The job ends while all that node 1 has to do is to start replacements. */
static void a_node_that_waits_for_replacements_ends_with_the_job(void **state)
{
    (void)state;
    struct launch nodes[2];
    for (int i = 0; i < 2; i++) {
        nodes[i] = NODE("2", "--replace=9", "--backoff=600", QUICK, "sh", "-c",
                        "test $RANK -gt 1 && exit 3; echo ready; " FOREVER);
        if (i == 0) loopback_await(port);
    }
    launch_expect(&nodes[0], "ready\n", 2);
    await_message(&nodes[1], " starts in its place", 2);
    kill(nodes[0].pid, SIGTERM);
    finish(&nodes[0], 128 + SIGTERM);
    finish(&nodes[1], 128 + SIGTERM);
    for (int i = 0; i < 2; i++) launch_free(&nodes[i]);
    launch_nothing_left();
}

static void the_loss_of_the_stores_node_ends_the_job(void **state)
{
    (void)state;
    static const int signals[] = {SIGKILL, SIGINT};
    for (int i = 0; i < 2; i++) {
        choose_endpoint();
        struct launch nodes[2];
        for (int k = 0; k < 2; k++) {
            nodes[k] = NODE("2", "--max-restarts=3", QUICK, "sh", "-c", TELL FOREVER);
            if (k == 0) loopback_await(port);
        }
        launch_expect(&nodes[1], "round 0 ", 2);
        kill(nodes[0].pid, signals[i]);
        finish(&nodes[1], i ? 128 + SIGINT : 1);
        assert_has(&nodes[1].err, i ? "the job ends: node " : "is lost, and the job with it: ");
        finish(&nodes[0], 128 + signals[i]);
        launch_free(&nodes[0]);
        launch_free(&nodes[1]);
        launch_nothing_left();
    }
}

static void waits_for_nodes_are_bounded(void **state)
{
    (void)state;
    struct launch alone = NODE("2", "--rdzv-conf=join_timeout=0.3", "true");
    finish(&alone, 1);
    assert_has(&alone.err, "only 1 of at least 2 nodes came within 0.3 s");
    launch_free(&alone);
    struct launch waiting = NODE("2", "true");
    usleep(200000);
    kill(waiting.pid, SIGINT);
    finish(&waiting, 128 + SIGINT);
    launch_free(&waiting);
    launch_nothing_left();
}

#define NODES_CASE(test) cmocka_unit_test_setup_teardown(test, set_up, scratch_folder_remove)

int main(void)
{
    int fd = mkstemp(token);
    if (fd < 0 || write(fd, "0123456789abcdefghijklmnopqrstuv", 32) != 32) return 1;
    close(fd);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reports_are_checked),
        cmocka_unit_test(plans_are_checked),
        NODES_CASE(ranks_of_two_nodes_restart_together),
        NODES_CASE(all_nodes_end_with_the_status_of_the_failure),
        NODES_CASE(nodes_join_and_are_lost),
        NODES_CASE(a_node_takes_the_place_of_one_that_left),
        NODES_CASE(a_spare_node_replaces_a_lost_one),
        NODES_CASE(refused_replacements_are_given_back),
        NODES_CASE(a_node_that_waits_for_replacements_ends_with_the_job),
        NODES_CASE(the_loss_of_the_stores_node_ends_the_job),
        NODES_CASE(waits_for_nodes_are_bounded),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(token);
    return failed;
}
