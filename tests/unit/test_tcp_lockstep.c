/* Operations of two ranks that are split into chunks, one a step: who splits, when, and what a rank finds of one that
 * has given up or left. */
#include "small_groups.h"

/* A root that splits its data waits for who is to take it, asleep, and hears of it when that one leaves. */
static void test_leaves_a_root_that_splits(void **state)
{
    struct end end[2];
    struct small small[2];
    bool ranks[2] = {false, false};
    (void)state;
    open_met(end, small);
    broadcast(&small[0], 1);
    assert_int_equal(small[0].ended, 0);
    assert_int_equal(TAILQ_FIRST(&small[0].coll.ops)->posted, COLL_EAGER_BUFFERS - COLL_AHEAD - 1);
    assert_int_equal(coll_progress(&small[0].running), 0);
    assert_false(coll_is_ready(&small[0].running));
    coll_awaits(&small[0].coll, &small[0].request, ranks);
    assert_true(!ranks[0] && ranks[1]);
    shm_drop(&end[0].shm, 1, "it left the group", false);
    assert_int_equal(coll_progress(&small[0].running), 1);
    assert_int_equal(small[0].ended, TUTTI_ERR_PEER_LOST);
    close_met(end, small);
}

/* It finds, about to sleep, that its data have been taken meanwhile. */
static void test_a_root_that_splits_goes_on(void **state)
{
    struct end end[2];
    struct small small[2];
    (void)state;
    open_met(end, small);
    broadcast(&small[0], 1);
    assert_false(coll_is_ready(&small[0].running));
    begin_small(&small[1], TUTTI_BROADCAST);
    assert_true(small[0].ended == 0 && small[1].ended == 0);
    assert_true(coll_is_ready(&small[0].running));
    assert_false(coll_is_ready(&small[1].running));
    coll_progress(&small[0].running);
    assert_int_equal(small[0].ended, 1);
    assert_true(coll_is_ready(&small[1].running));
    coll_progress(&small[1].running);
    assert_int_equal(small[1].ended, 1);
    for (int64_t i = 0; i < SMALL_MOST; i++) assert_int_equal(small[1].x[i], 1 + i);
    close_met(end, small);
}

static bool splits(struct small small[2])
{
    begin_small(&small[0], TUTTI_ALL_REDUCE);
    bool split = TAILQ_FIRST(&small[0].coll.ops)->path == COLL_LOCKSTEP;
    begin_small(&small[1], TUTTI_ALL_REDUCE);
    for (int turn = 0; turn < 16; turn++) coll_progress(&small[turn % 2].running);
    assert_true(small[0].ended == 1 && small[1].ended == 1);
    return split;
}

/* Not before both ranks have said so, and not for a while after one of them has not waited for what it called. */
static void test_splits_while_both_wait(void **state)
{
    struct end end[2];
    struct small small[2];
    (void)state;
    open_met(end, small);
    for (int who = 0; who < 2; who++) {
        assert_true(splits(small));
        small[who].async = true;
        assert_true(splits(small)); /* nobody knew */
        small[who].async = false;
        for (int i = 0; i < COLL_PATIENCE; i++) assert_false(splits(small));
    }
    assert_true(splits(small));
    close_met(end, small);
    pair_open(end);
    for (int i = 0; i < 2; i++) {
        open_small(&end[i], &small[i], 2);
        small[i].numel = SMALL_MOST;
    }
    assert_false(splits(small)); /* the first one */
    assert_true(splits(small));
    close_met(end, small);
}

/* Two ranks with a core each, from LOCKSTEP_MIN on. */
static void test_who_splits(void **state)
{
    struct end end[ENDS];
    (void)state;
    ends_open(end, ENDS);
    for (int i = 0; i < 8; i++) {
        struct small small;
        bool crowd = i & 1, shares = i & 2, little = i & 4;
        struct coll_op made = {0};
        open_small(&end[0], &small, crowd ? 3 : 2);
        end[0].shm.shares_cores = shares;
        tutti_tensor x = {small.x, LOCKSTEP_MIN / 8 - little, TUTTI_INT64, {TUTTI_CPU, 0}};
        tutti_op op = {.kind = TUTTI_ALL_REDUCE, .dtype = TUTTI_INT64, .n_in = 1, .n_out = 1, .in = &x, .out = &x};
        assert_true(coll_describe(&small.coll, &op, &made));
        assert_true((made.waiting == COLL_LOCKSTEP) == (!crowd && !shares && !little));
        coll_close(&small.coll);
    }
    ends_close(end, ENDS);
}

/* A split operation is a step ahead of the one that it waits in; given up, it takes that one back, too. */
static void test_is_ahead(void **state)
{
    struct end end[2];
    struct small small[2];
    (void)state;
    open_met(end, small);
    begin_small(&small[0], TUTTI_ALL_REDUCE);
    const struct coll_op *op = TAILQ_FIRST(&small[0].coll.ops);
    uint64_t first = op->first;
    assert_int_equal(op->at, 0);
    assert_int_equal(op->posted, 1 + COLL_AHEAD);
    assert_true(coll_has_posted(&small[0].coll, 0, first + COLL_AHEAD));
    assert_true(coll_cancel(&small[0].coll, &small[0].request));
    for (uint64_t step = first; step <= first + COLL_AHEAD; step++)
        assert_false(coll_has_posted(&small[0].coll, 0, step));
    close_met(end, small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_leaves_a_root_that_splits),
        cmocka_unit_test(test_a_root_that_splits_goes_on),
        cmocka_unit_test(test_who_splits),
        cmocka_unit_test(test_is_ahead),
        cmocka_unit_test(test_splits_while_both_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
