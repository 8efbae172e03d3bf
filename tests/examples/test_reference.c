/* The examples of the manual pages, examples/reference, print on 2 ranks what their last comments say. */
#include "tools/launch.h"

#include <glob.h>

enum { AT_ONCE = 4, LINES_MAX = 16, EXAMPLES_LEAST = 30 };

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Splits text into its lines, in the order of their texts. */
static int sort_lines(char *text, char **line)
{
    int n = 0;
    char *rest = NULL;
    for (char *at = strtok_r(text, "\n", &rest); at != NULL && n < LINES_MAX; at = strtok_r(NULL, "\n", &rest))
        line[n++] = at;
    qsort(line, (size_t)n, sizeof *line, by_text);
    return n;
}

/* Reads the lines behind " *     " in the last comment of a program. */
static void read_prints(const char *path, char *text, size_t capacity)
{
    char line[512];
    size_t used = 0;
    bool inside = false;
    FILE *file = fopen(path, "r");
    if (file == NULL) fail_msg("cannot read %s", path);
    while (fgets(line, sizeof line, file) != NULL) {
        inside = inside || strcmp(line, "/* Prints:\n") == 0;
        if (inside && strncmp(line, " *     ", 7) == 0)
            used += (size_t)snprintf(text + used, capacity - used, "%s", line + 7);
    }
    fclose(file);
    if (used == 0 || used >= capacity) fail_msg("%s does not say what it prints", path);
}

static void assert_prints(const char *path, struct launch *launch)
{
    char expected[2048], *wanted[LINES_MAX], *found[LINES_MAX];
    launch_finish(launch);
    if (launch->status != 0) fail_msg("%s ended with %d: %s", path, launch->status, launch->err.data);
    read_prints(path, expected, sizeof expected);
    int n = sort_lines(expected, wanted), n_found = sort_lines(launch->out.data, found);
    for (int i = 0; i < n || i < n_found; i++)
        if (i >= n || i >= n_found || strcmp(wanted[i], found[i]) != 0)
            fail_msg("%s prints \"%s\", not \"%s\"", path, i < n_found ? found[i] : "", i < n ? wanted[i] : "");
    launch_free(launch);
}

static struct launch start(const char *path)
{
    char program[4200];
    const char *name = strrchr(path, '/') + 1;
    snprintf(program, sizeof program, "%s/tests/reference/%.*s", TUTTI_BUILD_DIR, (int)strlen(name) - 2, name);
    return launch_start(ARGS("-n", "2", "--no-prefix", program));
}

static void each_prints_what_it_says(void **state)
{
    glob_t found;
    (void)state;
    assert_int_equal(glob(TUTTI_SOURCE_DIR "/examples/reference/*.c", 0, NULL, &found), 0);
    int n = (int)found.gl_pathc;
    assert_true(n >= EXAMPLES_LEAST);
    for (int i = 0; i < n; i += AT_ONCE) {
        struct launch launch[AT_ONCE];
        for (int k = 0; k < AT_ONCE && i + k < n; k++) launch[k] = start(found.gl_pathv[i + k]);
        for (int k = 0; k < AT_ONCE && i + k < n; k++) assert_prints(found.gl_pathv[i + k], &launch[k]);
    }
    globfree(&found);
    launch_nothing_left();
}

/* The programs of docs/debugging.md hang until their timeout. */
static void hangs_end_as_errors(void **state)
{
    static const char *const ways[] = {"skip", "order", "circle"};
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct launch launch = RUN("-n", "4", TUTTI_EXAMPLES_DIR "/hangs", ways[i], "0.3");
        assert_int_not_equal(launch.status, 0);
        assert_has(&launch.err, "TUTTI_ERR_TIMEOUT");
        launch_free(&launch);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_prints_what_it_says),
                                       cmocka_unit_test(hangs_end_as_errors)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
