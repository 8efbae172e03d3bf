/* Directory of collective segments: which group has which segment, and when its pages are released. */
#include <sys/eventfd.h>
#include <unistd.h>

#include "unit/small_groups.h"

#include "../../backends/tcp/shm/coll/directory.c"

static int reserve(struct end *end)
{
    return coll_directory_reserve(&end->shm, 2);
}

/* A segment that was given back is reserved again, with no step posted.  Its pages are not allocated again. */
static void test_reserves_again(void **state)
{
    struct end end[2];
    struct small small[2];
    (void)state;
    small_open_both(end, small);
    size_t before = ends_memory(&end[0]);
    for (int i = 0; i < 2; i++) coll_close(&small[i].coll);
    assert_int_equal(reserve(&end[1]), COLL_FIRST);
    assert_int_equal(ends_memory(&end[0]), before);
    for (int i = 0; i < 2; i++) small_open(&end[i], &small[i], 2);
    small_begin(&small[0], TUTTI_ALL_REDUCE);
    coll_progress(&small[0].running);
    assert_int_equal(small[0].ended, 0); /* the peer's steps belong to the earlier group */
    small_begin(&small[1], TUTTI_ALL_REDUCE);
    for (int turn = 0; turn < 8; turn++) coll_progress(&small[turn % 2].running);
    assert_true(small[0].ended == 1 && small[1].ended == 1);
    small_close_both(end, small);
}

/* Steps of a segment's groups have different numbers, however many each group has posted. */
static void test_counts_on(void **state)
{
    struct end end[2];
    struct shm_directory_entry *entry;
    (void)state;
    ends_open(end, 2);
    entry = &shm_directory(&end[0].shm)->entry[1];
    assert_int_equal(reserve(&end[0]), 1);
    assert_int_equal(coll_directory_first(&end[1].shm, 1), 1);
    coll_directory_leave(&end[0].shm, 1, 2, 90);
    coll_directory_leave(&end[1].shm, 1, 2, 70);
    assert_int_equal(reserve(&end[1]), 1);
    assert_int_equal(coll_directory_first(&end[0].shm, 1), 91);
    for (int i = 0; i < 2; i++) coll_directory_leave(&end[i].shm, 1, 2, 5);
    atomic_store(&entry->last, UINT64_MAX - 1); /* by a faulty rank */
    struct coll_slot *slot = (struct coll_slot *)(void *)((char *)shm_coll_at(&end[0].shm, 1) + COLL_WORDS);
    atomic_store(&slot->step, UINT64_MAX - 1);
    assert_int_equal(reserve(&end[0]), 1);
    assert_int_equal(coll_directory_first(&end[0].shm, 1), 1);
    assert_int_equal(atomic_load(&slot->step), 0);
    ends_close(end, 2);
}

/* What a group of other size has left where a slot is now is not taken for a step. */
static void test_clears_another_layout(void **state)
{
    struct end end[ENDS];
    struct coll_segment coll;
    (void)state;
    ends_open(end, ENDS);
    assert_int_equal(coll_directory_reserve(&end[0].shm, ENDS), 1);
    coll_lay_out(&coll, &end[0].shm, 1, 2);
    atomic_store(&coll_slot_of(&coll, 1, 7)->step, 7000);
    for (int i = 0; i < ENDS; i++) coll_directory_leave(&end[i].shm, 1, ENDS, 1);
    assert_int_equal(coll_directory_reserve(&end[0].shm, 2), 1);
    assert_int_equal(atomic_load(&coll_slot_of(&coll, 1, 7)->step), 0);
    ends_close(end, ENDS);
}

/* A root need not wait for steps that only an earlier group could have posted. */
static void test_runs_ahead_at_once(void **state)
{
    struct end end[2];
    struct small small;
    (void)state;
    ends_open(end, 2);
    shm_directory(&end[0].shm)->entry[COLL_FIRST].first = 10 * COLL_SLOTS;
    small_open(&end[0], &small, 2);
    small_begin(&small, TUTTI_BROADCAST);
    assert_int_equal(small.ended, 1);
    coll_close(&small.coll);
    ends_close(end, 2);
}

/* A group takes memory for its own ranks, also in the segment of a smaller one. */
static void test_takes_memory_for_its_ranks(void **state)
{
    const size_t page = 4096;
    struct end end[ENDS];
    (void)state;
    ends_open(end, ENDS);
    size_t pair = coll_group_bytes(2), span = coll_group_bytes(ENDS), before = ends_memory(&end[0]);
    assert_true(pair < span * 3 / 4);
    assert_int_equal(coll_directory_reserve(&end[0].shm, 2), 1);
    assert_in_range(ends_memory(&end[0]) - before, pair, pair + page);
    for (int i = 0; i < 2; i++) coll_directory_leave(&end[i].shm, 1, 2, 1);
    assert_int_equal(coll_directory_reserve(&end[1].shm, ENDS), 1);
    assert_in_range(ends_memory(&end[0]) - before, span, span + page);
    for (int i = 0; i < ENDS; i++) coll_directory_leave(&end[i].shm, 1, ENDS, 1);
    assert_int_equal(coll_directory_reserve(&end[0].shm, 2), 1);
    assert_in_range(ends_memory(&end[0]) - before, span, span + page);
    ends_close(end, ENDS);
}

/* A group gets the segment whose memory suits it, so that it need not take any. */
static void test_prefers_what_suits(void **state)
{
    struct end end[ENDS];
    (void)state;
    ends_open(end, ENDS);
    assert_int_equal(coll_directory_reserve(&end[0].shm, 2), 1);
    assert_int_equal(coll_directory_reserve(&end[0].shm, ENDS), 2);
    for (int i = 0; i < 2; i++) coll_directory_leave(&end[i].shm, 1, 2, 1);
    for (int i = 0; i < ENDS; i++) coll_directory_leave(&end[i].shm, 2, ENDS, 1);
    size_t before = ends_memory(&end[0]);
    assert_int_equal(coll_directory_reserve(&end[0].shm, ENDS), 2);
    assert_int_equal(coll_directory_reserve(&end[0].shm, 2), 1);
    for (int i = 0; i < ENDS; i++) coll_directory_leave(&end[i].shm, 2, ENDS, 1);
    assert_int_equal(coll_directory_reserve(&end[0].shm, 2), 2); /* rather than one without memory */
    assert_int_equal(ends_memory(&end[0]), before);
    ends_close(end, ENDS);
}

/* Each segment is reserved once.  Further groups have none until a segment is given back. */
static void test_reserves_all(void **state)
{
    struct end end[2];
    (void)state;
    ends_open(end, 2);
    for (int i = 1; i < SHM_SEGMENTS; i++) assert_int_equal(reserve(&end[i % 2]), i);
    for (int i = 0; i < 2; i++) assert_int_equal(reserve(&end[i]), COLL_ABSENT);
    for (int i = 0; i < 2; i++) coll_directory_leave(&end[i].shm, 7, 2, 1);
    assert_int_equal(reserve(&end[1]), 7);
    ends_close(end, 2);
}

/* After many groups have ended, few segments keep their pages. */
static void test_releases_pages(void **state)
{
    struct end end[2];
    (void)state;
    ends_open(end, 2);
    for (int i = 1; i < SHM_SEGMENTS; i++) assert_int_equal(reserve(&end[0]), i);
    for (int i = 0; i < SHM_SEGMENTS; i++)
        for (int k = 0; k < 2; k++) coll_directory_leave(&end[k].shm, i, 2, 1);
    assert_true(ends_memory(&end[0]) <= end[0].shm.bytes_at + KEEP_BYTES);
    ends_close(end, 2);
}

/* A segment of many ranks is kept for the next group, and one of a few ranks twice. */
static void test_keeps_large_ones(void **state)
{
    (void)state;
    assert_true(coll_bytes(SHM_RANKS_MAX / 2) <= KEEP_BYTES);
    assert_true(2 * coll_bytes(16) <= KEEP_BYTES);
}

/* A rank that dies while it reserves an entry does not keep it. */
static void test_dies_while_it_reserves(void **state)
{
    struct end end[2];
    (void)state;
    ends_open(end, 2);
    struct shm_directory_entry *entry = &shm_directory(&end[0].shm)->entry[1];
    end[0].shm.peer[1].liveness_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    assert_true(try_reserve(&end[1].shm, entry));
    assert_int_equal(reserve(&end[0]), 2); /* the rank is running */
    assert_int_equal(write(end[0].shm.peer[1].liveness_fd, &(uint64_t){1}, sizeof(uint64_t)), sizeof(uint64_t));
    assert_int_equal(reserve(&end[0]), 1); /* readable, as if its process had ended */
    close(end[0].shm.peer[1].liveness_fd);
    ends_close(end, 2);
}

/* A faulty rank may have written anything there. */
static void test_faulty_directory(void **state)
{
    struct end end[2];
    struct coll_segment coll;
    (void)state;
    ends_open(end, 2);
    memset(shm_directory(&end[0].shm), 0xa5, sizeof(struct shm_directory));
    coll_open(&coll, &end[0].shm, COLL_FIRST, 0, 2, (int32_t[]){0, 1});
    assert_int_equal(coll.state, COLL_NONE);
    assert_int_equal(reserve(&end[0]), 0); /* the owner is not a local rank, so the entry is free */
    coll_open(&coll, &end[0].shm, SHM_SEGMENTS, 0, 2, (int32_t[]){0, 1});
    assert_int_equal(coll.state, COLL_NONE);
    ends_close(end, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reserves_again),         cmocka_unit_test(test_counts_on),
        cmocka_unit_test(test_clears_another_layout),  cmocka_unit_test(test_runs_ahead_at_once),
        cmocka_unit_test(test_reserves_all),           cmocka_unit_test(test_takes_memory_for_its_ranks),
        cmocka_unit_test(test_prefers_what_suits),     cmocka_unit_test(test_releases_pages),
        cmocka_unit_test(test_dies_while_it_reserves), cmocka_unit_test(test_keeps_large_ones),
        cmocka_unit_test(test_faulty_directory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
