/* The flight recorder's files, and what `tutti-trace stuck` says about them: small jobs under tutti-run, in which a
 * rank skips a collective, calls another one, dies, or is asked by a signal. */
#include "tools/launch.h"

#include <dirent.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/stuck_ranks.h"
#include "train/scratch_folder.h"

enum { RANKS = 3 };

static char self[4096];

/* ---- the tool ---------------------------------------------------------------------------------------------------- */

#define TRACE TUTTI_BUILD_DIR "/bin/tutti-trace"

enum { ANY_STATUS = -1 };

/* Returns what `tutti-trace stuck` prints about the folder. */
static char *stuck(int status)
{
    static char text[65536];
    char command[4200];
    snprintf(command, sizeof command, "%s stuck %s 2>&1", TRACE, folder);
    FILE *output = popen(command, "r");
    assert_non_null(output);
    size_t used = fread(text, 1, sizeof text - 1, output);
    text[used] = '\0';
    int ended = pclose(output);
    assert_true(WIFEXITED(ended));
    if (status != ANY_STATUS && WEXITSTATUS(ended) != status) fail_msg("status %d: %s", WEXITSTATUS(ended), text);
    return text;
}

static void says(const char *text, const char *sentence)
{
    if (strstr(text, sentence) == NULL) fail_msg("no \"%s\" in:\n%s", sentence, text);
}

/* Runs a job whose ranks write to the folder. */
static struct launch run(const char *what)
{
    setenv("TUTTI_RECORD_DIR", folder, 1);
    struct launch launch = RUN("-n", "3", "--no-prefix", "--grace=100", self, "rank", what);
    unsetenv("TUTTI_RECORD_DIR");
    return launch;
}

/* Runs a job whose ranks all must end with the status. */
static void run_to(const char *what, int status)
{
    struct launch launch = run(what);
    if (launch.status != status) fail_msg("status %d: %s", launch.status, launch.err.data);
    launch_free(&launch);
}

static char *read_file(const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    char *text = calloc(1, 1 << 21);
    assert_non_null(text);
    assert_true(fread(text, 1, (1 << 21) - 1, file) > 0);
    fclose(file);
    return text;
}

static void write_file(const char *name, const char *text, size_t bytes)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, bytes, file), bytes);
    fclose(file);
}

/* ---- cases ------------------------------------------------------------------------------------------------------- */

#define WAITING "Ranks 0, 2 wait in #3 all_reduce(float64, 5 elements, MAX) for "

/* Checks that a sentence goes on with a time in s. */
static void says_time(const char *text, const char *sentence, double least)
{
    const char *found = strstr(text, sentence);
    double s = found != NULL ? strtod(found + strlen(sentence), NULL) : -1;
    if (s < least || s > STUCK_HANG_MS / 1000.0) fail_msg("no \"%s\" of %g s or more in:\n%s", sentence, least, text);
}

/* Damages the files of a job one after the other. */
static void damage_files(void)
{
    char *own = read_file("rank-0.record"), *other = read_file("rank-2.record");
    write_file("rank-0.record", own, (size_t)(strstr(own, "kind=all_reduce seq=3") - own));
    says(stuck(0), "rank-0.record: is cut short; its whole lines are used\n");
    says(stuck(0), "Rank 2 waits in #3 all_reduce(float64, 5 elements, MAX)");
    for (size_t bytes = strlen(own); bytes > 0; bytes /= 2) {
        write_file("rank-0.record", own, bytes - 1);
        stuck(0);
    }
    says(stuck(0), "rank-0.record: is not a flight record; left out\n");
    says(stuck(0), "No file has rank 0: ");
    memcpy(strstr(other, "job=") + 4, "0123456789abcdef", 16);
    write_file("rank-7.record", other, strlen(other));
    *strchr(other, '1') = '9';
    write_file("rank-8.record", other, strlen(other));
    says(stuck(0), "rank-8.record: has a version of the format that this tool does not know; left out\n");
    says(stuck(0), ".record: is of another job; left out\n");
    free(own);
    free(other);
}

static void a_rank_that_skips_a_collective_is_named(void **state)
{
    (void)state;
    run_to("skip", 0);
    says(stuck(0), "3 files, written within ");
    says_time(stuck(0), WAITING, STUCK_WAIT_MS / 1000.0);
    says(stuck(0), " s, after the mark \"100% done\".\n");
    says(stuck(0),
         "    Rank 1 has not called it: its latest is #2 barrier, which has ended, after the mark \"100% done\"");
    says(stuck(0), "  It has failed: TUTTI_ERR_TIMEOUT: all_reduce #3 of group world: rank ");
    damage_files();
}

static void a_rank_that_waits_elsewhere_is_named(void **state)
{
    (void)state;
    run_to("message", 0);
    says_time(stuck(0), WAITING, STUCK_WAIT_MS / 1000.0);
    says(stuck(0), "; it waits in recv from rank 2, tag 7 (8 bytes) of group world.\n");
    says_time(stuck(0), "  Rank 1 waits in recv from rank 2, tag 7 (8 bytes) for ", 0.1);
}

/* A file that was written without the group's lock has no lines of what waits, only the operations themselves. */
static void a_busy_rank_shows_its_messages(void **state)
{
    static const char *const job = "tutti-record 1\nprocess job=0123456789abcdef rank=%d pid=%d ns=5000000000 "
                                   "wall_ns=5000000000 host=a version=0.2.0 why=SIGUSR2\n"
                                   "group id=0000000000000001 rank=%d size=2 seq=0 name=world ranks=0-1 busy=1\n"
                                   "op state=done kind=send tag=3 root=%d dtype=float32 numel=1 bytes=4 issued=1\n"
                                   "op state=under_way kind=recv tag=0 root=%d dtype=float32 numel=1 bytes=4 "
                                   "issued=2000000000\nend groups=1\n";
    (void)state;
    for (int i = 0; i < 2; i++) {
        char name[32], text[1024];
        snprintf(name, sizeof name, "rank-%d.record", i);
        snprintf(text, sizeof text, job, i, 100 + i, i, 1 - i, 1 - i);
        write_file(name, text, strlen(text));
    }
    says(stuck(0), "  Rank 0 waits in recv from rank 1, tag 0 (4 bytes) for 3.0 s.\n"
                   "  Rank 1 waits in recv from rank 0, tag 0 (4 bytes) for 3.0 s.\n");
}

/* A process outside of a job has no rank, and a damaged file has any. */
static void a_file_without_a_rank_names_none(void **state)
{
    static const char *const ranks[] = {"-1", "2147483647", "3"};
    (void)state;
    for (int i = 0; i < 3; i++) {
        char name[32], text[128];
        snprintf(name, sizeof name, "rank-%d.record", i);
        snprintf(text, sizeof text, "tutti-record 1\nprocess rank=%s\nend groups=0\n", ranks[i]);
        write_file(name, text, strlen(text));
    }
    says(stuck(0), "\nRank 3 is in no group: ");
}

static void calls_that_differ_are_shown(void **state)
{
    (void)state;
    run_to("differ", 0);
    says(stuck(0), "  The calls differ at #3: ranks 0, 2 called all_reduce(float32, 4 elements, SUM); "
                   "rank 1 called all_reduce(float32, 3 elements, SUM).\n");
}

static void a_rank_that_dies_has_no_file(void **state)
{
    (void)state;
    struct launch launch = run("die");
    double s = 0;
    assert_int_equal(launch.status, 128 + SIGKILL);
    assert_int_equal(sscanf(launch.out.data, "ended after %lf", &s), 1);
    assert_true(s > 1.2); /* of 1.5, by clocks of different precision */
    launch_free(&launch);
    assert_false(scratch_folder_has("rank-1.record"));
    says(stuck(0), "2 files, written within ");
    says(stuck(0), "  No file has rank 1: ");
    says(stuck(0), "Rank 0 waits in #3 all_reduce(float32, 4 elements, SUM)");
    says(stuck(0), "    Rank 1 has no file: it may be the one that is awaited.\n");
    says(stuck(0), "    Rank 2 has not called it: its latest is #2 barrier");
}

/* Runs the job with a time limit in s. */
static void run_too_long(int limit)
{
    char option[32];
    snprintf(option, sizeof option, "--timeout=%d", limit);
    setenv("TUTTI_RECORD_DIR", folder, 1);
    setenv("TUTTI_RECORD_SIGNAL", "1", 1);
    struct launch launch = RUN("-n", "3", "--no-prefix", option, self, "rank", "signal");
    unsetenv("TUTTI_RECORD_DIR");
    unsetenv("TUTTI_RECORD_SIGNAL");
    assert_int_equal(launch.status, 124);
    launch_free(&launch);
}

/* The launcher asks the ranks by SIGUSR2 before it ends a job that takes too long.  Rank 1's own handler gets it, too,
 * and the rank writes by call.  Starved ranks need a longer limit to come that far. */
static void a_job_that_takes_too_long_is_recorded(void **state)
{
    enum { LIMIT_MOST = 32 };
    const char *text = "";
    (void)state;
    for (int limit = 1; limit <= LIMIT_MOST && strstr(text, "Ranks 0, 2 wait in #3 barrier for ") == NULL; limit *= 2) {
        run_too_long(limit);
        text = stuck(ANY_STATUS);
    }
    says(text, "3 files, written within ");
    says(text, "Ranks 0, 2 wait in #3 barrier for ");
}

/* Starts a job whose ranks hang, and sends it the signal.  Rank 1's own handler gets it, too. */
static struct launch signal_job(const char *what)
{
    setenv("TUTTI_RECORD_DIR", folder, 1);
    setenv("TUTTI_RECORD_SIGNAL", "1", 1);
    struct launch launch = launch_start(ARGS("-n", "3", "--no-prefix", self, "rank", what));
    unsetenv("TUTTI_RECORD_DIR");
    unsetenv("TUTTI_RECORD_SIGNAL");
    launch_expect(&launch, "ready\n", 3);
    kill(launch.pid, SIGUSR2);
    launch_expect(&launch, "own\n", 1);
    return launch;
}

static void await_file(const char *name)
{
    int64_t deadline = launch_now_ms() + LAUNCH_HANG_MS;
    while (!scratch_folder_has(name)) {
        assert_true(launch_now_ms() < deadline);
        usleep(5000);
    }
}

/* Ranks that wait in init for another one write, too, and go on. */
static void a_signal_in_init_makes_ranks_write(void **state)
{
    (void)state;
    struct launch launch = signal_job("init");
    await_file("rank-0.record");
    await_file("rank-2.record");
    says(stuck(0), "2 files, written within ");
    says(stuck(0), "Ranks 0, 2 are in no group: still in tutti_init_process_group, or without a group again.\n");
    kill(launch.pid, SIGTERM);
    launch_finish(&launch);
    assert_has_not(&launch.err, "SIGUSR2");
    launch_free(&launch);
    launch_nothing_left();
}

/* Ranks 0 and 2 write on the signal and continue.  Rank 1's handler stays. */
static void a_signal_makes_ranks_write(void **state)
{
    (void)state;
    struct launch launch = signal_job("signal");
    await_file("rank-0.record");
    await_file("rank-1.record");
    await_file("rank-2.record");
    says(stuck(0), "Ranks 0, 2 wait in #3 barrier for ");
    says(stuck(0), "    Rank 1 has not called it: its latest is #2 barrier, which has ended");
    says(stuck(0), "; it is in no operation.\n");
    kill(launch.pid, SIGTERM);
    launch_finish(&launch);
    assert_has(&launch.err, "TUTTI_RECORD_SIGNAL has no effect, because the program handles SIGUSR2 itself");
    assert_has_not(&launch.err, "line ");
    launch_free(&launch);
    launch_nothing_left();
}

/* A folder that cannot be written makes one warning, and no other error. */
static void a_missing_folder_is_one_warning(void **state)
{
    (void)state;
    char before[sizeof folder];
    memcpy(before, folder, sizeof folder);
    strcpy(folder, "/proc/none");
    struct launch launch = run("differ");
    memcpy(folder, before, sizeof folder);
    assert_int_equal(launch.status, 0);
    assert_int_equal(
        text_count(launch.err.data, "warn group: cannot write the flight record to TUTTI_RECORD_DIR=/proc/none: "),
        RANKS);
    launch_free(&launch);
}

static int count_files(const char *path)
{
    int n = 0;
    DIR *entries = opendir(path);
    assert_non_null(entries);
    for (const struct dirent *entry; (entry = readdir(entries)) != NULL;)
        n += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(entries);
    return n;
}

static void messages_do_not_displace_collectives(void **state)
{
    (void)state;
    char path[128];
    setenv("TEST_FOLDER", folder, 1);
    struct launch launch = RUN("-n", "3", "--no-prefix", self, "rank", "call");
    if (launch.status != 0) fail_msg("status %d: %s", launch.status, launch.err.data);
    launch_free(&launch);
    char *text = read_file("by-0-%x%/rank-0.record");
    assert_int_equal(text_count(text, "\nop "), 2 + 1024);
    says(text, "\nop state=done kind=all_reduce seq=1 dtype=float32 numel=4 bytes=16 ");
    says(text, "\nop state=done kind=barrier seq=2 ");
    assert_true(text_count(text, "\nop state=done kind=send tag=0 root=1 dtype=int32 numel=1 bytes=4 ") >= 511);
    says(text, "\nmark number=2 ns=");
    says(text, " text=100%25%20done\n");
    says(text, "\nend groups=1\n");
    free(text);
    snprintf(path, sizeof path, "%s/by-0-%%x%%", folder);
    assert_int_equal(count_files(path), 1); /* the whole file stays when a later one cannot be written */
    assert_int_equal(count_files(folder), RANKS);
}

static void command_lines_are_refused(void **state)
{
    (void)state;
    says(stuck(1), "has no usable file of the flight recorder");
    assert_int_equal(
        system(TRACE " --help >/dev/null && " TRACE " --version >/dev/null && " TRACE " stuck --help >/dev/null"), 0);
    static const char *const wrong[] = {"", " none", " --none", " stuck", " stuck a b", " stuck --none"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char command[4200];
        snprintf(command, sizeof command, "%s%s 2>/dev/null", TRACE, wrong[i]);
        int status = system(command);
        assert_int_equal(WEXITSTATUS(status), 2);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        CASE(a_rank_that_skips_a_collective_is_named),
        CASE(a_rank_that_waits_elsewhere_is_named),
        CASE(a_busy_rank_shows_its_messages),
        CASE(a_file_without_a_rank_names_none),
        CASE(calls_that_differ_are_shown),
        CASE(a_rank_that_dies_has_no_file),
        CASE(a_signal_makes_ranks_write),
        CASE(a_signal_in_init_makes_ranks_write),
        CASE(a_job_that_takes_too_long_is_recorded),
        CASE(a_missing_folder_is_one_warning),
        CASE(messages_do_not_displace_collectives),
        CASE(command_lines_are_refused),
    };
    setenv("TUTTI_BACKEND_PATH", TUTTI_BACKENDS_DIR, 0);
    if (argc == 3 && strcmp(argv[1], "rank") == 0) return stuck_rank_main(argv[2]);
    if (realpath("/proc/self/exe", self) == NULL) return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
