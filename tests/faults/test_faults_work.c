/* Operations in flight during other events: abort, destroy, handles freed early, callbacks that start operations,
 * several threads, event loops. */
#include "procs.h"

#include <poll.h>
#include <pthread.h>

enum { SOON_S = PROCS_SOON_S, BIG = 1 << 18 };

/* ---- abort ------------------------------------------------------------------------------------------------------- */

static void *abort_soon(void *argument)
{
    (void)argument;
    procs_sleep_ms(300);
    atomic_store(&proc_shared->value[0], monotonic_ns());
    return (void *)(intptr_t)tutti_abort(NULL, "enough of this");
}

static int rank_of_abort(int rank, int size, void *argument)
{
    int64_t x = 1, began = 0;
    pthread_t thread;
    void *result = NULL;
    (void)argument;
    EXPECT(proc_init(30000) == TUTTI_OK);
    EXPECT(tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM, NULL) == TUTTI_OK && x == size);
    proc_barrier(size, 1);
    if (rank == 0) EXPECT(pthread_create(&thread, NULL, abort_soon, NULL) == 0);
    if (rank == 2) procs_sleep_ms(1000); /* it calls after the group was aborted */
    EXPECT_ERROR(tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM, NULL), TUTTI_ERR_ABORTED, "rank 0", "enough of this",
                 "world");
    began = atomic_load(&proc_shared->value[0]);
    EXPECT_WITHIN(began, 0, SOON_S);
    if (rank == 0) EXPECT(pthread_join(thread, &result) == 0 && (intptr_t)result == TUTTI_OK);
    EXPECT_ERROR(tutti_barrier(NULL), TUTTI_ERR_ABORTED, "enough of this");
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

static void test_abort_during_a_wait(void **state)
{
    (void)state;
    procs_run_ranks(3, rank_of_abort, NULL);
}

/* Aborts a subgroup in the midst of a large transfer.  The other groups do not become slower, although the subgroup's
 * members compute from then on and each rank's memory must be released by peers that do not call. */
static int rank_of_subgroup_abort(int rank, int size, void *argument)
{
    enum { HUGE = 8 << 20, ROUNDS = 8 };
    float *data = calloc(HUGE, sizeof *data);
    int64_t x = 1;
    (void)argument;
    EXPECT(proc_init(20000) == TUTTI_OK);
    for (int round = 1; round <= ROUNDS; round++) {
        tutti_group *child = NULL;
        tutti_work *work = NULL;
        EXPECT(tutti_new_group((int[]){0, 1, 2}, size, NULL, &child) == TUTTI_OK);
        EXPECT(tutti_barrier(tutti_with(.group = child)) == TUTTI_OK);
        int status = tutti_all_reduce(tutti_view(data, HUGE), TUTTI_SUM, tutti_with(.group = child, .async_op = &work));
        if (rank == 2) {
            tutti_work_wait(work, 1 + round % 4);
            EXPECT(tutti_abort(child, "enough of this") == TUTTI_OK);
        }
        if (status == TUTTI_OK) status = tutti_wait(&work, TUTTI_DEFAULT_TIMEOUT);
        if (status != TUTTI_OK)
            EXPECT_ERROR(status, TUTTI_ERR_ABORTED, "enough of this"); /* the abort may have been notified first */
        proc_barrier(size, round);                                     /* no rank is in a call now */
        EXPECT(tutti_destroy_process_group(child) == TUTTI_OK);
    }
    EXPECT(tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM, NULL) == TUTTI_OK && x == size);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    free(data);
    return 0;
}

static void test_abort_of_a_subgroup_spares_the_tree(void **state)
{
    (void)state;
    procs_run_ranks(3, rank_of_subgroup_abort, NULL);
}

/* ---- destroy, and handles freed early ---------------------------------------------------------------------------- */

static int rank_of_destroy(int rank, int size, void *argument)
{
    float *data = calloc(BIG, sizeof *data);
    tutti_work *work = NULL;
    (void)size;
    (void)argument;
    EXPECT(proc_init(20000) == TUTTI_OK);
    EXPECT(tutti_barrier(NULL) == TUTTI_OK);
    if (rank == 0) { /* the peer never calls this operation */
        EXPECT(tutti_all_reduce(tutti_view(data, BIG), TUTTI_SUM, tutti_with(.async_op = &work)) == TUTTI_OK);
        int64_t begin = monotonic_ns();
        EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
        EXPECT_WITHIN(begin, 0, 2 + SOON_S);
        EXPECT(tutti_work_is_completed(work)); /* a handle outlives its group */
        EXPECT_TEXT(tutti_work_error(work), tutti_work_status(work), TUTTI_ERR_ABORTED, "destroyed");
        EXPECT_ERROR(tutti_work_wait(work, 1000), TUTTI_ERR_ABORTED, "destroyed");
        EXPECT(tutti_work_op(work) == TUTTI_ALL_REDUCE && tutti_work_sequence(work) == 2);
        tutti_work_free(work);
        proc_set_step(1);
    } else {
        proc_wait_for_step(0, 1);
        int status = tutti_barrier(NULL);
        EXPECT(status == TUTTI_ERR_ABORTED || status == TUTTI_ERR_PEER_LOST);
        EXPECT_ERROR(status, status, "world");
        EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    }
    free(data);
    return 0;
}

static void test_destroy_with_operations_in_flight(void **state)
{
    (void)state;
    procs_run_ranks(2, rank_of_destroy, NULL);
}

/* Operations on the same memory wait for each other.  Their peer leaves after the first one.  Each of the others ends,
 * once. */
static int rank_of_blocked(int rank, int size, void *argument)
{
    enum { N = 6 };
    static float x[4];
    tutti_work *work[N] = {NULL};
    (void)size, (void)argument;
    setenv("TUTTI_SHM", "0", 1);
    EXPECT(proc_init(20000) == TUTTI_OK);
    EXPECT(tutti_all_reduce(tutti_view(x, 4), TUTTI_SUM, NULL) == TUTTI_OK);
    if (rank == 0) {
        EXPECT(tutti_broadcast(tutti_view(x, 4), 1, tutti_with(.async_op = &work[0])) == TUTTI_OK);
        for (int i = 1; i < N; i++)
            EXPECT(tutti_all_reduce(tutti_view(x, 4), TUTTI_SUM, tutti_with(.async_op = &work[i])) == TUTTI_OK);
        proc_wait_for_go(1);
        for (int i = 0; i < N; i++) {
            int status = tutti_work_wait(work[i], 10000);
            if (i > 0) EXPECT_ERROR(status, TUTTI_ERR_PEER_LOST, "#3 of group world", "rank 1");
        }
        for (int i = 0; i < N; i++) tutti_work_free(work[i]);
    } else {
        proc_wait_for_step(0, 1);
        EXPECT(tutti_broadcast(tutti_view(x, 4), 1, NULL) == TUTTI_OK);
    }
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

/* Stops rank 0 meanwhile, so that it gets both in one round. */
static void stop_the_first(struct procs *procs, void *argument)
{
    (void)argument;
    while (procs_reap(procs) && atomic_load(&procs->shared->step[0]) < 1) procs_sleep_ms(1);
    procs_signal(procs, 0, SIGSTOP);
    for (int i = 0; i < 5000 && procs_reap(procs) && procs->pid[1] != 0; i++) procs_sleep_ms(1);
    procs_release(procs, 1);
    procs_signal(procs, 0, SIGCONT);
}

static void test_blocked_works_end_once(void **state)
{
    (void)state;
    procs_run_with(2, rank_of_blocked, stop_the_first, NULL);
}

static int rank_of_early_frees(int rank, int size, void *argument)
{
    enum { N = 20, SOME = 1 << 13 }; /* destroy waits for them for 2 s alone */
    int64_t *data = calloc(N, SOME * sizeof *data), one = 1;
    (void)argument;
    EXPECT(proc_init(20000) == TUTTI_OK);
    for (int i = 0; i < N; i++) {
        tutti_work *work = NULL;
        int64_t n = i % 2 == 0 ? SOME : 3;
        data[i * SOME] = i;
        EXPECT(tutti_all_reduce(tutti_view(data + i * SOME, n), TUTTI_SUM, tutti_with(.async_op = &work)) == TUTTI_OK);
        tutti_work_free(work);
    }
    int64_t got = -1;
    tutti_work *sent = NULL;
    EXPECT(tutti_isend(tutti_view(&one, 1), (rank + 1) % size, NULL, &sent) == TUTTI_OK);
    tutti_work_free(sent);
    EXPECT(tutti_recv(tutti_view(&got, 1), (rank + size - 1) % size, NULL) == TUTTI_OK && got == 1);
    proc_barrier(size, 1);                                 /* all ranks have begun them */
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK); /* lets the operations complete */
    for (int i = 0; i < N; i++) EXPECT(data[i * SOME] == i * size);
    free(data);
    return 0;
}

static void test_handles_given_up_early(void **state)
{
    (void)state;
    procs_run_ranks(3, rank_of_early_frees, NULL);
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

struct looper {
    pthread_t thread;
    tutti_group *group;
    int size, result;
};

static int loop_of(struct looper *looper)
{
    for (int i = 0; i < 100; i++) {
        int64_t x[300];
        for (int k = 0; k < 300; k++) x[k] = i;
        tutti_opts *opts = tutti_with(.group = looper->group);
        EXPECT(tutti_all_reduce(tutti_view(x, 300), TUTTI_SUM, opts) == TUTTI_OK &&
               x[299] == (int64_t)i * looper->size);
    }
    return 0;
}

static void *looper_main(void *argument)
{
    struct looper *looper = argument;
    looper->result = loop_of(looper);
    return NULL;
}

static int rank_of_threads(int rank, int size, void *argument)
{
    enum { GROUPS = 3 };
    struct looper looper[GROUPS] = {{.size = size}};
    int ranks[] = {0, 1, 2};
    tutti_store *store = proc_store(), *part = NULL;
    (void)rank;
    (void)argument;
    EXPECT(store != NULL);
    EXPECT(proc_init(20000) == TUTTI_OK);
    EXPECT(tutti_new_group(ranks, size, NULL, &looper[1].group) == TUTTI_OK); /* of the same group tree */
    EXPECT(proc_group(store, "apart", size, 20000, &part, &looper[2].group) == TUTTI_OK);
    for (int i = 0; i < GROUPS; i++) {
        looper[i].size = size;
        EXPECT(pthread_create(&looper[i].thread, NULL, looper_main, &looper[i]) == 0);
    }
    for (int i = 0; i < GROUPS; i++) pthread_join(looper[i].thread, NULL);
    for (int i = 0; i < GROUPS; i++) EXPECT(looper[i].result == 0);
    EXPECT(tutti_destroy_process_group(looper[1].group) == TUTTI_OK);
    EXPECT(tutti_destroy_process_group(looper[2].group) == TUTTI_OK);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    tutti_store_free(part);
    tutti_store_free(store);
    return 0;
}

static void test_threads_on_several_groups(void **state)
{
    (void)state;
    procs_run_ranks(3, rank_of_threads, NULL);
}

/* ---- callbacks, wait_any, descriptors ---------------------------------------------------------------------------- */

enum { CHAIN = 50 };

struct chain {
    int64_t x;
    atomic_int started, ended, errors;
};

static void chain_on(tutti_work *work, void *argument);

static void chain_start(struct chain *chain)
{
    tutti_work *work = NULL;
    atomic_fetch_add(&chain->started, 1);
    if (tutti_all_reduce(tutti_view(&chain->x, 1), TUTTI_MAX, tutti_with(.async_op = &work)) != TUTTI_OK ||
        tutti_work_then(work, chain_on, chain) != TUTTI_OK)
        atomic_fetch_add(&chain->errors, 1);
    tutti_work_free(work);
}

/* Starts the next operation when one completes. */
static void chain_on(tutti_work *work, void *argument)
{
    struct chain *chain = argument;
    if (tutti_work_status(work) != TUTTI_OK) atomic_fetch_add(&chain->errors, 1);
    if (atomic_load(&chain->errors) == 0 && atomic_load(&chain->started) < CHAIN) chain_start(chain);
    atomic_fetch_add(&chain->ended, 1); /* the next operation has started, or even ended, if callbacks nest */
}

static int callbacks(int rank, int size)
{
    static struct chain chain;
    chain = (struct chain){.x = rank};
    int64_t begin = monotonic_ns();
    chain_start(&chain);
    while (atomic_load(&chain.ended) < CHAIN && atomic_load(&chain.errors) == 0 && procs_seconds(begin) < 20)
        proc_wait_1ms();
    EXPECT(atomic_load(&chain.errors) == 0 && atomic_load(&chain.ended) == CHAIN && chain.x == size - 1);
    return 0;
}

static int any_of_several(int rank, int size)
{
    int64_t x[4] = {rank, rank, rank, rank};
    tutti_work *works[5] = {NULL};
    int index = -1, seen = 0;
    for (int i = 0; i < 4; i++)
        EXPECT(tutti_all_reduce(tutti_view(&x[i], 1), TUTTI_MAX, tutti_with(.async_op = &works[i])) == TUTTI_OK);
    for (int i = 0; i < 4; i++) {
        EXPECT(tutti_wait_any(works, 5, 20000, &index) == TUTTI_OK && index >= 0 && index < 4);
        seen |= 1 << index;
        EXPECT(works[index] == NULL && x[index] == size - 1);
    }
    EXPECT(seen == 15);
    EXPECT(tutti_wait_any(works, 5, 20000, &index) == TUTTI_OK && index == -1);
    return 0;
}

static int descriptors(int rank, int size)
{
    int64_t x = rank, y = rank;
    tutti_work *works[2] = {NULL};
    struct pollfd polled[2];
    proc_barrier(size, 1);
    if (rank == 0) procs_sleep_ms(200); /* so that the others wait in poll */
    EXPECT(tutti_all_reduce(tutti_view(&x, 1), TUTTI_MAX, tutti_with(.async_op = &works[0])) == TUTTI_OK);
    EXPECT(tutti_all_reduce(tutti_view(&y, 1), TUTTI_SUM, tutti_with(.async_op = &works[1])) == TUTTI_OK);
    for (int i = 0; i < 2; i++) {
        polled[i] = (struct pollfd){.fd = tutti_work_fd(works[i]), .events = POLLIN};
        EXPECT(polled[i].fd >= 0);
    }
    int64_t begin = monotonic_ns();
    for (int left = 2; left > 0;) {
        EXPECT(poll(polled, 2, 20000) > 0 && procs_seconds(begin) < 20);
        for (int i = 0; i < 2; i++) {
            if (polled[i].fd < 0 || polled[i].revents == 0) continue;
            EXPECT(tutti_work_is_completed(works[i]) && tutti_wait(&works[i], 0) == TUTTI_OK);
            polled[i].fd = -1;
            left--;
        }
    }
    EXPECT(x == size - 1 && y == size * (size - 1) / 2);
    return 0;
}

static int rank_of_event_loops(int rank, int size, void *argument)
{
    (void)argument;
    EXPECT(proc_init(20000) == TUTTI_OK);
    EXPECT(callbacks(rank, size) == 0);
    EXPECT(any_of_several(rank, size) == 0);
    EXPECT(descriptors(rank, size) == 0);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

static void test_callbacks_any_and_descriptors(void **state)
{
    (void)state;
    procs_run_ranks(3, rank_of_event_loops, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocked_works_end_once),
        cmocka_unit_test(test_abort_of_a_subgroup_spares_the_tree),
        cmocka_unit_test(test_abort_during_a_wait),
        cmocka_unit_test(test_destroy_with_operations_in_flight),
        cmocka_unit_test(test_handles_given_up_early),
        cmocka_unit_test(test_threads_on_several_groups),
        cmocka_unit_test(test_callbacks_any_and_descriptors),
    };
    cmocka_set_test_filter(getenv("FAULTS_ONLY"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
