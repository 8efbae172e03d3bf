/* The tuning file: what is read from it, and the warning for each kind of mistake. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/error.h"
#include "coll/tuning.h"

#define FIRST "tutti tuning 1\n"

static void test_rows(void **state)
{
    struct tuning tuning;
    const char *text = FIRST "# a comment\n\n"
                             "tcp 4 1 all_reduce 16384 recursive_doubling\n"
                             "tcp 4 2 all_reduce 100 ring\n"
                             "loop 4 1 all_reduce 100 ring\n"
                             "tcp 3 1 all_reduce 100 ring\n"
                             "  tcp\t4 1 all_reduce any ring\r\n"
                             "tcp 4 1 barrier any tree";
    (void)state;
    assert_int_equal(tuning_parse(text, "tcp", 4, 1, NULL, &tuning), TUTTI_OK);
    assert_int_equal(tuning.n, 3);
    assert_int_equal(tuning.rows[0].kind, TUTTI_ALL_REDUCE);
    assert_int_equal(tuning.rows[0].max_bytes, 16384);
    assert_string_equal(tuning.rows[0].algorithm->name, "recursive_doubling");
    assert_int_equal(tuning.rows[1].max_bytes, INT64_MAX);
    assert_string_equal(tuning.rows[1].algorithm->name, "ring");
    assert_int_equal(tuning.rows[2].kind, TUTTI_BARRIER);
    tuning_free(&tuning);
    assert_int_equal(tuning_parse(FIRST, "tcp", 4, 1, NULL, &tuning), TUTTI_OK);
    assert_int_equal(tuning.n, 0);
}

/* A path of the backend is as good as an algorithm.  Paths of other backends are not known here. */
static void test_paths(void **state)
{
    static const struct coll_path paths[] = {{{.kind = TUTTI_ALL_REDUCE, .name = "direct"}, 7, NULL},
                                             {{.kind = TUTTI_ALL_REDUCE, .name = NULL}, 0, NULL}};
    struct tuning tuning;
    const char *text = FIRST "tcp 4 1 all_reduce 99 direct\nother 4 1 all_reduce any native\n";
    (void)state;
    assert_int_equal(tuning_parse(text, "tcp", 4, 1, paths, &tuning), TUTTI_OK);
    assert_int_equal(tuning.n, 1);
    assert_ptr_equal(tuning.rows[0].algorithm, &paths[0].algorithm);
    tuning_free(&tuning);
    assert_int_equal(tuning_parse(text, "tcp", 4, 1, NULL, &tuning), TUTTI_ERR_INVALID_ARGUMENT);
    assert_int_equal(tuning_parse(text, "", 1, 1, NULL, &tuning), TUTTI_OK);
    assert_int_equal(tuning.n, 0);
}

/* Also in lines for other groups, because a file is valid as a whole or not at all. */
static void test_mistakes(void **state)
{
    static const struct {
        const char *text, *sentence;
    } wrong[] = {
        {"", "line 1: \"\" is not a header; write \"tutti tuning 1\""},
        {"tutti tuning 2\n", "line 1: \"tutti tuning 2\" is not a header"},
        {FIRST "tcp 4 1 all_reduce 16384\n", "line 2: it must have six words"},
        {FIRST "tcp 4 1 all_reduce 16384 ring ring\n", "line 2: it must have six words"},
        {FIRST "\ntcp 4 1 allreduce 16384 ring\n", "line 3: \"allreduce\" is not a collective"},
        {FIRST "tcp 4 1 all_reduce 16384 bruck\n", "line 2: all_reduce has no algorithm \"bruck\""},
        {FIRST "tcp 0 1 all_reduce 16384 ring\n", "line 2: ranks is \"0\""},
        {FIRST "tcp 4 x all_reduce 16384 ring\n", "line 2: hosts is \"x\""},
        {FIRST "tcp 4 1 all_reduce -1 ring\n", "line 2: bytes is \"-1\""},
        {FIRST "tcp 4 1 all_reduce 16K ring\n", "line 2: bytes is \"16K\""},
        {FIRST "tcp 4 1 all_reduce any ring\nother 4 1 all_reduce 99999999999999999999 ring\n", "line 3: bytes is"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct tuning tuning;
        assert_int_equal(tuning_parse(wrong[i].text, "tcp", 4, 1, NULL, &tuning), TUTTI_ERR_INVALID_ARGUMENT);
        if (strstr(error_text(), wrong[i].sentence) == NULL)
            fail_msg("\"%s\" is not in: %s", wrong[i].sentence, error_text());
        assert_null(tuning.rows);
        assert_int_equal(tuning.n, 0);
    }
}

static void test_long_line(void **state)
{
    struct tuning tuning;
    char text[1024] = FIRST;
    (void)state;
    memset(text + strlen(FIRST), 'x', 500);
    assert_int_equal(tuning_parse(text, "tcp", 4, 1, NULL, &tuning), TUTTI_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(error_text(), "line 2: it has more than"));
}

static void test_files(void **state)
{
    char path[] = "/tmp/tutti-tuning-XXXXXX";
    int fd = mkstemp(path);
    (void)state;
    assert_true(fd >= 0);
    assert_null(tuning_read(NULL));
    assert_null(tuning_read("/there/is/no/such/file"));
    assert_null(tuning_read("/"));
    assert_null(tuning_read(path)); /* empty */
    assert_int_equal(pwrite(fd, FIRST, strlen(FIRST), 0), (ssize_t)strlen(FIRST));
    char *text = tuning_read(path);
    assert_non_null(text);
    assert_string_equal(text, FIRST);
    free(text);
    assert_int_equal(pwrite(fd, "\0#", 2, (off_t)strlen(FIRST)), 2); /* not text */
    assert_null(tuning_read(path));
    assert_int_equal(ftruncate(fd, (off_t)strlen(FIRST)), 0);
    char *comment = malloc(TUNING_TEXT_MAX);
    assert_non_null(comment);
    memset(comment, '\n', TUNING_TEXT_MAX);
    assert_int_equal(pwrite(fd, comment, TUNING_TEXT_MAX, (off_t)strlen(FIRST)), TUNING_TEXT_MAX);
    assert_null(tuning_read(path)); /* too long */
    free(comment);
    close(fd);
    unlink(path);
}

/* Reading a pipe without a writer does not block. */
static void test_pipe(void **state)
{
    char folder[] = "/tmp/tutti-tuning-XXXXXX", path[64];
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/pipe", folder);
    assert_int_equal(mkfifo(path, 0600), 0);
    alarm(60);
    assert_null(tuning_read(path));
    alarm(0);
    assert_non_null(strstr(error_text(), "it is not a regular file"));
    unlink(path);
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),      cmocka_unit_test(test_paths), cmocka_unit_test(test_mistakes),
        cmocka_unit_test(test_long_line), cmocka_unit_test(test_files), cmocka_unit_test(test_pipe),
    };
    setenv("TUTTI_LOG", "error", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
