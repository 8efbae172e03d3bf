/* The conformance suite's quick form: over the tests' own plug-in with ranks that are threads, and over tcp with
 * processes; and that it sees what is wrong, hangs or dies. */
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

/* Runs the suite with arguments; its exit status, its stdout in output. */
static int run(const char *arguments, char *output, size_t room)
{
    char command[1024];
    snprintf(command, sizeof command, "TUTTI_BACKEND_PATH=%s/tests/plugins:%s exec %s %s 2>/dev/null", TUTTI_BUILD_DIR,
             TUTTI_BACKENDS_DIR, SUITE, arguments);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    size_t used = fread(output, 1, room - 1, pipe);
    output[used] = '\0';
    while (fgetc(pipe) != EOF) continue;
    int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static char output[1 << 20];

static void passes(const char *arguments)
{
    int status = run(arguments, output, sizeof output);
    if (status != 0) fprintf(stderr, "tutti-conformance %s\n%s\n", arguments, output);
    assert_int_equal(status, 0);
}

static void test_loop_threads(void **state)
{
    (void)state;
    passes("--backend loop --threads --quick --ranks 1..3");
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

/* The list names a case for each line that can have one. */
static void test_every_line(void **state)
{
    (void)state;
    assert_int_equal(run("--list --huge --ranks 1..4", output, sizeof output), 0);
    assert_null(strstr(output, "NO CASE"));
    assert_non_null(strstr(output, "R_WRAP"));
}

static void test_arguments(void **state)
{
    static const char *const wrong[] = {"--ranks 0",  "--ranks 3..2", "--ranks x",
                                        "--ranks 99", "--seed x",     "--no-such",
                                        "surplus",    "--ranks",      "--filter =no/such/case"};
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
        cmocka_unit_test(test_loop_threads), cmocka_unit_test(test_tcp_two),   cmocka_unit_test(test_tcp_three),
        cmocka_unit_test(test_every_line),   cmocka_unit_test(test_arguments), cmocka_unit_test(test_junit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
