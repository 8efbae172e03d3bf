/* The conformance suite's quick form, over the tests' own plug-in with ranks that are threads, and over tcp with
 * processes.  It must report wrong results, hangs and deaths. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define SUITE TUTTI_BUILD_DIR "/bin/tutti-conformance"
#define JOB(n) TUTTI_RUN_PATH " -n " #n " --no-prefix"

/* Starts the suite with arguments, after shell words such as variables or a launcher.  The caller reads its output. */
static FILE *start(const char *before, const char *arguments)
{
    char command[2048];
    snprintf(command, sizeof command,
             "TUTTI_BACKEND_PATH=%s/tests/plugins:%s TUTTI_SPOIL_PATH=%s/libtutti_tcp.so exec env %s %s %s 2>/dev/null",
             TUTTI_BUILD_DIR, TUTTI_BACKENDS_DIR, TUTTI_BACKENDS_DIR, before, SUITE, arguments);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    return pipe;
}

/* Reads the suite's stdout into output.  Returns its exit status. */
static int finish(FILE *pipe, char *output, size_t capacity)
{
    size_t used = fread(output, 1, capacity - 1, pipe);
    output[used] = '\0';
    while (fgetc(pipe) != EOF) continue;
    int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int run(const char *arguments, char *output, size_t capacity)
{
    return finish(start("", arguments), output, capacity);
}

static char output[1 << 21]; /* the list of all cases takes more than 1 MiB */

static void has_passed(const char *arguments, int status)
{
    if (status != 0) fprintf(stderr, "tutti-conformance %s\n%s\n", arguments, output);
    assert_int_equal(status, 0);
}

static void passes(const char *arguments)
{
    has_passed(arguments, run(arguments, output, sizeof output));
}

static void test_loop_threads(void **state)
{
    (void)state;
    passes("--backend loop --threads --quick --ranks 1..3");
}

/* A sum of 16 small floats is exact only if not all of them add to it. */
static void test_many_ranks(void **state)
{
    (void)state;
    passes("--backend loop --threads --quick --ranks 16 --filter float8_e5m2/SUM-exact");
}

/* Runs that start before the first test, because they mostly wait: plug-ins without control messages learn of failures
 * by timeouts. */
static struct early {
    const char *arguments;
    FILE *pipe;
} plain = {"--backend plain --threads --quick --ranks 3", NULL},
  minimal = {"--backend " TUTTI_EXAMPLES_DIR "/minimal_backend/libtutti_minimal.so --quick --ranks 1..3", NULL};

static void finish_early(const struct early *early)
{
    has_passed(early->arguments, finish(early->pipe, output, sizeof output));
}

/* A plug-in with only send, recv and progress gets everything that the core promises. */
static void test_plain(void **state)
{
    (void)state;
    finish_early(&plain);
}

/* Runs the plug-in of docs/backend-guide.md, by its path. */
static void test_minimal(void **state)
{
    (void)state;
    finish_early(&minimal);
}

/* Runs a plug-in that was built elsewhere with the public headers and a compiler, from a folder that is not searched.
 */
static void test_by_path(void **state)
{
    char folder[] = "/tmp/tutti-suite-XXXXXX", command[1024], arguments[256];
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(command, sizeof command,
             "cc -shared -fPIC -D_GNU_SOURCE -I%s/include %s/tests/plugins/loop.c -o %s/libtutti_loop.so",
             TUTTI_SOURCE_DIR, TUTTI_SOURCE_DIR, folder);
    assert_int_equal(system(command), 0);
    snprintf(arguments, sizeof arguments, "--backend %s/libtutti_loop.so --threads --quick --ranks 2", folder);
    passes(arguments);
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
    assert_non_null(strstr(output, "\nall  "));
    assert_int_equal(run("--backend /no/such/libtutti_x.so --quick --ranks 1", output, sizeof output), 1);
    assert_non_null(strstr(output, "/no/such/libtutti_x.so"));
}

static void test_tcp_two(void **state)
{
    (void)state;
    passes("--backend tcp --quick --ranks 2");
}

static void test_tcp_three(void **state)
{
    (void)state;
    passes("--backend tcp --quick --ranks 3");
}

/* Runs messages between ranks that share no memory. */
static void test_tcp_wire(void **state)
{
    (void)state;
    int status =
        finish(start("TUTTI_SHM=0", "--backend tcp --quick --ranks 3 --filter messages/"), output, sizeof output);
    if (status != 0) fprintf(stderr, "%s\n", output);
    assert_int_equal(status, 0);
}

/* Runs collectives on device memory of the stand-ins, which have no 8-bit floats, like GPUs before 9.0. */
static void test_cuda_fakes(void **state)
{
    const char *before = "LD_LIBRARY_PATH=" TUTTI_BUILD_DIR "/tests/fakes";
    int passed = 0, skipped = 0;
    (void)state;
    if (access(TUTTI_BUILD_DIR "/tests/fakes/libnccl.so.2", F_OK) != 0) skip();
    int status =
        finish(start(before, "--backend nccl --device cuda --threads --quick --ranks 3"), output, sizeof output);
    if (status != 0) fprintf(stderr, "%s\n", output);
    assert_int_equal(status, 0);
    const char *all = strstr(output, "\nall  ");
    assert_true(all != NULL && sscanf(all, " all %d %d", &passed, &skipped) == 2);
    assert_true(passed > 2500 && skipped < 1300); /* NCCL has no scan, so scans in device memory are refused */
    assert_non_null(strstr(output, "NCCL does not support reduce op"));

    /* through host memory, by the CPU backend's rules: nothing is skipped */
    status =
        finish(start(before, "--backend cuda:tcp --device cuda --threads --quick --ranks 2"), output, sizeof output);
    if (status != 0) fprintf(stderr, "%s\n", output);
    assert_int_equal(status, 0);
    all = strstr(output, "\nall  ");
    assert_true(all != NULL && sscanf(all, " all %d %d", &passed, &skipped) == 2 && passed > 3000 && skipped == 0);
}

/* Ranks of a job that a launcher started run the same cases, except those about tutti_spawn. */
static void test_job(void **state)
{
    (void)state;
    int status = finish(start(JOB(4), "--join --backend tcp --quick"), output, sizeof output);
    if (status != 0) fprintf(stderr, "%s\n", output);
    assert_int_equal(status, 0);
    assert_non_null(strstr(output, "\nfailures                         15        0        0 "));
    assert_non_null(strstr(output, "line T_SPAWN                  not run"));
}

/* ---- faults are reported ---------------------------------------------------------------------------------------- */

/* Runs of the tcp backend with a fault on rank 1: once in a run, at its 61st message. */
static struct spoilt {
    const char *how, *before, *arguments, *expected[3];
    FILE *pipe; /* started early, because the runs mostly wait */
} spoilt[] = {
    {"hang", "", "--ranks 3", {"rank 1: hung: no end after", "again: tutti-conformance "}, NULL},
    {"hang", JOB(3), "--join", {"BROKEN with 3 ranks: ", "hung: no end after", "still in it: rank 1\n"}, NULL},
    {"die", "", "--ranks 3", {"rank 1 died of SIGKILL"}, NULL},
    {"die", JOB(3), "--join", {"BROKEN with 3 ranks: ", "the launcher ended the job"}, NULL},
    {"lose", "", "--ranks 3", {"TUTTI_ERR_TIMEOUT"}, NULL},
    {"lose", JOB(3), "--join", {"TUTTI_ERR_TIMEOUT"}, NULL},
    {"flip", "", "--ranks 3", {"output block 1 of 3: element"}, NULL},
    {"flip", JOB(3), "--join", {"output block 1 of 3: element"}, NULL},
};

enum { SPOILT = sizeof spoilt / sizeof *spoilt };

/* Checks that one case fails, for the right reason.  If the run cannot continue after it, the suite must say so. */
static void check_spoilt(const struct spoilt *row)
{
    int passed = 0, failed = 0;
    const char *all = strstr(output, "\nall  ");
    for (int i = 0; i < 3 && row->expected[i] != NULL; i++)
        if (strstr(output, row->expected[i]) == NULL)
            fail_msg("%s %s: no \"%s\" in\n%s", row->how, row->arguments, row->expected[i], output);
    if (all == NULL || sscanf(all, " all %d %*d %d", &passed, &failed) != 2 || failed != 1)
        fail_msg("%s %s: not one case failed\n%s", row->how, row->arguments, output);
    assert_true(passed > 200 || strstr(output, "BROKEN") != NULL); /* all other cases, or as many as were possible */
}

static int start_early(void **state)
{
    (void)state;
    plain.pipe = start("", plain.arguments);
    minimal.pipe = start("", minimal.arguments);
    for (int i = 0; i < SPOILT; i++) {
        char before[256], arguments[256];
        snprintf(before, sizeof before, "TUTTI_SPOIL=%s@1:60 %s", spoilt[i].how, spoilt[i].before);
        snprintf(arguments, sizeof arguments, "--quick --backend spoil --timeout 2000 --filter all_gather/int %s",
                 spoilt[i].arguments);
        spoilt[i].pipe = start(before, arguments);
    }
    return 0;
}

static void test_spoilt(void **state)
{
    (void)state;
    for (int i = 0; i < SPOILT; i++) {
        assert_int_not_equal(finish(spoilt[i].pipe, output, sizeof output), 0);
        check_spoilt(&spoilt[i]);
    }
}

/* ------------------------------------------------------------------------------------------------------------------ */

/* The list has a case for each line that can have one. */
static void test_every_line(void **state)
{
    (void)state;
    assert_int_equal(run("--list --huge --ranks 1..4", output, sizeof output), 0);
    assert_null(strstr(output, "NO CASE"));
    assert_non_null(strstr(output, "R_WRAP"));
}

static void test_arguments(void **state)
{
    static const char *const wrong[] = {"--ranks 0",
                                        "--ranks 3..2",
                                        "--ranks x",
                                        "--ranks 99",
                                        "--seed x",
                                        "--no-such",
                                        "--join --ranks 2",
                                        "--join --threads",
                                        "surplus",
                                        "--ranks",
                                        "--filter =no/such/case"};
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) assert_int_equal(run(wrong[i], output, sizeof output), 2);
    assert_int_equal(run("--backend none_of_this_name --ranks 2 --quick", output, sizeof output), 1);
    assert_non_null(strstr(output, "none_of_this_name"));
}

static void test_junit(void **state)
{
    char path[] = "/tmp/tutti-suite-XXXXXX", arguments[256], text[4096] = "";
    (void)state;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    snprintf(arguments, sizeof arguments, "--backend loop --threads --quick --ranks 2 --filter bytes/ --junit %s",
             path);
    passes(arguments);
    assert_true(read(fd, text, sizeof text - 1) > 0);
    assert_non_null(strstr(text, "<testsuite name=\"loop, 2 threads\" tests=\"3\" failures=\"0\" skipped=\"0\""));
    assert_non_null(strstr(text, "</testsuites>"));
    close(fd);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loop_threads), cmocka_unit_test(test_by_path),    cmocka_unit_test(test_tcp_two),
        cmocka_unit_test(test_tcp_three),    cmocka_unit_test(test_tcp_wire),   cmocka_unit_test(test_job),
        cmocka_unit_test(test_cuda_fakes),   cmocka_unit_test(test_every_line), cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_junit),        cmocka_unit_test(test_plain),      cmocka_unit_test(test_minimal),
        cmocka_unit_test(test_spoilt),       cmocka_unit_test(test_many_ranks),
    };
    return cmocka_run_group_tests(tests, start_early, NULL);
}
