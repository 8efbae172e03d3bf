/* Gathers, scatters and exchanges of lists: the behaviour of a rank that reads while another one gives up, closes its
 * link or leaves.  One thread drives all ranks. */
#include <poll.h>
#include <unistd.h>

#include "unit/shm_ends.h"

enum { LARGE = COLL_READ_MOST / 8 * 2, SMALL = 5 }; /* two turns are needed to read LARGE elements */

struct side {
    struct coll_segment coll;
    struct coll_list running;
    int64_t own[LARGE + 1], all[ENDS][LARGE + 1], got[ENDS][LARGE + 1];
    tutti_tensor one, list[ENDS], received[ENDS];
    tutti_request request;
    int ended;
};

static struct end end[ENDS];
static struct side side[ENDS];
static uint64_t fingerprint = 7;

static void open_sides(void)
{
    ends_open(end, ENDS);
    for (int i = 0; i < ENDS; i++) {
        end[i].shm.can_read_memory = true;
        for (int k = 0; k < ENDS; k++) end[i].shm.peer[k].pid = getpid();
        LIST_INIT(&side[i].running);
        coll_open(&side[i].coll, &end[i].shm, COLL_FIRST, i, ENDS, (int32_t[]){0, 1, 2});
        assert_int_equal(side[i].coll.state, COLL_READY);
        for (int64_t k = 0; k <= LARGE; k++) {
            side[i].own[k] = i * 1000 + k;
            for (int j = 0; j < ENDS; j++) side[i].all[j][k] = i * 1000 + j * 100000 + k;
        }
    }
}

static void close_sides(void)
{
    for (int i = 0; i < ENDS; i++) coll_close(&side[i].coll);
    ends_close(end, ENDS);
}

/* Begins an operation with this many elements in the blocks that the rank knows. */
static void begin(int rank, tutti_kind kind, int root, const int64_t numel[ENDS])
{
    struct side *it = &side[rank];
    tutti_tensor x = {it->own, numel[rank], TUTTI_INT64, {TUTTI_CPU, 0}};
    it->one = x;
    for (int i = 0; i < ENDS; i++) {
        x.numel = numel[i];
        x.data = it->all[i];
        it->list[i] = x;
        x.data = it->got[i];
        it->received[i] = x;
    }
    tutti_op op = {.kind = kind, .dtype = TUTTI_INT64, .root = root, .list = true};
    bool gathers = kind == TUTTI_GATHER, exchanges = kind == TUTTI_ALL_TO_ALL, is_root = rank == root;
    op.in = gathers ? &it->one : is_root || exchanges ? it->list : NULL;
    op.out = exchanges ? it->received : !gathers ? &it->one : is_root ? it->list : NULL;
    op.n_in = gathers ? 1 : op.in != NULL ? ENDS : 0;
    op.n_out = !gathers && !exchanges ? 1 : op.out != NULL ? ENDS : 0;
    it->ended = 0;
    it->request = (tutti_request){.fingerprint = fingerprint, .owner = &it->ended};
    if (coll_begin(&it->coll, &op, &it->request, &it->running) == TUTTI_REQUEST_DONE) it->ended = 1;
}

static void turns(int rank)
{
    for (int i = 0; i < 4; i++) coll_progress(&side[rank].running);
}

static const int64_t large[ENDS] = {LARGE, LARGE, LARGE}, small[ENDS] = {SMALL, SMALL, SMALL};

/* Lets rank 1 read the first half of its block from rank 0's memory: as root of a gather, or in a scatter. */
static void begin_to_read(tutti_kind kind)
{
    int root = kind == TUTTI_GATHER;
    side[1].coll.shm->polls = 0; /* else it would read all at once */
    begin(0, kind, root, large);
    if (root == 1) begin(2, kind, root, large);
    begin(1, kind, root, large);
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
        open_sides();
        begin_to_read(kinds[i]);
        turns(0);
        assert_int_equal(side[0].ended, 0);
        turns(1);
        assert_int_equal(side[1].ended, 1);
        if (!gathers) { /* rank 2 has yet to read */
            turns(0);
            assert_int_equal(side[0].ended, 0);
            begin(2, kinds[i], 0, large);
            turns(2);
        }
        turns(0);
        turns(2);
        assert_true(side[0].ended == 1 && side[2].ended == 1);
        for (int64_t k = 0; k < LARGE; k++)
            assert_int_equal(gathers ? side[1].all[0][k] : side[1].own[k], gathers ? k : 100000 + k);
        close_sides();
    }
}

/* A rank that sleeps until its memory has been read is woken then. */
static void test_wakes_a_rank_that_is_read(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        open_sides();
        begin_to_read(kinds[i]);
        assert_true(ends_find_nothing(&end[0], &side[0].running));
        turns(1);
        assert_int_equal(side[1].ended, 1);
        assert_int_equal(poll(&(struct pollfd){end[0].shm.doorbell_fd, POLLIN, 0}, 1, 0), 1);
        close_sides();
    }
}

/* The program may overwrite the memory of a rank that gave up, so the reader must not use what it read there. */
static void test_gives_up_while_it_is_read(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        open_sides();
        begin_to_read(kinds[i]);
        assert_true(coll_cancel(&side[0].coll, &side[0].request));
        memset(side[0].own, 0x55, sizeof side[0].own);
        memset(side[0].all, 0x55, sizeof side[0].all);
        turns(1);
        assert_int_equal(side[1].ended, 0);
        assert_false(coll_is_ready(&side[1].running));
        bool ranks[ENDS] = {false};
        coll_awaits(&side[1].coll, &side[1].request, ranks);
        assert_true(ranks[0] && !ranks[1] && !ranks[2]);
        turns(2);
        assert_true(side[2].ended == 0); /* in the gather, its block has not been taken for good */
        close_sides();
    }
}

/* Another process may have the pid of a rank that has closed its link. */
static void test_closes_while_it_is_read(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        open_sides();
        begin_to_read(kinds[i]);
        atomic_store(&end[1].shm.peer[0].in->closed, 1);
        turns(1);
        assert_int_equal(side[1].ended, TUTTI_ERR_PEER_LOST);
        turns(2);
        assert_int_equal(side[2].ended, 0);
        close_sides();
    }
}

/* A rank whose block is in a buffer may leave before it has been read. */
static void test_leaves_when_it_is_done(void **state)
{
    (void)state;
    open_sides();
    begin(0, TUTTI_GATHER, 1, large);
    begin(2, TUTTI_GATHER, 1, small);
    assert_true(side[2].ended == 1 && side[0].ended == 0);
    atomic_store(&end[1].shm.peer[2].in->closed, 1);
    begin(1, TUTTI_GATHER, 1, (int64_t[ENDS]){LARGE, SMALL, SMALL});
    turns(1);
    assert_int_equal(side[1].ended, 1);
    for (int k = 0; k < SMALL; k++) assert_int_equal(side[1].all[2][k], 2000 + k);
    turns(0);
    assert_int_equal(side[0].ended, 1);
    close_sides();
}

/* The first call finds that a block has another size.  So must the next one, without waiting for other ranks. */
static void test_refuses_again(void **state)
{
    const int64_t more[ENDS] = {SMALL + 1, SMALL + 1, SMALL};
    (void)state;
    open_sides();
    begin(2, TUTTI_SCATTER, 2, more);
    assert_int_equal(side[2].ended, 1);
    for (int i = 0; i < 2; i++) {
        begin(i, TUTTI_SCATTER, 2, small);
        turns(i);
        assert_int_equal(side[i].ended, TUTTI_ERR_MISMATCH);
    }
    close_sides();
}

/* ---- chunks ---------------------------------------------------------------------------------------------------- */

static void open_sharing_cores(void)
{
    open_sides();
    for (int i = 0; i < ENDS; i++) {
        end[i].shm.shares_cores = true;
        end[i].shm.polls = 0;
    }
}

/* Begins a gather or a scatter in which a block goes from rank 0 to rank 1 in chunks.  In the gather it has filled its
 * lane.  In the scatter its lane is rank 1's, which has not begun. */
static void begin_chunks(tutti_kind kind)
{
    bool gathers = kind == TUTTI_GATHER;
    open_sharing_cores();
    begin(0, kind, gathers, gathers ? large : (int64_t[ENDS]){SMALL, LARGE, SMALL});
    begin(2, kind, gathers, small);
    turns(0);
    turns(2);
    assert_true(side[0].ended == 0 && side[2].ended == 1);
}

static void begin_to_take(tutti_kind kind)
{
    bool gathers = kind == TUTTI_GATHER;
    begin(1, kind, gathers, gathers ? (int64_t[ENDS]){LARGE, SMALL, SMALL} : large);
}

/* Takes all chunks that are there. */
static void empty(void)
{
    while (coll_is_ready(&side[1].running)) turns(1);
    assert_int_equal(side[1].ended, 0);
}

static bool is_woken(int rank)
{
    uint64_t count;
    return poll(&(struct pollfd){end[rank].shm.doorbell_fd, POLLIN, 0}, 1, 0) == 1 &&
           read(end[rank].shm.doorbell_fd, &count, sizeof count) == sizeof count;
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
        while (coll_is_ready(&side[rank].running)) turns(rank);
        if (side[rank].ended == 0)
            assert_true(ends_find_nothing(&end[rank], &side[rank].running) && awaits(rank, !rank));
    }
}

/* The rank that gives a block ends, and may overwrite it, while its last chunks are still in the lane. */
static void test_chunks_complete(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        bool gathers = kinds[i] == TUTTI_GATHER;
        begin_chunks(kinds[i]);
        assert_true(ends_find_nothing(&end[0], &side[0].running) && awaits(0, 1));
        begin_to_take(kinds[i]);
        assert_true(is_woken(0));
        take_turns();
        memset(side[0].own, 0x55, sizeof side[0].own);
        memset(side[0].all, 0x55, sizeof side[0].all);
        assert_int_equal(side[1].ended, 0);
        while (coll_is_ready(&side[1].running)) turns(1);
        assert_int_equal(side[1].ended, 1);
        for (int64_t k = 0; k < LARGE; k++)
            assert_int_equal(gathers ? side[1].all[0][k] : side[1].own[k], gathers ? k : 100000 + k);
        for (int64_t k = 0; k < SMALL; k++)
            assert_int_equal(gathers ? side[1].all[2][k] : side[2].own[k], gathers ? 2000 + k : 200000 + k);
        close_sides();
    }
}

static void test_chunks_of_a_rank_that_gives_up(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        begin_chunks(kinds[i]);
        begin_to_take(kinds[i]);
        turns(0);
        assert_true(coll_cancel(&side[0].coll, &side[0].request));
        empty();
        assert_true(awaits(1, 0));
        close_sides();
    }
}

static void lose(int rank, int other)
{
    atomic_store(&end[rank].shm.peer[other].in->closed, 1);
    shm_check_liveness(&end[rank].shm);
    turns(rank);
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
        close_sides();
    }
}

/* The rank learns from the other one's step, not from a message. */
static void test_chunks_for_a_rank_that_calls_another_operation(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        begin_chunks(kinds[i]);
        assert_true(ends_find_nothing(&end[0], &side[0].running));
        fingerprint++;
        begin(1, TUTTI_SCATTER, 1, small);
        fingerprint--;
        assert_true(is_woken(0) && coll_is_ready(&side[0].running));
        turns(0);
        assert_int_equal(side[0].ended, TUTTI_ERR_MISMATCH);
        close_sides();
    }
}

/* What a rank has said of an earlier operation in the same buffer does not count, even if the calls are alike. */
static void test_root_waits_for_each_rank(void **state)
{
    (void)state;
    open_sharing_cores();
    for (int i = 0; i < COLL_SMALL_BUFFERS + 2; i++) {
        int64_t numel = i < COLL_SMALL_BUFFERS ? 0 : LARGE;
        begin(0, TUTTI_SCATTER, 0, (int64_t[ENDS]){SMALL, numel, SMALL});
        if (numel > 0) assert_int_equal(side[0].coll.moved[1].in, 0);
        begin(1, TUTTI_SCATTER, 0, (int64_t[ENDS]){SMALL, numel, SMALL});
        begin(2, TUTTI_SCATTER, 0, small);
        while (side[0].ended + side[1].ended + side[2].ended < ENDS)
            for (int k = 0; k < ENDS; k++) turns(k);
    }
    close_sides();
}

/* A root fills no buffer of ranks that have called something else, such as a scatter by another root. */
static void test_two_roots(void **state)
{
    const int64_t numel[ENDS] = {LARGE, SMALL, LARGE};
    (void)state;
    open_sharing_cores();
    fingerprint++;
    begin(1, TUTTI_SCATTER, 1, numel);
    begin(2, TUTTI_SCATTER, 1, large);
    turns(1);
    fingerprint--;
    begin(0, TUTTI_SCATTER, 0, large);
    turns(0);
    assert_int_equal(side[0].ended, TUTTI_ERR_MISMATCH);
    while (coll_is_ready(&side[2].running)) turns(2);
    const int64_t taken = (int64_t)side[2].coll.moved[1].out / 8;
    assert_true(taken > 0);
    for (int64_t k = 0; k < taken; k++) assert_int_equal(side[2].own[k], 1000 + 200000 + k);
    turns(1);
    assert_int_equal(side[1].ended, TUTTI_ERR_MISMATCH);
    close_sides();
}

/* ---- chunks of an exchange --------------------------------------------------------------------------------------- */

/* Begins an exchange of large blocks by ranks 0 and 1.  The others are small. */
static void begin_exchange(void)
{
    open_sharing_cores();
    begin(0, TUTTI_ALL_TO_ALL, 0, (int64_t[ENDS]){SMALL, LARGE, SMALL});
    begin(1, TUTTI_ALL_TO_ALL, 0, (int64_t[ENDS]){LARGE, SMALL, SMALL});
    begin(2, TUTTI_ALL_TO_ALL, 0, small);
    assert_int_equal(side[2].ended, 1);
}

static void test_exchange_completes(void **state)
{
    (void)state;
    begin_exchange();
    take_turns();
    while (coll_is_ready(&side[1].running)) turns(1);
    assert_int_equal(side[1].ended, 1);
    for (int i = 0; i < ENDS; i++)
        for (int j = 0; j < ENDS; j++)
            for (int64_t k = 0; k < (i + j == 1 ? LARGE : SMALL); k++)
                assert_int_equal(side[i].got[j][k], j * 1000 + i * 100000 + k);
    close_sides();
}

/* No rank completes an exchange that another one has given up, whether or not their blocks have been moved. */
static void test_exchange_with_a_rank_that_gives_up(void **state)
{
    (void)state;
    open_sharing_cores();
    begin(2, TUTTI_ALL_TO_ALL, 0, small);
    begin(1, TUTTI_ALL_TO_ALL, 0, (int64_t[ENDS]){LARGE, SMALL, SMALL});
    begin(0, TUTTI_ALL_TO_ALL, 0, (int64_t[ENDS]){SMALL, LARGE, SMALL});
    turns(1);
    assert_true(coll_cancel(&side[2].coll, &side[2].request));
    while (coll_is_ready(&side[0].running) || coll_is_ready(&side[1].running)) {
        turns(0);
        turns(1);
    }
    assert_true(side[0].ended == 0 && side[1].ended == 0);
    assert_int_equal(side[0].got[1][LARGE - 1], 1000 + LARGE - 1);
    assert_true(awaits(0, 2) && awaits(1, 2));
    close_sides();
}

static void test_exchange_with_a_rank_that_is_lost(void **state)
{
    (void)state;
    begin_exchange();
    lose(1, 2); /* it has given and taken all it needs */
    assert_int_equal(side[1].ended, 0);
    turns(0);
    empty();
    lose(1, 0);
    assert_int_equal(side[1].ended, TUTTI_ERR_PEER_LOST);
    close_sides();
}

/* Drives both ranks while the counts of the lane between them are wrong. */
static void store_in_counts(char *counts, uint64_t wrong)
{
    for (int turn = 0; turn < 20; turn++) {
        atomic_store((_Atomic uint64_t *)(void *)counts, wrong);
        turns(1);
        atomic_store((_Atomic uint64_t *)(void *)(counts + SHM_LINE), wrong);
        turns(0);
    }
    assert_true(side[0].ended >= 0 && side[1].ended >= 0);
    close_sides();
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
        store_in_counts(coll_fragment_of(coll, 0, coll->next) + coll->fragment_bytes / ENDS / SHM_LINE * SHM_LINE,
                        wrong[i]);
    }
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
        cmocka_unit_test(test_chunks_complete),
        cmocka_unit_test(test_chunks_of_a_rank_that_gives_up),
        cmocka_unit_test(test_chunks_with_a_rank_that_is_lost),
        cmocka_unit_test(test_chunks_for_a_rank_that_calls_another_operation),
        cmocka_unit_test(test_root_waits_for_each_rank),
        cmocka_unit_test(test_two_roots),
        cmocka_unit_test(test_exchange_completes),
        cmocka_unit_test(test_exchange_with_a_rank_that_gives_up),
        cmocka_unit_test(test_exchange_with_a_rank_that_is_lost),
        cmocka_unit_test(test_wrong_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
