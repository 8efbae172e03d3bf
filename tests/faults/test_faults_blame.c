/* The first cause wins: who fails for a reason of its own is reported with that reason, also where the others only see
 * it leave. */
#include "procs.h"

#include <fcntl.h>
#include <sys/resource.h>

enum { RANKS = 4, SOON_S = 8 };

/* ---- too few descriptors --------------------------------------------------------------------------------------- */

static void limit_descriptors(rlim_t n)
{
    struct rlimit limit = {n, n};
    setrlimit(RLIMIT_NOFILE, &limit);
}

/* Rank 1 names its limit; the others name rank 1 and why. */
static int expect_limit_named(int rank, int status)
{
    const char *text = tutti_last_error();
    EXPECT(status != TUTTI_OK && status != TUTTI_ERR_TIMEOUT);
    EXPECT_ERROR(status, status, rank == 1 ? "" : "rank 1", "RLIMIT_NOFILE");
    EXPECT(strstr(text, "refused") == NULL);
    return 0;
}

static int sum_once(int size)
{
    int64_t x[100];
    for (int i = 0; i < 100; i++) x[i] = size;
    return tutti_all_reduce(tutti_view(x, 100), TUTTI_SUM, NULL);
}

static int rank_without_descriptors(int rank, int size, void *argument)
{
    (void)argument;
    EXPECT(proc_init(20000) == TUTTI_OK);
    proc_meet(size, 1);
    int next = fcntl(0, F_DUPFD_CLOEXEC, 0); /* the lowest that is free */
    close(next);
    if (rank == 1) limit_descriptors((rlim_t)next);
    int64_t begin = procs_now_ns();
    int result = expect_limit_named(rank, sum_once(size));
    EXPECT_WITHIN(begin, 0, SOON_S);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return result;
}

static void test_descriptors_run_out_in_the_first_operation(void **state)
{
    (void)state;
    run_procs(RANKS, rank_without_descriptors, NULL);
}

static int rank_with_few_descriptors(int rank, int size, void *argument)
{
    if (rank == 1) limit_descriptors((rlim_t)(intptr_t)argument);
    int64_t begin = procs_now_ns();
    int status = proc_init(20000);
    if (status == TUTTI_OK) status = sum_once(size);
    int result = status == TUTTI_OK ? 0 : expect_limit_named(rank, status);
    EXPECT_WITHIN(begin, 0, SOON_S);
    EXPECT(!tutti_is_initialized() || tutti_destroy_process_group(NULL) == TUTTI_OK);
    return result;
}

static void test_few_descriptors_from_the_start(void **state)
{
    (void)state;
    for (int n = 12; n <= 40; n += 4) run_procs(RANKS, rank_with_few_descriptors, (void *)(intptr_t)n);
}

/* ---- calls that differ ----------------------------------------------------------------------------------------- */

/* Rank 2's parts have another size.  It destroys the group as soon as its own call has failed. */
static int rank_that_differs(int rank, int size, void *argument)
{
    int64_t *in = calloc(100000, sizeof *in), *out = calloc(100000, sizeof *out);
    int64_t n = *(const int64_t *)argument + (rank == 2);
    EXPECT(proc_init(20000) == TUTTI_OK);
    proc_meet(size, 1);
    int64_t begin = procs_now_ns();
    int status = tutti_all_to_all_single(tutti_view(out, n * size), tutti_view(in, n * size), NULL, NULL, NULL);
    EXPECT_ERROR(status, TUTTI_ERR_MISMATCH, "rank 2");
    EXPECT_WITHIN(begin, 0, SOON_S);
    if (rank != 2) procs_nap_ms(20);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    free(in);
    free(out);
    return 0;
}

static void test_sizes_differ_and_their_rank_leaves(void **state)
{
    static const int64_t sizes[] = {1, 1000, 20000};
    (void)state;
    for (int i = 0; i < 15; i++) run_procs(RANKS, rank_that_differs, (void *)(uintptr_t)&sizes[i % 3]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_descriptors_run_out_in_the_first_operation),
                                       cmocka_unit_test(test_few_descriptors_from_the_start),
                                       cmocka_unit_test(test_sizes_differ_and_their_rank_leaves)};
    setenv("TUTTI_SHM", "0", 1);
    cmocka_set_test_filter(getenv("FAULTS_ONLY"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
