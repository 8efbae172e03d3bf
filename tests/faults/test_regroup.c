/* Survivors and newcomers go on in a new group.  The processes are forked at once; those beyond the first ranks wait,
 * and then join as newcomers. */
#include "procs.h"
#include "unit/redis_server.h"

enum { SIZE = 3, TIMEOUT_MS = 20000, SHORT_MS = 1500 /* enough for a rank that calls at once */ };

/* Starts this process as one of the first n ranks, or as a newcomer once the parent releases it. */
static int start(int rank, int n, int step)
{
    proc_set_int("WORLD_SIZE", n);
    if (rank < n) return proc_init(TIMEOUT_MS);
    proc_wait_for_go(step);
    proc_set_int("RANK", 0);
    setenv("TUTTI_NEWCOMER", "1", 1);
    proc_set_int("TUTTI_MEMBER", rank);
    return proc_init(TIMEOUT_MS);
}

/* Computes until the group fails. */
static int compute(void)
{
    int64_t x = 1;
    int status = TUTTI_OK;
    while (status == TUTTI_OK) status = tutti_all_reduce(tutti_view(&x, 1), TUTTI_MAX, NULL);
    return status;
}

static int expect_group(int rank, int size, const int *old_ranks)
{
    int64_t sum = 1;
    EXPECT(tutti_get_world_size(NULL) == size && tutti_get_rank(NULL) == rank);
    for (int i = 0; i < size; i++) EXPECT(tutti_get_old_rank(NULL, i) == old_ranks[i]);
    EXPECT(tutti_get_old_rank(NULL, size) == -1 && tutti_get_old_rank(NULL, -1) == -1);
    EXPECT(tutti_all_reduce(tutti_view(&sum, 1), TUTTI_SUM, NULL) == TUTTI_OK && sum == size);
    EXPECT(proc_sum(NULL, size, 1 << 16) == 0);
    return 0;
}

/* ---- survivors alone --------------------------------------------------------------------------------------------- */

static int rank_that_survives(int rank, int size, void *argument)
{
    int victim = *(int *)argument, old_ranks[SIZE], own = -1;
    tutti_group *next = NULL, *pair = NULL, *newest = NULL;
    EXPECT(proc_init(TIMEOUT_MS) == TUTTI_OK && tutti_get_generation(NULL) == 0);
    EXPECT(tutti_get_old_rank(NULL, 0) == -1 && !tutti_regroup_wanted(NULL));
    EXPECT(tutti_new_group((int[]){0, 1, 2}, 3, NULL, &pair) == TUTTI_OK);
    proc_set_step(1);
    int status = compute();
    EXPECT(status == TUTTI_ERR_PEER_LOST || status == TUTTI_ERR_ABORTED);
    EXPECT(tutti_regroup_wanted(NULL));
    for (int i = 0, n = 0; i < size; i++) {
        if (i == rank) own = n;
        if (i != victim) old_ranks[n++] = i;
    }
    EXPECT(tutti_regroup(NULL, NULL, &next) == TUTTI_OK);
    EXPECT(tutti_get_generation(NULL) == 1 && tutti_get_generation(next) == 1);
    EXPECT(expect_group(own, size - 1, old_ranks) == 0);
    EXPECT_ERROR(tutti_barrier(tutti_with(.group = pair)), TUTTI_ERR_ABORTED, "destroyed");
    EXPECT(tutti_destroy_process_group(pair) == TUTTI_OK);
    EXPECT(tutti_regroup(NULL, NULL, &newest) == TUTTI_OK); /* no rank is lost */
    EXPECT(tutti_destroy_process_group(next) == TUTTI_OK && tutti_get_generation(newest) == 2);
    EXPECT(expect_group(own, size - 1, (int[]){0, 1}) == 0);
    EXPECT(tutti_destroy_process_group(newest) == TUTTI_OK && !tutti_is_initialized());
    tutti_store *store = proc_store();
    bool left = false; /* the ranks of a next job see that they have met the store of this one */
    EXPECT(tutti_store_check(store, (const char *[]){"tutti/left"}, 1, &left) == TUTTI_OK && left);
    tutti_store_free(store);
    return 0;
}

static void kill_victim(struct procs *procs, void *argument)
{
    if (!procs_wait_for_step(procs, 1)) return;
    procs_sleep_ms(5);
    procs_signal(procs, *(int *)argument, SIGKILL);
}

static void test_survivors(void **state)
{
    (void)state;
    for (int victim = 0; victim < 2; victim++) procs_run_with(SIZE, rank_that_survives, kill_victim, &victim);
}

/* ---- newcomers --------------------------------------------------------------------------------------------------- */

static void append_log(const struct procs *procs, const char *text)
{
    tutti_store_append(procs->store, "members/log", text, strlen(text));
}

/* Ranks die one after the other, and each time one newcomer comes in its place. */
static int rank_of_many_lives(int rank, int size, void *argument)
{
    (void)size;
    int old_ranks[3][SIZE] = {{1, 2, -1}, {1, 2, -1}, {0, 2, -1}};
    int victims = *(int *)argument, generation = rank < SIZE ? 0 : rank - SIZE + 1;
    EXPECT(start(rank, SIZE, generation) == TUTTI_OK);
    EXPECT(tutti_get_generation(NULL) == (uint64_t)generation);
    int own = tutti_get_rank(NULL);
    if (rank >= SIZE) EXPECT(expect_group(SIZE - 1, SIZE, old_ranks[generation - 1]) == 0);
    for (generation++; generation <= victims; generation++) {
        proc_set_step(generation);
        compute();
        EXPECT(tutti_regroup(NULL, NULL, NULL) == TUTTI_OK);
        int victim = generation < 3 ? 0 : 1;
        own -= own > victim;
        EXPECT(expect_group(own, SIZE, old_ranks[generation - 1]) == 0);
    }
    return tutti_destroy_process_group(NULL);
}

static void replace_three(struct procs *procs, void *argument)
{
    int rank_of[3] = {0, 1, 3}; /* the processes that are rank 0, then rank 0, then rank 1 */
    const char *logged[3] = {"end 0\nstart 3\n", "end 1\nstart 4\n", "end 3\nstart 5\n"};
    (void)argument;
    append_log(procs, "start 0\nstart 1\nstart 2\n");
    for (int i = 0; i < 3; i++) {
        if (!procs_wait_for_step(procs, i + 1)) return;
        procs_sleep_ms(5);
        procs_signal(procs, rank_of[i], SIGKILL);
        append_log(procs, logged[i]);
        procs_sleep_ms(20);
        procs_release(procs, i + 1);
    }
}

static void test_replacements(void **state)
{
    (void)state;
    int victims = 3;
    procs_run_with(SIZE + 3, rank_of_many_lives, replace_three, &victims);
}

/* ---- a rank that comes too late ---------------------------------------------------------------------------------- */

/* The others do not wait for rank 2 for longer than their timeout.  It joins them again as a newcomer, which they let
 * in while they compute. */
static int rank_that_may_be_late(int rank, int size, void *argument)
{
    (void)argument;
    EXPECT(proc_init(TIMEOUT_MS) == TUTTI_OK);
    EXPECT_ERROR(tutti_regroup(NULL, &(tutti_regroup_opts){.timeout_ms = -1}, NULL), TUTTI_ERR_INVALID_ARGUMENT, "-1");
    EXPECT(tutti_barrier(NULL) == TUTTI_OK);
    if (rank == 2) {
        proc_wait_for_step(1, 1);
        EXPECT_ERROR(tutti_regroup(NULL, NULL, NULL), TUTTI_ERR_ABORTED, "gone on without this rank (2)", "newcomer");
        EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
        tutti_init_opts opts = {.newcomer = true, .timeout_ms = TIMEOUT_MS};
        EXPECT(tutti_init_process_group("tcp", &opts) == TUTTI_OK);
    } else {
        EXPECT(tutti_regroup(NULL, &(tutti_regroup_opts){.timeout_ms = SHORT_MS}, NULL) == TUTTI_OK);
        EXPECT(expect_group(rank, 2, (int[]){0, 1}) == 0);
        proc_set_step(1);
        while (!tutti_regroup_wanted(NULL)) proc_wait_1ms();
        EXPECT(tutti_regroup(NULL, NULL, NULL) == TUTTI_OK);
    }
    EXPECT(tutti_get_generation(NULL) == 2 && expect_group(rank, size, (int[]){0, 1, -1}) == 0);
    return tutti_destroy_process_group(NULL);
}

static void test_late(void **state)
{
    (void)state;
    procs_run_ranks(SIZE, rank_that_may_be_late, NULL);
}

/* ---- a newcomer whose time passes -------------------------------------------------------------------------------- */

/* Rank 0 waits for rank 1, which comes after the newcomer's time has passed.  The newcomer leaves, and does not decide
 * for the survivors. */
static int rank_that_is_waited_for(int rank, int size, void *argument)
{
    (void)size, (void)argument;
    if (rank == 2) {
        tutti_init_opts opts = {.newcomer = true, .store_timeout_ms = SHORT_MS};
        proc_wait_for_step(0, 1);
        EXPECT_ERROR(tutti_init_process_group("tcp", &opts), TUTTI_ERR_TIMEOUT, "not all ranks", "newcomer");
        proc_set_step(2);
        return 0;
    }
    EXPECT(start(rank, 2, 0) == TUTTI_OK);
    if (rank == 0) proc_set_step(1);
    if (rank == 1) proc_wait_for_step(2, 2);
    EXPECT(tutti_regroup(NULL, NULL, NULL) == TUTTI_OK);
    EXPECT(expect_group(rank, 2, (int[]){0, 1}) == 0);
    return tutti_destroy_process_group(NULL);
}

static void test_newcomer_in_a_hurry(void **state)
{
    (void)state;
    procs_run_ranks(SIZE, rank_that_is_waited_for, NULL);
}

/* ---- a rank that was stopped for long ---------------------------------------------------------------------------- */

/* The log of rank 0's meeting is deleted, as others do who have gone on twice. */
static int rank_that_is_forgotten(int rank, int size, void *argument)
{
    (void)size, (void)argument;
    EXPECT(proc_init(TIMEOUT_MS) == TUTTI_OK);
    if (rank == 0) EXPECT_ERROR(tutti_regroup(NULL, NULL, NULL), TUTTI_ERR_ABORTED, "gone on without this rank");
    proc_barrier(2, 1);
    return tutti_destroy_process_group(NULL);
}

static void delete_meeting(struct procs *procs, void *argument)
{
    bool present = false;
    (void)argument;
    while (!present && procs_reap(procs) && monotonic_ns() < procs->deadline_ns)
        if (tutti_store_check(procs->store, (const char *[]){"regroup/1"}, 1, &present) != TUTTI_OK) return;
    procs_sleep_ms(100);
    tutti_store_delete(procs->store, "regroup/1", NULL);
}

static void test_deleted_meeting(void **state)
{
    (void)state;
    procs_run_with(2, rank_that_is_forgotten, delete_meeting, NULL);
}

/* ---- deaths while the ranks meet --------------------------------------------------------------------------------- */

enum { NEWCOMERS = 4 };

/* Computes, and regroups after failures, until the parent kills no more and the group has its full size. */
static int rank_that_meets(int rank, int size, void *argument)
{
    int64_t done = 0;
    (void)size, (void)argument;
    EXPECT(start(rank, SIZE, rank - SIZE + 1) == TUTTI_OK);
    if (rank < SIZE) proc_set_step(1);
    while (done < SIZE) {
        done = atomic_load(&proc_shared->go) > NEWCOMERS;
        if (tutti_all_reduce(tutti_view(&done, 1), TUTTI_SUM, NULL) == TUTTI_OK) continue;
        EXPECT(tutti_regroup(NULL, NULL, NULL) == TUTTI_OK);
        done = 0;
    }
    EXPECT(tutti_get_world_size(NULL) == SIZE);
    return tutti_destroy_process_group(NULL);
}

/* Kills rank 0, then another process each time that a newcomer has been announced: at once, or a moment after it has
 * started.  The last newcomer lives. */
static void kill_again_and_again(struct procs *procs, void *argument)
{
    uint64_t random = *(int *)argument;
    int victims[NEWCOMERS] = {0, SIZE, 1, SIZE + 2};
    char line[64];
    if (!procs_wait_for_step(procs, 0)) return;
    while (atomic_load(&procs->shared->step[2]) < 1 && procs_reap(procs)) procs_sleep_ms(1);
    for (int i = 0; i < NEWCOMERS; i++) {
        procs_signal(procs, victims[i], SIGKILL);
        snprintf(line, sizeof line, "end %d\nstart %d\n", victims[i], SIZE + i);
        append_log(procs, line);
        procs_sleep_ms((int)procs_random(&random, 10));
        procs_release(procs, i + 1);
        procs_sleep_ms((int)procs_random(&random, 40));
    }
    procs_release(procs, NEWCOMERS + 1);
}

static void test_deaths_in_the_meeting(void **state)
{
    (void)state;
    for (int seed = 1; seed <= 3; seed++)
        procs_run_with(SIZE + NEWCOMERS, rank_that_meets, kill_again_and_again, &seed);
}

/* ---- nobody survives --------------------------------------------------------------------------------------------- */

static int rank_that_starts_over(int rank, int size, void *argument)
{
    (void)size, (void)argument;
    EXPECT(start(rank, SIZE, 1) == TUTTI_OK);
    if (rank < SIZE) {
        proc_set_step(1);
        pause();
    }
    int own = tutti_get_rank(NULL);
    EXPECT(expect_group(own, 2, (int[]){-1, -1}) == 0);
    return tutti_destroy_process_group(NULL);
}

static void kill_all_ranks(struct procs *procs, void *argument)
{
    (void)argument;
    if (!procs_wait_for_step(procs, 1)) return;
    for (int i = 0; i < SIZE; i++) procs_signal(procs, i, SIGKILL);
    append_log(procs, "end 0\nend 1\nend 2\nstart 3\nstart 4\n");
    procs_release(procs, 1);
}

static void test_all_die(void **state)
{
    (void)state;
    procs_run_with(SIZE + 2, rank_that_starts_over, kill_all_ranks, NULL);
}

/* ---- an idle group ----------------------------------------------------------------------------------------------- */

/* Waits until rank 2 is reported with a state, without an operation.  If it lives, it must be silent for longer than
 * the other rank, which may be slow to answer. */
static int await_state(tutti_rank_state state, tutti_rank_health *health)
{
    bool silent = false;
    int64_t begin = monotonic_ns();
    do {
        EXPECT(tutti_group_health(NULL, health, SIZE) == TUTTI_OK);
        EXPECT(health[proc_rank].state == TUTTI_RANK_ALIVE && health[proc_rank].silent_ms == 0);
        silent = health[2].silent_ms >= 500 && health[1 - proc_rank].silent_ms < health[2].silent_ms;
        proc_wait_1ms();
        EXPECT_WITHIN(begin, 0, 20);
    } while (health[2].state != (int)state || (state == TUTTI_RANK_ALIVE && !silent));
    return 0;
}

/* Rank 2 is stopped, and then killed.  The others are idle. */
static int rank_that_idles(int rank, int size, void *argument)
{
    tutti_rank_health health[SIZE];
    (void)argument;
    EXPECT(proc_init(TIMEOUT_MS) == TUTTI_OK);
    EXPECT_ERROR(tutti_group_health(NULL, health, 2), TUTTI_ERR_INVALID_ARGUMENT, "2 entries", "3 ranks");
    EXPECT(tutti_group_health(NULL, health, size) == TUTTI_OK && health[2].silent_ms == 0);
    proc_wait_for_go(1);
    if (rank == 2) pause();
    EXPECT(await_state(TUTTI_RANK_ALIVE, health) == 0); /* stopped */
    EXPECT(health[2].why[0] == '\0');
    proc_set_step(2);
    while (!tutti_regroup_wanted(NULL)) proc_wait_1ms();
    EXPECT(await_state(TUTTI_RANK_LOST, health) == 0 && health[2].why[0] != '\0');
    EXPECT(tutti_regroup(NULL, NULL, NULL) == TUTTI_OK && tutti_get_world_size(NULL) == 2);
    return tutti_destroy_process_group(NULL);
}

static void stop_and_kill(struct procs *procs, void *argument)
{
    (void)argument;
    if (!procs_wait_for_step(procs, 1)) return;
    procs_signal(procs, 2, SIGSTOP);
    procs_release(procs, 1);
    while (atomic_load(&procs->shared->step[0]) < 2 || atomic_load(&procs->shared->step[1]) < 2)
        if (!procs_reap(procs) || monotonic_ns() > procs->deadline_ns) return;
    procs_signal(procs, 2, SIGKILL);
}

static void test_idle(void **state)
{
    (void)state;
    procs_run_with(SIZE, rank_that_idles, stop_and_kill, NULL);
    setenv("TUTTI_SHM", "0", 1); /* on the network, ranks are not connected before they are asked */
    procs_run_with(SIZE, rank_that_idles, stop_and_kill, NULL);
    unsetenv("TUTTI_SHM");
}

/* ---- rounds that fail -------------------------------------------------------------------------------------------- */

enum { LIMIT_MS = 200 };

/* Every meeting fails, and nobody dies. */
static int rank_without_luck(int rank, int size, void *argument)
{
    (void)rank, (void)size, (void)argument;
    EXPECT(proc_init(TIMEOUT_MS) == TUTTI_OK);
    proc_wait_for_go(1);
    int64_t begin = monotonic_ns();
    EXPECT_ERROR(tutti_regroup(NULL, &(tutti_regroup_opts){.timeout_ms = LIMIT_MS}, NULL), TUTTI_ERR_TIMEOUT,
                 "gave up after 0.200 s in which no rank died");
    EXPECT_WITHIN(begin, LIMIT_MS / 1000.0, 20);
    return tutti_destroy_process_group(NULL);
}

/* Ends each meeting with a failure before it begins: more meetings than the ranks can try within LIMIT_MS. */
static void fail_meetings(struct procs *procs, void *argument)
{
    enum { MEETINGS = 5000 };
    char key[32];
    static const char log[] = "in 9 -1 somewhere\ndecide 9\nfail 9 -5 broken by the test\n";
    (void)argument;
    if (!procs_wait_for_step(procs, 1)) return;
    for (int round = 1; round <= MEETINGS; round++) {
        snprintf(key, sizeof key, "regroup/%d", round);
        if (tutti_store_set(procs->store, key, log, sizeof log - 1) != TUTTI_OK) return;
    }
    procs_release(procs, 1);
}

static void test_rounds_that_fail(void **state)
{
    (void)state;
    procs_run_with(2, rank_without_luck, fail_meetings, NULL);
}

/* ---- groups of their own ----------------------------------------------------------------------------------------- */

/* Two ranks of tutti_create_group, and a third process that joins them. */
static int rank_of_own_group(int rank, int size, void *argument)
{
    (void)argument;
    tutti_group *group = NULL, *next = NULL, *pair = NULL, *smaller = NULL;
    tutti_store *store = proc_store();
    tutti_group_opts opts = {.timeout_ms = TIMEOUT_MS};
    EXPECT(store != NULL);
    if (rank < 2) {
        EXPECT(tutti_create_group("tcp", store, rank, 2, &opts, &group) == TUTTI_OK);
        EXPECT(tutti_new_group((int[]){1, 0}, 2, &(tutti_group_opts){.parent = group}, &pair) == TUTTI_OK);
        EXPECT_ERROR(tutti_regroup(group, NULL, NULL), TUTTI_ERR_INVALID_ARGUMENT, "next");
        EXPECT(tutti_regroup(pair, NULL, &smaller) == TUTTI_OK && tutti_get_world_size(smaller) == 2);
        EXPECT(tutti_regroup(group, &(tutti_regroup_opts){.world_size = 3}, &next) == TUTTI_OK);
        EXPECT(tutti_get_rank(next) == rank && tutti_get_old_rank(next, 1) == 1);
        EXPECT_ERROR(tutti_barrier(tutti_with(.group = group)), TUTTI_ERR_ABORTED, "group own");
        EXPECT(tutti_destroy_process_group(group) == TUTTI_OK && tutti_destroy_process_group(pair) == TUTTI_OK);
        EXPECT(tutti_destroy_process_group(smaller) == TUTTI_OK);
    } else {
        EXPECT(tutti_join_group("tcp", store, &opts, &next) == TUTTI_OK && tutti_get_rank(next) == 2);
    }
    EXPECT(tutti_get_old_rank(next, 2) == -1 && proc_sum(next, size, 1000) == 0);
    EXPECT(tutti_destroy_process_group(next) == TUTTI_OK);
    tutti_store_free(store);
    return 0;
}

static void test_own_groups(void **state)
{
    (void)state;
    procs_run_ranks(3, rank_of_own_group, NULL);
}

/* ---- a store that no process of the job hosts -------------------------------------------------------------------- */

/* The ranks meet on a redis server for the second time.  Rank 0 dies, and a newcomer finds the others. */
static int rank_over_redis(int rank, int size, void *argument)
{
    (void)size;
    tutti_init_opts opts = {.init_method = argument, .timeout_ms = TIMEOUT_MS, .newcomer = rank >= SIZE};
    proc_set_int("WORLD_SIZE", SIZE);
    if (rank >= SIZE) proc_wait_for_go(1);
    if (rank >= SIZE) proc_set_int("RANK", 0);
    for (int i = 0; i < 2; i++) {
        EXPECT(tutti_init_process_group("tcp", &opts) == TUTTI_OK);
        if (rank >= SIZE) break;
        if (i == 0) EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    }
    if (rank < SIZE) {
        proc_set_step(1);
        compute();
        EXPECT(tutti_regroup(NULL, NULL, NULL) == TUTTI_OK);
    }
    while (tutti_get_world_size(NULL) < SIZE) {
        while (!tutti_regroup_wanted(NULL)) proc_wait_1ms();
        EXPECT(tutti_regroup(NULL, NULL, NULL) == TUTTI_OK);
    }
    EXPECT(proc_sum(NULL, SIZE, 1000) == 0 && tutti_get_old_rank(NULL, SIZE - 1) == -1);
    return tutti_destroy_process_group(NULL);
}

static void replace_rank_0(struct procs *procs, void *argument)
{
    (void)argument;
    if (!procs_wait_for_step(procs, 1)) return;
    procs_signal(procs, 0, SIGKILL);
    procs_release(procs, 1);
}

static void test_redis(void **state)
{
    (void)state;
    char url[80];
    struct redis_server server = {0};
    if (redis_server_missing() != NULL) skip(); /* redis-server is not installed, or this build has no redis */
    assert_true(redis_server_start(&server));
    snprintf(url, sizeof url, "redis://127.0.0.1:%u/job", server.port);
    procs_run_with(SIZE + 1, rank_over_redis, replace_rank_0, url);
    assert_string_equal(redis_server_ask(&server, "HLEN tutti:{job}"), ":1"); /* the number of the world */
    redis_server_remove(&server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_survivors),
        cmocka_unit_test(test_replacements),
        cmocka_unit_test(test_late),
        cmocka_unit_test(test_deaths_in_the_meeting),
        cmocka_unit_test(test_all_die),
        cmocka_unit_test(test_idle),
        cmocka_unit_test(test_own_groups),
        cmocka_unit_test(test_newcomer_in_a_hurry),
        cmocka_unit_test(test_deleted_meeting),
        cmocka_unit_test(test_redis),
        cmocka_unit_test(test_rounds_that_fail),
    };
    cmocka_set_test_filter(getenv("FAULTS_ONLY"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
