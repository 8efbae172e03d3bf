/* Members disagree, do not call, die or are stopped while a group is made.  All members get one answer. */
#include "procs.h"

enum { SIZE = 4, T_MS = 1500, SOON_S = PROCS_SOON_S, ROUNDS = 100, STOPPED_MS = 3000 };

static void shm(bool there)
{
    if (there)
        unsetenv("TUTTI_SHM");
    else
        setenv("TUTTI_SHM", "0", 1);
}

/* Checks that the parent stays usable. */
static int expect_parent(int size)
{
    int x = 1;
    EXPECT(tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM, tutti_with(.timeout_ms = 20000)) == TUTTI_OK && x == size);
    return 0;
}

static int leave_well(int size)
{
    EXPECT(expect_parent(size) == 0);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

/* ---- lists that differ -------------------------------------------------------------------------------------- */

struct lists {
    int n[SIZE], of[SIZE][SIZE];
    bool members_only;
    const char *words[2]; /* texts of both lists, which every error contains */
};

static const struct lists lists[] = {
    {{4, 4, 4, 4}, {{0, 1, 2, 3}, {0, 1, 3, 2}, {0, 1, 2, 3}, {0, 1, 2, 3}}, false, {"[0,1,3,2]", "[0,1,2,3]"}},
    {{4, 4, 4, 4}, {{0, 1, 2, 3}, {0, 1, 3, 2}, {0, 1, 2, 3}, {0, 1, 2, 3}}, true, {"[0,1,3,2]", "[0,1,2,3]"}},
    {{4, 4, 4, 4},
     {{0, 1, 2, 3}, {1, 0, 2, 3}, {2, 1, 0, 3}, {3, 1, 2, 0}},
     false,
     {"made this group of", "[0,1,2,3]"}},
    {{2, 2, 2, 2}, {{0, 1}, {0, 1}, {1, 2}, {0, 1}}, false, {"[0,1]", "[1,2]"}},
    {{4, 4, 4, 3}, {{0, 1, 2, 3}, {0, 1, 2, 3}, {0, 1, 2, 3}, {0, 1, 2}}, false, {"[0,1,2]", "[0,1,2,3]"}},
    {{2, 2, 3, 2}, {{2, 3}, {2, 3}, {1, 2, 3}, {2, 3}}, false, {"[2,3]", "[1,2,3]"}},
};
enum { LISTS = sizeof lists / sizeof *lists };

static bool is_in(const struct lists *those, int rank)
{
    for (int i = 0; i < those->n[rank]; i++)
        if (those->of[rank][i] == rank) return true;
    return false;
}

/* Making the group fails, or its first use does if the other list arrives later.  Nothing is summed. */
static int differ(const struct lists *those, int rank)
{
    float x = 1;
    tutti_group *group = NULL;
    int64_t begin = monotonic_ns();
    tutti_group_opts opts = {.members_only = those->members_only};
    int status = tutti_new_group(those->of[rank], those->n[rank], &opts, &group);
    if (status == TUTTI_OK && is_in(those, rank)) {
        procs_sleep_ms(500); /* until the leader has asked */
        status = tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM, tutti_with(.group = group));
    }
    if (is_in(those, rank))
        EXPECT_ERROR(status, TUTTI_ERR_MISMATCH, those->words[0], those->words[1]);
    else
        EXPECT(status == TUTTI_OK);
    EXPECT_WITHIN(begin, 0, 1 + SOON_S);
    if (group != NULL) EXPECT(tutti_destroy_process_group(group) == TUTTI_OK);
    return 0;
}

static int rank_of_lists(int rank, int size, void *argument)
{
    (void)argument;
    EXPECT(proc_init(20000) == TUTTI_OK);
    for (int i = 0; i < LISTS; i++) {
        int line = differ(&lists[i], rank);
        if (line != 0) fprintf(stderr, "rank %d: lists %d\n", rank, i);
        if (line != 0) return line;
        EXPECT(expect_parent(size) == 0);
    }
    return leave_well(size);
}

static void test_lists_differ(void **state)
{
    shm(*state != NULL);
    procs_run_ranks(SIZE, rank_of_lists, NULL);
}

/* Rank 1 makes a group while the others split. */
static int rank_of_split(int rank, int size, void *argument)
{
    static const int all[SIZE] = {0, 1, 2, 3};
    (void)argument;
    tutti_group *group = NULL;
    EXPECT(proc_init(20000) == TUTTI_OK);
    int64_t begin = monotonic_ns();
    int status = rank == 1 ? tutti_new_group(all, SIZE, NULL, &group) : tutti_split_group(0, 0, NULL, &group);
    EXPECT_ERROR(status, TUTTI_ERR_MISMATCH, "rank 1 new_group of [0,1,2,3]", "split_group");
    EXPECT_WITHIN(begin, 0, 1 + SOON_S);
    return leave_well(size);
}

static void test_split_against_group(void **state)
{
    shm(*state != NULL);
    procs_run_ranks(SIZE, rank_of_split, NULL);
}

static int rank_of_backends(int rank, int size, void *argument)
{
    int all[SIZE] = {0, 1, 2, 3};
    tutti_group *group = NULL;
    (void)argument;
    EXPECT(proc_init(20000) == TUTTI_OK);
    tutti_group_opts opts = {.backend = rank == 2 ? "cpu:tcp" : NULL};
    EXPECT_ERROR(tutti_new_group(all, size, &opts, &group), TUTTI_ERR_MISMATCH, "rank 2", "cpu:tcp", "\"tcp\"");
    return leave_well(size);
}

static void test_backends_differ(void **state)
{
    shm(*state != NULL);
    procs_run_ranks(SIZE, rank_of_backends, NULL);
}

/* ---- a member does not call -------------------------------------------------------------------------------------- */

struct absence {
    int absent;
    bool members_only;
};

/* The others' error says what the missing rank is doing.  When it calls at last, its error says that they have given
 * up. */
static int rank_of_absence(int rank, int size, void *argument)
{
    const struct absence *case_of = argument;
    int all[SIZE] = {0, 1, 2, 3}, x = 1;
    char name[40];
    tutti_group *group = NULL;
    EXPECT(proc_init(20000) == TUTTI_OK);
    EXPECT(tutti_barrier(NULL) == TUTTI_OK);
    tutti_group_opts opts = {.timeout_ms = T_MS, .members_only = case_of->members_only, .name = "late"};
    if (rank == case_of->absent) proc_wait_for_go(2);
    int64_t begin = monotonic_ns();
    int status = tutti_new_group(all, size, &opts, &group);
    if (status == TUTTI_OK) status = tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM, tutti_with(.group = group));
    snprintf(name, sizeof name, "rank %d has not made this group", case_of->absent);
    if (rank == case_of->absent) {
        EXPECT_ERROR(status, TUTTI_ERR_TIMEOUT, "group late was not made within 1.500 s");
    } else {
        EXPECT_ERROR(status, TUTTI_ERR_TIMEOUT, "group late was not made within 1.500 s", name,
                     "it has made 0 groups of group world");
        EXPECT_WITHIN(begin, 0.9 * T_MS / 1000.0, T_MS / 1000.0 + SOON_S);
    }
    if (group != NULL) EXPECT(tutti_destroy_process_group(group) == TUTTI_OK);
    proc_set_step(1);
    return leave_well(size);
}

static void let_it_come(struct procs *procs, void *argument)
{
    const struct absence *case_of = argument;
    for (int i = 0; i < SIZE; i++)
        while (i != case_of->absent && procs->shared->step[i] < 1 && procs_reap(procs)) procs_sleep_ms(1);
    procs_release(procs, 2);
}

static void test_absent(void **state)
{
    shm(*state != NULL);
    for (int absent = 0; absent < SIZE; absent += 2)
        for (int members_only = 0; members_only < 2; members_only++)
            procs_run_with(SIZE, rank_of_absence, let_it_come, &(struct absence){absent, members_only});
}

/* ---- a member dies ----------------------------------------------------------------------------------------------- */

/* A member dies before it has made the group.  Every waiting rank is notified, leader or not. */
static int rank_of_death(int rank, int size, void *argument)
{
    int victim = *(int *)argument, all[SIZE] = {0, 1, 2, 3};
    char name[24];
    tutti_group *group = NULL;
    EXPECT(proc_init(20000) == TUTTI_OK);
    EXPECT(tutti_barrier(NULL) == TUTTI_OK);
    if (rank == victim) proc_wait_for_go(99);
    proc_set_step(1);
    snprintf(name, sizeof name, "rank %d is lost", victim);
    EXPECT_ERROR(tutti_new_group(all, size, NULL, &group), TUTTI_ERR_PEER_LOST, name);
    EXPECT(monotonic_ns() - atomic_load(&proc_shared->at_ns[victim]) < (int64_t)SOON_S * 1000000000);
    tutti_destroy_process_group(NULL);
    return 0;
}

/* Kills the member once the others wait for it.  One that called later would fail the parent for all. */
static void kill_it(struct procs *procs, void *argument)
{
    int victim = *(int *)argument;
    if (!procs_wait_for_step(procs, 1)) return;
    for (int i = 0; i < SIZE; i++)
        if (i != victim) procs_wait_until_asleep(procs, i);
    atomic_store(&procs->shared->at_ns[victim], monotonic_ns());
    procs_signal(procs, victim, SIGKILL);
}

static void test_dies(void **state)
{
    shm(*state != NULL);
    for (int victim = 0; victim < SIZE; victim += 3) procs_run_with(SIZE, rank_of_death, kill_it, &victim);
}

/* ---- a member is stopped ----------------------------------------------------------------------------------------- */

/* A rank is stopped while groups are made.  All ranks agree on every group, and on how its operations are done. */
static int rank_of_stops(int rank, int size, void *argument)
{
    int all[SIZE] = {0, 1, 2, 3};
    tutti_group *groups[ROUNDS];
    (void)argument;
    EXPECT(proc_init(30000) == TUTTI_OK);
    EXPECT(tutti_barrier(NULL) == TUTTI_OK);
    proc_set_step(1);
    for (int i = 0; i < ROUNDS; i++) {
        procs_sleep_ms(1);
        EXPECT(tutti_new_group(all, size, NULL, &groups[i]) == TUTTI_OK);
    }
    for (int i = 0; i < ROUNDS; i++) {
        int x = rank;
        EXPECT(tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM, tutti_with(.group = groups[i], .timeout_ms = 10000)) ==
                   TUTTI_OK &&
               x == 6);
    }
    return leave_well(size);
}

static void stop_it(struct procs *procs, void *argument)
{
    int victim = *(int *)argument;
    if (!procs_wait_for_step(procs, 1)) return;
    procs_sleep_ms(60);
    procs_signal(procs, victim, SIGSTOP);
    procs_sleep_ms(STOPPED_MS);
    procs_signal(procs, victim, SIGCONT);
}

static void test_stopped(void **state)
{
    shm(*state != NULL);
    for (int victim = 0; victim < 2; victim++) procs_run_with(SIZE, rank_of_stops, stop_it, &victim);
}

/* ---- a split's leader is stopped --------------------------------------------------------------------------------- */

/* Rank 3 gives up while the leader is stopped.  When the leader continues, it reads that all ranks have called, then
 * that one has failed.  The parent stays usable. */
static int rank_of_split_stop(int rank, int size, void *argument)
{
    static const int all[SIZE] = {0, 1, 2, 3};
    int x = 1, status;
    (void)argument;
    tutti_group *parent = NULL, *part = NULL;
    EXPECT(proc_init(20000) == TUTTI_OK);
    EXPECT(tutti_barrier(NULL) == TUTTI_OK);
    EXPECT(tutti_new_group(all, size, &(tutti_group_opts){.timeout_ms = rank == 3 ? 2 * T_MS : 20000}, &parent) ==
           TUTTI_OK);
    if (rank % 2 != 0)
        proc_wait_for_go(1);
    else
        proc_set_step(1);
    status = tutti_split_group(rank == 3, 0, &(tutti_group_opts){.parent = parent}, &part);
    if (rank == 3) EXPECT_ERROR(status, TUTTI_ERR_TIMEOUT, "the leader, rank 0, does not answer");
    if (part != NULL) EXPECT(tutti_destroy_process_group(part) == TUTTI_OK);
    proc_set_step(2);
    EXPECT(tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM, tutti_with(.group = parent, .timeout_ms = 20000)) ==
               TUTTI_OK &&
           x == size);
    EXPECT(tutti_destroy_process_group(parent) == TUTTI_OK);
    return leave_well(size);
}

static void stop_leader(struct procs *procs, void *argument)
{
    (void)argument;
    if (!procs_wait_for_step(procs, 1)) return;
    procs_wait_until_asleep(procs, 0);
    procs_signal(procs, 0, SIGSTOP);
    procs_release(procs, 1);
    while (procs->shared->step[3] < 2 && procs_reap(procs)) procs_sleep_ms(1);
    procs_signal(procs, 0, SIGCONT);
}

static void test_split_stopped(void **state)
{
    shm(*state != NULL);
    procs_run_with(SIZE, rank_of_split_stop, stop_leader, NULL);
}

/* ---- pending ------------------------------------------------------------------------------------------------ */

/* Each rank makes groups with its neighbours, in a circle, so no rank may wait for the one before.  Some groups are
 * destroyed unused, some before the other member has made them. */
static int rank_of_circle(int rank, int size, void *argument)
{
    int next = (rank + 1) % size, before = (rank + size - 1) % size;
    const tutti_group_opts opts = {.members_only = true};
    (void)argument;
    EXPECT(proc_init(20000) == TUTTI_OK);
    for (int i = 0; i < ROUNDS; i++) {
        int x = rank, y = rank;
        tutti_work *work = NULL;
        tutti_group *with_next = NULL, *with_before = NULL;
        EXPECT(tutti_new_group((int[]){rank, next}, 2, &opts, &with_next) == TUTTI_OK);
        EXPECT(tutti_new_group((int[]){before, rank}, 2, &opts, &with_before) == TUTTI_OK);
        EXPECT(tutti_get_rank(with_next) == 0 && strcmp(tutti_get_backend(with_next), "cpu:tcp") == 0);
        EXPECT(tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM, tutti_with(.group = with_before, .async_op = &work)) ==
               TUTTI_OK);
        EXPECT(tutti_all_reduce(tutti_view(&y, 1), TUTTI_SUM, tutti_with(.group = with_next)) == TUTTI_OK);
        EXPECT(tutti_wait(&work, TUTTI_DEFAULT_TIMEOUT) == TUTTI_OK && x == rank + before && y == rank + next);
        EXPECT(tutti_destroy_process_group(with_before) == TUTTI_OK);
        EXPECT(tutti_destroy_process_group(with_next) == TUTTI_OK);
    }
    tutti_group *unused = NULL;
    if (rank < 2) EXPECT(tutti_new_group((int[]){0, 1}, 2, &opts, &unused) == TUTTI_OK);
    if (rank < 2) EXPECT(tutti_destroy_process_group(unused) == TUTTI_OK);
    return leave_well(size);
}

static void test_circle(void **state)
{
    shm(*state != NULL);
    procs_run_ranks(SIZE, rank_of_circle, NULL);
}

/* Rank 0 uses a pending group after its world has ended. */
static int rank_of_late_use(int rank, int size, void *argument)
{
    int pair[2] = {0, 1};
    (void)size;
    (void)argument;
    tutti_group *group = NULL;
    EXPECT(proc_init(20000) == TUTTI_OK);
    if (rank == 0) EXPECT(tutti_new_group(pair, 2, &(tutti_group_opts){.members_only = true}, &group) == TUTTI_OK);
    EXPECT(tutti_barrier(NULL) == TUTTI_OK);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    if (rank != 0) return 0;
    EXPECT_ERROR(tutti_barrier(tutti_with(.group = group)), TUTTI_ERR_ABORTED, "has been destroyed with its world");
    EXPECT(tutti_destroy_process_group(group) == TUTTI_OK);
    return 0;
}

static void test_late_use(void **state)
{
    shm(*state != NULL);
    procs_run_ranks(2, rank_of_late_use, NULL);
}

/* The first two disagree, and leave.  The last one calls afterwards and gets the same error. */
static int rank_of_late_call(int rank, int size, void *argument)
{
    tutti_group_opts opts = {.algorithm = rank == 1 ? "all_reduce=ring" : NULL};
    tutti_group *group = NULL;
    (void)argument;
    EXPECT(proc_init(20000) == TUTTI_OK);
    EXPECT(tutti_barrier(NULL) == TUTTI_OK);
    for (int i = 0; rank == 2 && i < 2; i++) proc_wait_for_step(i, 1);
    EXPECT_ERROR(tutti_new_group((int[]){0, 1, 2}, size, &opts, &group), TUTTI_ERR_MISMATCH, "algorithm all_reduce");
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    proc_set_step(1);
    return 0;
}

static void test_late_call(void **state)
{
    shm(*state != NULL);
    procs_run_ranks(3, rank_of_late_call, NULL);
}

int main(void)
{
#define BOTH(test)                                                                                                     \
    {#test " over the wire", test, NULL, NULL, NULL},                                                                  \
    {                                                                                                                  \
#test " through shared memory", test, NULL, NULL, ""                                                           \
    }
    const struct CMUnitTest tests[] = {
        BOTH(test_lists_differ), BOTH(test_backends_differ), BOTH(test_split_against_group), BOTH(test_absent),
        BOTH(test_dies),         BOTH(test_stopped),         BOTH(test_split_stopped),       BOTH(test_circle),
        BOTH(test_late_use),     BOTH(test_late_call)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
