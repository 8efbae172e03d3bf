/* A batch of messages reaches the backend as one, receives first. */
#include "ranks.h"

enum { N = 8 };

static int batch(tutti_group *group, int rank, int size, void *argument)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size, from[N];
    int32_t out[N], in[N];
    tutti_p2p_op ops[2 * N];
    tutti_work *works[2 * N] = {NULL};
    (void)argument;
    for (int i = 0; i < N; i++) {
        out[i] = 100 * rank + i;
        ops[2 * i] = (tutti_p2p_op){.kind = TUTTI_SEND, .tensor = tutti_view(&out[i], 1), .peer = right, .tag = i % 2};
        ops[2 * i + 1] = (tutti_p2p_op){
            .kind = TUTTI_RECV, .tensor = tutti_view(&in[i], 1), .peer = left, .tag = i % 2, .source = &from[i]};
    }
    EXPECT(tutti_batch_isend_irecv(ops, 2 * N, tutti_with(.group = group), works) == TUTTI_OK);
    for (int i = 0; i < 2 * N; i++) EXPECT(works[i] != NULL && tutti_work_op(works[i]) == ops[i].kind);
    EXPECT(tutti_wait_all(works, 2 * N, TUTTI_DEFAULT_TIMEOUT) == TUTTI_OK);
    for (int i = 0; i < N; i++) EXPECT(in[i] == 100 * left + i && from[i] == left);
    EXPECT(tutti_batch_isend_irecv(ops, 0, tutti_with(.group = group), works) == TUTTI_OK);
    int64_t received;
    int tag;
    EXPECT(tutti_batch_isend_irecv(ops, 2 * N, tutti_with(.group = group, .received = &received), works) ==
           TUTTI_ERR_INVALID_ARGUMENT);
    EXPECT(strstr(tutti_last_error(), "received of opts is set") != NULL);
    EXPECT(tutti_batch_isend_irecv(ops, 2 * N, tutti_with(.group = group, .received_tag = &tag), works) ==
           TUTTI_ERR_INVALID_ARGUMENT);
    EXPECT(strstr(tutti_last_error(), "received_tag of opts is set") != NULL);
    ops[3].kind = TUTTI_PROBE;
    EXPECT(tutti_batch_isend_irecv(ops, 2 * N, tutti_with(.group = group), works) == TUTTI_ERR_INVALID_ARGUMENT);
    for (int i = 0; i < 2 * N; i++) EXPECT(works[i] == NULL);
    return 0;
}

static void test_batch(void **state)
{
    atomic_long *batches = ranks_loop_counter("loop_batches"), *late = ranks_loop_counter("loop_late_receives");
    (void)state;
    assert_true(batches != NULL && late != NULL);
    for (int size = 2; size <= 4; size++) {
        long before = atomic_load(batches);
        ranks_run(size, batch, NULL);
        assert_int_equal(atomic_load(batches) - before, 2 * size); /* including a batch without messages */
    }
    assert_int_equal(atomic_load(late), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_batch)};
    ranks_setup();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
