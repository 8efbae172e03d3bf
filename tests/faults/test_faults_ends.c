/* Groups that end while others are in use, with messages, groups or operations still pending. */
#include "procs.h"

enum { LARGE = 1 << 20 };

/* Destroys a group whose large message had an RTS and was never received. */
static int rank_of_an_rts(int rank, int size, void *argument)
{
    static float data[LARGE];
    tutti_group *group = NULL;
    tutti_work *work = NULL;
    int ranks[] = {0, 1};
    (void)argument;
    EXPECT(proc_init(20000) == TUTTI_OK);
    EXPECT(tutti_new_group(ranks, size, NULL, &group) == TUTTI_OK);
    if (rank == 0) EXPECT(tutti_isend(tutti_view(data, LARGE), 1, tutti_with(.group = group), &work) == TUTTI_OK);
    EXPECT(tutti_barrier(NULL) == TUTTI_OK);
    if (rank == 1) EXPECT(tutti_recv(tutti_view(data, 1), 0, tutti_with(.timeout_ms = 100)) == TUTTI_ERR_TIMEOUT);
    if (rank == 1) EXPECT(tutti_destroy_process_group(group) == TUTTI_OK);
    EXPECT(tutti_barrier(NULL) == TUTTI_OK);
    if (rank == 0) EXPECT(tutti_destroy_process_group(group) == TUTTI_OK);
    if (rank == 0) EXPECT(tutti_work_wait(work, 0) < 0);
    EXPECT(tutti_barrier(NULL) == TUTTI_OK); /* the world stays usable */
    tutti_work_free(work);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

static void test_destroyed_with_an_rts(void **state)
{
    (void)state;
    procs_run_ranks(2, rank_of_an_rts, NULL);
}

/* Many groups wait for one peer.  Together they take the time of one. */
static int rank_of_late_groups(int rank, int size, void *argument)
{
    enum { GROUPS = 6 };
    int ranks[] = {0, 1};
    float x[GROUPS];
    tutti_work *work[GROUPS];
    (void)argument;
    EXPECT(proc_init(20000) == TUTTI_OK);
    for (int i = 0; i < GROUPS; i++) {
        tutti_group *group = NULL;
        EXPECT(tutti_new_group(ranks, size, NULL, &group) == TUTTI_OK);
        if (rank == 0) EXPECT(tutti_irecv(tutti_view(&x[i], 1), 1, tutti_with(.group = group), &work[i]) == TUTTI_OK);
    }
    int64_t begin = monotonic_ns();
    while (rank == 1 && atomic_load(&proc_shared->step[0]) < 1) proc_wait_1ms();
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    if (rank == 0) EXPECT_WITHIN(begin, 0, 10); /* 2 s for each of them would be 12 */
    if (rank == 0) proc_set_step(1);
    for (int i = 0; i < GROUPS && rank == 0; i++) EXPECT(tutti_wait(&work[i], 0) < 0);
    return 0;
}

static void test_many_groups_that_wait(void **state)
{
    (void)state;
    procs_run_ranks(2, rank_of_late_groups, NULL);
}

/* A thread that left a coalesced run open after an error can use later groups. */
static int rank_that_forgets_to_end(int rank, int size, void *argument)
{
    tutti_store *store = proc_store();
    (void)argument;
    for (int i = 0; i < 6; i++) {
        char name[32];
        tutti_store *part = NULL;
        tutti_group *group = NULL;
        float x = 1;
        snprintf(name, sizeof name, "coalesced-%d", i);
        EXPECT(proc_group(store, name, size, 20000, &part, &group) == TUTTI_OK);
        EXPECT(tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM, tutti_with(.group = group)) == TUTTI_OK && x == 2);
        EXPECT(tutti_coalesce_begin(group) == TUTTI_OK);
        EXPECT_ERROR(tutti_coalesce_begin(group), TUTTI_ERR_INVALID_ARGUMENT, "coalesces on group", name);
        x = 1;
        EXPECT(tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM, tutti_with(.group = group)) == TUTTI_OK);
        EXPECT(tutti_destroy_process_group(group) == TUTTI_OK && x == 1);
        tutti_store_free(part);
    }
    tutti_store_free(store);
    return rank < 0;
}

static void test_coalescing_that_never_ends(void **state)
{
    (void)state;
    procs_run_ranks(2, rank_that_forgets_to_end, NULL);
}

/* One side has closed the group, and the other one continues to send in it.  The world stays usable. */
static int rank_of_late_messages(int rank, int size, void *argument)
{
    enum { TIMES = 4000 /* of 1 KiB, twice the eager credit */, ASKS_FIRST = 50000 };
    static int32_t data[ASKS_FIRST];
    tutti_group *group = NULL;
    int ranks[] = {0, 1};
    if (*(bool *)argument) setenv("TUTTI_SHM", "0", 1);
    EXPECT(proc_init(20000) == TUTTI_OK);
    EXPECT(tutti_new_group(ranks, size, NULL, &group) == TUTTI_OK);
    EXPECT(tutti_barrier(tutti_with(.group = group)) == TUTTI_OK);
    if (rank == 1) EXPECT(tutti_destroy_process_group(group) == TUTTI_OK);
    EXPECT(tutti_barrier(NULL) == TUTTI_OK);
    for (int i = 0; i < TIMES && rank == 0; i++) { /* a message that needs a CTS is refused */
        int status = tutti_send(tutti_view(data, 256), 1, tutti_with(.group = group, .timeout_ms = 10000));
        EXPECT(status == TUTTI_OK || status == TUTTI_ERR_ABORTED);
    }
    for (int i = 0; i < 4 && rank == 0; i++)
        EXPECT(tutti_send(tutti_view(data, ASKS_FIRST), 1, tutti_with(.group = group, .timeout_ms = 10000)) ==
               TUTTI_ERR_ABORTED);
    EXPECT(tutti_barrier(NULL) == TUTTI_OK);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

static void test_messages_for_a_closed_group(void **state)
{
    (void)state;
    for (int apart = 0; apart < 2; apart++) procs_run_ranks(2, rank_of_late_messages, &(bool){apart});
}

/* A blocking send that times out is cancelled.  The next receive gets the next message. */
static int rank_of_cancelled_messages(int rank, int size, void *argument)
{
    enum { ASKS_FIRST = 50000, TIMES = 3 };
    static int32_t data[ASKS_FIRST];
    (void)size;
    if (*(bool *)argument) setenv("TUTTI_SHM", "0", 1);
    EXPECT(proc_init(20000) == TUTTI_OK);
    EXPECT(tutti_barrier(NULL) == TUTTI_OK);
    for (int i = 0; i < TIMES && rank == 0; i++)
        EXPECT(tutti_send(tutti_view(data, ASKS_FIRST), 1, tutti_with(.timeout_ms = 100)) == TUTTI_ERR_TIMEOUT);
    if (rank == 0) EXPECT(tutti_send(tutti_view(data, 1), 1, tutti_with(.tag = 1)) == TUTTI_OK);
    if (rank == 1)
        EXPECT(tutti_recv(tutti_view(data, 1), 0, tutti_with(.tag = 1)) ==
               TUTTI_OK); /* arrives after the cancelled message */
    for (int k = 0; k < ASKS_FIRST; k++) data[k] = rank == 0 ? k + 1 : 0;
    if (rank == 0) EXPECT(tutti_send(tutti_view(data, ASKS_FIRST), 1, NULL) == TUTTI_OK);
    if (rank == 1) EXPECT(tutti_recv(tutti_view(data, ASKS_FIRST), 0, NULL) == TUTTI_OK);
    for (int k = 0; k < ASKS_FIRST; k++) EXPECT(data[k] == k + 1);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

static void test_cancelled_messages(void **state)
{
    (void)state;
    for (int apart = 0; apart < 2; apart++) procs_run_ranks(2, rank_of_cancelled_messages, &(bool){apart});
}

/* One rank has destroyed the group.  Its messages still arrive, and receives from it end.  A receive from any source
 * waits for the other ranks. */
static int rank_of_a_group_that_one_has_left(int rank, int size, void *argument)
{
    tutti_group *group = NULL;
    int all[] = {0, 1, 2};
    int32_t x = rank;
    if (*(bool *)argument) setenv("TUTTI_SHM", "0", 1);
    EXPECT(proc_init(20000) == TUTTI_OK);
    EXPECT(tutti_new_group(all, 3, &(tutti_group_opts){.name = "sub"}, &group) == TUTTI_OK);
    EXPECT(tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM, tutti_with(.group = group)) == TUTTI_OK && x == 3);
    if (rank == 2) EXPECT(tutti_send(tutti_view(&x, 1), 0, tutti_with(.group = group)) == TUTTI_OK);
    if (rank == 2) EXPECT(tutti_destroy_process_group(group) == TUTTI_OK);
    proc_barrier(size, 1);
    if (rank == 0) {
        EXPECT(tutti_recv(tutti_view(&x, 1), 2, tutti_with(.group = group)) == TUTTI_OK);
        EXPECT_ERROR(tutti_recv(tutti_view(&x, 1), 2, tutti_with(.group = group)), TUTTI_ERR_ABORTED,
                     "rank 2 has destroyed the group", "of group sub");
        EXPECT(tutti_recv(tutti_view(&x, 1), TUTTI_ANY_SOURCE, tutti_with(.group = group)) == TUTTI_OK);
    } else if (rank == 1) {
        procs_sleep_ms(500); /* time for some questions to peers */
        EXPECT(tutti_send(tutti_view(&x, 1), 0, tutti_with(.group = group)) == TUTTI_OK);
    }
    if (rank < 2) proc_barrier(2, 2); /* rank 1's call fails the group, and rank 0's receive with it */
    if (rank < 2)
        EXPECT_ERROR(tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM, tutti_with(.group = group)), TUTTI_ERR_ABORTED,
                     "all_reduce #2", "rank 2 has destroyed the group");
    EXPECT(tutti_barrier(NULL) == TUTTI_OK);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

static void test_a_group_that_one_has_left(void **state)
{
    (void)state;
    for (int apart = 0; apart < 2; apart++) procs_run_ranks(3, rank_of_a_group_that_one_has_left, &(bool){apart});
}

/* Many receives wait for a rank that has left, behind one that waits for another rank.  All of them end at once. */
static int rank_of_many_that_wait_for_one(int rank, int size, void *argument)
{
    enum { MANY = 400, ENOUGH_MS = 15000 }; /* at a few receives a poll, this would take 22 s */
    static tutti_work *works[MANY];
    static int32_t data[MANY];
    tutti_group *group = NULL;
    tutti_work *first = NULL;
    int all[] = {0, 1, 2};
    int32_t x = 0;
    (void)size, (void)argument;
    EXPECT(proc_init(20000) == TUTTI_OK);
    EXPECT(tutti_new_group(all, 3, NULL, &group) == TUTTI_OK);
    if (rank == 2) EXPECT(tutti_destroy_process_group(group) == TUTTI_OK);
    if (rank == 0) {
        EXPECT(tutti_irecv(tutti_view(&x, 1), 1, tutti_with(.group = group, .tag = MANY), &first) == TUTTI_OK);
        for (int i = 0; i < MANY; i++)
            EXPECT(tutti_irecv(tutti_view(&data[i], 1), 2,
                               tutti_with(.group = group, .tag = i, .timeout_ms = ENOUGH_MS), &works[i]) == TUTTI_OK);
        for (int i = 0; i < MANY; i++) EXPECT(tutti_wait(&works[i], 20000) == TUTTI_ERR_ABORTED);
    }
    EXPECT(tutti_barrier(NULL) == TUTTI_OK);
    if (rank == 1) EXPECT(tutti_send(tutti_view(&x, 1), 0, tutti_with(.group = group, .tag = MANY)) == TUTTI_OK);
    if (rank == 0) EXPECT(tutti_wait(&first, 20000) == TUTTI_OK);
    EXPECT(tutti_barrier(NULL) == TUTTI_OK);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

static void test_many_wait_for_one_that_has_left(void **state)
{
    (void)state;
    procs_run_ranks(3, rank_of_many_that_wait_for_one, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_destroyed_with_an_rts),
        cmocka_unit_test(test_many_groups_that_wait),
        cmocka_unit_test(test_coalescing_that_never_ends),
        cmocka_unit_test(test_messages_for_a_closed_group),
        cmocka_unit_test(test_cancelled_messages),
        cmocka_unit_test(test_a_group_that_one_has_left),
        cmocka_unit_test(test_many_wait_for_one_that_has_left),
    };
    cmocka_set_test_filter(getenv("FAULTS_ONLY"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
