/* Groups that are made repeatedly: on one port, from one file, over one store.  Ranks that disagree about their world.
 */
#include "loopback.h"
#include "procs.h"
#include "usage.h"

enum { SOON_S = PROCS_SOON_S };

/* ---- beginning again ------------------------------------------------------------------------------------------- */

static int rank_of_again(int rank, int size, void *argument)
{
    char method[100];
    snprintf(method, sizeof method, "tcp://127.0.0.1:%d?rank=%d&world_size=%d", *(int *)argument, rank, size);
    for (int i = 0; i < 50; i++) {
        tutti_init_opts opts = {.init_method = method, .timeout_ms = 20000, .store_timeout_ms = 20000};
        EXPECT(tutti_init_process_group("tcp", &opts) == TUTTI_OK);
        EXPECT(proc_sum(NULL, size, 3) == TUTTI_OK);
        EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    }
    return 0;
}

static void test_same_port_fifty_times(void **state)
{
    (void)state;
    int port = loopback_free_port();
    procs_run_ranks(3, rank_of_again, &port);
}

/* Makes worlds through one file.  The first rank may find it before rank 0 of the earlier world has removed it. */
static int rank_of_one_file(int rank, int size, void *argument)
{
    char method[200];
    snprintf(method, sizeof method, "file://%s?rank=%d&world_size=%d", (const char *)argument, rank, size);
    for (int i = 0; i < 50; i++) {
        tutti_init_opts opts = {.init_method = method, .timeout_ms = 20000, .store_timeout_ms = 20000};
        EXPECT(tutti_init_process_group("tcp", &opts) == TUTTI_OK);
        EXPECT(proc_sum(NULL, size, 3) == TUTTI_OK);
        if (rank == 0) procs_sleep_ms(i % 5); /* the others start again before the file is removed */
        EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    }
    return 0;
}

static void test_same_file_fifty_times(void **state)
{
    (void)state;
    char path[] = "/tmp/tutti-again-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    unlink(path);
    procs_run_ranks(3, rank_of_one_file, path);
    assert_int_equal(access(path, F_OK), -1);
}

/* Worlds are destroyed while the handles of subgroups and of a Work are still held. */
static int rank_of_many_groups(int rank, int size, void *argument)
{
    enum { MANY = 100 };
    (void)argument;
    tutti_store *store = proc_store();
    tutti_group *forgotten[MANY];
    tutti_work *work[MANY];
    int fds = 0, threads = 0, ranks[] = {0, 1};
    EXPECT(store != NULL);
    for (int i = 0; i < MANY; i++) {
        char name[32];
        tutti_store *part = NULL;
        tutti_group *group = NULL;
        if (i == 3) { /* data that the first worlds load stay */
            fds = usage_fds();
            threads = usage_threads();
        }
        snprintf(name, sizeof name, "many-%d", i);
        EXPECT(proc_group(store, name, size, 20000, &part, &group) == TUTTI_OK);
        EXPECT(proc_sum(group, size, 3) == TUTTI_OK);
        EXPECT(tutti_new_group(ranks, size, &(tutti_group_opts){.parent = group}, &forgotten[i]) == TUTTI_OK);
        EXPECT(tutti_barrier(tutti_with(.group = forgotten[i], .async_op = &work[i])) == TUTTI_OK);
        EXPECT(tutti_destroy_process_group(group) == TUTTI_OK);
        tutti_store_free(part);
    }
    if (usage_fds() != fds || usage_threads() != threads) {
        fprintf(stderr, "rank %d: %d descriptors became %d, %d threads %d\n", rank, fds, usage_fds(), threads,
                usage_threads());
        return 1;
    }
    for (int i = 0; i < MANY; i++) {
        EXPECT_ERROR(tutti_barrier(tutti_with(.group = forgotten[i])), TUTTI_ERR_ABORTED, "destroyed with its world");
        EXPECT(tutti_destroy_process_group(forgotten[i]) == TUTTI_OK);
        EXPECT(tutti_wait(&work[i], TUTTI_DEFAULT_TIMEOUT) == TUTTI_OK);
    }
    tutti_store_free(store);
    return 0;
}

static void test_a_hundred_groups(void **state)
{
    (void)state;
    procs_run_ranks(2, rank_of_many_groups, NULL);
}

/* ---- rendezvous -------------------------------------------------------------------------------------------------- */

static int rank_of_other_size(int rank, int size, void *argument)
{
    (void)argument;
    if (rank == 1) proc_set_int("WORLD_SIZE", size + 1);
    int64_t begin = monotonic_ns();
    EXPECT_ERROR(proc_init(20000), TUTTI_ERR_MISMATCH, "WORLD_SIZE", "rank 1 says 3", "says 2");
    EXPECT_WITHIN(begin, 0, SOON_S);
    return 0;
}

/* Waits until ranks 0 and 1 have joined. */
static int await_two(void)
{
    int64_t joined = 0;
    tutti_store *store = proc_store();
    EXPECT(store != NULL);
    for (; joined < 2; proc_wait_1ms()) EXPECT(tutti_store_add(store, "tutti/world/joined", 0, &joined) == TUTTI_OK);
    tutti_store_free(store);
    return 0;
}

static int rank_that_came_twice(int rank, int size, void *argument)
{
    (void)argument;
    proc_barrier(size, 1); /* ranks 0 and 1 then wait for the missing one at the same time */
    if (rank == 2) EXPECT(await_two() == 0);
    if (rank == 2) proc_set_int("RANK", 1); /* a second rank 1 */
    int64_t begin = monotonic_ns();
    tutti_init_opts opts = {.store_timeout_ms = 2500};
    int status = tutti_init_process_group("tcp", &opts);
    if (rank == 2)
        EXPECT_ERROR(status, TUTTI_ERR_MISMATCH, "rank 1 already joined from");
    else
        EXPECT_ERROR(status, TUTTI_ERR_TIMEOUT, "joined 2 of 3", "missing 2");
    EXPECT_WITHIN(begin, 0, 2.5 + SOON_S);
    return size != 3;
}

static int rank_that_may_straggle(int rank, int size, void *argument)
{
    (void)argument;
    proc_barrier(size, 1);
    if (rank == size - 1) return 0;
    int64_t begin = monotonic_ns();
    EXPECT_ERROR(tutti_init_process_group("tcp", &(tutti_init_opts){.store_timeout_ms = 1500}), TUTTI_ERR_TIMEOUT,
                 "joined 2 of 3", "missing 2");
    EXPECT_WITHIN(begin, 1.4, 1.5 + SOON_S);
    return 0;
}

static void test_ranks_that_do_not_add_up(void **state)
{
    (void)state;
    procs_run_ranks(2, rank_of_other_size, NULL);
    procs_run_ranks(3, rank_that_came_twice, NULL);
    procs_run_ranks(3, rank_that_may_straggle, NULL);
}

/* Only rank 0 fails, and ends the store as soon as it may.  Rank 1 arrives later and gets the reason. */
static int rank_of_a_failing_host(int rank, int size, void *argument)
{
    tutti_group *group = NULL;
    tutti_store *store = NULL;
    (void)argument;
    setenv("BROKEN_OPEN_LATE", "1", 1);
    if (rank == 0) {
        EXPECT(tutti_store_tcp("127.0.0.1", 0, &(tutti_store_opts){.server = true}, &store) == TUTTI_OK);
        proc_set_step(tutti_store_port(store));
    } else {
        while (atomic_load(&proc_shared->step[0]) == 0) proc_wait_1ms();
        EXPECT(tutti_store_tcp("127.0.0.1", (uint16_t)atomic_load(&proc_shared->step[0]), NULL, &store) == TUTTI_OK);
    }
    EXPECT_ERROR(
        tutti_create_group(TUTTI_BUILD_DIR "/tests/plugins/libtutti_broken_open.so", store, rank, size, NULL, &group),
        TUTTI_ERR_TIMEOUT, "no device for rank 0 of 2");
    tutti_store_free(store);
    return 0;
}

static void test_failing_host(void **state)
{
    (void)state;
    procs_run_ranks(2, rank_of_a_failing_host, NULL);
}

/* ---- one store, one group after the other
 * ---------------------------------------------------------------------------- */

enum { TURNS = 4, LATE_MS = 700 };

/* Runs one turn of the store, in a process of its own. */
static int turn_of(int rank, int size, int turn)
{
    tutti_group *group = NULL;
    if (turn == 1) setenv("TUTTI_SHM", "0", 1);
    if (turn == 1 && rank == 1) setenv("TUTTI_FABRIC_PROVIDER", "none_such", 1); /* makes the backend fail to open */
    if (rank == 1 && turn > 1)
        procs_sleep_ms(LATE_MS); /* the others check rank 0's process, and find that of the turn before */
    tutti_store *store = proc_store();
    tutti_group_opts opts = {.timeout_ms = 20000, .name = "turn"};
    int status = tutti_create_group("tcp", store, rank, size, &opts, &group);
    if (turn == 1) {
        EXPECT_ERROR(status, status, "none_such");
        EXPECT(status != TUTTI_OK);
    } else {
        EXPECT(status == TUTTI_OK);
        EXPECT(proc_sum(group, size, 10) == TUTTI_OK);
        EXPECT(tutti_destroy_process_group(group) == TUTTI_OK);
    }
    tutti_store_free(store);
    return 0;
}

static int rank_in_turns(int rank, int size, void *argument)
{
    (void)argument;
    for (int turn = 0; turn < TURNS; turn++) {
        int result = -1;
        pid_t child = fork();
        if (child == 0) _exit(turn_of(rank, size, turn) != 0);
        EXPECT(child > 0 && waitpid(child, &result, 0) == child && result == 0);
        proc_barrier(size, turn + 1);
    }
    return 0;
}

/* An earlier group's keys in the store do not affect the next group.  The earlier group left an ended process, or a
 * backend that did not open. */
static void test_groups_in_turns(void **state)
{
    (void)state;
    procs_run_ranks(3, rank_in_turns, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_port_fifty_times), cmocka_unit_test(test_same_file_fifty_times),
        cmocka_unit_test(test_a_hundred_groups),      cmocka_unit_test(test_ranks_that_do_not_add_up),
        cmocka_unit_test(test_failing_host),          cmocka_unit_test(test_groups_in_turns),
    };
    cmocka_set_test_filter(getenv("FAULTS_ONLY"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
