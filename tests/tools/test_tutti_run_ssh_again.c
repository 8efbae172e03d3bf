/* tutti-run --hosts --on-failure=continue: ranks of other hosts are replaced there, and the job goes on without a host.
 */
#include "stand_in.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <tutti/tutti.h>

static char self[4096];

#define CONTINUE(n) "--on-failure=continue", "--replace", n, "--backoff=0.02", "--timeout=100"

/* ---- a program -------------------------------------------------------------------------------------------------- */

/* Waits until the job's log of members has a line, and prints the log. */
static int await(const char *line)
{
    tutti_store *store = NULL;
    char log[1000] = "\n";
    size_t bytes;
    if (tutti_store_tcp(getenv("MASTER_ADDR"), (uint16_t)atoi(getenv("MASTER_PORT")), NULL, &store) != TUTTI_OK)
        return 6;
    char *wanted = NULL;
    if (asprintf(&wanted, "\n%s\n", line) < 0) return 6;
    for (;; usleep(2000)) {
        if (tutti_store_get(store, "members/log", log + 1, sizeof log - 2, &bytes, LAUNCH_HANG_MS) != TUTTI_OK)
            return 6;
        log[bytes + 1] = '\0';
        if (strstr(log, wanted)) break;
    }
    for (char *at = log; *at; at++) *at = *at == '\n' ? ',' : *at;
    printf("log %s\n", log);
    tutti_store_free(store);
    free(wanted);
    return 0;
}

/* Runs a shell script in which $0 is this program. */
#define SCRIPT(text) "sh", "-c", text, self

/* ---- replacements ----------------------------------------------------------------------------------------------- */

/* The others end after the replacement. */
static void a_failed_rank_is_replaced_on_its_host(void **state)
{
    (void)state;
    struct launch launch = RUN(HOSTS, "a:1,b:2", CONTINUE("2"),
                               SCRIPT("echo $TUTTI_ON_FAILURE $TUTTI_MEMBER ${TUTTI_NEWCOMER-no} on $HOST_NAME; "
                                      "test $TUTTI_MEMBER = 2 && { $0 'start 0' && exit 3; }; "
                                      "test $TUTTI_MEMBER = 3 && exec $0 'start 3'; exec $0 'end 3'"));
    assert_int_equal(launch.status, 0);
    assert_has(&launch.out, "[0] continue 0 no on a\n");
    assert_has(&launch.out, "[2] continue 2 no on b\n");
    assert_has(&launch.out, "[2] continue 3 1 on b\n");
    assert_int_equal(text_count(launch.out.data, ",end 2,start 3,"), 3);
    assert_has(&launch.err, "tutti-run on b: rank 2 (pid ");
    assert_has(&launch.err, "exited with code 3; 1 other on this node goes on, and member 3 starts in its place in "
                            "0.02 s (replacement 1 of 2)\n");
    launch_free(&launch);
}

static void a_new_rank_0_reads_what_is_left_of_stdin(void **state)
{
    char path[128];
    (void)state;
    stand_in_write("input", "one\ntwo\n", 0600);
    stand_in_path("input", path, sizeof path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct launch launch = launch_start_from(
        fd, ARGS(HOSTS, "a,b", CONTINUE("1"), SCRIPT("read x && echo got $x; test $TUTTI_MEMBER != 0 || exit 3")));
    close(fd);
    launch_finish(&launch);
    assert_int_equal(launch.status, 0);
    assert_has(&launch.out, "[0] got one\n");
    assert_has(&launch.out, "[0] got two\n");
    launch_free(&launch);
}

/* ---- hosts ------------------------------------------------------------------------------------------------------ */

static void the_store_outlives_the_ranks_of_its_host(void **state)
{
    (void)state;
    struct launch launch = RUN(HOSTS, "a,b", "--on-failure=continue", "--timeout=100",
                               SCRIPT("test $RANK = 0 && exit 3; $0 'end 0' && sleep 0.3 && exec $0 'end 0'"));
    assert_int_equal(launch.status, 0); /* a rank has succeeded after the failure */
    assert_int_equal(text_count(launch.out.data, ",end 0,"), 2);
    launch_free(&launch);
}

/* Starts ranks on three hosts, and waits until the log has them all. */
static struct launch start_on_three(const char *script)
{
    struct launch launch = launch_start(ARGS(HOSTS, "a,b,c", CONTINUE("2"), SCRIPT(script)));
    launch_expect(&launch, "all there\n", 3);
    return launch;
}

#define ALL_THERE "$0 'start 0' && $0 'start 1' && $0 'start 2' && echo all there; "

static void the_job_goes_on_without_a_lost_host(void **state)
{
    (void)state;
    struct launch launch = start_on_three(ALL_THERE "exec $0 'end 1'");
    kill(stand_in_pid("b"), SIGKILL);
    launch_finish(&launch);
    assert_int_equal(launch.status, 0);
    assert_has(&launch.err, "host b: the connection was lost; its ranks end, and those of the other hosts go on\n");
    assert_int_equal(text_count(launch.out.data, ",end 1,"), 2);
    launch_free(&launch);
    launch_nothing_left();
}

static void the_job_ends_with_the_first_host(void **state)
{
    (void)state;
    struct launch launch = start_on_three(ALL_THERE "exec sleep 600");
    kill(stand_in_pid("a"), SIGKILL);
    launch_finish(&launch);
    assert_int_equal(launch.status, 128 + SIGKILL);
    assert_has(&launch.err, "host a: the connection was lost; its ranks end, too\n");
    launch_free(&launch);
    launch_nothing_left();
}

/* ---- the end ---------------------------------------------------------------------------------------------------- */

static void the_exit_status_is_that_of_the_last_ones(void **state)
{
    (void)state;
    struct launch launch = RUN(HOSTS, "a,b", "--on-failure=continue", "--timeout=100",
                               SCRIPT("test $RANK = 0 && exit 3; $0 'end 0'; exit 4"));
    assert_int_equal(launch.status, 3); /* the first failure after which none succeeded */
    launch_free(&launch);
    launch = RUN(HOSTS, "a,b", "--on-failure=continue", "--timeout=100", "--no-prefix",
                 SCRIPT("test $RANK = 0 && exit 3; $0 'end 0'; printf '\\1tutti-node ended x\\n' >&2; exit 4"));
    assert_int_equal(launch.status, 3); /* the rank's line is no number of the node */
    launch_free(&launch);
    launch = RUN(HOSTS, "a,b", "--on-failure=continue", "--timeout=100",
                 SCRIPT("test $RANK = 0 && exit 0; $0 'end 0'; exit 255"));
    assert_int_equal(launch.status, 255);
    assert_has_not(&launch.err, "lost");
    launch_free(&launch);
    launch = RUN(HOSTS, "a,b", CONTINUE("2"), "/nonexistent/program");
    assert_int_equal(launch.status, 127);
    assert_has(&launch.err, "cannot run /nonexistent/program: No such file");
    launch_free(&launch);
}

/* The first host has no rank any more, but still the store. */
static void it_can_be_ended_at_any_time(void **state)
{
    (void)state;
    static const char script[] = "test $RANK = 0 && exit 3; $0 'end 0'; exec sleep 600";
    struct launch launch = RUN(HOSTS, "a,b", "--on-failure=continue", "--timeout=0.5", SCRIPT(script));
    assert_int_equal(launch.status, 124);
    launch_free(&launch);
    static const int signals[] = {SIGTERM, SIGKILL};
    for (int i = 0; i < 2; i++) {
        launch = launch_start(ARGS(HOSTS, "a,b", "--on-failure=continue", SCRIPT(script)));
        launch_expect(&launch, "log ", 1);
        kill(launch.pid, signals[i]);
        launch_finish(&launch);
        assert_int_equal(launch.status, 128 + signals[i]);
        assert_has_not(&launch.err, "lost;");
        launch_free(&launch);
        launch_nothing_left();
    }
}

/* Nobody is replaced after a signal, although a replacement was to come. */
static void a_signal_prevents_replacements(void **state)
{
    (void)state;
    struct launch launch = launch_start(ARGS(HOSTS, "a,b", "--replace=1", "--backoff=600",
                                             SCRIPT("test $RANK = 0 && exit 3; trap 'exit 0' TERM; $0 'start 2'; "
                                                    "while :; do sleep 0.02; done")));
    launch_expect(&launch, "log ", 1);
    kill(launch.pid, SIGTERM);
    launch_finish(&launch);
    assert_int_equal(launch.status, 3);
    launch_free(&launch);
    launch_nothing_left();
}

int main(int argc, char **argv)
{
    if (argc == 2) return await(argv[1]);
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failed_rank_is_replaced_on_its_host),
        cmocka_unit_test(a_new_rank_0_reads_what_is_left_of_stdin),
        cmocka_unit_test(the_store_outlives_the_ranks_of_its_host),
        cmocka_unit_test(the_job_goes_on_without_a_lost_host),
        cmocka_unit_test(the_job_ends_with_the_first_host),
        cmocka_unit_test(the_exit_status_is_that_of_the_last_ones),
        cmocka_unit_test(it_can_be_ended_at_any_time),
        cmocka_unit_test(a_signal_prevents_replacements),
    };
    return cmocka_run_group_tests(tests, stand_in_set_up, stand_in_tear_down);
}
