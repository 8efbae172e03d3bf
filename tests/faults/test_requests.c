/* The number of requests that ranks make to the store: at init, while one of them is late or never comes, and for each
 * group.  The number per rank must not grow with the number of ranks. */
#include "procs.h"

enum {
    INIT_MOST = 30, /* per rank: about 20, and a few more while ranks come */
    LATE_MS = 2000,
    LOOK_MS = 200, /* interval at which a waiting rank looks, LOOK_REQUESTS at a time */
    LOOK_REQUESTS = 3,
    MISSING_MS = 1000,
    SPLITS = 5
};

enum { INITIALISED = 1, MADE_GROUPS };

struct run {
    bool wire;
    int late_ms;         /* the delay of the last rank */
    double init, groups; /* requests per rank, filled in by the test */
    int64_t init_ms;     /* how long the ranks may have waited in init */
};

static int run_rank(int rank, int size, void *argument)
{
    const struct run *run = argument;
    if (run->wire) setenv("TUTTI_SHM", "0", 1);
    if (rank == size - 1) procs_sleep_ms(run->late_ms);
    EXPECT(proc_init(30000) == TUTTI_OK);
    proc_wait_for_go(INITIALISED);
    for (int i = 0; i < SPLITS; i++) {
        tutti_group *part = NULL, *all = NULL;
        int ranks[PROCS_MOST];
        for (int r = 0; r < size; r++) ranks[r] = r;
        EXPECT(tutti_split_group((rank + i) % 2, -rank, NULL, &part) == TUTTI_OK);
        EXPECT(tutti_new_group(ranks, size, NULL, &all) == TUTTI_OK);
        EXPECT(tutti_get_world_size(part) == (size + ((rank + i) % 2 == 0 ? 1 : 0)) / 2 || size % 2 != 0);
        EXPECT(tutti_destroy_process_group(part) == TUTTI_OK);
        EXPECT(tutti_destroy_process_group(all) == TUTTI_OK);
    }
    proc_wait_for_go(MADE_GROUPS);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

static int64_t count(struct procs *procs)
{
    int64_t n = 0;
    if (tutti_store_num_requests(procs->store, &n) != TUTTI_OK) procs->failed = true;
    return n;
}

static void watch(struct procs *procs, void *argument)
{
    struct run *run = argument;
    int64_t begin = monotonic_ns();
    procs->failed = !procs_wait_for_step(procs, INITIALISED);
    int64_t init = count(procs);
    run->init_ms = (monotonic_ns() - begin) / 1000000;
    procs_release(procs, INITIALISED);
    procs->failed |= !procs_wait_for_step(procs, MADE_GROUPS);
    run->groups = (double)(count(procs) - init - 1) / procs->size; /* without the rank that counts */
    run->init = (double)init / procs->size;
    procs_release(procs, MADE_GROUPS);
}

/* Fails the test if ranks that waited for at most that long have made more requests than they need.  On a busy machine
 * they wait for each other, too. */
static void expect_few(double requests, int64_t waited_ms)
{
    double most = INIT_MOST + LOOK_REQUESTS * (double)waited_ms / LOOK_MS;
    if (requests > most)
        fail_msg("%.1f requests a rank in %.3f s, not at most %.1f", requests, (double)waited_ms / 1e3, most);
}

static void test_init(void **state)
{
    static const int sizes[] = {2, 8, 32, 64};
    (void)state;
    for (int wire = 0; wire < 2; wire++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            struct run run = {.wire = wire != 0};
            procs_run_with(sizes[i], run_rank, watch, &run);
            print_message("%s, %d ranks: %.1f requests a rank in init, %.2f in %d splits and groups\n",
                          wire ? "wire" : "shm", sizes[i], run.init, run.groups, SPLITS);
            expect_few(run.init, run.init_ms);
            if (run.groups > 0) fail_msg("%.2f requests a rank for groups", run.groups);
        }
}

static void test_late(void **state)
{
    static const int sizes[] = {2, 48};
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct run run = {.late_ms = LATE_MS};
        procs_run_with(sizes[i], run_rank, watch, &run);
        print_message("%d ranks, one %d ms late: %.1f requests a rank in init\n", sizes[i], LATE_MS, run.init);
        expect_few(run.init, run.init_ms);
    }
}

/* ---- one never comes ------------------------------------------------------------------------------------------- */

static int run_waiting(int rank, int size, void *argument)
{
    (void)argument;
    char never[32];
    snprintf(never, sizeof never, "missing %d", size);
    proc_set_int("WORLD_SIZE", size + 1);
    EXPECT_ERROR(tutti_init_process_group("tcp", &(tutti_init_opts){.store_timeout_ms = MISSING_MS}), TUTTI_ERR_TIMEOUT,
                 "joined", never);
    proc_wait_for_go(INITIALISED);
    (void)rank;
    return 0;
}

static void watch_waiting(struct procs *procs, void *argument)
{
    struct run *run = argument;
    int64_t begin = monotonic_ns();
    procs->failed = !procs_wait_for_step(procs, INITIALISED);
    run->init = (double)count(procs) / procs->size;
    run->init_ms = (monotonic_ns() - begin) / 1000000;
    procs_release(procs, INITIALISED);
}

static void test_missing(void **state)
{
    static const int sizes[] = {2, 64};
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct run run = {0};
        procs_run_with(sizes[i], run_waiting, watch_waiting, &run);
        print_message("%d ranks of %d: %.1f requests a rank\n", sizes[i], sizes[i] + 1, run.init);
        expect_few(run.init, run.init_ms);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_init), cmocka_unit_test(test_late),
                                       cmocka_unit_test(test_missing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
