/* One rank runs out of memory, descriptors or threads at the n-th call for one.  No rank crashes, hangs or reports OK
 * for a wrong value, and none waits for its timeout once all have joined.
 *
 * STARVED_ALL=1 tries every call (tests/soak/starved.sh) instead of a few.  STARVED_CALL=n tries the n-th alone.
 * STARVED_SHOW=1 shows where it was made and how it ended. */
#include "preload.h"
#include "procs.h"

#include <sys/mman.h>

enum { SIZE = 2, LARGE = 1 << 16, TRIES = 8, TIMEOUT_MS = 15000, JOIN_MS = 2000 };

static void (*arm)(int nth);
static int (*count)(void);

struct trial {
    const char *shm;
    int victim, nth;
    int n_calls; /* set by the victim */
};

/* Makes the calls of a small program.  Returns the first error, or 1 for a wrong value. */
static int use(int rank, int size)
{
    static float large[LARGE];
    float x = 1;
    tutti_work *work = NULL;
    tutti_group *group = NULL;
    int status = tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM, NULL);
    if (status != TUTTI_OK) return status;
    if (x != (float)size) return 1;
    for (int i = 0; i < LARGE; i++) large[i] = 2;
    status = tutti_all_reduce(tutti_view(large, LARGE), TUTTI_SUM, tutti_with(.async_op = &work));
    if (status == TUTTI_OK) status = tutti_wait(&work, TUTTI_DEFAULT_TIMEOUT);
    if (status != TUTTI_OK) return status;
    for (int i = 0; i < LARGE; i++)
        if (large[i] != (float)(2 * size)) return 1;
    status = rank == 0 ? tutti_send(tutti_view(large, LARGE), 1, NULL) : tutti_recv(tutti_view(large, LARGE), 0, NULL);
    if (status == TUTTI_OK) status = tutti_split_group(0, rank, NULL, &group);
    if (status != TUTTI_OK) return status;
    status = tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM, tutti_with(.group = group));
    if (status == TUTTI_OK && x != (float)(size * size)) return 1;
    tutti_destroy_process_group(group);
    return status;
}

static int starved_rank(int rank, int size, void *argument)
{
    struct trial *trial = argument;
    bool is_victim = rank == trial->victim;
    setenv("TUTTI_SHM", trial->shm, 1);
    if (is_victim) arm(trial->nth);
    int64_t begin = monotonic_ns();
    int status =
        tutti_init_process_group("tcp", &(tutti_init_opts){.timeout_ms = TIMEOUT_MS, .store_timeout_ms = JOIN_MS});
    bool joined = status == TUTTI_OK;
    if (joined) status = use(rank, size);
    char text[1024];
    snprintf(text, sizeof text, "%s", tutti_last_error());
    if (tutti_is_initialized()) tutti_destroy_process_group(NULL);
    if (is_victim) trial->n_calls = count();
    if (is_victim) arm(-1);
    if (getenv("STARVED_SHOW") != NULL)
        fprintf(stderr, "shm=%s n=%d rank %d%s %.3f s: %s: %s\n", trial->shm, trial->nth, rank,
                is_victim ? " (starved)" : "", procs_seconds(begin), tutti_status_string(status),
                status == TUTTI_OK ? "" : text);
    EXPECT(status != 1);
    EXPECT(!joined || status != TUTTI_ERR_TIMEOUT); /* no rank waits for one that knows of its own failure */
    return 0;
}

static void sweep(const char *shm, int victim)
{
    struct trial *trial = mmap(NULL, sizeof *trial, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(trial, MAP_FAILED);
    *trial = (struct trial){.shm = shm, .victim = victim};
    procs_run_ranks(SIZE, starved_rank, trial);
    int n = trial->n_calls, failed = 0;
    assert_in_range(n, TRIES, 10000);
    const char *only = getenv("STARVED_CALL");
    int step = only != NULL ? n : getenv("STARVED_ALL") != NULL ? 1 : n / TRIES;
    for (trial->nth = only != NULL ? atoi(only) : 1 + (int)(getpid() % step); trial->nth <= n; trial->nth += step) {
        struct procs procs = {.size = SIZE, .fn = starved_rank, .argument = trial, .may_fail = true};
        procs_run(&procs);
        bool ok = procs.code[0] == 0 && procs.code[1] == 0;
        if (!ok)
            fprintf(stderr, "TUTTI_SHM=%s: call %d of rank %d failed: %d, %d\n", shm, trial->nth, victim, procs.code[0],
                    procs.code[1]);
        failed += !ok;
    }
    munmap(trial, sizeof *trial);
    assert_int_equal(failed, 0);
}

static void test_shared_memory(void **state)
{
    (void)state;
    for (int victim = 0; victim < SIZE; victim++) sweep("1", victim);
}

static void test_network(void **state)
{
    (void)state;
    for (int victim = 0; victim < SIZE; victim++) sweep("0", victim);
}

int main(int argc, char **argv)
{
    (void)argc;
    if (access(TUTTI_BACKENDS_DIR "/libtutti_tcp.so", R_OK) != 0) return 77; /* built without libfabric */
    if (!preload(argv, "starve", "starve_arm")) return 1;
    *(void **)&arm = preload_find("starve_arm");
    *(void **)&count = preload_find("starve_count");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shared_memory),
        cmocka_unit_test(test_network),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
