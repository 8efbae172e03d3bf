/* Operations of two ranks in lockstep, one chunk a step: when that is possible, and what happens if a rank gives up or
 * leaves. */
#include "unit/small_groups.h"

#include "../../backends/tcp/shm/coll/path.c"

/* A root in lockstep sleeps until its peer has read, and is woken when the peer leaves. */
static void test_leaves_a_root_in_lockstep(void **state)
{
    struct end end[2];
    struct small small[2];
    bool ranks[2] = {false, false};
    (void)state;
    small_open_both(end, small);
    small_broadcast(&small[0], 1);
    assert_int_equal(small[0].ended, 0);
    assert_int_equal(TAILQ_FIRST(&small[0].coll.ops)->posted, COLL_EAGER_BUFFERS - COLL_AHEAD - 1);
    assert_int_equal(coll_progress(&small[0].running), 0);
    assert_false(coll_is_ready(&small[0].running));
    coll_awaits(&small[0].coll, &small[0].request, ranks);
    assert_true(!ranks[0] && ranks[1]);
    shm_drop(&end[0].shm, 1, "it left the group", false);
    assert_int_equal(coll_progress(&small[0].running), 1);
    assert_int_equal(small[0].ended, TUTTI_ERR_PEER_LOST);
    small_close_both(end, small);
}

/* About to sleep, the root finds that its data have been read meanwhile. */
static void test_a_root_in_lockstep_continues(void **state)
{
    struct end end[2];
    struct small small[2];
    (void)state;
    small_open_both(end, small);
    small_broadcast(&small[0], 1);
    assert_false(coll_is_ready(&small[0].running));
    small_begin(&small[1], TUTTI_BROADCAST);
    assert_true(small[0].ended == 0 && small[1].ended == 0);
    assert_true(coll_is_ready(&small[0].running));
    assert_false(coll_is_ready(&small[1].running));
    coll_progress(&small[0].running);
    assert_int_equal(small[0].ended, 1);
    assert_true(coll_is_ready(&small[1].running));
    coll_progress(&small[1].running);
    assert_int_equal(small[1].ended, 1);
    for (int64_t i = 0; i < SMALL_MOST; i++) assert_int_equal(small[1].x[i], 1 + i);
    small_close_both(end, small);
}

/* Lockstep needs two ranks with a core each, and more data than those for whose lines ranks ask ahead. */
static void test_conditions(void **state)
{
    struct end end[ENDS];
    (void)state;
    ends_open(end, ENDS);
    for (int i = 0; i < 8; i++) {
        struct small small;
        bool is_third = i & 1, shares_core = i & 2, is_small = i & 4;
        struct coll_op made = {0};
        small_open(&end[0], &small, is_third ? 3 : 2);
        end[0].shm.shares_cores = shares_core;
        tutti_tensor x = {small.x, COLL_ASKED / 8 + !is_small, TUTTI_INT64, {TUTTI_CPU, 0}};
        tutti_op op = {.kind = TUTTI_ALL_REDUCE, .dtype = TUTTI_INT64, .n_in = 1, .n_out = 1, .in = &x, .out = &x};
        assert_true(coll_describe(&small.coll, &op, &made));
        assert_true(((made.ways >> COLL_WAY(COLL_LOCKSTEP, 0) & 1) != 0) == (!is_third && !shares_core && !is_small));
        coll_close(&small.coll);
    }
    ends_close(end, ENDS);
}

/* An operation in lockstep has posted a step beyond its current one.  If it is cancelled, both are withdrawn. */
static void test_posts_ahead(void **state)
{
    struct end end[2];
    struct small small[2];
    (void)state;
    small_open_both(end, small);
    small_begin(&small[0], TUTTI_ALL_REDUCE);
    const struct coll_op *op = TAILQ_FIRST(&small[0].coll.ops);
    uint64_t first = op->first;
    assert_int_equal(op->at, 0);
    assert_int_equal(op->posted, 1 + COLL_AHEAD);
    assert_true(coll_has_posted(&small[0].coll, 0, first + COLL_AHEAD));
    assert_true(coll_cancel(&small[0].coll, &small[0].request));
    for (uint64_t step = first; step <= first + COLL_AHEAD; step++)
        assert_false(coll_has_posted(&small[0].coll, 0, step));
    small_close_both(end, small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_leaves_a_root_in_lockstep),
        cmocka_unit_test(test_a_root_in_lockstep_continues),
        cmocka_unit_test(test_conditions),
        cmocka_unit_test(test_posts_ahead),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
