/* Peers that die, leave, stop, are slow or never call.  Every other rank names them in time. */
#include "procs.h"
#include "text.h"

#include <pthread.h>
#include <sys/stat.h>

enum { SOON_S = PROCS_SOON_S };

static int sum_once(int rank, int size, float *data, int n)
{
    for (int i = 0; i < n; i++) data[i] = (float)(rank + 1) * (float)(i % 7 + 1);
    int status = tutti_all_reduce(tutti_view(data, n), TUTTI_SUM, NULL);
    for (int i = 0; i < n && status == TUTTI_OK; i++)
        if (data[i] != (float)(size * (size + 1) / 2) * (float)(i % 7 + 1)) {
            fprintf(stderr, "rank %d: success, but element %d is %g\n", rank, i, (double)data[i]);
            return 1;
        }
    return status;
}

/* Checks that a failed group refuses calls at once with the first cause, and is destroyed soon. */
static int expect_failed_group(const char *cause)
{
    float x = 1;
    int64_t begin = monotonic_ns();
    EXPECT_ERROR(tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM, NULL), TUTTI_ERR_ABORTED, "group world", cause);
    EXPECT_ERROR(tutti_barrier(NULL), TUTTI_ERR_ABORTED, "group world", cause);
    EXPECT_WITHIN(begin, 0, SOON_S);
    begin = monotonic_ns();
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    EXPECT_WITHIN(begin, 0, SOON_S);
    return 0;
}

/* ---- a peer dies while the others are idle, or wait -------------------------------------------------------- */

struct death {
    bool connected, waiting, leaves;
};

static int rank_of_death(int rank, int size, void *argument)
{
    const struct death *death = argument;
    float x;
    EXPECT(proc_init(30000) == TUTTI_OK);
    if (death->connected) EXPECT(sum_once(rank, size, &x, 1) == TUTTI_OK);
    proc_set_step(1);
    if (rank == 2 && death->leaves) exit(0);
    if (rank == 2) pause();
    if (!death->waiting) proc_wait_for_go(2);
    int64_t begin = monotonic_ns();
    int status = sum_once(rank, size, &x, 1);
    if (death->waiting && !death->leaves) begin = atomic_load(&proc_shared->value[2]);
    const char *how = death->leaves ? "left the group" : "rank 2";
    if (status == TUTTI_ERR_ABORTED && !death->waiting) /* the other survivor called first and reported it */
        EXPECT_ERROR(status, status, "rank 2", "group world", "TUTTI_ERR_PEER_LOST", how);
    else
        EXPECT_ERROR(status, TUTTI_ERR_PEER_LOST, "rank 2", "group world", "all_reduce ", how);
    EXPECT(death->leaves == (strstr(tutti_last_error(), "left the group") != NULL));
    EXPECT_WITHIN(begin, 0, SOON_S);
    proc_barrier(2, 3); /* other tests cover a survivor that leaves */
    return expect_failed_group("rank 2");
}

static void let_rank_2_die(struct procs *procs, void *argument)
{
    const struct death *death = argument;
    if (!procs_wait_for_step(procs, 1)) return;
    for (int i = 0; i < 2 && death->waiting; i++) procs_wait_until_asleep(procs, i);
    atomic_store(&procs->shared->value[2], monotonic_ns()); /* the time of its death */
    if (!death->leaves) procs_signal(procs, 2, SIGKILL);
    procs_sleep_ms(200);
    procs_release(procs, 2);
}

static void test_killed_before_anything_is_connected(void **state)
{
    (void)state;
    procs_run_with(3, rank_of_death, let_rank_2_die, &(struct death){0});
}

static void test_killed_between_operations(void **state)
{
    (void)state;
    procs_run_with(3, rank_of_death, let_rank_2_die, &(struct death){.connected = true});
}

static void test_killed_while_others_wait(void **state)
{
    (void)state;
    procs_run_with(3, rank_of_death, let_rank_2_die, &(struct death){.connected = true, .waiting = true});
}

/* A rank contacts for the first time a peer that has already left. */
static int rank_that_calls_late(int rank, int size, void *argument)
{
    float x = 0;
    (void)argument;
    setenv("TUTTI_SHM", "0", 1);
    EXPECT(proc_init(30000) == TUTTI_OK);
    if (rank == 1) {
        EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
        proc_barrier(size, 1);
        return 0;
    }
    proc_barrier(size, 1);
    EXPECT_ERROR(tutti_recv(tutti_view(&x, 1), 1, NULL), TUTTI_ERR_PEER_LOST, "rank 1 is lost: connection",
                 "it has left or died");
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

static void test_first_contact_after_the_end(void **state)
{
    (void)state;
    procs_run_ranks(2, rank_that_calls_late, NULL);
}

/* A child of the killed rank keeps running with copies of its descriptors. */
static int rank_of_orphan(int rank, int size, void *argument)
{
    float x;
    (void)argument;
    setenv("TUTTI_SHM", "0", 1); /* uses connections, whose end the child could hide */
    EXPECT(proc_init(30000) == TUTTI_OK);
    EXPECT(sum_once(rank, size, &x, 1) == TUTTI_OK);
    if (rank == 2) {
        pid_t pid = fork();
        EXPECT(pid >= 0);
        if (pid > 0) proc_wait_for_go(1);
        if (pid > 0) pause();
        while (atomic_load(&proc_shared->step[0]) < 2 || atomic_load(&proc_shared->step[1]) < 2) proc_wait_1ms();
        _exit(0);
    }
    proc_set_step(1);
    EXPECT_ERROR(sum_once(rank, size, &x, 1), TUTTI_ERR_PEER_LOST, "rank 2", "all_reduce #2");
    proc_barrier(2, 2);
    return expect_failed_group("rank 2");
}

static void test_killed_while_its_child_runs(void **state)
{
    (void)state;
    procs_run_with(3, rank_of_orphan, let_rank_2_die, &(struct death){.connected = true});
}

static void test_exit_without_destroy(void **state)
{
    (void)state;
    procs_run_with(3, rank_of_death, let_rank_2_die, &(struct death){.connected = true, .leaves = true});
    procs_run_with(3, rank_of_death, let_rank_2_die,
                   &(struct death){.connected = true, .leaves = true, .waiting = true});
}

/* The root of a broadcast waits for nobody until so many operations are under way that it needs the rank that has left.
 */
static int rank_ahead_of_one_that_leaves(int rank, int size, void *argument)
{
    int64_t x = 7;
    int status = proc_init(30000);
    (void)size;
    (void)argument;
    EXPECT(status == TUTTI_OK && tutti_barrier(NULL) == TUTTI_OK);
    if (rank == 2) exit(0);
    while (status == TUTTI_OK) status = tutti_broadcast(tutti_view(&x, 1), 0, NULL);
    EXPECT_ERROR(status, TUTTI_ERR_PEER_LOST, "broadcast #", "rank 2", "left the group");
    proc_barrier(2, 1);
    return expect_failed_group("rank 2");
}

static void test_exit_behind_a_root(void **state)
{
    (void)state;
    procs_run_ranks(3, rank_ahead_of_one_that_leaves, NULL);
}

/* A group with a backend that the world does not have is opened from scratch, and waits for its members.  A rank that
 * called after the death would fail the world for all. */
static int rank_that_opens(int rank, int size, void *argument)
{
    int all[3] = {0, 1, 2};
    tutti_group *group = NULL;
    (void)argument, (void)size;
    EXPECT(proc_init(30000) == TUTTI_OK);
    proc_set_step(1);
    if (rank == 2) pause();
    EXPECT_ERROR(tutti_new_group(
                     all, 3, &(tutti_group_opts){.backend = TUTTI_BUILD_DIR "/tests/plugins/libtutti_loop.so"}, &group),
                 TUTTI_ERR_PEER_LOST, "rank 2 is lost");
    EXPECT_WITHIN(atomic_load(&proc_shared->value[2]), 0, SOON_S);
    proc_barrier(2, 3);
    return tutti_destroy_process_group(NULL);
}

static void test_killed_before_a_group_is_opened(void **state)
{
    (void)state;
    procs_run_with(3, rank_that_opens, let_rank_2_die, &(struct death){.waiting = true});
}

/* ---- a peer dies inside an operation ------------------------------------------------------------------------ */

enum { BIG = 1 << 21, VICTIMS = 4 };

struct chance {
    uint64_t state;
    int victim, delay_us;
};

static uint64_t chance_next(struct chance *chance)
{
    chance->state = chance->state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return chance->state >> 33;
}

static int rank_in_big_sums(int rank, int size, void *argument)
{
    const struct chance *chance = argument;
    char guilty[16];
    snprintf(guilty, sizeof guilty, "rank %d", chance->victim);
    float *data = malloc(BIG * sizeof *data);
    int status = proc_init(30000);
    EXPECT(status == TUTTI_OK);
    EXPECT(sum_once(rank, size, data, 1) == TUTTI_OK);
    proc_set_step(1);
    while (status == TUTTI_OK) status = sum_once(rank, size, data, BIG);
    proc_set_step(2);
    if (status != TUTTI_ERR_PEER_LOST && status != TUTTI_ERR_ABORTED) EXPECT_ERROR(status, TUTTI_ERR_PEER_LOST, "rank");
    EXPECT_ERROR(status, status, "all_reduce ", "group world", guilty);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    free(data);
    return 0;
}

static void kill_at_random(struct procs *procs, void *argument)
{
    const struct chance *chance = argument;
    if (!procs_wait_for_step(procs, 1)) return;
    procs_sleep_ms(chance->delay_us / 1000);
    usleep((useconds_t)(chance->delay_us % 1000));
    int64_t killed_ns = monotonic_ns();
    procs_signal(procs, chance->victim, SIGKILL);
    if (!procs_wait_for_step(procs, 2)) return;
    procs_check_notified(procs, chance->victim, killed_ns,
                         SOON_S + 1); /* measured when the operation failed, not when the rank ended */
}

static void test_killed_inside_a_large_all_reduce(void **state)
{
    (void)state;
    int times = getenv("FAULTS_TIMES") != NULL ? atoi(getenv("FAULTS_TIMES")) : 20;
    uint64_t seed = getenv("FAULTS_SEED") != NULL ? strtoull(getenv("FAULTS_SEED"), NULL, 10) : 1;
    struct chance chance = {.state = seed};
    for (int i = 0; i < times; i++) {
        chance.victim = (int)(chance_next(&chance) % VICTIMS);
        chance.delay_us = (int)(chance_next(&chance) % 60000);
        struct procs procs = {.size = VICTIMS, .fn = rank_in_big_sums, .argument = &chance, .act = kill_at_random};
        procs.may_fail = true;
        procs_run(&procs);
        for (int k = 0; k < VICTIMS; k++) {
            int expected = k == chance.victim ? -SIGKILL : 0;
            if (procs.code[k] != expected)
                fprintf(stderr, "seed %" PRIu64 ", time %d: rank %d was killed after %d us, rank %d has code %d\n",
                        seed, i, chance.victim, chance.delay_us, k, procs.code[k]);
            assert_int_equal(procs.code[k], expected);
        }
    }
}

/* ---- a peer stops, is slow, or does not call ------------------------------------------------------------------ */

static int rank_of_stop(int rank, int size, void *argument)
{
    (void)argument;
    float x;
    EXPECT(proc_init(2000) == TUTTI_OK);
    EXPECT(sum_once(rank, size, &x, 1) == TUTTI_OK);
    int64_t begin = monotonic_ns(); /* before any rank calls: the first one's timeout ends all calls */
    proc_wait_for_go(1);
    int status = sum_once(rank, size, &x, 1);
    if (rank == 1) { /* the stopped rank has been continued */
        EXPECT_ERROR(status, TUTTI_ERR_ABORTED, "group world", "rank 1 (no heartbeat for ");
    } else {
        EXPECT_ERROR(status, TUTTI_ERR_TIMEOUT, "rank 1 (no heartbeat for ", "all_reduce #2", "group world");
        EXPECT_WITHIN(begin, 1.9, 2 + SOON_S);
    }
    proc_wait_for_go(2);
    return expect_failed_group("rank 1");
}

static void stop_rank_1(struct procs *procs, void *argument)
{
    (void)argument;
    if (!procs_wait_for_step(procs, 1)) return;
    procs_signal(procs, 1, SIGSTOP);
    procs_release(procs, 1);
    while (procs_reap(procs) && monotonic_ns() < procs->deadline_ns &&
           (atomic_load(&procs->shared->step[0]) < 2 || atomic_load(&procs->shared->step[2]) < 2))
        procs_sleep_ms(1);
    procs_signal(procs, 1, SIGCONT);
    int64_t begin = monotonic_ns();
    procs_wait_for_step(procs, 2);
    if (procs_seconds(begin) > SOON_S) {
        fprintf(stderr, "the stopped rank was notified of the failure after %.1f s\n", procs_seconds(begin));
        procs->failed = true;
    }
    procs_release(procs, 2);
}

static void test_stopped(void **state)
{
    (void)state;
    procs_run_with(3, rank_of_stop, stop_rank_1, NULL);
}

static void *report_a_warning(void *argument)
{
    struct stat captured = {0};
    while (fstat(*(const int *)argument, &captured) == 0 && captured.st_size == 0) proc_wait_1ms();
    proc_set_step(2);
    return NULL;
}

static int rank_of_slowness(int rank, int size, void *argument)
{
    (void)argument;
    float x;
    char captured[4096];
    int saved;
    pthread_t thread;
    EXPECT(proc_init(8000) == TUTTI_OK);
    EXPECT(sum_once(rank, size, &x, 1) == TUTTI_OK);
    proc_barrier(size, 1);
    int fd = proc_capture_stderr(&saved);
    if (rank != 1) EXPECT(pthread_create(&thread, NULL, report_a_warning, &fd) == 0);
    for (int i = 0; i < size && rank == 1; i++) /* calls after the others have logged their warning */
        while (i != rank && atomic_load(&proc_shared->step[i]) < 2) proc_wait_1ms();
    int status = sum_once(rank, size, &x, 1);
    if (rank != 1 && status == TUTTI_OK) pthread_join(thread, NULL);
    proc_end_capture(fd, saved, captured, sizeof captured);
    EXPECT(status == TUTTI_OK);
    if (rank != 1 && (text_count(captured, "\n") != 1 || strstr(captured, "rank 1") == NULL ||
                      strstr(captured, "all_reduce #2 of group world") == NULL)) {
        fprintf(stderr, "rank %d: not one warning that names rank 1 and the operation: \"%s\"\n", rank, captured);
        return 1;
    }
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

static void test_slow(void **state)
{
    (void)state;
    procs_run_ranks(3, rank_of_slowness, NULL);
}

static int rank_that_may_not_call(int rank, int size, void *argument)
{
    (void)argument;
    float x = 0;
    int64_t root = 7;
    EXPECT(proc_init(1500) == TUTTI_OK);
    EXPECT(sum_once(rank, size, &x, 1) == TUTTI_OK);
    EXPECT(tutti_broadcast(tutti_view(&root, 1), 0, NULL) == TUTTI_OK);
    int64_t begin = monotonic_ns(); /* before any rank calls: the first one's timeout ends all calls */
    proc_barrier(size, 1);
    if (rank != 2) {
        EXPECT_ERROR(sum_once(rank, size, &x, 1), TUTTI_ERR_TIMEOUT, "all_reduce #3", "group world", "rank 2",
                     "#2 broadcast");
        EXPECT_WITHIN(begin, 1.4, 1.5 + SOON_S);
    }
    proc_barrier(size, 2);
    if (rank == 2) procs_sleep_ms(500); /* until the others' messages have arrived */
    return expect_failed_group("rank 2");
}

static void test_never_calls(void **state)
{
    (void)state;
    procs_run_ranks(3, rank_that_may_not_call, NULL);
}

/* When the late rank splits, the others have given up on it.  It must not get a group with them. */
static int rank_that_splits_late(int rank, int size, void *argument)
{
    tutti_group *part = NULL;
    (void)argument;
    EXPECT(proc_init(1000) == TUTTI_OK);
    EXPECT(tutti_barrier(tutti_with(.timeout_ms = 20000)) == TUTTI_OK);
    if (rank == 1)
        while (atomic_load(&proc_shared->step[0]) < 1 || atomic_load(&proc_shared->step[2]) < 1) proc_wait_1ms();
    EXPECT_ERROR(tutti_split_group(0, 0, NULL, &part), TUTTI_ERR_TIMEOUT, "split_group of group world",
                 "rank 1 has not called split_group");
    EXPECT(part == NULL);
    proc_barrier(size, 1);
    EXPECT(tutti_split_group(0, 0, NULL, &part) == TUTTI_OK);
    EXPECT(tutti_barrier(tutti_with(.group = part, .timeout_ms = 20000)) == TUTTI_OK);
    return tutti_destroy_process_group(NULL);
}

static void test_splits_late(void **state)
{
    (void)state;
    procs_run_ranks(3, rank_that_splits_late, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_killed_before_anything_is_connected),
        cmocka_unit_test(test_killed_between_operations),
        cmocka_unit_test(test_killed_while_others_wait),
        cmocka_unit_test(test_killed_while_its_child_runs),
        cmocka_unit_test(test_exit_without_destroy),
        cmocka_unit_test(test_killed_before_a_group_is_opened),
        cmocka_unit_test(test_first_contact_after_the_end),
        cmocka_unit_test(test_exit_behind_a_root),
        cmocka_unit_test(test_killed_inside_a_large_all_reduce),
        cmocka_unit_test(test_stopped),
        cmocka_unit_test(test_slow),
        cmocka_unit_test(test_never_calls),
        cmocka_unit_test(test_splits_late),
    };
    cmocka_set_test_filter(getenv("FAULTS_ONLY"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
