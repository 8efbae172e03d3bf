/* The wall clock is set by an hour again and again.  Operations succeed, and a timeout takes as long as requested. */
#include "preload.h"
#include "procs.h"

#include <time.h>

enum { SIZE = 2, TIMEOUT_MS = 1500, LATE_S = PROCS_SOON_S };

static int (*count)(void);

static int rank_of_moving_clock(int rank, int size, void *shm)
{
    float x = 1;
    tutti_group *group = NULL;
    setenv("TUTTI_SHM", shm, 1);
    int before = count();
    EXPECT(time(NULL) != 0 && count() == before + 1); /* the moving clock is in use */
    EXPECT(proc_init(20000) == TUTTI_OK);
    EXPECT(tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM, NULL) == TUTTI_OK && x == (float)size);
    EXPECT(tutti_new_group((int[]){0, 1}, SIZE, &(tutti_group_opts){.timeout_ms = TIMEOUT_MS}, &group) == TUTTI_OK);
    EXPECT(tutti_barrier(tutti_with(.group = group)) == TUTTI_OK);
    if (rank == 0) {
        int64_t begin = monotonic_ns();
        EXPECT_ERROR(tutti_barrier(tutti_with(.group = group)), TUTTI_ERR_TIMEOUT, "rank 1");
        EXPECT_WITHIN(begin, TIMEOUT_MS / 1000.0, LATE_S);
    }
    proc_barrier(size, 1);
    EXPECT(tutti_destroy_process_group(group) == TUTTI_OK);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

static void test_shared_memory(void **state)
{
    (void)state;
    procs_run_ranks(SIZE, rank_of_moving_clock, "1");
}

static void test_network(void **state)
{
    (void)state;
    procs_run_ranks(SIZE, rank_of_moving_clock, "0");
}

int main(int argc, char **argv)
{
    (void)argc;
    if (access(TUTTI_BACKENDS_DIR "/libtutti_tcp.so", R_OK) != 0) return 77; /* built without libfabric */
    if (!preload(argv, "moving_clock", "moving_clock_count")) return 1;
    *(void **)&count = preload_find("moving_clock_count");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shared_memory),
        cmocka_unit_test(test_network),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
