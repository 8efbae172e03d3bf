/* Large blocks in chunks, where ranks share cores: in gathers and scatters of lists, and in exchanges. */
#include <poll.h>
#include <unistd.h>

#include "unit/list_sides.h"

static const tutti_kind kinds[] = {TUTTI_GATHER, TUTTI_SCATTER};

/* Begins a gather or a scatter in which a block goes from rank 0 to rank 1 in chunks.  In the gather it has filled its
 * lane.  In the scatter its lane is rank 1's, which has not begun. */
static void begin_chunks(tutti_kind kind)
{
    bool gathers = kind == TUTTI_GATHER;
    sides_open_sharing_cores();
    side_begin(0, kind, gathers, gathers ? side_large : (int64_t[ENDS]){SMALL, LARGE, SMALL});
    side_begin(2, kind, gathers, side_small);
    side_turn(0);
    side_turn(2);
    assert_true(side[0].ended == 0 && side[2].ended == 1);
}

static void begin_to_take(tutti_kind kind)
{
    bool gathers = kind == TUTTI_GATHER;
    side_begin(1, kind, gathers, gathers ? (int64_t[ENDS]){LARGE, SMALL, SMALL} : side_large);
}

/* Takes all chunks that are there. */
static void empty(void)
{
    while (coll_is_ready(&side[1].running)) side_turn(1);
    assert_int_equal(side[1].ended, 0);
}

static bool is_woken(int rank)
{
    uint64_t count;
    return poll(&(struct pollfd){side_end[rank].shm.doorbell_fd, POLLIN, 0}, 1, 0) == 1 &&
           read(side_end[rank].shm.doorbell_fd, &count, sizeof count) == sizeof count;
}

static bool awaits(int rank, int other)
{
    bool ranks[ENDS] = {false};
    coll_awaits(&side[rank].coll, &side[rank].request, ranks);
    return ranks[other] && ranks[0] + ranks[1] + ranks[2] == 1;
}

/* Drives two ranks until rank 0 has ended.  Each sleeps until the other one wakes it. */
static void take_turns(void)
{
    for (int i = 0; side[0].ended == 0; i++) {
        int rank = i % 2;
        assert_true(i < 200);
        if (side[rank].ended != 0) continue;
        if (i > 1) assert_true(is_woken(rank));
        while (coll_is_ready(&side[rank].running)) side_turn(rank);
        if (side[rank].ended == 0)
            assert_true(ends_find_nothing(&side_end[rank], &side[rank].running) && awaits(rank, !rank));
    }
}

/* The rank that gives a block ends, and may overwrite it, while its last chunks are still in the lane. */
static void test_chunks_complete(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        bool gathers = kinds[i] == TUTTI_GATHER;
        begin_chunks(kinds[i]);
        assert_true(ends_find_nothing(&side_end[0], &side[0].running) && awaits(0, 1));
        begin_to_take(kinds[i]);
        assert_true(is_woken(0));
        take_turns();
        memset(side[0].own, 0x55, sizeof side[0].own);
        memset(side[0].all, 0x55, sizeof side[0].all);
        assert_int_equal(side[1].ended, 0);
        while (coll_is_ready(&side[1].running)) side_turn(1);
        assert_int_equal(side[1].ended, 1);
        for (int64_t k = 0; k < LARGE; k++)
            assert_int_equal(gathers ? side[1].all[0][k] : side[1].own[k], gathers ? k : 100000 + k);
        for (int64_t k = 0; k < SMALL; k++)
            assert_int_equal(gathers ? side[1].all[2][k] : side[2].own[k], gathers ? 2000 + k : 200000 + k);
        sides_close();
    }
}

static void test_chunks_of_a_rank_that_gives_up(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        begin_chunks(kinds[i]);
        begin_to_take(kinds[i]);
        side_turn(0);
        assert_true(coll_cancel(&side[0].coll, &side[0].request));
        empty();
        assert_true(awaits(1, 0));
        sides_close();
    }
}

static void lose(int rank, int other)
{
    atomic_store(&side_end[rank].shm.peer[other].in->closed, 1);
    shm_check_liveness(&side_end[rank].shm);
    side_turn(rank);
}

static void test_chunks_with_a_rank_that_is_lost(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        int lost = i / 2, rank = !lost;
        begin_chunks(kinds[i % 2]);
        if (rank == 1) {
            begin_to_take(kinds[i % 2]);
            empty();
        }
        lose(rank, lost);
        assert_int_equal(side[rank].ended, TUTTI_ERR_PEER_LOST);
        sides_close();
    }
}

/* The rank learns from the other one's step, not from a message. */
static void test_chunks_for_a_rank_that_calls_another_operation(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        begin_chunks(kinds[i]);
        assert_true(ends_find_nothing(&side_end[0], &side[0].running));
        side_fingerprint++;
        side_begin(1, TUTTI_SCATTER, 1, side_small);
        side_fingerprint--;
        assert_true(is_woken(0) && coll_is_ready(&side[0].running));
        side_turn(0);
        assert_int_equal(side[0].ended, TUTTI_ERR_MISMATCH);
        sides_close();
    }
}

/* The root of a scatter in parts of a fragment buffer runs ahead until its tables, not its parts, are used up. */
static void test_root_runs_ahead_with_tables(void **state)
{
    enum { NUMEL = COLL_SMALL / 8, AHEAD = COLL_SMALL_BUFFERS - COLL_RUN_AHEAD - 1 };
    const int64_t numel[ENDS] = {NUMEL, NUMEL, NUMEL};
    (void)state;
    sides_open_sharing_cores();
    for (int i = 0; i < AHEAD; i++) {
        side_begin(0, TUTTI_SCATTER, 0, numel);
        assert_int_equal(side[0].ended, 1);
    }
    side_begin(0, TUTTI_SCATTER, 0, numel);
    assert_int_equal(side[0].ended, 0);
    for (int i = 0; i <= AHEAD; i++)
        for (int rank = 1; rank < ENDS; rank++) {
            side_begin(rank, TUTTI_SCATTER, 0, numel);
            side_turn(rank);
            assert_int_equal(side[rank].ended, i < AHEAD);
        }
    for (int rank = 0; rank < ENDS; rank++) side_turn(rank);
    assert_true(side[0].ended == 1 && side[1].ended == 1 && side[2].ended == 1);
    for (int k = 0; k < NUMEL; k++) assert_int_equal(side[2].own[k], 200000 + k);
    sides_close();
}

/* The root fills no buffer from which another rank has yet to read what its owner gave. */
static void test_root_waits_for_readers(void **state)
{
    const int64_t numel[ENDS] = {SMALL, (100 << 10) / 8, SMALL}, large[ENDS] = {SMALL, LARGE, SMALL};
    (void)state;
    sides_open_sharing_cores();
    for (int rank = 1; rank < ENDS; rank++) {
        side_begin(rank, TUTTI_GATHER, 0, numel);
        assert_int_equal(side[rank].ended, 1);
    }
    side_begin(2, TUTTI_SCATTER, 2, side_small);
    side_begin(1, TUTTI_SCATTER, 2, side_small);
    assert_true(side[1].ended == 1 && side[2].ended == 1);
    side_begin(1, TUTTI_SCATTER, 2, large);
    side_begin(2, TUTTI_SCATTER, 2, large);
    for (int rank = 1; rank < ENDS; rank++) side_turn(rank);
    side_begin(0, TUTTI_GATHER, 0, numel);
    assert_int_equal(side[0].ended, 1);
    for (int64_t k = 0; k < numel[1]; k++) assert_int_equal(side[0].all[1][k], 1000 + k);
    side_begin(0, TUTTI_SCATTER, 2, side_small);
    side_begin(0, TUTTI_SCATTER, 2, large);
    while (side[0].ended + side[1].ended + side[2].ended < ENDS)
        for (int rank = 0; rank < ENDS; rank++) side_turn(rank);
    sides_close();
}

/* What a rank has said of an earlier operation in the same buffer does not count, even if the calls are alike. */
static void test_root_waits_for_each_rank(void **state)
{
    (void)state;
    sides_open_sharing_cores();
    for (int i = 0; i < COLL_SMALL_BUFFERS + 2; i++) {
        int64_t numel = i < COLL_SMALL_BUFFERS ? 0 : LARGE;
        side_begin(0, TUTTI_SCATTER, 0, (int64_t[ENDS]){SMALL, numel, SMALL});
        if (numel > 0) assert_int_equal(side[0].coll.moved[1].in, 0);
        side_begin(1, TUTTI_SCATTER, 0, (int64_t[ENDS]){SMALL, numel, SMALL});
        side_begin(2, TUTTI_SCATTER, 0, side_small);
        while (side[0].ended + side[1].ended + side[2].ended < ENDS)
            for (int k = 0; k < ENDS; k++) side_turn(k);
    }
    sides_close();
}

/* The same in a group that gets the memory of an earlier one. */
static void test_root_waits_in_the_next_group(void **state)
{
    (void)state;
    sides_open_sharing_cores();
    for (int i = 0; i < ENDS; i++) side_begin(i, TUTTI_SCATTER, 0, (int64_t[ENDS]){0, 0, 0});
    for (int i = 0; i < ENDS; i++) side_turn(i);
    assert_int_equal(side[0].ended + side[1].ended + side[2].ended, ENDS);
    for (int i = 0; i < ENDS; i++) coll_close(&side[i].coll);
    assert_int_equal(coll_directory_reserve(&side_end[0].shm, ENDS), COLL_FIRST);
    for (int i = 0; i < ENDS; i++)
        coll_open(&side[i].coll, &side_end[i].shm, COLL_FIRST, i, ENDS, (int32_t[]){0, 1, 2});
    side_begin(0, TUTTI_SCATTER, 0, side_large);
    assert_int_equal(side[0].coll.moved[1].in + side[0].coll.moved[2].in, 0);
    sides_close();
}

/* A root fills no buffer of ranks that have called something else, such as a scatter by another root. */
static void test_two_roots(void **state)
{
    const int64_t numel[ENDS] = {LARGE, SMALL, LARGE};
    (void)state;
    sides_open_sharing_cores();
    side_fingerprint++;
    side_begin(1, TUTTI_SCATTER, 1, numel);
    side_begin(2, TUTTI_SCATTER, 1, side_large);
    side_turn(1);
    side_fingerprint--;
    side_begin(0, TUTTI_SCATTER, 0, side_large);
    side_turn(0);
    assert_int_equal(side[0].ended, TUTTI_ERR_MISMATCH);
    while (coll_is_ready(&side[2].running)) side_turn(2);
    const int64_t taken = (int64_t)side[2].coll.moved[1].out / 8;
    assert_true(taken > 0);
    for (int64_t k = 0; k < taken; k++) assert_int_equal(side[2].own[k], 1000 + 200000 + k);
    side_turn(1);
    assert_int_equal(side[1].ended, TUTTI_ERR_MISMATCH);
    sides_close();
}

/* ---- chunks of an exchange --------------------------------------------------------------------------------------- */

/* Begins an exchange of large blocks by ranks 0 and 1.  The others are small. */
static void begin_exchange(void)
{
    sides_open_sharing_cores();
    side_begin(0, TUTTI_ALL_TO_ALL, 0, (int64_t[ENDS]){SMALL, LARGE, SMALL});
    side_begin(1, TUTTI_ALL_TO_ALL, 0, (int64_t[ENDS]){LARGE, SMALL, SMALL});
    side_begin(2, TUTTI_ALL_TO_ALL, 0, side_small);
    assert_int_equal(side[2].ended, 1);
}

static void test_exchange_completes(void **state)
{
    (void)state;
    begin_exchange();
    take_turns();
    while (coll_is_ready(&side[1].running)) side_turn(1);
    assert_int_equal(side[1].ended, 1);
    for (int i = 0; i < ENDS; i++)
        for (int j = 0; j < ENDS; j++)
            for (int64_t k = 0; k < (i + j == 1 ? LARGE : SMALL); k++)
                assert_int_equal(side[i].got[j][k], j * 1000 + i * 100000 + k);
    sides_close();
}

/* No rank completes an exchange that another one has given up, whether or not their blocks have been moved. */
static void test_exchange_with_a_rank_that_gives_up(void **state)
{
    (void)state;
    sides_open_sharing_cores();
    side_begin(2, TUTTI_ALL_TO_ALL, 0, side_small);
    side_begin(1, TUTTI_ALL_TO_ALL, 0, (int64_t[ENDS]){LARGE, SMALL, SMALL});
    side_begin(0, TUTTI_ALL_TO_ALL, 0, (int64_t[ENDS]){SMALL, LARGE, SMALL});
    side_turn(1);
    assert_true(coll_cancel(&side[2].coll, &side[2].request));
    while (coll_is_ready(&side[0].running) || coll_is_ready(&side[1].running)) {
        side_turn(0);
        side_turn(1);
    }
    assert_true(side[0].ended == 0 && side[1].ended == 0);
    assert_int_equal(side[0].got[1][LARGE - 1], 1000 + LARGE - 1);
    assert_true(awaits(0, 2) && awaits(1, 2));
    sides_close();
}

static void test_exchange_with_a_rank_that_is_lost(void **state)
{
    (void)state;
    begin_exchange();
    lose(1, 2); /* it has given and taken all it needs */
    assert_int_equal(side[1].ended, 0);
    side_turn(0);
    empty();
    lose(1, 0);
    assert_int_equal(side[1].ended, TUTTI_ERR_PEER_LOST);
    sides_close();
}

/* Drives both ranks while the counts of the lane between them are wrong. */
static void store_in_counts(char *counts, uint64_t wrong)
{
    for (int turn = 0; turn < 20; turn++) {
        atomic_store((_Atomic uint64_t *)(void *)counts, wrong);
        side_turn(1);
        atomic_store((_Atomic uint64_t *)(void *)(counts + SHM_LINE), wrong);
        side_turn(0);
    }
    assert_true(side[0].ended >= 0 && side[1].ended >= 0);
    sides_close();
}

/* Whatever the counts in shared memory say, nothing outside the buffers and tensors is read or written. */
static void test_wrong_counts(void **state)
{
    static const uint64_t wrong[] = {1, 12345, (uint64_t)LARGE * 8 + 1, UINT64_MAX / 2, UINT64_MAX};
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const struct coll_segment *coll = &side[0].coll;
        begin_chunks(TUTTI_GATHER);
        begin_to_take(TUTTI_GATHER);
        store_in_counts(coll_small_of(coll, 0, coll->next) + SHM_LINE, wrong[i]);
        begin_chunks(TUTTI_SCATTER);
        begin_to_take(TUTTI_SCATTER);
        store_in_counts(coll_small_of(coll, 1, coll->next) + SHM_LINE, wrong[i]);
        begin_exchange();
        store_in_counts(
            coll_fragment_of(coll, 0, coll->next) + coll->layout.fragment_bytes / ENDS / SHM_LINE * SHM_LINE, wrong[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chunks_complete),
        cmocka_unit_test(test_chunks_of_a_rank_that_gives_up),
        cmocka_unit_test(test_chunks_with_a_rank_that_is_lost),
        cmocka_unit_test(test_chunks_for_a_rank_that_calls_another_operation),
        cmocka_unit_test(test_root_runs_ahead_with_tables),
        cmocka_unit_test(test_root_waits_for_readers),
        cmocka_unit_test(test_root_waits_for_each_rank),
        cmocka_unit_test(test_root_waits_in_the_next_group),
        cmocka_unit_test(test_two_roots),
        cmocka_unit_test(test_exchange_completes),
        cmocka_unit_test(test_exchange_with_a_rank_that_gives_up),
        cmocka_unit_test(test_exchange_with_a_rank_that_is_lost),
        cmocka_unit_test(test_wrong_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
