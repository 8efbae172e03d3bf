/* Deadlines are looked at when one is due.  A group at rest has none, and must look again once it has operations. */
#include "procs.h"

enum { SIZE = 2, REST_MS = 500, TIMEOUT_MS = 300, LATE_S = PROCS_SOON_S };

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shared_memory),
        cmocka_unit_test(test_network),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
