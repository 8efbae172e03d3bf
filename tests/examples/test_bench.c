/* tutti-bench through tutti-run: every operation's results are right, its lines are as they are documented, and it
 * refuses what it does not know.  The figures themselves are not judged here. */
#include "tools/launch.h"

static const char *const ops[] = {"barrier",        "broadcast",  "all_reduce", "reduce",  "all_gather",
                                  "reduce_scatter", "all_to_all", "gather",     "scatter", "pingpong"};

enum { OPS = sizeof ops / sizeof *ops };

static const char *backend(void)
{
    const char *name = getenv("TUTTI_TEST_BACKEND");
    return name && *name ? name : "tcp";
}

static struct launch bench(const char *ranks, const char *sizes, const char *dtype, const char *reduce_op,
                           const char *output)
{
    struct launch launch = RUN("-n", ranks, TUTTI_BENCH_PATH, "--backend", backend(), "--sizes", sizes, "--ms", "1",
                               "--dtype", dtype, "--reduce-op", reduce_op, "--ranks", ranks, output, "--name", "x");
    if (launch.status != 0)
        fail_msg("%s ranks, %s, %s: %d: %s%s", ranks, dtype, reduce_op, launch.status, launch.out.data,
                 launch.err.data);
    return launch;
}

/* The line at text of "x,op,ranks,bytes,us,us_mean,us_min,us_p95,iters,ok"; gives the next one. */
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

/* Every operation at every size, and nothing else; no prefix, though tutti-run was not told so. */
static void all_right(const char *ranks)
{
    static const long long sizes[] = {0, 4, 100, 65536, 1 << 20};
    struct launch launch = bench(ranks, "0,4,100,64K,1M", "float32", "SUM", "--csv");
    const char *at = csv_line(launch.out.data, ops[0], atoi(ranks), 0);
    for (int i = 1; i < OPS; i++)
        for (int k = 0; k < 5; k++) at = csv_line(at, ops[i], atoi(ranks), sizes[k]);
    assert_string_equal(at, "");
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

/* The table has a row a case, and its last column, the wrong elements, is 0. */
static void assert_table(const char *ranks, const char *dtype, const char *reduce_op, const char *option)
{
    struct launch launch = bench(ranks, "4096", dtype, reduce_op, option);
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
    assert_table("3", "int8", "AVG", "--async");
    assert_table("2", "bfloat16", "AVG", "--tutti-alloc");
    assert_table("3", "float8_e5m2", "SUM", "--async");
    assert_table("2", "complex64", "PRODUCT", "--async");
    assert_table("3", "bool", "BXOR", "--tutti-alloc");
}

static void refuses(void **state)
{
    (void)state;
    assert_refused(ARGS(TUTTI_BENCH_PATH, "--ops", "all_reduce,nothing"), 2, "there is no operation \"nothing\"");
    assert_refused(ARGS(TUTTI_BENCH_PATH, "--sizes", "4,5T"), 2, "\"5T\" is not a size");
    assert_refused(ARGS(TUTTI_BENCH_PATH, "--sizes", "-4"), 2, "\"-4\" is not a size");
    assert_refused(ARGS(TUTTI_BENCH_PATH, "--dtype", "real"), 2, "there is no \"real\"; there are bool int8");
    assert_refused(ARGS(TUTTI_BENCH_PATH, "--reduce-op", "XOR"), 2, "there is no \"XOR\"");
    assert_refused(ARGS(TUTTI_BENCH_PATH, "--fast", "1"), 2, "there is no option \"--fast\"");
    assert_refused(ARGS(TUTTI_BENCH_PATH, "--ms"), 2, "\"--ms\" is no option, or lacks its value");
    assert_refused(ARGS("-n", "2", TUTTI_BENCH_PATH, "--backend", backend(), "--ranks", "3"), 2,
                   "--ranks says 3, but this world has 2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_rank_all_right), cmocka_unit_test(two_ranks_all_right),
                                       cmocka_unit_test(three_ranks_all_right), cmocka_unit_test(table_of_dtypes),
                                       cmocka_unit_test(refuses)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
