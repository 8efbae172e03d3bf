/* Survivors and newcomers go on in a new group.  The processes are forked at once; those beyond the first ranks wait, and
 * then join as newcomers. */
#include "procs.h"

enum { SIZE = 3, TIMEOUT_MS = 20000 };

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_survivors),
        cmocka_unit_test(test_replacements),
    };
    cmocka_set_test_filter(getenv("FAULTS_ONLY"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
