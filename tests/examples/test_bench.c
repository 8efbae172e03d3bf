/* tutti-bench under tutti-run: every operation's results are right, the output is as documented, and unknown arguments
 * are refused.  The figures are not judged. */
#include "tools/launch.h"

#include <fcntl.h>
#include <unistd.h>

static const char *const ops[] = {"barrier",        "broadcast",  "all_reduce", "reduce",  "all_gather",
                                  "reduce_scatter", "all_to_all", "gather",     "scatter", "pingpong"};

enum { OPS = sizeof ops / sizeof *ops };

static const char *backend(void)
{
    const char *name = getenv("TUTTI_TEST_BACKEND");
    return name && *name ? name : "tcp";
}

static struct launch bench(const char *ranks, const char *sizes, const char *dtype, const char *reduce_op,
                           const char *output, const char *alloc)
{
    struct launch launch =
        RUN("-n", ranks, TUTTI_BENCH_PATH, "--backend", backend(), "--sizes", sizes, "--ms", "1", "--dtype", dtype,
            "--reduce-op", reduce_op, "--ranks", ranks, output, "--alloc", alloc, "--name", "x");
    if (launch.status != 0)
        fail_msg("%s ranks, %s, %s: %d: %s%s", ranks, dtype, reduce_op, launch.status, launch.out.data,
                 launch.err.data);
    return launch;
}

/* Parses a line "x,op,ranks,bytes,us,us_mean,us_min,us_p95,iters,ok".  Returns the next line. */
static const char *csv_line(const char *text, const char *op, int ranks, long long bytes)
{
    char start[128];
    double us, mean, min, p95;
    int iterations, used = 0;
    snprintf(start, sizeof start, "x,%s,%d,%lld,", op, ranks, bytes);
    if (strncmp(text, start, strlen(start)) != 0) fail_msg("not %s..: %.300s", start, text);
    text += strlen(start);
    if (sscanf(text, "%lf,%lf,%lf,%lf,%d,ok%n", &us, &mean, &min, &p95, &iterations, &used) != 5 || used == 0)
        fail_msg("%s %.300s", start, text);
    assert_true(min >= 0 && min <= us && us <= p95 && mean > 0);
    assert_in_range(iterations, 5, 5000);
    assert_int_equal(text[used], '\n');
    return text + used + 1;
}

/* Checks that there is every operation at every size, nothing else, and no prefix, which tutti-bench turns off by
 * itself. */
static void all_right(const char *ranks)
{
    static const long long sizes[] = {0, 4, 100, 65536, 1 << 20};
    struct launch launch = bench(ranks, "0,4,100,64K,1M", "float32", "SUM", "--csv", "system");
    const char *at = csv_line(launch.out.data, ops[0], atoi(ranks), 0);
    for (int i = 1; i < OPS; i++)
        for (int k = 0; k < 5; k++) at = csv_line(at, ops[i], atoi(ranks), sizes[k]);
    assert_string_equal(at, "");
    launch_free(&launch);
}

/* Runs ranks with stacks of 64 KiB. */
static void small_stack(void **state)
{
    (void)state;
    struct launch launch =
        RUN("-n", "2", "/bin/sh", "-c", "ulimit -s 64; exec \"$0\" --sizes 8,64K --ms 1 --csv", TUTTI_BENCH_PATH);
    if (launch.status != 0) fail_msg("%d: %s%s", launch.status, launch.out.data, launch.err.data);
    assert_non_null(strstr(launch.out.data, "all_to_all,2,65536,"));
    launch_free(&launch);
    launch = RUN("-n", "2", "/bin/sh", "-c", "ulimit -s 64; exec \"$0\" --explain all_reduce 64K", TUTTI_BENCH_PATH);
    if (launch.status != 0) fail_msg("%d: %s%s", launch.status, launch.out.data, launch.err.data);
    launch_free(&launch);
}

static void two_ranks_all_right(void **state)
{
    (void)state;
    all_right("2");
}

static void three_ranks_all_right(void **state)
{
    (void)state;
    all_right("3");
}

static void one_rank_all_right(void **state)
{
    (void)state;
    all_right("1");
}

/* Checks that the table has a row a case, and that its last column, the number of wrong elements, is 0. */
static void assert_table(const char *ranks, const char *dtype, const char *reduce_op, const char *alloc)
{
    struct launch launch = bench(ranks, "4096", dtype, reduce_op, "--async", alloc);
    char line[512];
    for (int i = 0; i < OPS; i++) {
        snprintf(line, sizeof line, "  %-14s ", ops[i]);
        const char *row = strstr(launch.out.data, line);
        if (!row) fail_msg("no row of %s in:\n%s", ops[i], launch.out.data);
        const char *end = strchr(row, '\n');
        assert_non_null(end);
        if (strncmp(end - 7, "      0", 7) != 0) fail_msg("%s of %s: %.*s", reduce_op, dtype, (int)(end - row), row);
    }
    launch_free(&launch);
}

static void table_of_dtypes(void **state)
{
    (void)state;
    assert_table("3", "int8", "AVG", "system");
    assert_table("2", "bfloat16", "AVG", "tutti");
    assert_table("3", "float8_e5m2", "SUM", "system");
    assert_table("2", "complex64", "PRODUCT", "system");
    assert_table("3", "bool", "BXOR", "tutti");
}

static void refuses(void **state)
{
    (void)state;
    launch_assert_refused(ARGS(TUTTI_BENCH_PATH, "--ops", "all_reduce,nothing"), 2,
                          "there is no operation \"nothing\"");
    launch_assert_refused(ARGS(TUTTI_BENCH_PATH, "--sizes", "4,5T"), 2, "\"5T\" is not a size");
    launch_assert_refused(ARGS(TUTTI_BENCH_PATH, "--sizes", "-4"), 2, "\"-4\" is not a size");
    launch_assert_refused(ARGS(TUTTI_BENCH_PATH, "--dtype", "real"), 2, "there is no \"real\"; there are int8 int16");
    launch_assert_refused(ARGS(TUTTI_BENCH_PATH, "--reduce-op", "XOR"), 2, "there is no \"XOR\"");
    launch_assert_refused(ARGS(TUTTI_BENCH_PATH, "--alloc", "heap"), 2, "--alloc takes system or tutti, not \"heap\"");
    launch_assert_refused(ARGS(TUTTI_BENCH_PATH, "--fast", "1"), 2, "unknown option --fast");
    launch_assert_refused(ARGS(TUTTI_BENCH_PATH, "--ms"), 2, "--ms needs a value");
    launch_assert_refused(ARGS("-n", "2", TUTTI_BENCH_PATH, "--backend", backend(), "--ranks", "3"), 2,
                          "--ranks says 3, but this world has 2");
}

static void has(const struct launch *launch, const char *part)
{
    if (strstr(launch->out.data, part) == NULL)
        fail_msg("\"%s\" is not in: %s%s", part, launch->out.data, launch->err.data);
}

static void explains(void **state)
{
    (void)state;
    struct launch local = RUN("-n", "2", TUTTI_BENCH_PATH, "--backend", backend(), "--explain", "broadcast", "512");
    assert_int_equal(local.status, 0);
    if (strcmp(backend(), "tcp") == 0) has(&local, "tcp: native, through shared memory, in one step");
    launch_free(&local);
    setenv("TUTTI_SHM", "0", 1); /* within a host there is no choice */
    struct launch launch = RUN("-n", "2", TUTTI_BENCH_PATH, "--backend", backend(), "--explain", "broadcast", "64K");
    assert_int_equal(launch.status, 0);
    has(&launch, "broadcast of 65536 bytes in group world: 2 ranks");
    if (strcmp(backend(), "tcp") == 0) has(&launch, "algorithm binomial: its estimate is the lowest");
    assert_null(strstr(launch.out.data, "algbw")); /* nothing is measured */
    launch_free(&launch);
    launch_assert_refused(ARGS(TUTTI_BENCH_PATH, "--explain", "broadcast"), 2, "--explain takes an operation and a");
    launch_assert_refused(ARGS(TUTTI_BENCH_PATH, "--explain", "local_reduce", "4"), 2, "no operation \"local_reduce\"");
    launch_assert_refused(ARGS(TUTTI_BENCH_PATH, "--explain", "broadcast", "4x"), 2, "\"4x\" is not a size");
}

static char *read_text(const char *path)
{
    char *text = calloc(1, 65536);
    FILE *file = fopen(path, "r");
    assert_true(text != NULL && file != NULL);
    assert_true(fread(text, 1, 65535, file) > 0);
    fclose(file);
    return text;
}

static struct launch tune(const char *ranks, const char *which, const char *path)
{
    return RUN("-n", ranks, TUTTI_BENCH_PATH, "--ops", which, "--sizes", "64K,4", "--ms", "1", "--tune", path);
}

/* TUTTI_TUNING reads the file that --tune writes.  Rows for other groups stay, and a file of another kind is left as it
 * is. */
static void tunes(void **state)
{
    char folder[] = "/tmp/tutti-bench-XXXXXX", path[64];
    (void)state;
    setenv("TUTTI_SHM", "0", 1);
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/tuning", folder);
    struct launch launch = tune("3", "all_reduce,barrier,pingpong", path);
    assert_int_equal(launch.status, 0);
    launch_free(&launch);
    launch = tune("2", "barrier", path);
    assert_int_equal(launch.status, 0);
    launch_free(&launch);
    char *text = read_text(path);
    assert_int_equal(text_count(text, "tutti tuning 1\n"), 1);
    assert_int_equal(text_count(text, "tcp 3 1 all_reduce any "), 1);
    assert_int_equal(text_count(text, "tcp 3 1 barrier any "), 1);
    assert_int_equal(text_count(text, "tcp 2 1 barrier any "), 1);
    assert_int_equal(text_count(text, "pingpong"), 0);
    free(text);

    char tuning[80];
    snprintf(tuning, sizeof tuning, "TUTTI_TUNING=%s", path);
    launch = RUN("-n", "3", "/usr/bin/env", tuning, TUTTI_BENCH_PATH, "--explain", "all_reduce", "1M");
    assert_int_equal(launch.status, 0);
    has(&launch, "TUTTI_TUNING selects it for all_reduce of any size");
    launch_free(&launch);

    char small[300];
    snprintf(small, sizeof small, "ulimit -f 0; exec %s --backend tcp --ops barrier --ms 1 --tune %s", TUTTI_BENCH_PATH,
             path);
    launch = RUN("sh", "-c", small);
    assert_int_equal(launch.status, 1);
    assert_has(&launch.err, ": File too large");
    launch_free(&launch);

    FILE *other = fopen(path, "w");
    assert_non_null(other);
    fputs("somebody's text\n", other);
    fclose(other);
    launch = tune("2", "barrier", path);
    assert_int_equal(launch.status, 1);
    assert_non_null(strstr(launch.err.data, "the file exists and does not begin with \"tutti tuning 1\""));
    launch_free(&launch);
    text = read_text(path);
    assert_string_equal(text, "somebody's text\n");
    free(text);
    unlink(path);
    assert_int_equal(rmdir(folder), 0); /* nothing else is left there */
}

/* Returns the rest of the row of a case. */
static const char *regret_row(const struct launch *launch, const char *op, int bytes)
{
    char start[64];
    snprintf(start, sizeof start, "  %-19s %11d  ", op, bytes);
    const char *row = strstr(launch->out.data, start);
    if (launch->status != 0 || row == NULL)
        fail_msg("no row of %s: %d: %s%s", op, launch->status, launch->out.data, launch->err.data);
    return row + strlen(start);
}

/* Measures regret with a ring chosen.  Sets the best alternative for 64 bytes, and the largest ratio of a round. */
static void regret_of_ring(char best[32], double *high)
{
    char chosen[32];
    double us, best_us, ratio, low;
    struct launch launch = RUN("-n", "3", "/usr/bin/env", "TUTTI_ALGO=all_reduce=ring", TUTTI_BENCH_PATH, "--regret",
                               "--ops", "barrier,all_reduce,pingpong,local_reduce", "--sizes", "64,64K", "--ms", "2");
    regret_row(&launch, "barrier", 0);
    regret_row(&launch, "all_reduce", 65536);
    regret_row(&launch, "pingpong", 65536);
    assert_int_equal(text_count(launch.out.data, "\n[0]   "), 4); /* a short message has a single path */
    has(&launch, ": regret on tcp 3 1 (backend, ranks, hosts); times in us");
    has(&launch, "# 4 cases: geometric mean ");
    const char *row = regret_row(&launch, "all_reduce", 64);
    if (sscanf(row, "%31s %lf %31s %lf %lf %lf %lf", chosen, &us, best, &best_us, &ratio, &low, high) != 7)
        fail_msg("%.200s", row);
    assert_string_equal(chosen, "ring");
    assert_true(us > 0 && best_us > 0 && low <= ratio && ratio <= *high);
    launch_free(&launch);
}

/* Each case that has a choice gets a row and counts in the summary.  A choice that is named is measured as it is, and
 * the best alternative is another one: a plan of four messages in turn is slower than one step.  A busy machine may
 * find otherwise, but not each time. */
static void regrets(void **state)
{
    char best[32] = "ring";
    double high = 0;
    (void)state;
    unsetenv("TUTTI_SHM");
    for (int i = 0; i < 10 && (strcmp(best, "ring") == 0 || high <= 1); i++) regret_of_ring(best, &high);
    assert_string_not_equal(best, "ring");
    assert_true(high > 1);

    struct launch launch =
        RUN("-n", "3", TUTTI_BENCH_PATH, "--regret", "--ops", "pingpong", "--sizes", "64", "--ms", "1");
    has(&launch, "# there is nothing to choose\n");
    launch_free(&launch);
    launch = RUN("-n", "2", TUTTI_BENCH_PATH, "--regret", "--ops", "reduce", "--sizes", "4K", "--ms", "1", "--csv");
    if (strncmp(launch.out.data, "tutti,reduce,2,4096,", 20) != 0) fail_msg("%s", launch.out.data);
    assert_int_equal(text_count(launch.out.data, "\n"), 1);
    launch_free(&launch);
}

static void plots(void **state)
{
    char path[] = "/tmp/tutti-bench-XXXXXX";
    (void)state;
    launch_assert_refused(ARGS("/usr/bin/env", "PATH=/nowhere", TUTTI_BENCH_PATH, "--plot", "x.svg"), 2,
                          "--plot needs gnuplot, which is not in PATH");
    launch_assert_refused(ARGS(TUTTI_BENCH_PATH, "--plot", "x.pdf"), 2, "--plot draws SVG and PNG");
    if (access("/usr/bin/gnuplot", X_OK) != 0) skip();
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    struct launch launch = RUN("-n", "2", TUTTI_BENCH_PATH, "--backend", "tcp,tcp", "--ops", "barrier,all_reduce",
                               "--sizes", "4,64K", "--ms", "1", "--plot", path);
    if (launch.status != 0) fail_msg("%d: %s%s", launch.status, launch.out.data, launch.err.data);
    char *text = read_text(path);
    assert_non_null(strstr(text, "<svg"));
    assert_non_null(strstr(text, "all_reduce"));
    assert_int_equal(text_count(text, "<title>tcp</title>"), 2); /* times and bandwidths */
    assert_int_equal(text_count(text, "<title>tcp (2)</title>"), 2);
    assert_non_null(strstr(text, "message size (bytes)"));
    assert_non_null(strstr(text, "time (µs)"));
    assert_non_null(strstr(text, "bus bandwidth (GB/s)"));
    assert_null(strstr(text, "barrier"));
    free(text);
    close(fd);
    unlink(path);
    launch_free(&launch);
    /* the extension selects the format */
    char png[] = "/tmp/tutti-bench-XXXXXX.png", head[8] = "";
    fd = mkstemps(png, 4);
    assert_true(fd >= 0);
    launch = RUN("-n", "2", TUTTI_BENCH_PATH, "--backend", "tcp", "--ops", "all_reduce", "--sizes", "4,64K", "--ms",
                 "1", "--plot", png);
    if (launch.status != 0) fail_msg("%d: %s%s", launch.status, launch.out.data, launch.err.data);
    close(fd);
    fd = open(png, O_RDONLY | O_CLOEXEC);
    assert_int_equal(read(fd, head, sizeof head), sizeof head);
    assert_memory_equal(head, "\x89PNG", 4);
    close(fd);
    unlink(png);
    launch_free(&launch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_rank_all_right),
                                       cmocka_unit_test(small_stack),
                                       cmocka_unit_test(two_ranks_all_right),
                                       cmocka_unit_test(three_ranks_all_right),
                                       cmocka_unit_test(table_of_dtypes),
                                       cmocka_unit_test(refuses),
                                       cmocka_unit_test(explains),
                                       cmocka_unit_test(tunes),
                                       cmocka_unit_test(regrets),
                                       cmocka_unit_test(plots)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
