/* Deadlines are looked at when one is due.  A group at rest has none, and must look again once it has operations.  What
 * an operation waits for may change shortly before its deadline. */
#include "procs.h"

enum {
    SIZE = 2,
    REST_MS = 500,
    TIMEOUT_MS = 300,
    LATE_S = PROCS_SOON_S,
    LONG_MS = 1000,   /* timeout of a plan whose rank 1 comes late */
    ANSWER_TRIES = 5, /* on a slow machine the answers may come too late */
};

static void count_ends(tutti_work *work, void *count)
{
    (void)work;
    atomic_fetch_add((atomic_int *)count, 1);
}

/* Rank 1 sends nothing.  Rank 0 receives, by itself and by the progress thread. */
static int rank_of_rests(int rank, int size, void *shm)
{
    float x = 1;
    setenv("TUTTI_SHM", shm, 1);
    EXPECT(proc_init(60000) == TUTTI_OK);
    EXPECT(tutti_barrier(NULL) == TUTTI_OK);
    for (int round = 0; rank == 0 && round < 2; round++) {
        procs_sleep_ms(REST_MS);
        int64_t begin = monotonic_ns();
        EXPECT_ERROR(tutti_recv(tutti_view(&x, 1), 1, tutti_with(.timeout_ms = TIMEOUT_MS)), TUTTI_ERR_TIMEOUT,
                     "rank 1");
        EXPECT_WITHIN(begin, TIMEOUT_MS / 1000.0, LATE_S);

        static atomic_int ended;
        tutti_work *work = NULL;
        procs_sleep_ms(REST_MS);
        begin = monotonic_ns();
        EXPECT(tutti_recv(tutti_view(&x, 1), 1, tutti_with(.timeout_ms = TIMEOUT_MS, .async_op = &work)) == TUTTI_OK);
        EXPECT(tutti_work_then(work, count_ends, &ended) == TUTTI_OK);
        while (atomic_load(&ended) == round && procs_seconds(begin) < LATE_S) procs_sleep_ms(10);
        EXPECT(atomic_load(&ended) == round + 1);
        EXPECT_ERROR(tutti_wait(&work, TUTTI_DEFAULT_TIMEOUT), TUTTI_ERR_TIMEOUT, "rank 1");
    }
    proc_barrier(size, 1);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

static void test_shared_memory(void **state)
{
    (void)state;
    procs_run_ranks(SIZE, rank_of_rests, "1");
}

static void test_network(void **state)
{
    (void)state;
    procs_run_ranks(SIZE, rank_of_rests, "0");
}

/* Rank 0 waits for rank 1, which comes late, and then for rank 2, which waits for rank 3.  That one does not come. */
static int rank_of_plan(int rank, int size, void *late_ms)
{
    float x = 1;
    int timeout_ms = rank == 0 ? LONG_MS : 4 * LONG_MS;
    EXPECT(proc_init(60000) == TUTTI_OK);
    EXPECT(tutti_barrier(NULL) == TUTTI_OK);
    if (rank == 1) procs_sleep_ms(*(const int *)late_ms);
    if (rank < 3) {
        int status = tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM, tutti_with(.timeout_ms = timeout_ms));
        if (rank == 0) EXPECT_ERROR(status, TUTTI_ERR_TIMEOUT, "rank 3 (is ");
    }
    proc_barrier(size, 1);
    tutti_destroy_process_group(NULL);
    return 0;
}

/* The answers come in time to the question that follows the move, or to one after the deadline. */
static void test_moves_before_its_deadline(void **state)
{
    static int late_ms[] = {650, 900};
    (void)state;
    setenv("TUTTI_SHM", "0", 1);
    setenv("TUTTI_ALGO", "all_reduce=recursive_doubling", 1);
    for (size_t k = 0; k < sizeof late_ms / sizeof *late_ms; k++)
        for (int i = 0; i < ANSWER_TRIES; i++) {
            struct procs procs = {.size = 4, .fn = rank_of_plan, .argument = &late_ms[k]};
            procs.may_fail = i < ANSWER_TRIES - 1;
            procs_run(&procs);
            if (procs.code[0] == 0) break;
        }
    unsetenv("TUTTI_ALGO");
    unsetenv("TUTTI_SHM");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shared_memory),
        cmocka_unit_test(test_network),
        cmocka_unit_test(test_moves_before_its_deadline),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
