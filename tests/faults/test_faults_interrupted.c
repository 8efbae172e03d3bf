/* System calls move a part of their bytes and are interrupted by signals.  All operations succeed with right values. */
#include "preload.h"
#include "procs.h"

#include <sys/time.h>

enum { SIZE = 3, LARGE = 1 << 18, ROUNDS = 20, SIGNAL_US = 2000 };

static void (*arm)(int on);
static int (*count)(void);

static void ignore(int number)
{
    (void)number;
}

/* Sends this process a signal every SIGNAL_US, which ends blocking calls with EINTR. */
static int start_signals(void)
{
    struct sigaction action = {.sa_handler = ignore}; /* without SA_RESTART */
    struct itimerval period = {{0, SIGNAL_US}, {0, SIGNAL_US}};
    EXPECT(sigaction(SIGALRM, &action, NULL) == 0);
    EXPECT(setitimer(ITIMER_REAL, &period, NULL) == 0);
    return 0;
}

static int exchange(int rank, int size, float *large)
{
    float x = 1;
    EXPECT(tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM, NULL) == TUTTI_OK && x == (float)size);
    for (int i = 0; i < LARGE; i++) large[i] = (float)(rank + i % 7);
    EXPECT(tutti_all_reduce(tutti_view(large, LARGE), TUTTI_SUM, NULL) == TUTTI_OK);
    for (int i = 0; i < LARGE; i++) EXPECT(large[i] == (float)(size * (size - 1) / 2 + size * (i % 7)));
    int next = (rank + 1) % size, before = (rank + size - 1) % size;
    tutti_work *work = NULL;
    for (int i = 0; i < LARGE; i++) large[i] = (float)(rank * LARGE + i);
    EXPECT(tutti_isend(tutti_view(large, LARGE / 2), next, NULL, &work) == TUTTI_OK);
    EXPECT(tutti_recv(tutti_view(large + LARGE / 2, LARGE / 2), before, NULL) == TUTTI_OK);
    EXPECT(tutti_wait(&work, TUTTI_DEFAULT_TIMEOUT) == TUTTI_OK);
    for (int i = 0; i < LARGE / 2; i++) EXPECT(large[LARGE / 2 + i] == (float)(before * LARGE + i));
    return 0;
}

static int interrupted_rank(int rank, int size, void *shm)
{
    float *large = malloc(LARGE * sizeof *large);
    int failed = large == NULL;
    setenv("TUTTI_SHM", shm, 1);
    arm(1);
    if (!failed) failed = start_signals();
    EXPECT(proc_init(20000) == TUTTI_OK);
    for (int i = 0; i < ROUNDS && !failed; i++) {
        tutti_group *group = NULL;
        failed = exchange(rank, size, large);
        EXPECT(tutti_split_group(0, rank, NULL, &group) == TUTTI_OK);
        EXPECT(tutti_barrier(tutti_with(.group = group)) == TUTTI_OK);
        EXPECT(tutti_destroy_process_group(group) == TUTTI_OK);
    }
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    arm(0);
    EXPECT(count() > 10);
    free(large);
    return failed;
}

static void test_shared_memory(void **state)
{
    (void)state;
    procs_run_ranks(SIZE, interrupted_rank, "1");
}

static void test_network(void **state)
{
    (void)state;
    procs_run_ranks(SIZE, interrupted_rank, "0");
}

int main(int argc, char **argv)
{
    (void)argc;
    if (access(TUTTI_BACKENDS_DIR "/libtutti_tcp.so", R_OK) != 0) return 77; /* built without libfabric */
    if (!preload(argv, "short_io", "short_io_arm")) return 1;
    *(void **)&arm = preload_find("short_io_arm");
    *(void **)&count = preload_find("short_io_count");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shared_memory),
        cmocka_unit_test(test_network),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
