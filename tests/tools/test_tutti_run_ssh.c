/* tutti-run --hosts: nodes on other hosts, over a stand-in for ssh that runs the command here. */
#include "stand_in.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

/* ---- the ranks -------------------------------------------------------------------------------------------------- */

static void ranks_of_all_hosts_are_one_world(void **state)
{
    (void)state;
    struct launch launch = RUN(HOSTS, "a:2,b", TUTTI_EXAMPLES_DIR "/all_reduce", "tcp");
    assert_int_equal(launch.status, 0);
    assert_int_equal(text_count(launch.out.data, "has the sum of the ranks [3]"), 3);
    assert_has(&launch.out, "[2] Rank 2 has the sum");
    assert_string_equal(launch.err.data ? launch.err.data : "", "");
    launch_free(&launch);
}

/* This machine needs no ssh. */
static void this_host_is_started_directly(void **state)
{
    (void)state;
    unsetenv("TUTTI_SSH");
    struct launch launch = RUN("--hosts=localhost:2", TUTTI_EXAMPLES_DIR "/all_reduce", "tcp");
    setenv("TUTTI_SSH", stand_in_command(), 1);
    assert_int_equal(launch.status, 0);
    assert_int_equal(text_count(launch.out.data, "has the sum of the ranks [1]"), 2);
    launch_free(&launch);
}

static void sets_the_variables(void **state)
{
    (void)state;
    struct launch launch = RUN(
        HOSTS, "a:1,noisy:2", "sh", "-c",
        "echo $RANK/$WORLD_SIZE local $LOCAL_RANK/$LOCAL_WORLD_SIZE node $NODE_RANK/$GROUP_WORLD_SIZE on $HOST_NAME "
        "at $MASTER_ADDR; test $MASTER_PORT -gt 0 && echo port $MASTER_PORT");
    assert_int_equal(launch.status, 0);
    assert_has(&launch.out, "[0] 0/3 local 0/1 node 0/2 on a at 127.0.0.1\n");
    assert_has(&launch.out, "[1] 1/3 local 0/2 node 1/2 on noisy at 127.0.0.1\n");
    assert_has(&launch.out, "[2] 2/3 local 1/2 node 1/2 on noisy at 127.0.0.1\n");
    const char *port = strstr(launch.out.data, "port ");
    char first[16];
    snprintf(first, sizeof first, "%.*s", (int)strcspn(port, "\n"), port);
    assert_int_equal(text_count(launch.out.data, first), 3);
    launch_free(&launch);
}

/* Variables of Tutti, exported ones and the folder are those of the launcher. */
static void passes_variables_and_the_folder(void **state)
{
    (void)state;
    stand_in_write("env", "# a comment\n\nFROM_FILE=\"two words\" \nexport OTHER=1=2\t\r\n", 0600);
    char file[128];
    stand_in_path("env", file, sizeof file);
    setenv("TUTTI_HERE", "passed", 1);
    setenv("HERE", "value of here", 1);
    assert_int_equal(chdir(stand_in_folder()), 0);
    struct launch launch = RUN(HOSTS, "a,b", "-x", "HERE", "--export=EMPTY=", "-xGIVEN=a b", "--env-file", file, "sh",
                               "-c", "echo \"<$TUTTI_HERE|$HERE|${EMPTY-unset}|$GIVEN|$FROM_FILE|$OTHER|$(pwd)>\"");
    assert_int_equal(chdir("/"), 0);
    char wanted[256];
    snprintf(wanted, sizeof wanted, "[1] <passed|value of here||a b|two words|1=2|%s>\n", stand_in_folder());
    assert_int_equal(launch.status, 0);
    assert_has(&launch.out, wanted);
    launch_free(&launch);
    launch = RUN("-n", "2", "-x", "GIVEN=local", "-x", "OMP_NUM_THREADS=7", "sh", "-c", "echo $GIVEN $OMP_NUM_THREADS");
    assert_int_equal(text_count(launch.out.data, "] local 7\n"), 2);
    launch_free(&launch);
    stand_in_write("env", "MY-KEY=secret\n", 0600);
    launch_assert_refused(ARGS("--env-file", file, "true"), 2, "env line 1: \"MY-KEY\" is not the name of a variable");
    unsetenv("TUTTI_HERE");
    unsetenv("HERE");
}

static void passes_many_arguments(void **state)
{
    char line[512];
    (void)state;
    snprintf(line, sizeof line, "test $(%s --hosts a sh -c 'echo :$#' sh $(seq 66000) | grep -c :66000) = 1",
             launch_path());
    assert_int_equal(system(line), 0);
}

/* Other users can read a command line. */
static void the_token_is_on_no_command_line(void **state)
{
    (void)state;
    struct text commands = {0};
    struct launch launch =
        RUN(HOSTS, "a,b", "sh", "-c", "od -An -v -tx1 /proc/self/fd/$TUTTI_TOKEN_FD | tr -d ' \\n'; echo");
    char *token = strstr(launch.out.data, "[1] ");
    assert_non_null(token);
    token[4 + 64] = '\0';
    assert_int_equal(strspn(token + 4, "0123456789abcdef"), 64);
    stand_in_read("commands", &commands);
    assert_has(&commands, "--ssh-node");
    assert_has_not(&commands, token + 4);
    assert_has_not(&commands, "TUTTI_TOKEN");
    free(commands.data);
    launch_free(&launch);
}

static void output_passes_through(void **state)
{
    (void)state;
    struct launch launch = RUN(HOSTS, "a,b", "sh", "-c", "echo out; echo err >&2; printf unfinished");
    assert_has(&launch.out, "[1] out\n");
    assert_has(&launch.out, "[1] unfinished\n");
    assert_has(&launch.err, "[0] err\n");
    assert_int_equal(text_count(launch.out.data, "\n"), 4);
    launch_free(&launch);
    launch = RUN(HOSTS, "a,b", "--no-prefix", "sh", "-c", "echo out; test $RANK = 0 || echo data >&$TUTTI_STDOUT_FD");
    assert_int_equal(text_count(launch.out.data, "out\n"), 2);
    assert_has(&launch.out, "data\n");
    assert_has_not(&launch.out, "[");
    launch_free(&launch);
    launch = RUN(HOSTS, "a,b", "sh", "-c", "head -c 150000 /dev/zero | tr '\\0' a");
    assert_int_equal(text_count(launch.out.data, "a"), 300000);
    assert_int_equal(text_count(launch.out.data, "\n"), 6); /* cut by the nodes alone */
    launch_free(&launch);
}

/* More than a pipe holds. */
static void rank_0_has_our_stdin(void **state)
{
    char path[128];
    (void)state;
    stand_in_path("input", path, sizeof path);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0 && ftruncate(fd, 1000000) == 0);
    struct launch launch = launch_start_from(fd, ARGS(HOSTS, "a,b:2", "sh", "-c", "sleep 0.1; wc -c"));
    close(fd);
    launch_finish(&launch);
    assert_int_equal(launch.status, 0);
    assert_has(&launch.out, "[0] 1000000\n");
    assert_has(&launch.out, "[2] 0\n");
    launch_free(&launch);
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    launch = launch_start_from(ends[0], ARGS(HOSTS, "a,b", "sh", "-c", "read x; echo got $x"));
    close(ends[0]);
    launch_expect(&launch, "[1] got\n", 1);
    assert_int_equal(write(ends[1], "line\n", 5), 5);
    launch_finish(&launch); /* although stdin stays open */
    close(ends[1]);
    assert_has(&launch.out, "[0] got line\n");
    launch_free(&launch);
    launch_nothing_left();
}

static void stdin_is_read_in_the_foreground_alone(void **state)
{
    char script[4500];
    (void)state;
    snprintf(script, sizeof script,
             "set -m; %s --hosts a --timeout 100 sh -c 'echo ready; read x; echo \"<$x>\"' & sleep 0.5; fg",
             launch_path());
    setenv("TUTTI_SILENT_MS", "1000", 1); /* the launcher looks five times in this time */
    struct launch launch = launch_on_terminal(ARGS("/bin/sh", "-c", script));
    unsetenv("TUTTI_SILENT_MS");
    launch_expect(&launch, "ready\r\n", 1);
    assert_int_equal(write(launch.from_out, "typed\n", 6), 6);
    launch_finish(&launch);
    assert_int_equal(launch.status, 0);
    assert_has(&launch.out, "[0] <typed>\r\n");
    launch_free(&launch);
    launch_nothing_left();
}

/* ---- the end ---------------------------------------------------------------------------------------------------- */

static void the_exit_status_is_the_first_failures(void **state)
{
    (void)state;
    struct launch launch =
        RUN(HOSTS, "a:2,b:2", "sh", "-c", "test $RANK != 3 || { echo why >&2; exit 42; }; exec sleep 600");
    assert_int_equal(launch.status, 42);
    assert_has(&launch.err, "tutti-run on b: rank 3 (pid ");
    assert_has(&launch.err, "exited with code 42; ending the other ranks\n");
    assert_has(&launch.err, "\n    why\n");
    assert_has_not(&launch.err, "lost");
    launch_free(&launch);
    launch = RUN(HOSTS, "a,b", "sh", "-c", "test $RANK = 1 || exec sleep 600; kill -SEGV $$");
    assert_int_equal(launch.status, 128 + SIGSEGV);
    assert_has(&launch.err, "tutti-run on b: rank 1 (pid ");
    assert_has(&launch.err, "died of SIGSEGV");
    launch_free(&launch);
    launch = RUN(HOSTS, "a,b", "/nonexistent/program");
    assert_int_equal(launch.status, 127);
    assert_has(&launch.err, "cannot run /nonexistent/program: No such file");
    launch_free(&launch);
    launch = RUN(HOSTS, "a,b", "--timeout", "0.5", "sleep", "600");
    assert_int_equal(launch.status, 124);
    launch_free(&launch);
}

#define LOOP "echo ready; while :; do sleep 0.02; done"

static void signals_are_passed_on(void **state)
{
    (void)state;
    static const int numbers[] = {SIGINT, SIGTERM, SIGUSR1};
    static const char *const names[] = {"INT", "TERM", "USR1"};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        char program[128];
        snprintf(program, sizeof program, "trap 'echo got; exit 0' %s; " LOOP, names[i]);
        struct launch launch = launch_start(ARGS(HOSTS, "a:2,b", "sh", "-c", program));
        launch_expect(&launch, "ready\n", 3);
        kill(launch.pid, numbers[i]);
        launch_finish(&launch);
        assert_int_equal(launch.status, 0);
        assert_int_equal(text_count(launch.out.data, "got\n"), 3);
        launch_free(&launch);
        launch_nothing_left();
    }
    struct launch launch = launch_start(ARGS(HOSTS, "a,b", "sh", "-c", "echo ready; exec sleep 600"));
    launch_expect(&launch, "ready\n", 2);
    kill(launch.pid, SIGINT);
    launch_finish(&launch);
    assert_int_equal(launch.status, 128 + SIGINT);
    assert_string_equal(launch.err.data, "");
    launch_free(&launch);
    launch_nothing_left();
}

static void signals_before_the_start_end_nothing(void **state)
{
    (void)state;
    struct launch launch = launch_start(ARGS(HOSTS, "a,late", "sh", "-c", "echo started"));
    launch_expect(&launch, "late\n", 1);
    usleep(100000); /* a is likely to be ready */
    kill(launch.pid, SIGUSR1);
    usleep(100000);
    stand_in_write("go", "", 0600);
    launch_finish(&launch);
    assert_int_equal(launch.status, 0);
    assert_int_equal(text_count(launch.out.data, "started\n"), 2);
    launch_free(&launch);
}

static void a_second_interrupt_kills(void **state)
{
    (void)state;
    struct launch launch =
        launch_start(ARGS(HOSTS, "a,b", "--grace=600", "sh", "-c", "trap 'echo no' INT; trap '' TERM; " LOOP));
    launch_expect(&launch, "ready\n", 2);
    kill(launch.pid, SIGINT);
    launch_expect(&launch, "no\n", 2);
    kill(launch.pid, SIGINT);
    launch_finish(&launch);
    assert_int_equal(launch.status, 128 + SIGINT);
    launch_free(&launch);
    launch_nothing_left();
}

static void ranks_end_with_a_killed_launcher(void **state)
{
    (void)state;
    struct launch launch = launch_start(ARGS(HOSTS, "a:2,b", "--grace=0.2", "sh", "-c", "trap '' TERM INT HUP; " LOOP));
    launch_expect(&launch, "ready\n", 3);
    kill(launch.pid, SIGKILL);
    launch_finish(&launch);
    assert_int_equal(launch.status, 128 + SIGKILL);
    launch_nothing_left();
    launch_free(&launch);
}

/* A stopped launcher sends nothing, as one beyond a network that loses all packets. */
static void ranks_end_when_the_launcher_is_silent(void **state)
{
    (void)state;
    setenv("TUTTI_SILENT_MS", "700", 1); /* three times this may be a starved launcher's silence */
    struct launch launch = launch_start(ARGS(HOSTS, "a,b", "sh", "-c", "echo pid $$; exec sleep 600"));
    unsetenv("TUTTI_SILENT_MS");
    launch_expect(&launch, "\n", 2);
    int pids[2];
    for (int i = 0; i < 2; i++) {
        char line[16];
        snprintf(line, sizeof line, "[%d] pid ", i);
        pids[i] = atoi(strstr(launch.out.data, line) + strlen(line));
    }
    kill(launch.pid, SIGSTOP);
    int64_t deadline = launch_now_ms() + LAUNCH_HANG_MS;
    for (int i = 0; i < 2; i++)
        while (kill(pids[i], 0) == 0 && launch_now_ms() < deadline) usleep(2000);
    assert_true(kill(pids[0], 0) != 0 && kill(pids[1], 0) != 0);
    kill(launch.pid, SIGCONT);
    launch_finish(&launch);
    assert_int_not_equal(launch.status, 0);
    assert_has(&launch.err, "the launcher is silent: ending the ranks of this host");
    launch_free(&launch);
    launch_nothing_left();
}

static void a_lost_connection_ends_the_job(void **state)
{
    (void)state;
    struct launch launch = launch_start(ARGS(HOSTS, "a,b", "sh", "-c", "echo ready; exec sleep 600"));
    launch_expect(&launch, "ready\n", 2);
    kill(stand_in_pid("b"), SIGKILL);
    launch_finish(&launch);
    assert_int_equal(launch.status, 128 + SIGKILL);
    assert_has(&launch.err, "host b: the connection was lost; its ranks end, too\n");
    launch_free(&launch);
    launch_nothing_left();
}

static void each_host_that_cannot_be_reached_is_named(void **state)
{
    (void)state;
    struct launch launch = RUN(HOSTS, "a,down:3,bare", "echo", "started");
    assert_int_equal(launch.status, 1);
    assert_has(&launch.err, "host down: it cannot be reached (");
    assert_has(&launch.err, "exited with code 255): ssh: connect to host down port 22: Connection refused\n");
    assert_has(&launch.err, "host bare: tutti-run was not found there (");
    assert_has(&launch.err, "2 of 3 hosts cannot be used: no rank was started\n");
    assert_int_equal(text_count(launch.err.data, "\n"), 3);
    assert_string_equal(launch.out.data ? launch.out.data : "", "");
    launch_free(&launch);
    launch = RUN(HOSTS, "slow,slow2", "--ssh-timeout", "0.2", "echo", "started");
    assert_int_equal(launch.status, 1);
    assert_has(&launch.err, "host slow: no answer within 0.2 s (--ssh-timeout); try ");
    assert_has(&launch.err, "host slow2: no answer within 0.2 s (--ssh-timeout); try ");
    launch_free(&launch);
    launch = launch_start(ARGS(HOSTS, "a,slow", "true"));
    usleep(300000);
    kill(launch.pid, SIGINT); /* while it connects */
    launch_finish(&launch);
    assert_int_equal(launch.status, 128 + SIGINT);
    launch_free(&launch);
    launch_nothing_left();
}

static void all_hosts_start_again(void **state)
{
    (void)state;
    struct launch launch = RUN(HOSTS, "a,b", "--max-restarts=2", "--backoff=0", "sh", "-c",
                               "echo round $TUTTI_RESTART_COUNT of $TORCHELASTIC_MAX_RESTARTS; "
                               "test $TUTTI_RESTART_COUNT = 1 && exit; "
                               "test $RANK = 0 && { touch $0/printed; exec sleep 600; }; " AWAIT("printed") "exit 7",
                               stand_in_folder());
    assert_int_equal(launch.status, 0);
    assert_int_equal(text_count(launch.out.data, "round 0 of 2\n"), 2);
    assert_int_equal(text_count(launch.out.data, "round 1 of 2\n"), 2);
    assert_has(&launch.err, "restart 1 of 2 in 0 s, because host b exited with code 7");
    launch_free(&launch);
    launch = RUN(HOSTS, "a", "--max-restarts=1", "--backoff=0", "--timeout=100", "sh", "-c",
                 "cat; test $TUTTI_RESTART_COUNT = 1"); /* stdin is at its end in each round */
    assert_int_equal(launch.status, 0);
    launch_free(&launch);
}

/* Rank 0 has time after rank 1 has failed, and is asked before the time limit ends it. */
static void ranks_can_write_records(void **state)
{
    (void)state;
    struct launch launch =
        RUN(HOSTS, "a,b", "-x", "TUTTI_RECORD_DIR=/nonexistent", "sh", "-c",
            "test $RANK = 0 || { " AWAIT("up") "echo $$ >$0/new && mv $0/new $0/failed; exit 3; }; touch $0/up; " AWAIT(
                "failed") "while kill -0 $(cat $0/failed) 2>/dev/null; do sleep 0.01; done; "
                          "sleep 0.2; echo noticed; exec sleep 600",
            stand_in_folder());
    assert_has(&launch.out, "[0] noticed\n");
    launch_free(&launch);
    launch = launch_run_to_limit(ARGS(HOSTS, "a", "-x", "TUTTI_RECORD_DIR=/nonexistent", "-x", "TUTTI_RECORD_SIGNAL=1",
                                      "sh", "-c", "trap 'echo asked' USR2; echo ready; while :; do sleep 0.02; done"),
                                 "ready\n", 1);
    assert_int_equal(launch.status, 124);
    assert_has(&launch.out, "[0] asked\n");
    launch_free(&launch);
}

/* ---- the command line ------------------------------------------------------------------------------------------- */

static void reads_hostfiles(void **state)
{
    char path[128];
    (void)state;
    stand_in_path("hosts", path, sizeof path);
    stand_in_write("hosts", "# cluster\n\n a:2 # MPICH\nb slots=1 max_slots=4\r\n[::1]:1\n  a:1\n", 0600);
    struct launch launch =
        RUN("--master-addr=127.0.0.1", "--hostfile", path, "sh", "-c", "echo $RANK of $WORLD_SIZE on $HOST_NAME");
    assert_int_equal(launch.status, 0);
    assert_has(&launch.out, "[2] 2 of 5 on a\n"); /* the lines of a host add up */
    assert_has(&launch.out, "[3] 3 of 5 on b\n");
    assert_has(&launch.out, "[4] 4 of 5 on ::1\n");
    launch_free(&launch);
    static const char *const wrong[][2] = {{"a slots=0\n", "line 1: \"slots=0\" is not slots=N"},
                                           {"a\nb c\n", "line 2: \"c\" is not slots=N"},
                                           {"\n# nothing\n", "names no host"},
                                           {"a:x\n", "is not HOST:N with a number from 1"},
                                           {"-oProxyCommand=x\n", "is not the name of a host"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        stand_in_write("hosts", wrong[i][0], 0600);
        launch_assert_refused(ARGS("--hostfile", path, "true"), 2, wrong[i][1]);
    }
    launch_assert_refused(ARGS("--hostfile=/nonexistent", "true"), 2, "cannot open /nonexistent");
}

static void refuses_a_bad_command_line(void **state)
{
    (void)state;
    launch_assert_refused(ARGS("--hosts=", "true"), 2, "the list has an empty name");
    launch_assert_refused(ARGS("--hosts=a,,b", "true"), 2, "the list has an empty name");
    launch_assert_refused(ARGS("--hosts=a:0", "true"), 2, "\"a:0\" is not HOST:N");
    launch_assert_refused(ARGS("--hosts=a;b", "true"), 2, "\"a;b\" is not the name of a host");
    launch_assert_refused(ARGS("--hosts=-x", "true"), 2, "\"-x\" is not the name of a host");
    launch_assert_refused(ARGS("--hosts=[::1:4", "true"), 2, "lacks its \"]\"");
    launch_assert_refused(ARGS("--hosts=a:1,a", "true"), 2, "listed with and without a number");
    launch_assert_refused(ARGS("--hosts=a,b", "-n", "auto", "true"), 2, "-n auto is not known for other hosts");
    launch_assert_refused(ARGS("--hosts=a", "--nnodes=2", "true"), 2, "--hosts starts all hosts of its list: omit");
    launch_assert_refused(ARGS("--hosts=a", "--nnodes=1:2", "true"), 2, "--nnodes MIN:MAX --rdzv-endpoint");
    launch_assert_refused(ARGS("--hosts=localhost,b", "true"), 2, "cannot reach the first one as localhost");
    launch_assert_refused(ARGS("--hosts=a", "--ssh-command=", "true"), 2, "--ssh-command is empty");
    launch_assert_refused(ARGS("-x", "UNSET_HERE", "true"), 2, "UNSET_HERE is not set; give UNSET_HERE=VALUE");
    launch_assert_refused(ARGS("-x", "1=2", "true"), 2, "\"1\" is not the name of a variable");
    launch_assert_refused(ARGS("--env-file=/nonexistent", "true"), 2, "cannot open /nonexistent");
    launch_assert_refused(ARGS("--ssh-node"), 1, "no configuration came on stdin");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_of_all_hosts_are_one_world),
        cmocka_unit_test(this_host_is_started_directly),
        cmocka_unit_test(sets_the_variables),
        cmocka_unit_test(passes_variables_and_the_folder),
        cmocka_unit_test(passes_many_arguments),
        cmocka_unit_test(the_token_is_on_no_command_line),
        cmocka_unit_test(output_passes_through),
        cmocka_unit_test(rank_0_has_our_stdin),
        cmocka_unit_test(stdin_is_read_in_the_foreground_alone),
        cmocka_unit_test(the_exit_status_is_the_first_failures),
        cmocka_unit_test(signals_are_passed_on),
        cmocka_unit_test(signals_before_the_start_end_nothing),
        cmocka_unit_test(a_second_interrupt_kills),
        cmocka_unit_test(ranks_end_with_a_killed_launcher),
        cmocka_unit_test(ranks_end_when_the_launcher_is_silent),
        cmocka_unit_test(a_lost_connection_ends_the_job),
        cmocka_unit_test(each_host_that_cannot_be_reached_is_named),
        cmocka_unit_test(all_hosts_start_again),
        cmocka_unit_test(ranks_can_write_records),
        cmocka_unit_test(reads_hostfiles),
        cmocka_unit_test(refuses_a_bad_command_line),
    };
    return cmocka_run_group_tests(tests, stand_in_set_up, stand_in_tear_down);
}
