/* tutti-run: jobs that do not end with a failure.  All ranks are started again (--on-failure=restart), or the others go
 * on and failed ones are replaced (--on-failure=continue). */
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <tutti/tutti.h>

#include "launch.h"
#include "train/scratch_folder.h"

enum { LOG_MAX = 1000 };

static char self[4096];

/* ---- programs --------------------------------------------------------------------------------------------------- */

static int number(const char *variable)
{
    const char *text = getenv(variable);
    return text ? atoi(text) : -1;
}

static tutti_store *open_store(void)
{
    tutti_store *store = NULL;
    tutti_store_opts opts = {.timeout_ms = LAUNCH_HANG_MS};
    if (tutti_store_tcp(getenv("MASTER_ADDR"), (uint16_t)number("MASTER_PORT"), &opts, &store) != TUTTI_OK)
        fprintf(stderr, "%s\n", tutti_last_error());
    return store;
}

/* Fails if a key of an earlier round is in the store.  Rank 1 fails in the first two rounds. */
static int fresh_main(void)
{
    tutti_store *store = open_store();
    bool present = true;
    int64_t all = 0;
    if (!store || tutti_store_check(store, (const char *[]){"left"}, 1, &present) != 0 || present) return 5;
    printf("round %d\n", number("TUTTI_RESTART_COUNT"));
    fflush(stdout);
    if (tutti_store_add(store, "checked", 1, &all) != 0) return 5;
    while (all < 2 && tutti_store_add(store, "checked", 0, &all) == 0) usleep(1000); /* all have checked */
    if (tutti_store_set(store, "left", "", 0) != 0) return 5;
    tutti_store_free(store);
    return number("RANK") == 1 && number("TUTTI_RESTART_COUNT") < 2 ? 4 : 0;
}

/* Waits until members/log has the text, and copies the log. */
static int await_log(tutti_store *store, const char *text, char log[LOG_MAX])
{
    size_t bytes;
    for (;; usleep(2000)) {
        if (tutti_store_get(store, "members/log", log, LOG_MAX - 1, &bytes, LAUNCH_HANG_MS) != 0) return 6;
        log[bytes] = '\0';
        if (strstr(log, text)) return 0;
    }
}

/* Waits until members/log has a line. */
static int await_main(const char *line)
{
    char text[32], log[LOG_MAX];
    tutti_store *store = open_store();
    snprintf(text, sizeof text, "%s\n", line);
    int status = store ? await_log(store, text, log) : 6;
    tutti_store_free(store);
    return status;
}

/* Rank 0 is killed.  The others use the store afterwards, and its replacement ends with them. */
static int members_main(void)
{
    char log[LOG_MAX];
    tutti_store *store = open_store();
    if (!store) return 6;
    if (number("TUTTI_MEMBER") == 0) {
        if (await_log(store, "start 2\n", log) != 0) return 6;
        kill(getpid(), SIGKILL);
    }
    if (number("TUTTI_NEWCOMER") == 1) printf("newcomer %d rank %d\n", number("TUTTI_MEMBER"), number("RANK"));
    int status = await_log(store, "end 0\nstart 3\n", log);
    for (char *at = log; *at; at++) *at = *at == '\n' ? ',' : *at;
    printf("log %s\n", log);
    if (status == 0) status = tutti_store_barrier(store, "all", 3, LAUNCH_HANG_MS);
    tutti_store_free(store);
    return status;
}

/* ---- restart ---------------------------------------------------------------------------------------------------- */

#define RESTART(n) "--max-restarts", n, "--backoff", "0.02"

static void a_failure_restarts_all_ranks(void **state)
{
    (void)state;
    struct launch launch = RUN("-n", "2", RESTART("5"), self, "fresh");
    assert_int_equal(launch.status, 0);
    for (int round = 0; round < 3; round++) {
        char line[32];
        snprintf(line, sizeof line, "round %d\n", round);
        assert_int_equal(text_count(launch.out.data, line), 2);
    }
    assert_has(&launch.err, "restart 1 of 5 in 0.02 s, because rank 1 exited with code 4\n");
    assert_has(&launch.err, "restart 2 of 5 in 0.04 s, because rank 1 exited with code 4\n");
    assert_int_equal(text_count(launch.err.data, "restart "), 2);
    launch_free(&launch);
}

/* Rank 1 fails once rank 0 has printed. */
static void restarts_are_counted_and_limited(void **state)
{
    (void)state;
    static const char script[] = "echo $TUTTI_ON_FAILURE $TUTTI_RESTART_COUNT $TORCHELASTIC_RESTART_COUNT "
                                 "$TORCHELASTIC_MAX_RESTARTS $TORCHELASTIC_RUN_ID; "
                                 "test $RANK = 1 || { touch $0/$TUTTI_RESTART_COUNT; exec sleep 600; }; " AWAIT(
                                     "$TUTTI_RESTART_COUNT") "echo why $TUTTI_RESTART_COUNT >&2; exit 3";
    setenv("TUTTI_RESTART_COUNT", "77", 1);
    struct launch launch =
        RUN("-n", "2", RESTART("2"), "--on-failure=restart", "--rdzv-id=job7", "sh", "-c", script, folder);
    unsetenv("TUTTI_RESTART_COUNT");
    assert_int_equal(launch.status, 3);
    assert_int_equal(text_count(launch.out.data, "restart 0 0 2 job7\n"), 2);
    assert_int_equal(text_count(launch.out.data, "restart 2 2 2 job7\n"), 2);
    assert_int_equal(text_count(launch.err.data, "    why "), 3);
    assert_int_equal(text_count(launch.err.data, "    why 2\n"), 1);
    assert_has(&launch.err, "no restart after this failure: 2 of 2 restarts are used\n");
    launch_free(&launch);
    launch = RUN("-n", "2", "--max-restarts=0", "sh", "-c", "exit 3");
    assert_int_equal(launch.status, 3);
    assert_has_not(&launch.err, "restart");
    launch_free(&launch);
}

/* Rank 0 has succeeded and was reaped, rank 1 fails, and rank 2 fails differently when it is ended.  The next round is
 * longer than the time for that. */
static void all_are_restarted_whatever_has_become_of_them(void **state)
{
    (void)state;
    static const char script[] =
        "echo here; test $TUTTI_RESTART_COUNT = 1 && { sleep 0.5; exit 0; }; "
        "test $RANK = 0 && { echo $$ >$0/new && mv $0/new $0/pid; exit 0; }; "
        "test $RANK = 2 && { trap 'exit 9' TERM; touch $0/ready; while :; do sleep 0.02; done; }; " AWAIT("ready")
            AWAIT("pid") "while kill -0 $(cat $0/pid) 2>/dev/null; do sleep 0.01; done; exit 3";
    struct launch launch = RUN("-n", "3", "--grace=0.3", RESTART("1"), "sh", "-c", script, folder);
    assert_int_equal(launch.status, 0);
    assert_int_equal(text_count(launch.out.data, "here\n"), 6);
    assert_has(&launch.err, "because rank 1 exited with code 3\n");
    launch_free(&launch);
}

static void restarts_leak_nothing(void **state)
{
    (void)state;
    static const char script[] =
        "test $TUTTI_RESTART_COUNT != 3 -a $TUTTI_RESTART_COUNT != 100 || "
        "{ set -- /proc/$PPID/fd/*; echo has $# and $(cat /proc/$PPID/task/*/children | wc -w); }; "
        "exit 1";
    struct launch launch = RUN("--max-restarts", "100", "--backoff=0", "sh", "-c", script);
    char *first = strstr(launch.out.data, "has "), *last = first ? strstr(first + 1, "has ") : NULL;
    assert_non_null(last);
    assert_true(atoi(last + 4) < atoi(first + 4) + 20); /* the last round's store may not be closed yet */
    assert_has(&launch.out, " and 1\n");
    launch_free(&launch);
}

static struct launch start_waiting(const char *backoff)
{
    struct launch launch =
        launch_start(ARGS("-n", "2", "--max-restarts=3", "--backoff", backoff, "--timeout=600", "sh", "-c", "exit 3"));
    int64_t deadline = launch_now_ms() + LAUNCH_HANG_MS;
    while (text_count(launch.err.data, "restart 1 of 3") < 1) launch_step(&launch, deadline);
    return launch;
}

static void the_time_between_rounds_can_be_interrupted(void **state)
{
    (void)state;
    static const int signals[] = {SIGINT, SIGTERM, SIGKILL};
    for (int i = 0; i < 3; i++) {
        struct launch launch = start_waiting("600");
        kill(launch.pid, signals[i]);
        launch_finish(&launch);
        assert_int_equal(launch.status, 128 + signals[i]);
        if (signals[i] == SIGINT) assert_has(&launch.err, "SIGINT while no rank was running: the job ends\n");
        launch_nothing_left();
        launch_free(&launch);
    }
    struct launch launch = RUN("--max-restarts=3", "--backoff=600", "--timeout=0.3", "sh", "-c", "exit 3");
    assert_int_equal(launch.status, 124);
    launch_free(&launch);
}

/* The ranks are interrupted, and fail because of it. */
static void an_interrupted_job_is_not_restarted(void **state)
{
    (void)state;
    struct launch launch = launch_start(
        ARGS("-n", "2", RESTART("3"), "sh", "-c", "trap 'exit 6' INT; echo ready; while :; do sleep 0.02; done"));
    launch_expect(&launch, "ready\n", 2);
    kill(launch.pid, SIGINT);
    launch_finish(&launch);
    assert_int_equal(launch.status, 6);
    assert_has_not(&launch.err, "restart ");
    launch_nothing_left();
    launch_free(&launch);
}

/* Rank 1 has failed, and rank 0, which is being ended, takes its time. */
static void an_interrupt_while_ranks_end_prevents_the_restart(void **state)
{
    (void)state;
    struct launch launch = launch_start(
        ARGS("-n", "2", RESTART("3"), "--grace=600", "sh", "-c",
             "test $RANK = 0 || { " AWAIT("ready") "exit 3; }; "
                                                   "trap 'echo ending' TERM; trap 'exit 6' INT; touch $0/ready; "
                                                   "while :; do sleep 0.02; done",
             folder));
    launch_expect(&launch, "ending\n", 1);
    kill(launch.pid, SIGINT);
    launch_finish(&launch);
    assert_int_equal(launch.status, 3);
    assert_has_not(&launch.err, "restart ");
    launch_nothing_left();
    launch_free(&launch);
}

/* Writes a program that runs once.  Rank 1 removes it and fails, once rank 0 has read what to do meanwhile. */
static void write_vanishing(char path[96], const char *meanwhile)
{
    snprintf(path, 96, "%s/program", folder);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0700);
    assert_true(fd >= 0);
    dprintf(fd, "#!/bin/sh\ntest $RANK = 1 || { touch $0.read; %s; }\n", meanwhile);
    dprintf(fd, "until test -e $0.read; do sleep 0.01; done\nrm $0\nexit 1\n");
    close(fd);
}

static void a_program_that_is_gone_ends_the_job(void **state)
{
    (void)state;
    char path[96], message[128];
    write_vanishing(path, "exec sleep 600");
    struct launch launch = RUN("-n", "2", RESTART("3"), path);
    snprintf(message, sizeof message, "tutti-run: cannot run %s: ", path);
    assert_int_equal(launch.status, 127);
    assert_has(&launch.err, message);
    launch_free(&launch);
}

/* ---- continue --------------------------------------------------------------------------------------------------- */

#define CONTINUE(n) "--on-failure=continue", "--replace", n, "--backoff=0.02"

static void the_store_outlives_rank_0(void **state)
{
    (void)state;
    struct launch launch = RUN("-n", "3", CONTINUE("2"), self, "members");
    assert_int_equal(launch.status, 0);
    assert_has(&launch.out, "newcomer 3 rank 0\n");
    assert_int_equal(text_count(launch.out.data, "log start 0,start 1,start 2,end 0,start 3,"), 3);
    assert_has(&launch.err, "died of SIGKILL; 2 others on this node go on, and member 3 starts in its place in 0.02 s "
                            "(replacement 1 of 2)\n");
    launch_free(&launch);
}

static void members_have_variables(void **state)
{
    (void)state;
    static const char script[] = "echo $TUTTI_ON_FAILURE $TUTTI_MEMBER $RANK ${TUTTI_NEWCOMER-no}; "
                                 "test $RANK = 1 -a $TUTTI_MEMBER = 1 && exit 3; exec $0 await 'start 2'";
    setenv("TUTTI_NEWCOMER", "1", 1); /* of the job in which this launcher runs */
    struct launch launch = RUN("-n", "2", CONTINUE("2"), "sh", "-c", script, self);
    unsetenv("TUTTI_NEWCOMER");
    assert_int_equal(launch.status, 0);
    assert_has(&launch.out, "[0] continue 0 0 no\n");
    assert_has(&launch.out, "[1] continue 1 1 no\n");
    assert_has(&launch.out, "[1] continue 2 1 1\n");
    launch_free(&launch);
}

/* Runs two ranks.  Rank 0 ends after rank 1. */
static int run_to_end_of_1(const char *rank_1, const char *then)
{
    char script[128];
    snprintf(script, sizeof script, "test $RANK = 1 && %s; $0 await 'end 1' && %s", rank_1, then);
    struct launch launch = RUN("-n", "2", "--on-failure=continue", "sh", "-c", script, self);
    int status = launch.status;
    launch_free(&launch);
    return status;
}

/* A failure counts unless a member succeeds after it. */
static void the_exit_status_is_that_of_the_last_ones(void **state)
{
    (void)state;
    assert_int_equal(run_to_end_of_1("exit 3", "exit 0"), 0);
    assert_int_equal(run_to_end_of_1("exit 0", "exit 4"), 4);
    assert_int_equal(run_to_end_of_1("kill -9 $$", "exit 4"), 128 + SIGKILL);
}

static void replacements_that_fail_at_once_are_limited(void **state)
{
    (void)state;
    static const char script[] = "test $RANK = 1 && exit 3; exec $0 await \"end $1\"";
    struct launch launch = RUN("-n", "2", "--replace=2", "--backoff=0", "sh", "-c", script, self, "3");
    assert_int_equal(launch.status, 0);
    assert_int_equal(text_count(launch.err.data, " starts in its place"), 2);
    assert_has(&launch.err, "without a replacement: all 2 are used\n");
    launch_free(&launch);
    launch = RUN("-n", "2", "--replace=1000", "--backoff=0", "sh", "-c", script, self, "6");
    assert_int_equal(launch.status, 0);
    assert_int_equal(text_count(launch.err.data, " starts in its place"), 5);
    assert_has(&launch.err, "without a replacement: 6 processes in its place ended early\n");
    launch_free(&launch);
}

/* The ranks fail while they are to write their records. */
static void no_replacement_outlives_the_time_limit(void **state)
{
    (void)state;
    struct launch launch =
        RUN("-n", "2", "--replace=2", "--backoff=600", "--timeout=0.3", "-x", "TUTTI_RECORD_DIR=/nonexistent", "-x",
            "TUTTI_RECORD_SIGNAL=1", "sh", "-c", "trap 'exit 3' USR2; while :; do sleep 0.02; done");
    assert_int_equal(launch.status, 124);
    launch_free(&launch);
}

static void a_replacement_that_cannot_run_is_a_failed_one(void **state)
{
    (void)state;
    char path[96], message[128], meanwhile[sizeof self + 32];
    snprintf(meanwhile, sizeof meanwhile, "exec %s await 'end 3'", self);
    write_vanishing(path, meanwhile);
    struct launch launch = RUN("-n", "2", CONTINUE("2"), path);
    snprintf(message, sizeof message, "tutti-run: cannot run %s: ", path);
    assert_int_equal(launch.status, 0);
    assert_int_equal(text_count(launch.err.data, message), 2);
    assert_has(&launch.err, "member 3 in rank 1's place (pid 0) exited with code 127");
    launch_free(&launch);
}

static void each_member_has_log_files(void **state)
{
    (void)state;
    char option[80], script[256];
    snprintf(option, sizeof option, "--log-dir=%s", folder);
    struct launch launch = RUN("-n", "2", CONTINUE("1"), option, "sh", "-c",
                               "echo member $TUTTI_MEMBER; test $TUTTI_MEMBER != 1 || { echo why >&2; exit 3; }; "
                               "exec $0 await 'start 2'",
                               self);
    assert_int_equal(launch.status, 0);
    assert_int_equal(text_count(launch.err.data, "rank_1.err:\n    why\n"), 1);
    snprintf(script, sizeof script,
             "cd %s && test \"$(cat rank_0.out rank_1.out rank_1.2.out | tr '\\n' ,)\" = "
             "'member 0,member 1,member 2,'",
             folder);
    assert_int_equal(system(script), 0);
    launch_free(&launch);
}

/* A signal reaches first members and replacements, once each, although one member ends before the other.  Afterwards
 * nobody is replaced. */
static void signals_end_members_for_good(void **state)
{
    (void)state;
    struct launch launch =
        launch_start(ARGS("-n", "2", CONTINUE("9"), "sh", "-c",
                          "test $TUTTI_MEMBER = 1 && exit 3; trap 'echo got; sleep 0.$TUTTI_MEMBER; exit 6' TERM; "
                          "echo ready; while :; do sleep 0.02; done"));
    launch_expect(&launch, "ready\n", 2);
    kill(launch.pid, SIGTERM);
    launch_finish(&launch);
    assert_int_equal(launch.status, 6);
    assert_int_equal(text_count(launch.out.data, "got\n"), 2);
    assert_int_equal(text_count(launch.out.data, "ready\n"), 2);
    launch_nothing_left();
    launch_free(&launch);
}

/* Both ranks have failed and wait for their replacements. */
static void the_timeout_ends_the_wait_for_replacements(void **state)
{
    (void)state;
    struct launch launch = launch_run_to_limit(
        ARGS("-n", "2", "--replace=9", "--backoff=600", "sh", "-c", "echo ready; exit 3"), "ready\n", 2);
    assert_int_equal(launch.status, 124);
    assert_int_equal(text_count(launch.out.data, "ready\n"), 2);
    launch_free(&launch);
}

/* The only other rank has ended, and the launcher waits to start its replacement. */
static void a_killed_launcher_starts_no_replacement(void **state)
{
    (void)state;
    struct launch launch = launch_start(ARGS("-n", "2", "--replace=9", "--backoff=600", "sh", "-c",
                                             "test $RANK = 1 && exit 3; echo ready; exec sleep 600"));
    int64_t deadline = launch_now_ms() + LAUNCH_HANG_MS;
    while (text_count(launch.err.data, " starts in its place") < 1) launch_step(&launch, deadline);
    kill(launch.pid, SIGKILL);
    launch_finish(&launch);
    launch_nothing_left();
    launch_free(&launch);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "fresh") == 0) return fresh_main();
    if (argc > 1 && strcmp(argv[1], "members") == 0) return members_main();
    if (argc > 2 && strcmp(argv[1], "await") == 0) return await_main(argv[2]);
    if (realpath("/proc/self/exe", self) == NULL) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failure_restarts_all_ranks),
        CASE(restarts_are_counted_and_limited),
        CASE(all_are_restarted_whatever_has_become_of_them),
        cmocka_unit_test(restarts_leak_nothing),
        cmocka_unit_test(the_time_between_rounds_can_be_interrupted),
        cmocka_unit_test(an_interrupted_job_is_not_restarted),
        CASE(an_interrupt_while_ranks_end_prevents_the_restart),
        CASE(a_program_that_is_gone_ends_the_job),
        cmocka_unit_test(the_store_outlives_rank_0),
        cmocka_unit_test(members_have_variables),
        cmocka_unit_test(the_exit_status_is_that_of_the_last_ones),
        cmocka_unit_test(replacements_that_fail_at_once_are_limited),
        cmocka_unit_test(no_replacement_outlives_the_time_limit),
        CASE(a_replacement_that_cannot_run_is_a_failed_one),
        CASE(each_member_has_log_files),
        cmocka_unit_test(signals_end_members_for_good),
        cmocka_unit_test(the_timeout_ends_the_wait_for_replacements),
        cmocka_unit_test(a_killed_launcher_starts_no_replacement),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
