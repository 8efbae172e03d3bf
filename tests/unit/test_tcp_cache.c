/* Two ranks, whose cores are near each other or far: as threads, as in test_tcp_coll.c. */
#include "shm_ends.h"

enum { WAYS = 6000, WAYS_NUMEL = 20000 }; /* an all_reduce of so many has a choice, too */

static bool was_large[2][WAYS];

/* Rank 0 comes to think now this, now that of the cores; both have to go the same way at every operation, although
 * roots of broadcasts run ahead. */
static void *ways(void *argument)
{
    struct end *end = argument;
    struct coll_segment coll;
    struct coll_list running = LIST_HEAD_INITIALIZER(running);
    int rank = end->shm.local_rank;
    int64_t *data = malloc(WAYS_NUMEL * sizeof *data);
    uint64_t random = 1;
    end->shm.can_read_memory = true;
    end->shm.peer[1 - rank].pid = getpid();
    coll_open(&coll, &end->shm, COLL_FIRST, rank, 2, (int32_t[]){0, 1});
    for (int64_t i = 0; i < WAYS && end->lost == 0 && end->wrong == 0; i++) {
        next_random(&random);
        bool reduce = random >> 60 == 0, small = random >> 62 != 0 && !reduce;
        int64_t numel = small ? 1 : reduce ? WAYS_NUMEL : 6000;
        int root = (int)(random >> 40 & 31) == 0;
        for (int64_t k = 0; k < numel; k++) data[k] = reduce ? i + k + rank : rank == root ? i - k : -1;
        tutti_tensor tensor = {data, numel, TUTTI_INT64, {TUTTI_CPU, 0}};
        tutti_op op = {.kind = reduce ? TUTTI_ALL_REDUCE : TUTTI_BROADCAST,
                       .dtype = TUTTI_INT64,
                       .root = root,
                       .n_in = reduce,
                       .n_out = 1,
                       .in = &tensor,
                       .out = &tensor};
        if (rank == 0) coll.fragment_ps = random >> 33 & 1 ? 5 : 5000;
        end->wrong += run_op(end, &coll, &running, &op, (uint64_t)i + 1) != 1;
        was_large[rank][i] = coll.spare->path == COLL_DIRECT;
        for (int64_t k = 0; k < numel; k++) end->wrong += data[k] != (reduce ? 2 * (i + k) + 1 : i - k);
    }
    coll_close(&coll);
    free(data);
    return NULL;
}

static void test_both_go_the_same_way(void **state)
{
    struct end end[2];
    int large = 0;
    (void)state;
    run_two(end, ways);
    assert_memory_equal(was_large[0], was_large[1], sizeof was_large[0]);
    for (int i = 0; i < WAYS; i++) large += was_large[0][i];
    assert_in_range(large, WAYS / 40, WAYS / 5); /* of the quarter that have a choice */
}

/* Operations that go through the trays either way, and there, where cores are far, in another one: an all_reduce that
 * each rank reduces whole, what one rank alone would read, and, where no memory may be read, everything. */
enum { TRAYS = 4000, TRAYS_NUMEL = 20000 };

static bool may_read, was_far[2][TRAYS], was_split[2][TRAYS];

static void *trays(void *argument)
{
    static const tutti_kind kinds[] = {TUTTI_ALL_REDUCE, TUTTI_REDUCE, TUTTI_BROADCAST};
    struct end *end = argument;
    struct coll_segment coll;
    struct coll_list running = LIST_HEAD_INITIALIZER(running);
    int rank = end->shm.local_rank;
    int64_t *data = malloc(TRAYS_NUMEL * sizeof *data);
    uint64_t random = 7;
    end->shm.can_read_memory = may_read;
    end->shm.peer[1 - rank].pid = getpid();
    coll_open(&coll, &end->shm, COLL_FIRST, rank, 2, (int32_t[]){0, 1});
    for (int64_t i = 0; i < TRAYS && end->lost == 0 && end->wrong == 0; i++) {
        next_random(&random);
        tutti_kind kind = kinds[(random >> 50) % 3];
        int root = (int)(random >> 40 & 1);
        int64_t numel = random >> 60 == 0 && (kind != TUTTI_ALL_REDUCE || !may_read) ? TRAYS_NUMEL : 3000;
        bool has_result = kind != TUTTI_REDUCE || rank == root;
        for (int64_t k = 0; k < numel; k++)
            data[k] = kind != TUTTI_BROADCAST ? i + k + rank : rank == root ? i - k : -1;
        tutti_tensor tensor = {data, numel, TUTTI_INT64, {TUTTI_CPU, 0}};
        tutti_op op = {.kind = kind,
                       .dtype = TUTTI_INT64,
                       .root = root,
                       .async = (int)(random >> 30 & 127) == rank, /* not split for some time */
                       .n_in = kind != TUTTI_BROADCAST,
                       .n_out = has_result,
                       .in = &tensor,
                       .out = &tensor};
        if (rank == 0) coll.fragment_ps = random >> 33 & 1 ? 5 : 5000;
        end->wrong += run_op(end, &coll, &running, &op, (uint64_t)i + 1) != 1;
        was_far[rank][i] = coll.spare->is_separate;
        was_split[rank][i] = coll.spare->path == COLL_LOCKSTEP;
        end->wrong += coll.spare->path == COLL_DIRECT || (coll.spare->is_separate && coll.spare->path == COLL_LOCKSTEP);
        for (int64_t k = 0; has_result && k < numel; k++)
            end->wrong += data[k] != (kind != TUTTI_BROADCAST ? 2 * (i + k) + 1 : i - k);
    }
    coll_close(&coll);
    free(data);
    return NULL;
}

static void fill_trays(bool reads)
{
    struct end end[2];
    int far = 0, split = 0;
    may_read = reads;
    run_two(end, trays);
    assert_memory_equal(was_far[0], was_far[1], sizeof was_far[0]);
    assert_memory_equal(was_split[0], was_split[1], sizeof was_split[0]);
    for (int i = 0; i < TRAYS; i++) far += was_far[0][i], split += was_split[0][i];
    assert_in_range(far, TRAYS / 8, TRAYS * 7 / 8);
    assert_in_range(split, TRAYS / 40, TRAYS / 2);
}

static void test_both_fill_trays_the_same_way(void **state)
{
    (void)state;
    fill_trays(true);
    fill_trays(false);
}

/* Where all are split nobody fills a tray: they are timed as a whole. */
static void *splits(void *argument)
{
    enum { NUMEL = 6000 };
    struct end *end = argument;
    struct coll_segment coll;
    struct coll_list running = LIST_HEAD_INITIALIZER(running);
    static int64_t both[2][NUMEL];
    int rank = end->shm.local_rank;
    tutti_tensor tensor = {both[rank], NUMEL, TUTTI_INT64, {TUTTI_CPU, 0}};
    tutti_op op = {.kind = TUTTI_BROADCAST, .dtype = TUTTI_INT64, .n_out = 1, .out = &tensor};
    coll_open(&coll, &end->shm, COLL_FIRST, rank, 2, (int32_t[]){0, 1});
    for (uint64_t i = 1; i <= 8; i++) {
        end->wrong += run_op(end, &coll, &running, &op, i) != 1;
        end->wrong +=
            (coll.spare->path == COLL_LOCKSTEP) != (i > 1); /* of the first it is not known whether both wait */
        end->wrong += i > 1 && (coll.fragment_ps != 0) != (rank == 0);
        coll.fragment_ps = 0; /* however long it took, the next one is split */
    }
    coll_close(&coll);
    return NULL;
}

static void test_split_ones_are_timed(void **state)
{
    struct end end[2];
    (void)state;
    run_two(end, splits);
}

static bool shares_cache(struct coll_segment *coll, uint64_t step)
{
    struct coll_op op = {.first = step};
    return coll_cache_is_shared(coll, &op);
}

static void test_near_again_is_found_out(void **state)
{
    struct end end[2];
    struct coll_segment coll;
    (void)state;
    pair_open(end);
    coll_open(&coll, &end[0].shm, COLL_FIRST, 0, 2, (int32_t[]){0, 1});
    uint64_t step = 1, tried = 0;
    coll.fragment_ps = 1000;
    assert_true(shares_cache(&coll, step++)); /* the other rank may be as far, and cannot know yet */
    for (; step <= 10000; step++) tried += shares_cache(&coll, step);
    assert_in_range(tried, 50, 500);
    coll.fragment_ps = 10;
    for (tried = 0; step <= 10100; step++)
        tried += shares_cache(&coll, step); /* nobody is known to know the last word */
    assert_in_range(tried, 0, 10);
    coll.all_in = 10100;
    shares_cache(&coll, step++);
    for (; step < 20000; step++) assert_true(shares_cache(&coll, step));
    coll_close(&coll);
    pair_close(end);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_both_go_the_same_way), cmocka_unit_test(test_both_fill_trays_the_same_way),
        cmocka_unit_test(test_split_ones_are_timed), cmocka_unit_test(test_near_again_is_found_out)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
