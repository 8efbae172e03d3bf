/* tutti-run: the end of a job.  Failures and their messages, signals, the launcher's own death, a terminal. */
#include "launch.h"
#include "train/scratch_folder.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- failures ------------------------------------------------------------------------------------------------- */

static void the_exit_status_is_the_first_failures(void **state)
{
    (void)state;
    struct launch launch = RUN("-n", "3", "true");
    assert_int_equal(launch.status, 0);
    assert_string_equal(launch.err.data ? launch.err.data : "", "");
    launch_free(&launch);
    launch = RUN("-n", "3", "sh", "-c", "test $RANK != 1 || exit 42; exec sleep 600");
    assert_int_equal(launch.status, 42);
    assert_has(&launch.err, "exited with code 42; ending the other ranks\n");
    launch_free(&launch);
    launch = RUN("-n", "2", "sh", "-c", "test $RANK = 1 || exec sleep 600; kill -SEGV $$");
    assert_int_equal(launch.status, 128 + SIGSEGV);
    assert_has(&launch.err, "rank 1 (pid ");
    assert_has(&launch.err, "died of SIGSEGV");
    launch_free(&launch);
}

/* A rank that ends with 0 does not end the others. */
static void a_rank_that_succeeds_ends_nobody(void **state)
{
    (void)state;
    struct launch launch = RUN("-n", "3", "sh", "-c", "test $RANK = 0 || { sleep 0.3; echo still; }");
    assert_int_equal(launch.status, 0);
    assert_int_equal(text_count(launch.out.data, "still\n"), 2);
    launch_free(&launch);
}

/* Returns the state letter in /proc/PID/stat. */
static char state_of(int pid)
{
    char path[64], letter = '?';
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "r");
    if (!file) return '?';
    if (fscanf(file, "%*d %*s %c", &letter) != 1) letter = '?';
    fclose(file);
    return letter;
}

static void wait_for_state(int pid, char letter, bool there)
{
    int64_t deadline = launch_now_ms() + LAUNCH_HANG_MS;
    while ((state_of(pid) == letter) != there) {
        if (launch_now_ms() > deadline) fail_msg("process %d is in state %c", pid, state_of(pid));
        usleep(2000);
    }
}

/* Both ranks are dead before the launcher, which is stopped meanwhile, checks. */
static void the_first_failure_by_time_counts(void **state)
{
    (void)state;
    for (int first = 0; first < 3; first++) {
        struct launch launch = launch_start(ARGS("-n", "3", "sh", "-c", "echo pid $$; exec sleep 600"));
        int pids[3];
        launch_expect(&launch, "\n", 3);
        for (int i = 0; i < 3; i++) {
            char line[16];
            snprintf(line, sizeof line, "[%d] pid ", i);
            pids[i] = atoi(strstr(launch.out.data, line) + strlen(line));
        }
        kill(launch.pid, SIGSTOP);
        wait_for_state(launch.pid, 'T', true);
        for (int i = 0; i < 3; i++) {
            int rank = (first + i) % 3;
            kill(pids[rank], rank == first ? SIGUSR1 : SIGKILL);
            wait_for_state(pids[rank], 'Z', true);
        }
        kill(launch.pid, SIGCONT);
        launch_finish(&launch);
        assert_int_equal(launch.status, 128 + SIGUSR1);
        assert_int_equal(text_count(launch.err.data, "(pid"), 1);
        launch_free(&launch);
        launch_nothing_left();
    }
}

static void the_last_lines_stand_at_the_end(void **state)
{
    (void)state;
    struct launch launch =
        RUN("-n", "3", "sh", "-c",
            "test $RANK = 1 || { trap 'echo noise >&2; exit' TERM; touch $0/$RANK; "
            "while :; do sleep 0.02; done; }; " AWAIT("0")
                AWAIT("2") "for i in a b c d e f g h i j k l; do echo line $i >&2; done; printf why >&2; exit 3",
            folder);
    assert_int_equal(launch.status, 3);
    char *report = strstr(launch.err.data, "tutti-run: rank 1 exited with code 3; the last lines of its stderr:\n");
    assert_non_null(report);
    assert_null(strstr(report, "line c"));
    assert_non_null(strstr(report, "\n    line d\n    line e\n"));
    assert_non_null(strstr(report, "    line l\n    why\n"));
    assert_string_equal(report + strlen(report) - 8, "    why\n");
    assert_int_equal(text_count(launch.err.data, "noise\n"), 2);
    launch_free(&launch);
    launch = RUN("-n", "2", "sh", "-c", "test $RANK = 0 || exit 3");
    assert_has(&launch.err, "rank 1 exited with code 3; it wrote nothing to stderr\n");
    launch_free(&launch);
}

static void a_rank_that_ignores_sigterm_is_killed_after_the_grace(void **state)
{
    (void)state;
    struct launch launch =
        RUN("-n", "2", "--grace", "0.2", "sh", "-c",
            "test $RANK = 0 && { trap '' TERM; touch $0/up; while :; do sleep 0.05; done; }; " AWAIT("up") "exit 9",
            folder);
    assert_int_equal(launch.status, 9);
    assert_has(&launch.err, "rank 0 (pid ");
    assert_has(&launch.err, "did not end within 0.2 s of SIGTERM: killed");
    launch_free(&launch);
}

/* A helper ends with its rank, even if the rank itself succeeded and the helper keeps its output open. */
static void helpers_end_with_their_rank(void **state)
{
    (void)state;
    struct launch launch = RUN("-n", "2", "sh", "-c", "sleep 600 & echo done");
    assert_int_equal(launch.status, 0);
    launch_free(&launch);
    launch = RUN("-n", "2", "sh", "-c", "sleep 600 & sleep 600 & test $RANK = 0 || exit 4; wait");
    assert_int_equal(launch.status, 4);
    launch_free(&launch);
}

/* A daemon has left the process group.  The launcher does not end it and does not wait for it.  It has our stdout as
 * TUTTI_STDOUT_FD, so a reader of that stream waits for it. */
static void a_daemon_with_our_pipe_does_not_hold_us_up(void **state)
{
    (void)state;
    struct launch launch = launch_start(ARGS(
        "-n", "2", "sh", "-c", "setsid sh -c 'echo $$; touch $0/$RANK; exec sleep 600' $0 & " AWAIT("$RANK"), folder));
    launch_expect(&launch, "\n", 2);
    launch_wait(&launch);
    int first = 0, second = 0;
    char *line = strchr(launch.out.data, '\n');
    sscanf(launch.out.data, "[%*d] %d", &first);
    sscanf(line + 1, "[%*d] %d", &second);
    if (first > 1) kill(first, SIGKILL);
    if (second > 1) kill(second, SIGKILL);
    assert_true(first > 1 && second > 1);
    assert_int_equal(launch.status, 0);
    launch_nothing_left();
    launch_free(&launch);
}

static void a_timeout_ends_the_job(void **state)
{
    (void)state;
    struct launch launch = RUN("-n", "2", "--timeout", "0.3", "sleep", "600");
    assert_int_equal(launch.status, 124);
    assert_has(&launch.err, "the job ran longer than 0.3 s");
    launch_free(&launch);
}

/* ---- signals ---------------------------------------------------------------------------------------------------- */

#define LOOP "echo ready; while :; do sleep 0.02; done"

static void signals_are_passed_on(void **state)
{
    (void)state;
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
    static const char *const names[] = {"INT", "TERM", "HUP", "QUIT", "USR1", "USR2"};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        char script[128];
        snprintf(script, sizeof script, "trap 'echo got; exit 0' %s; " LOOP, names[i]);
        struct launch launch = launch_start(ARGS("-n", "3", "sh", "-c", script));
        launch_expect(&launch, "ready\n", 3);
        kill(launch.pid, numbers[i]);
        launch_finish(&launch);
        assert_int_equal(launch.status, 0);
        assert_int_equal(text_count(launch.out.data, "got\n"), 3);
        launch_free(&launch);
        launch_nothing_left();
    }
}

static void an_interrupted_job_ends_without_noise(void **state)
{
    (void)state;
    struct launch launch = launch_start(ARGS("-n", "3", "sh", "-c", "echo ready; exec sleep 600"));
    launch_expect(&launch, "ready\n", 3);
    kill(launch.pid, SIGINT);
    launch_finish(&launch);
    assert_int_equal(launch.status, 128 + SIGINT);
    assert_string_equal(launch.err.data, "");
    launch_free(&launch);
    launch_nothing_left();
}

static void a_second_interrupt_kills(void **state)
{
    (void)state;
    struct launch launch =
        launch_start(ARGS("-n", "2", "--grace=600", "sh", "-c", "trap 'echo no' INT; trap '' TERM; " LOOP));
    launch_expect(&launch, "ready\n", 2);
    kill(launch.pid, SIGINT);
    launch_expect(&launch, "no\n", 2);
    kill(launch.pid, SIGINT);
    launch_finish(&launch);
    assert_int_equal(launch.status, 128 + SIGINT);
    launch_free(&launch);
    launch_nothing_left();
}

static void an_ignored_interrupt_stays_ignored(void **state)
{
    (void)state;
    signal(SIGINT, SIG_IGN);
    struct launch launch = launch_start(ARGS("-n", "2", "sh", "-c", "echo ready; sleep 0.3; echo done"));
    signal(SIGINT, SIG_DFL);
    launch_expect(&launch, "ready\n", 2);
    kill(launch.pid, SIGINT);
    usleep(50000); /* two separate signals: the second one kills */
    kill(launch.pid, SIGINT);
    launch_finish(&launch);
    assert_int_equal(launch.status, 0);
    assert_int_equal(text_count(launch.out.data, "done\n"), 2);
    launch_free(&launch);
}

/* Ranks get the signal state with which the launcher was started: nothing blocked, SIGPIPE deadly. */
static void ranks_have_the_callers_signals(void **state)
{
    (void)state;
    struct launch launch = RUN("grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status");
    assert_has(&launch.out, "SigBlk:\t0000000000000000\n");
    assert_has(&launch.out, "SigIgn:\t0000000000000000\n");
    launch_free(&launch);
}

static void interrupts_reach_a_launcher_whose_output_is_stuck(void **state)
{
    (void)state;
    struct launch launch = launch_start(ARGS("-n", "2", "yes"));
    launch_expect(&launch, "y\n", 1);
    int64_t deadline = launch_now_ms() + LAUNCH_HANG_MS;
    int status;
    while (waitpid(launch.pid, &status, WNOHANG) == 0 && launch_now_ms() < deadline) {
        kill(launch.pid, SIGINT);
        usleep(50000);
    }
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 128 + SIGINT);
    launch_nothing_left();
    launch_free(&launch);
}

static void ranks_end_with_a_killed_launcher(void **state)
{
    (void)state;
    struct launch launch = launch_start(ARGS("-n", "4", "sh", "-c", "trap '' TERM INT HUP; " LOOP));
    launch_expect(&launch, "ready\n", 4);
    kill(launch.pid, SIGKILL);
    launch_finish(&launch);
    assert_int_equal(launch.status, 128 + SIGKILL);
    launch_nothing_left();
    launch_free(&launch);
}

/* ---- a terminal ------------------------------------------------------------------------------------------------- */

#define ON_TERMINAL(...) launch_on_terminal(ARGS(launch_path(), __VA_ARGS__))

static void one_rank_keeps_the_terminal(void **state)
{
    (void)state;
    struct launch launch = ON_TERMINAL("sh", "-c", "test -t 0 && test -t 1 && test -t 2 && echo mine");
    launch_finish(&launch);
    assert_string_equal(launch.out.data, "mine\r\n");
    launch_free(&launch);
}

static void rank_0_reads_the_terminal(void **state)
{
    (void)state;
    struct launch launch = ON_TERMINAL("-n", "2", "sh", "-c", "echo ready; read a; echo \"<$a>\"");
    launch_expect(&launch, "ready\r\n", 2);
    assert_int_equal(write(launch.from_out, "typed\n", 6), 6);
    launch_finish(&launch);
    assert_has(&launch.out, "[0] <typed>\r\n");
    assert_has(&launch.out, "[1] <>\r\n");
    launch_free(&launch);
}

static void control_c_reaches_each_rank_once(void **state)
{
    (void)state;
    struct launch launch =
        ON_TERMINAL("-n", "3", "sh", "-c", "n=0; trap 'n=$((n+1)); echo got $n' INT; trap 'exit 0' USR1; " LOOP);
    launch_expect(&launch, "ready\r\n", 3);
    kill(launch.pid, SIGSTOP); /* keeps the signal separate from the terminal's */
    wait_for_state(launch.pid, 'T', true);
    assert_int_equal(write(launch.from_out, "\003", 1), 1);
    usleep(300000);
    kill(launch.pid, SIGCONT);
    launch_expect(&launch, "got 1\r\n", 3);
    usleep(200000); /* time for a superfluous signal */
    kill(launch.pid, SIGUSR1);
    launch_finish(&launch);
    assert_int_equal(launch.status, 0);
    assert_has_not(&launch.out, "got 2");
    launch_free(&launch);
    launch_nothing_left();
}

static void a_stopped_launcher_stops_its_ranks(void **state)
{
    (void)state;
    struct launch launch = launch_start(ARGS("-n", "1", "sh", "-c", "echo pid $$; exec sleep 600"));
    launch_expect(&launch, "\n", 1);
    int rank = atoi(strstr(launch.out.data, "pid ") + 4);
    kill(launch.pid, SIGTSTP);
    wait_for_state(launch.pid, 'T', true);
    wait_for_state(rank, 'T', true);
    kill(launch.pid, SIGCONT);
    wait_for_state(rank, 'T', false);
    kill(launch.pid, SIGTERM);
    launch_finish(&launch);
    assert_int_equal(launch.status, 128 + SIGTERM);
    launch_free(&launch);
    launch_nothing_left();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_exit_status_is_the_first_failures),
        cmocka_unit_test(a_rank_that_succeeds_ends_nobody),
        cmocka_unit_test(the_first_failure_by_time_counts),
        CASE(the_last_lines_stand_at_the_end),
        CASE(a_rank_that_ignores_sigterm_is_killed_after_the_grace),
        cmocka_unit_test(helpers_end_with_their_rank),
        CASE(a_daemon_with_our_pipe_does_not_hold_us_up),
        cmocka_unit_test(a_timeout_ends_the_job),
        cmocka_unit_test(signals_are_passed_on),
        cmocka_unit_test(an_interrupted_job_ends_without_noise),
        cmocka_unit_test(a_second_interrupt_kills),
        cmocka_unit_test(an_ignored_interrupt_stays_ignored),
        cmocka_unit_test(ranks_have_the_callers_signals),
        cmocka_unit_test(interrupts_reach_a_launcher_whose_output_is_stuck),
        cmocka_unit_test(ranks_end_with_a_killed_launcher),
        cmocka_unit_test(one_rank_keeps_the_terminal),
        cmocka_unit_test(rank_0_reads_the_terminal),
        cmocka_unit_test(control_c_reaches_each_rank_once),
        cmocka_unit_test(a_stopped_launcher_stops_its_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
