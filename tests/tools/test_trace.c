/* TUTTI_TRACE records a job, tutti-trace reads what was recorded, and tutti-info --watch shows a running job. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "procs.h"
#include "sanitizer.h"
#include "text.h"
#include "tools/launch.h"
#include "tools/trace_files.h"

#undef assert_has /* of launch.h, for its own text */
#define assert_has(text, word)                                                                                         \
    do {                                                                                                               \
        if (strstr((text), (word)) == NULL) fail_msg("\"%s\" is not in: %s", (word), (text));                          \
    } while (0)

static char text[256 * 1024];

static int run(const char *format, const char *folder)
{
    char arguments[300];
    snprintf(arguments, sizeof arguments, format, folder, folder);
    return trace_run(arguments, text, sizeof text);
}

/* ---- files of an invented job -------------------------------------------------------------------------------- */

static void test_report(void **state)
{
    char folder[64];
    (void)state;
    trace_make_folder(folder);
    trace_write_job(&(struct trace_job){.folder = folder, .ranks = 4, .steps = 50, .late = 2, .skew_ns = 77777777});
    assert_int_equal(run("report %s --svg %s/report.svg", folder), 0);
    assert_has(text, "4 ranks on 2 hosts, 200 operations, 50 collectives");
    assert_has(text, "Rank 2 is a straggler: it arrived last in 100% of the collectives, 0.497 ms after the others");
    /* of 4 ranks three wait for 497, 499 and 500 of 597, 599 and 600 us, and the late one takes 100 us */
    assert_has(text, "78.9%");
    char path[128];
    struct stat info;
    snprintf(path, sizeof path, "%s/report.svg", folder);
    assert_int_equal(stat(path, &info), 0);
    assert_true(info.st_size > 1000);
    trace_remove(folder);
}

/* Differences that are smaller than the error of the clocks are not counted, nor are those of unknown clocks. */
static void test_clocks(void **state)
{
    char folder[64];
    (void)state;
    trace_make_folder(folder);
    trace_write_job(&(struct trace_job){.folder = folder, .ranks = 2, .steps = 5, .late = -1, .error_ns = 5000});
    assert_int_equal(run("report %s", folder), 0);
    assert_has(text, "within 5.0 us");
    assert_has(text, "No rank can be said to have arrived last.");
    trace_write_job(&(struct trace_job){.folder = folder, .ranks = 2, .steps = 5, .late = -1, .error_ns = -1});
    assert_int_equal(run("report %s", folder), 0);
    assert_has(text, "not aligned on 1 ranks");
    trace_write_job(&(struct trace_job){.folder = folder, .ranks = 2, .steps = 5, .late = -1, .error_ns = 500});
    assert_int_equal(run("report %s", folder), 0);
    assert_has(text, "Rank 1 is a straggler");
    trace_remove(folder);
}

static void test_merge(void **state)
{
    char folder[64];
    (void)state;
    trace_make_folder(folder);
    trace_write_job(&(struct trace_job){.folder = folder, .ranks = 3, .steps = 4, .late = 0});
    int status = run("merge %s -o -", folder);
    if (status == 2) { /* built without jansson */
        assert_has(text, "jansson was not found");
        trace_remove(folder);
        return;
    }
    assert_int_equal(status, 0);
    assert_int_equal(text_count(text, "\"name\":\"all_reduce\""), 12);
    assert_int_equal(text_count(text, "\"name\":\"waiting\""), 8);
    assert_has(text, "\"ts\":499.0,\"dur\":100.0");
    assert_int_equal(text_count(text, "{"), text_count(text, "}"));
    assert_int_equal(run("merge %s -o %s/none/x", folder), 1);
    assert_has(text, "cannot write");
    assert_int_equal(run("merge %s -o /dev/full", folder), 1);
    assert_has(text, strerror(ENOSPC));
    trace_remove(folder);
}

/* A file counts up to its last whole record, wherever it ends.  Files that are no traces are skipped. */
static void test_cut_files(void **state)
{
    char folder[64];
    struct stat info;
    (void)state;
    trace_make_folder(folder);
    trace_write_job(&(struct trace_job){.folder = folder, .ranks = 2, .steps = 3, .late = 1});
    assert_int_equal(stat(trace_path(folder, 1), &info), 0);
    assert_int_equal(truncate(trace_path(folder, 1), info.st_size - 1), 0);
    assert_int_equal(run("report %s", folder), 0);
    assert_has(text, "was cut short; 2 operations are read");
    assert_has(text, "2 collectives of two or more ranks");
    assert_int_equal(truncate(trace_path(folder, 1), 20), 0);
    assert_int_equal(run("report %s", folder), 0);
    assert_has(text, "is skipped: it is not a trace");
    assert_has(text, "files of 1 of 2 ranks are there");
    assert_int_equal(unlink(trace_path(folder, 1)), 0);
    assert_int_equal(mkfifo(trace_path(folder, 1), 0600), 0); /* nobody writes to it */
    assert_int_equal(run("report %s", folder), 0);
    assert_has(text, "is skipped: it is not a trace");
    assert_int_equal(truncate(trace_path(folder, 0), 0), 0);
    assert_int_equal(run("report %s", folder), 1);
    assert_has(text, "has no trace");
    trace_remove(folder);
}

/* Every byte of a file may be wrong: nothing crashes. */
static void test_wrong_bytes(void **state)
{
    char folder[64], bytes[900];
    uint64_t random = 7;
    (void)state;
    trace_make_folder(folder);
    for (int round = 0; round < 40; round++) {
        trace_write_job(&(struct trace_job){.folder = folder, .ranks = 2, .steps = 3, .late = 1});
        FILE *file = fopen(trace_path(folder, 1), "r+");
        assert_non_null(file);
        size_t n = fread(bytes, 1, sizeof bytes, file);
        for (int i = 0; i < 8; i++) bytes[procs_random(&random, n)] = (char)procs_random(&random, 256);
        rewind(file);
        assert_int_equal(fwrite(bytes, 1, n, file), n);
        assert_int_equal(fclose(file), 0);
        int status = run("report %s", folder);
        assert_true(status == 0 || status == 1);
    }
    trace_remove(folder);
}

static void test_command_line(void **state)
{
    (void)state;
    assert_int_equal(trace_run("--version", text, sizeof text), 0);
    assert_has(text, tutti_version());
    assert_int_equal(trace_run("--help", text, sizeof text), 0);
    assert_has(text, "report");
    assert_int_equal(trace_run("report --help", text, sizeof text), 0);
    assert_int_equal(trace_run("nonsense", text, sizeof text), 2);
    assert_int_equal(trace_run("report", text, sizeof text), 2);
    assert_int_equal(trace_run("report --nonsense x", text, sizeof text), 2);
    assert_int_equal(trace_run("report /nonexistent", text, sizeof text), 1);
}

/* ---- recording ----------------------------------------------------------------------------------------------- */

enum { STEPS = 30, LATE_MS = 10, SEND_LATE_MS = 100 };

/* A forked child does not write to its parent's file. */
static void push_ranges_in_child(void)
{
#ifndef __SANITIZE_THREAD__
    pid_t pid = fork();
    for (int i = 0; i < 300 && pid == 0; i++) {
        tutti_range_push("child");
        tutti_range_pop();
    }
    if (pid == 0) _exit(0);
    waitpid(pid, NULL, 0);
#endif
}

/* Rank 1 comes last, however long the others wait for their cores. */
static void come_late(int size, int step)
{
    for (int i = 0; i < size; i++)
        if (i != 1) proc_wait_for_step(i, step);
    procs_sleep_ms(LATE_MS);
}

/* Rank 1 is late, in a range of its own. */
static int work_in_steps(int rank, int size, void *argument)
{
    float x[64] = {0};
    tutti_work *work = NULL;
    if (argument != NULL) setenv("TUTTI_TRACE", argument, 1);
    EXPECT(proc_init(20000) == TUTTI_OK);
    for (int i = 0; i < STEPS; i++) {
        tutti_range_push("compute");
        if (rank == 1) come_late(size, i + 1);
        tutti_range_pop();
        if (rank != 1) proc_set_step(i + 1);
        EXPECT(tutti_all_reduce(tutti_view(x, 64), TUTTI_SUM, NULL) == TUTTI_OK);
    }
    EXPECT(tutti_broadcast(tutti_view(x, 64), 0, tutti_with(.async_op = &work)) == TUTTI_OK);
    EXPECT(tutti_wait(&work, TUTTI_DEFAULT_TIMEOUT) == TUTTI_OK);
    if (rank == 1) proc_set_step(STEPS);
    if (rank == 0) proc_wait_for_step(1, STEPS);
    if (rank == 0) procs_sleep_ms(SEND_LATE_MS);
    if (rank == 0) EXPECT(tutti_send(tutti_view(x, 64), 1, tutti_with(.tag = 3)) == TUTTI_OK);
    if (rank == 1) EXPECT(tutti_recv(tutti_view(x, 64), TUTTI_ANY_SOURCE, tutti_with(.tag = 3)) == TUTTI_OK);
    tutti_range_push("\303\251poque \033\377"); /* cut text and binary names must not break JSON or the terminal */
    tutti_range_pop();
    if (rank == 0) push_ranges_in_child();
    if (rank == 2) exit(0); /* the trace of a group that is not destroyed is written all the same */
    return tutti_destroy_process_group(NULL) == TUTTI_OK ? 0 : __LINE__;
}

static void test_recording(void **state)
{
    char folder[64], path[96];
    (void)state;
    trace_make_folder(folder);
    snprintf(path, sizeof path, "%s/new", folder); /* is made */
    procs_run_ranks(3, work_in_steps, path);
    assert_int_equal(run("report %s/new", folder), 0);
    assert_has(text, "3 ranks on 1 hosts, 95 operations, 31 collectives");
    assert_has(text, "clocks: one host");
    assert_has(text, "Rank 1 is a straggler");
    assert_has(text, "\ncompute ");
    assert_null(strstr(text, "\nchild "));
    assert_has(text, "\n\303\251poque ?? ");
    assert_has(text, "rank 1 with");
    assert_has(text, "broadcast");
    assert_has(text, "\nsend ");
    const char *receive = strstr(text, "\nrecv ");
    double us = 0, waiting = 0;
    assert_non_null(receive);
    assert_int_equal(sscanf(receive, " recv %*s %*d %lf %lf%%", &us, &waiting), 2);
    assert_true(us * waiting / 100 > SEND_LATE_MS * 1000 / 2);
    trace_remove(folder);
}

/* Reductions count for the operation, whichever thread does them. */
static int reduce_in_the_background(int rank, int size, void *argument)
{
    enum { NUMEL = 1 << 20 };
    static float x[NUMEL];
    tutti_work *work = NULL;
    (void)rank, (void)size;
    setenv("TUTTI_TRACE", argument, 1);
    EXPECT(proc_init(20000) == TUTTI_OK);
    EXPECT(tutti_all_reduce(tutti_view(x, NUMEL), TUTTI_SUM, tutti_with(.async_op = &work)) == TUTTI_OK);
    while (!tutti_work_is_completed(work)) procs_sleep_ms(1);
    EXPECT(tutti_wait(&work, TUTTI_DEFAULT_TIMEOUT) == TUTTI_OK);
    return tutti_destroy_process_group(NULL) == TUTTI_OK ? 0 : __LINE__;
}

static void test_reductions(void **state)
{
    char folder[64];
    double reduce = 0;
    (void)state;
    trace_make_folder(folder);
    procs_run_ranks(2, reduce_in_the_background, folder);
    assert_int_equal(run("report %s", folder), 0);
    const char *row = strstr(text, "\nall_reduce ");
    assert_non_null(row);
    assert_int_equal(sscanf(row, " all_reduce 4M %*d %*f %*f%% %*f%% %lf%%", &reduce), 1);
    assert_true(reduce > 0);
    trace_remove(folder);
}

/* The collectives of a job that starts again are not taken for those of its first start. */
static void test_restarted(void **state)
{
    char folder[64];
    (void)state;
    trace_make_folder(folder);
    for (int i = 0; i < 2; i++) {
        setenv("TUTTI_RESTART_COUNT", i == 0 ? "0" : "1", 1);
        procs_run_ranks(3, work_in_steps, folder);
    }
    unsetenv("TUTTI_RESTART_COUNT");
    assert_int_equal(run("report %s", folder), 0);
    assert_has(text, "3 ranks on 1 hosts, 190 operations, 62 collectives");
    trace_remove(folder);
}

/* Makes another group tree, which would have a file of its own. */
static int make_second_tree(void)
{
    tutti_store *store = NULL;
    tutti_group *group = NULL;
    EXPECT(tutti_store_memory(NULL, &store) == TUTTI_OK);
    EXPECT(tutti_create_group("tcp", store, 0, 1, NULL, &group) == TUTTI_OK);
    EXPECT(tutti_destroy_process_group(group) == TUTTI_OK);
    tutti_store_free(store);
    return 0;
}

/* Runs the steps with one warning at most about the trace, and none about anything else. */
static int work_with_warning(int rank, int size, void *argument)
{
    char warnings[4096];
    int saved, fd = proc_capture_stderr(&saved);
    struct rlimit limit = {1 << 10, 1 << 10};
    if (argument == NULL) setrlimit(RLIMIT_FSIZE, &limit);
    int status = work_in_steps(rank, size, argument == NULL ? getenv("TUTTI_TEST_FOLDER") : argument);
    if (status == 0) status = make_second_tree();
    proc_end_capture(fd, saved, warnings, sizeof warnings);
    EXPECT(status == 0);
    EXPECT(text_count(warnings, "TUTTI_TRACE: cannot") == 1);
    EXPECT(strstr(warnings, "the job continues without this trace") != NULL);
    return 0;
}

static void test_no_folder(void **state)
{
    (void)state;
    procs_run_ranks(2, work_with_warning, "/proc/nonexistent");
}

/* The limit of a file's size stands for a full disk: the file is whole up to it. */
static void test_full_disk(void **state)
{
    char folder[64];
    (void)state;
    trace_make_folder(folder);
    setenv("TUTTI_TEST_FOLDER", folder, 1);
    procs_run_ranks(2, work_with_warning, NULL);
    assert_int_equal(run("report %s", folder), 0);
    assert_has(text, "2 ranks on 1 hosts, 0 operations");
    trace_remove(folder);
}

/* ---- tools --------------------------------------------------------------------------------------------------- */

#define COUNT_TOOL TUTTI_EXAMPLES_DIR "/count_tool/libcount_tool.so"
#define NVTX_TOOL TUTTI_EXAMPLES_DIR "/nvtx_tool/libnvtx_tool.so" /* built where nvtx3's headers are */

/* Runs an example of three operations on two ranks, with a variable. */
static void run_with(const char *variable, int counts, const char *warning)
{
    struct launch launch = RUN("-n", "2", "/usr/bin/env", variable, TUTTI_EXAMPLES_DIR "/all_reduce");
    assert_int_equal(launch.status, 0);
    assert_int_equal(text_count(launch.err.data, ": all_reduce 3, 12 bytes, 0 failed"), counts);
    assert_int_equal(text_count(launch.err.data, "warn"), warning != NULL ? 2 : 0);
    if (warning != NULL) assert_has(launch.err.data, warning);
    launch_free(&launch);
}

static void test_loaded_tools(void **state)
{
    (void)state;
    run_with("TUTTI_TOOL=" COUNT_TOOL, 2, NULL);
    if (!SANITIZED) run_with("LD_PRELOAD=" COUNT_TOOL, 2, NULL); /* a sanitizer's library must come first */
    run_with("TUTTI_TOOL=/nonexistent.so:" COUNT_TOOL, 2, "/nonexistent.so cannot be read");
    run_with("TUTTI_TOOL=" TUTTI_BACKENDS_DIR "/libtutti_tcp.so", 0, "has no symbol tutti_tool_v1");
    run_with("TUTTI_TOOL=relative.so", 0, "is not an absolute path");
    if (access(NVTX_TOOL, R_OK) == 0) run_with("TUTTI_TOOL=" NVTX_TOOL, 0, NULL);
}

/* ---- watching ------------------------------------------------------------------------------------------------ */

static int watch(pid_t pid)
{
    char command[256];
    snprintf(command, sizeof command, TUTTI_BUILD_DIR "/bin/tutti-info --watch %d --interval 0.05 --count 2 2>&1",
             (int)pid);
    FILE *output = popen(command, "r");
    assert_non_null(output);
    text[fread(text, 1, sizeof text - 1, output)] = '\0';
    int status = pclose(output);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* A rank of the watched job. */
static int be_watched(void)
{
    enum { OPS = 12, LIMIT_S = 120 };
    setenv("TUTTI_BACKEND_PATH", TUTTI_BACKENDS_DIR, 1);
    if (tutti_init_process_group("tcp", NULL) != TUTTI_OK) return 1;
    for (int i = 0; i < OPS; i++)
        if (tutti_barrier(NULL) != TUTTI_OK) return 1;
    printf("counts\n");
    fflush(stdout);
    sleep(LIMIT_S); /* until the test kills the job */
    return 1;
}

/* Ranks that are killed leave nothing behind: their counters are in memory of their own. */
static void test_watch(void **state)
{
    (void)state;
    char self[4096];
    assert_non_null(realpath("/proc/self/exe", self));
    struct launch launch = launch_start(ARGS("-n", "2", self, "watched"));
    launch_expect(&launch, "counts", 2);
    assert_int_equal(watch(launch.pid), 0);
    assert_int_equal(text_count(text, "rank  process"), 2);
    assert_int_equal(text_count(text, "\n    1 "), 2);
    assert_has(text, " 12 "); /* operations */
    kill(launch.pid, SIGKILL);
    launch_wait(&launch);
    assert_int_equal(watch(launch.pid), 1);
    assert_has(text, "there is no process");
    launch_free(&launch);
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "watched") == 0) return be_watched();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_report),     cmocka_unit_test(test_clocks),       cmocka_unit_test(test_merge),
        cmocka_unit_test(test_cut_files),  cmocka_unit_test(test_wrong_bytes),  cmocka_unit_test(test_command_line),
        cmocka_unit_test(test_recording),  cmocka_unit_test(test_restarted),    cmocka_unit_test(test_no_folder),
        cmocka_unit_test(test_full_disk),  cmocka_unit_test(test_loaded_tools), cmocka_unit_test(test_watch),
        cmocka_unit_test(test_reductions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
