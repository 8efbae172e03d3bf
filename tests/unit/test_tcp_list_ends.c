/* Gathers and scatters of lists: the behaviour of a rank that reads while another one gives up, closes its link or
 * leaves. */
#include <poll.h>

#include "unit/list_sides.h"

/* Lets rank 1 read the first half of its block from rank 0's memory: as root of a gather, or in a scatter. */
static void begin_to_read(tutti_kind kind)
{
    int root = kind == TUTTI_GATHER;
    side[1].coll.shm->polls = 0; /* else it would read all at once */
    side_begin(0, kind, root, side_large);
    if (root == 1) side_begin(2, kind, root, side_large);
    side_begin(1, kind, root, side_large);
    assert_true(TAILQ_FIRST(&side[1].coll.ops)->arrived && side[1].ended == 0 && side[0].ended == 0);
    if (root == 0) assert_int_equal(TAILQ_FIRST(&side[1].coll.ops)->done, LARGE * 8 / 2);
}

static const tutti_kind kinds[] = {TUTTI_GATHER, TUTTI_SCATTER};

/* No rank has completed before all have read. */
static void test_completes(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        bool gathers = kinds[i] == TUTTI_GATHER;
        sides_open();
        begin_to_read(kinds[i]);
        side_turn(0);
        assert_int_equal(side[0].ended, 0);
        side_turn(1);
        assert_int_equal(side[1].ended, 1);
        if (!gathers) { /* rank 2 has yet to read */
            side_turn(0);
            assert_int_equal(side[0].ended, 0);
            side_begin(2, kinds[i], 0, side_large);
            side_turn(2);
        }
        side_turn(0);
        side_turn(2);
        assert_true(side[0].ended == 1 && side[2].ended == 1);
        for (int64_t k = 0; k < LARGE; k++)
            assert_int_equal(gathers ? side[1].all[0][k] : side[1].own[k], gathers ? k : 100000 + k);
        sides_close();
    }
}

/* A rank that sleeps until its memory has been read is woken then. */
static void test_wakes_a_rank_that_is_read(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        sides_open();
        begin_to_read(kinds[i]);
        assert_true(ends_find_nothing(&side_end[0], &side[0].running));
        side_turn(1);
        assert_int_equal(side[1].ended, 1);
        assert_int_equal(poll(&(struct pollfd){side_end[0].shm.doorbell_fd, POLLIN, 0}, 1, 0), 1);
        sides_close();
    }
}

/* The program may overwrite the memory of a rank that gave up, so the reader must not use what it read there. */
static void test_gives_up_while_it_is_read(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        sides_open();
        begin_to_read(kinds[i]);
        assert_true(coll_cancel(&side[0].coll, &side[0].request));
        memset(side[0].own, 0x55, sizeof side[0].own);
        memset(side[0].all, 0x55, sizeof side[0].all);
        side_turn(1);
        assert_int_equal(side[1].ended, 0);
        assert_false(coll_is_ready(&side[1].running));
        bool ranks[ENDS] = {false};
        coll_awaits(&side[1].coll, &side[1].request, ranks);
        assert_true(ranks[0] && !ranks[1] && !ranks[2]);
        side_turn(2);
        assert_true(side[2].ended == 0); /* in the gather, its block has not been taken for good */
        sides_close();
    }
}

/* Another process may have the pid of a rank that has closed its link. */
static void test_closes_while_it_is_read(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        sides_open();
        begin_to_read(kinds[i]);
        atomic_store(&side_end[1].shm.peer[0].in->closed, 1);
        side_turn(1);
        assert_int_equal(side[1].ended, TUTTI_ERR_PEER_LOST);
        side_turn(2);
        assert_int_equal(side[2].ended, 0);
        sides_close();
    }
}

/* A rank whose block is in a buffer may leave before it has been read. */
static void test_leaves_when_it_is_done(void **state)
{
    (void)state;
    sides_open();
    side_begin(0, TUTTI_GATHER, 1, side_large);
    side_begin(2, TUTTI_GATHER, 1, side_small);
    assert_true(side[2].ended == 1 && side[0].ended == 0);
    atomic_store(&side_end[1].shm.peer[2].in->closed, 1);
    side_begin(1, TUTTI_GATHER, 1, (int64_t[ENDS]){LARGE, SMALL, SMALL});
    side_turn(1);
    assert_int_equal(side[1].ended, 1);
    for (int k = 0; k < SMALL; k++) assert_int_equal(side[1].all[2][k], 2000 + k);
    side_turn(0);
    assert_int_equal(side[0].ended, 1);
    sides_close();
}

/* The first call finds that a block has another size.  So must the next one, without waiting for other ranks. */
static void test_refuses_again(void **state)
{
    const int64_t more[ENDS] = {SMALL + 1, SMALL + 1, SMALL};
    (void)state;
    sides_open();
    side_begin(2, TUTTI_SCATTER, 2, more);
    assert_int_equal(side[2].ended, 1);
    for (int i = 0; i < 2; i++) {
        side_begin(i, TUTTI_SCATTER, 2, side_small);
        side_turn(i);
        assert_int_equal(side[i].ended, TUTTI_ERR_MISMATCH);
    }
    sides_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_completes),
        cmocka_unit_test(test_wakes_a_rank_that_is_read),
        cmocka_unit_test(test_gives_up_while_it_is_read),
        cmocka_unit_test(test_closes_while_it_is_read),
        cmocka_unit_test(test_leaves_when_it_is_done),
        cmocka_unit_test(test_refuses_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
