/* Memory that the library caches between operations is bounded. */
#include "procs.h"

static long resident_mib(void)
{
    long kib = 0;
    char line[128];
    FILE *status = fopen("/proc/self/status", "re");
    while (status != NULL && fgets(line, sizeof line, status) != NULL)
        if (sscanf(line, "VmRSS: %ld kB", &kib) == 1) break;
    if (status != NULL) fclose(status);
    return kib >> 10;
}

/* Each size makes a plan with its own scratch. */
static int rank_of_sizes(int rank, int size, void *argument)
{
    enum { SIZES = 100, STEP = 64, LEAST = (4 << 20) - SIZES * STEP, MOST_MIB = 128 };
    (void)argument;
    EXPECT(proc_init(60000) == TUTTI_OK);
    float *x = malloc((LEAST + SIZES * STEP) * sizeof *x);
    EXPECT(x != NULL);
    for (int i = 0; i < LEAST + SIZES * STEP; i++) x[i] = 0;
    long before = resident_mib();
    for (int i = 0; i < SIZES; i++) {
        x[0] = (float)(rank + 1);
        EXPECT(tutti_all_reduce(tutti_view(x, LEAST + i * STEP), TUTTI_SUM, NULL) == TUTTI_OK);
        EXPECT(x[0] == (float)(size * (size + 1) / 2));
    }
    long grown = resident_mib() - before;
    if (rank == 0) fprintf(stderr, "%d plans of 16 MiB: %ld MiB more than before\n", SIZES, grown);
    EXPECT(before > 0 && grown <= MOST_MIB);
    free(x);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

static void test_scratch_of_many_sizes(void **state)
{
    (void)state;
    setenv("TUTTI_SHM", "0", 1); /* forces plans */
    procs_run_ranks(2, rank_of_sizes, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_scratch_of_many_sizes)};
    cmocka_set_test_filter(getenv("FAULTS_ONLY"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
