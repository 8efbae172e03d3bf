/* Waiting until everything that a rank has begun on a group has ended.  The number of collectives.  Operations with
 * timeout 0. */
#include "ranks.h"

static int all_is_done(tutti_group *group, int rank, int size, void *argument)
{
    enum { N = 5 };
    tutti_work *works[N] = {NULL}, *work = NULL;
    int x[N];
    (void)argument;
    EXPECT(tutti_group_quiesce(group, 0) == TUTTI_OK);
    EXPECT(tutti_get_sequence(group) == 0);
    for (int i = 0; i < N; i++) {
        x[i] = 1;
        EXPECT(tutti_all_reduce(tutti_view(&x[i], 1), TUTTI_SUM,
                                tutti_with(.group = group, .async_op = i < N - 1 ? &works[i] : &work)) == TUTTI_OK);
    }
    tutti_work_free(work); /* quiesce waits for it as well */
    EXPECT(tutti_group_quiesce(group, TUTTI_DEFAULT_TIMEOUT) == TUTTI_OK);
    for (int i = 0; i < N; i++) EXPECT(x[i] == size);
    for (int i = 0; i < N - 1; i++) EXPECT(tutti_work_is_completed(works[i]));
    EXPECT(tutti_get_sequence(group) == N && tutti_work_sequence(works[0]) == 1);
    EXPECT(tutti_wait_all(works, N, 0) == TUTTI_OK);
    EXPECT(tutti_barrier(tutti_with(.group = group)) == TUTTI_OK && tutti_get_sequence(group) == N + 1);
    /* a message does not count as a collective */
    if (rank == 0) EXPECT(tutti_send(tutti_view(&x[0], 1), 1, tutti_with(.group = group)) == TUTTI_OK);
    if (rank == 1) EXPECT(tutti_recv(tutti_view(&x[0], 1), 0, tutti_with(.group = group)) == TUTTI_OK);
    EXPECT(tutti_get_sequence(group) == N + 1);
    return 0;
}

static void test_all_is_done(void **state)
{
    (void)state;
    for (int size = 2; size <= 4; size++) ranks_run(size, all_is_done, NULL);
}

static int not_yet(tutti_group *group, int rank, int size, void *argument)
{
    tutti_work *work = NULL;
    int x = 0;
    (void)size;
    (void)argument;
    if (rank == 0) {
        EXPECT(tutti_irecv(tutti_view(&x, 1), 1, tutti_with(.group = group), &work) == TUTTI_OK);
        EXPECT(tutti_group_quiesce(group, 0) == TUTTI_ERR_TIMEOUT);
        EXPECT(strstr(tutti_last_error(), "1 of 1 operations") != NULL && strstr(tutti_last_error(), "recv") != NULL);
        EXPECT(tutti_group_quiesce(group, TUTTI_NOW) == TUTTI_ERR_TIMEOUT);
        EXPECT(tutti_group_quiesce(group, 20) == TUTTI_ERR_TIMEOUT);
        EXPECT(tutti_group_quiesce(group, -5) == TUTTI_ERR_INVALID_ARGUMENT);
    }
    EXPECT(tutti_barrier(tutti_with(.group = group)) == TUTTI_OK);
    if (rank == 1) {
        x = 7;
        EXPECT(tutti_send(tutti_view(&x, 1), 0, tutti_with(.group = group)) == TUTTI_OK);
    }
    EXPECT(tutti_group_quiesce(group, TUTTI_DEFAULT_TIMEOUT) == TUTTI_OK);
    if (rank == 0) EXPECT(x == 7 && tutti_work_is_completed(work) && tutti_wait(&work, 0) == TUTTI_OK);
    return 0;
}

static void test_not_yet(void **state)
{
    (void)state;
    ranks_run(2, not_yet, NULL);
}

/* An operation with timeout 0 takes what has arrived and waits for nothing else. */
static int now(tutti_group *group, int rank, int size, void *argument)
{
    tutti_work *work = NULL;
    int x = 3;
    (void)size;
    (void)argument;
    if (rank == 0) {
        EXPECT(tutti_recv(tutti_view(&x, 1), 1, tutti_with(.group = group, .timeout_ms = TUTTI_NOW)) ==
               TUTTI_ERR_TIMEOUT);
        EXPECT(tutti_recv(tutti_view(&x, 1), 1, tutti_with(.group = group, .timeout_ms = -3)) ==
               TUTTI_ERR_INVALID_ARGUMENT);
        EXPECT(tutti_irecv(tutti_view(&x, 1), 1, tutti_with(.group = group, .timeout_ms = TUTTI_NOW), &work) ==
               TUTTI_OK);
        EXPECT(tutti_wait(&work, TUTTI_DEFAULT_TIMEOUT) == TUTTI_ERR_TIMEOUT);
    }
    EXPECT(tutti_barrier(tutti_with(.group = group)) == TUTTI_OK);
    if (rank == 1) EXPECT(tutti_send(tutti_view(&x, 1), 0, tutti_with(.group = group)) == TUTTI_OK);
    EXPECT(tutti_barrier(tutti_with(.group = group)) == TUTTI_OK);
    x = 0;
    if (rank == 0) {
        EXPECT(tutti_recv(tutti_view(&x, 1), 1, tutti_with(.group = group, .timeout_ms = TUTTI_NOW)) == TUTTI_OK);
        EXPECT(x == 3);
        EXPECT(tutti_irecv(tutti_view(&x, 1), 1, tutti_with(.group = group), &work) == TUTTI_OK);
        EXPECT(tutti_wait(&work, TUTTI_NOW) == TUTTI_ERR_TIMEOUT && work != NULL);
    }
    EXPECT(tutti_barrier(tutti_with(.group = group)) == TUTTI_OK);
    if (rank == 1) EXPECT(tutti_send(tutti_view(&x, 1), 0, tutti_with(.group = group)) == TUTTI_OK);
    if (rank == 0) EXPECT(tutti_wait(&work, TUTTI_DEFAULT_TIMEOUT) == TUTTI_OK);
    return 0;
}

static void test_now(void **state)
{
    (void)state;
    ranks_run(2, now, NULL);
}

static void test_no_group(void **state)
{
    (void)state;
    assert_int_equal(tutti_group_quiesce(NULL, 0), TUTTI_ERR_INVALID_ARGUMENT);
    assert_int_equal(tutti_get_sequence(NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_is_done), cmocka_unit_test(test_not_yet),
                                       cmocka_unit_test(test_now), cmocka_unit_test(test_no_group)};
    ranks_setup();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
