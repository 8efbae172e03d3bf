/* The survivors of a group continue in a smaller one. */
#include "procs.h"

enum { BIG = 1 << 20, SIZE = 4, SOON_S = PROCS_SOON_S };

/* Sums over the given global ranks in the shrunken group. */
static int expect_sum(tutti_group *group, int rank, const int *left, int n, int64_t count)
{
    int64_t *data = malloc((size_t)count * sizeof *data), sum = 0;
    for (int i = 0; i < n; i++) sum += left[i] + 1;
    for (int64_t i = 0; i < count; i++) data[i] = rank + 1;
    EXPECT(tutti_all_reduce(tutti_view(data, count), TUTTI_SUM, tutti_with(.group = group)) == TUTTI_OK);
    for (int64_t i = 0; i < count; i++) EXPECT(data[i] == sum);
    free(data);
    return 0;
}

static int expect_members(tutti_group *group, int rank, const int *left, int n)
{
    EXPECT(tutti_get_world_size(group) == n);
    for (int i = 0; i < n; i++) {
        EXPECT(tutti_get_global_rank(group, i) == left[i]);
        EXPECT(left[i] != rank || tutti_get_rank(group) == i);
    }
    EXPECT(expect_sum(group, rank, left, n, 3) == 0);
    EXPECT(expect_sum(group, rank, left, n, BIG) == 0);
    return 0;
}

/* ---- ranks die inside an all_reduce ------------------------------------------------------------------------------ */

struct deaths {
    int victims[2], n, delay_ms;
};

static bool is_victim(const struct deaths *deaths, int rank)
{
    for (int i = 0; i < deaths->n; i++)
        if (deaths->victims[i] == rank) return true;
    return false;
}

static int rank_that_goes_on(int rank, int size, void *argument)
{
    const struct deaths *deaths = argument;
    int64_t *data = calloc(BIG, sizeof *data);
    int left[SIZE], n = 0, status = proc_init(20000);
    tutti_group *smaller = NULL, *again = NULL;
    EXPECT(status == TUTTI_OK && tutti_barrier(NULL) == TUTTI_OK);
    for (int i = 0; i < size; i++)
        if (!is_victim(deaths, i)) left[n++] = i;
    proc_set_step(1);
    while (status == TUTTI_OK) status = tutti_all_reduce(tutti_view(data, BIG), TUTTI_SUM, NULL);
    EXPECT(status == TUTTI_ERR_PEER_LOST || status == TUTTI_ERR_ABORTED);
    if (deaths->n > 1) proc_barrier(SIZE, 2); /* the second one dies before the first survivor calls */
    int64_t begin = monotonic_ns();
    EXPECT(tutti_shrink_group(NULL, &smaller) == TUTTI_OK);
    EXPECT_WITHIN(begin, 0, 2 + SOON_S);
    EXPECT(expect_members(smaller, rank, left, n) == 0);
    EXPECT(tutti_shrink_group(smaller, &again) == TUTTI_OK); /* no rank is lost in it */
    EXPECT(expect_members(again, rank, left, n) == 0);
    EXPECT(tutti_destroy_process_group(smaller) == TUTTI_OK);
    EXPECT(expect_members(again, rank, left, n) == 0);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    free(data);
    return 0;
}

static void kill_them(struct procs *procs, void *argument)
{
    const struct deaths *deaths = argument;
    if (!procs_wait_for_step(procs, 1)) return;
    procs_sleep_ms(deaths->delay_ms);
    for (int i = 0; i < deaths->n; i++) {
        procs_signal(procs, deaths->victims[i], SIGKILL);
        atomic_store(&procs->shared->step[deaths->victims[i]],
                     99); /* otherwise proc_barrier would wait for a dead rank */
    }
}

static void test_one_is_killed(void **state)
{
    (void)state;
    for (int victim = 0; victim < SIZE; victim++)
        procs_run_with(SIZE, rank_that_goes_on, kill_them, &(struct deaths){{victim}, 1, 7 * victim});
}

static void test_two_are_killed(void **state)
{
    (void)state;
    procs_run_with(SIZE, rank_that_goes_on, kill_them, &(struct deaths){{0, 2}, 2, 5});
    procs_run_with(SIZE, rank_that_goes_on, kill_them, &(struct deaths){{2, 3}, 2, 20});
}

/* ---- other causes ------------------------------------------------------------------------------------------------ */

static int rank_that_misses_nobody(int rank, int size, void *argument)
{
    int all[SIZE] = {0, 1, 2, 3};
    tutti_group *same = NULL, *smaller = NULL, *pair = NULL;
    (void)argument;
    EXPECT(proc_init(20000) == TUTTI_OK);
    EXPECT(tutti_shrink_group(NULL, &same) == TUTTI_OK);
    EXPECT(expect_members(same, rank, all, size) == 0);
    if (rank == 2) EXPECT(tutti_abort(same, "to see what is left") == TUTTI_OK); /* a failure without a lost rank */
    EXPECT(tutti_shrink_group(same, &smaller) == TUTTI_OK);
    EXPECT(expect_members(smaller, rank, all, size) == 0);
    EXPECT(tutti_new_group((int[]){1, 3}, 2, &(tutti_group_opts){.parent = smaller}, &pair) == TUTTI_OK);
    if (rank == 1 || rank == 3) EXPECT(expect_members(pair, rank, (int[]){1, 3}, 2) == 0);
    if (rank == 0) EXPECT_ERROR(tutti_shrink_group(pair, &same), TUTTI_ERR_INVALID_ARGUMENT, "not in group");
    EXPECT(expect_members(smaller, rank, all, size) == 0);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

static void test_nobody_is_lost(void **state)
{
    (void)state;
    procs_run_ranks(SIZE, rank_that_misses_nobody, NULL);
}

/* The others give up on a rank that does not call before their timeout.  When it calls, they have continued without it.
 */
static int rank_that_may_be_late(int rank, int size, void *argument)
{
    int left[SIZE] = {0, 1, 3}, x = 0;
    tutti_group *smaller = NULL;
    (void)argument;
    EXPECT(proc_init(800) == TUTTI_OK);
    EXPECT(tutti_barrier(tutti_with(.timeout_ms = 20000)) == TUTTI_OK);
    if (rank == 2) {
        proc_wait_for_step(0, 1);
        EXPECT_ERROR(tutti_shrink_group(NULL, &smaller), TUTTI_ERR_ABORTED, "without this rank (2)");
        EXPECT(smaller == NULL);
    } else {
        EXPECT_ERROR(tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM, NULL), TUTTI_ERR_TIMEOUT, "rank 2");
        EXPECT(tutti_shrink_group(NULL, &smaller) == TUTTI_OK);
        proc_set_step(1);
        EXPECT(tutti_get_world_size(smaller) == 3);
        int64_t sum = rank;
        tutti_opts opts = {.group = smaller, .timeout_ms = 20000};
        EXPECT(tutti_all_reduce(tutti_view(&sum, 1), TUTTI_SUM, &opts) == TUTTI_OK && sum == 4);
        for (int i = 0; i < 3; i++) EXPECT(tutti_get_global_rank(smaller, i) == left[i]);
    }
    proc_barrier(size, 2);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

static void test_one_is_given_up(void **state)
{
    (void)state;
    procs_run_ranks(SIZE, rank_that_may_be_late, NULL);
}

/* A rank does not call, and the others know nothing about it.  When it calls, they have continued, and it must not get
 * a group with them.  The next time all agree. */
static int rank_that_waits_in_vain(int rank, int size, void *argument)
{
    int all[3] = {0, 1, 2};
    tutti_group *smaller = NULL;
    (void)argument;
    EXPECT(proc_init(2000) == TUTTI_OK);
    EXPECT(tutti_barrier(tutti_with(.timeout_ms = 20000)) == TUTTI_OK);
    if (rank == 1)
        while (atomic_load(&proc_shared->step[0]) < 1 || atomic_load(&proc_shared->step[2]) < 1) proc_wait_1ms();
    if (rank == 1)
        EXPECT_ERROR(tutti_shrink_group(NULL, &smaller), TUTTI_ERR_TIMEOUT, "group world", "given up");
    else
        EXPECT_ERROR(tutti_shrink_group(NULL, &smaller), TUTTI_ERR_TIMEOUT, "group world", "rank 1");
    EXPECT(smaller == NULL);
    proc_barrier(size, 1);
    EXPECT(tutti_shrink_group(NULL, &smaller) == TUTTI_OK);
    EXPECT(expect_members(smaller, rank, all, size) == 0);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

static void test_one_does_not_call(void **state)
{
    (void)state;
    procs_run_ranks(3, rank_that_waits_in_vain, NULL);
}

/* One rank has died and another one does not call.  Only the latter is waited for, and named. */
static int rank_that_waits_for_one_of_two(int rank, int size, void *argument)
{
    int64_t x = 1;
    tutti_group *smaller = NULL;
    int status = proc_init(2000);
    (void)size, (void)argument;
    EXPECT(status == TUTTI_OK && tutti_barrier(tutti_with(.timeout_ms = 20000)) == TUTTI_OK);
    proc_set_step(1);
    if (rank == 3) pause();
    while (status == TUTTI_OK) status = tutti_all_reduce(tutti_view(&x, 1), TUTTI_MAX, tutti_with(.timeout_ms = 20000));
    if (rank == 1) {
        proc_barrier(SIZE, 2);
    } else {
        EXPECT_ERROR(tutti_shrink_group(NULL, &smaller), TUTTI_ERR_TIMEOUT, "not known to be lost: rank 1");
        EXPECT(strstr(tutti_last_error(), "rank 3") == NULL);
        proc_set_step(2);
    }
    return tutti_destroy_process_group(NULL);
}

static void test_one_is_killed_one_does_not_call(void **state)
{
    (void)state;
    procs_run_with(SIZE, rank_that_waits_for_one_of_two, kill_them, &(struct deaths){{3}, 1, 5});
}

/* ---- the store is gone ------------------------------------------------------------------------------------------- */

/* Rank 0 serves the store of the group, and dies. */
static int rank_without_a_store(int rank, int size, void *argument)
{
    tutti_store *store = NULL;
    tutti_group *group = NULL, *smaller = NULL;
    int64_t x = 1;
    (void)argument;
    if (rank == 0) {
        EXPECT(tutti_store_tcp("127.0.0.1", 0, &(tutti_store_opts){.server = true}, &store) == TUTTI_OK);
        atomic_store(&proc_shared->value[0], tutti_store_port(store));
        proc_set_step(1);
    } else {
        proc_wait_for_step(0, 1);
        uint16_t port = (uint16_t)atomic_load(&proc_shared->value[0]);
        EXPECT(tutti_store_tcp("127.0.0.1", port, NULL, &store) == TUTTI_OK);
    }
    tutti_group_opts opts = {.timeout_ms = 20000};
    EXPECT(tutti_create_group("tcp", store, rank, size, &opts, &group) == TUTTI_OK);
    tutti_opts with = {.group = group};
    EXPECT(tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM, &with) == TUTTI_OK && x == size);
    proc_set_step(2);
    if (rank == 0) pause();
    int status = TUTTI_OK;
    while (status == TUTTI_OK) status = tutti_all_reduce(tutti_view(&x, 1), TUTTI_MAX, &with);
    int64_t begin = monotonic_ns();
    EXPECT_ERROR(tutti_shrink_group(group, &smaller), TUTTI_ERR_STORE, "shrink_group of group own", "127.0.0.1:");
    EXPECT_WITHIN(begin, 0, SOON_S);
    EXPECT(tutti_destroy_process_group(group) == TUTTI_OK);
    tutti_store_free(store);
    return 0;
}

static void kill_the_server(struct procs *procs, void *argument)
{
    (void)argument;
    if (procs_wait_for_step(procs, 2)) procs_signal(procs, 0, SIGKILL);
}

static void test_the_store_is_lost(void **state)
{
    (void)state;
    procs_run_with(3, rank_without_a_store, kill_the_server, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_is_killed),
        cmocka_unit_test(test_two_are_killed),
        cmocka_unit_test(test_nobody_is_lost),
        cmocka_unit_test(test_one_is_given_up),
        cmocka_unit_test(test_one_does_not_call),
        cmocka_unit_test(test_the_store_is_lost),
        cmocka_unit_test(test_one_is_killed_one_does_not_call),
    };
    cmocka_set_test_filter(getenv("FAULTS_ONLY"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
