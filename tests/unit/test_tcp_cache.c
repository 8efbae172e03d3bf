/* Two ranks as threads, whose cores share a last-level cache or have separate ones. */
#include <unistd.h>

#include "unit/shm_ends.h"

enum { PATHS = 6000, PATHS_NUMEL = 20000 }; /* an all_reduce of this length may take either path */

static bool was_direct[2][PATHS];

/* Rank 0 changes its mind about the cores now and then.  Both ranks have to take the same path in every operation,
 * although roots of broadcasts run ahead. */
static void *paths(void *argument)
{
    struct end *end = argument;
    struct coll_segment coll;
    struct coll_list running = LIST_HEAD_INITIALIZER(running);
    int rank = end->shm.local_rank;
    int64_t *data = malloc(PATHS_NUMEL * sizeof *data);
    uint64_t random = 1;
    end->shm.can_read_memory = true;
    end->shm.peer[1 - rank].pid = getpid();
    coll_open(&coll, &end->shm, COLL_FIRST, rank, 2, (int32_t[]){0, 1});
    for (int64_t i = 0; i < PATHS && end->lost == 0 && end->wrong == 0; i++) {
        ends_next_random(&random);
        bool reduce = random >> 60 == 0, small = random >> 62 != 0 && !reduce;
        int64_t numel = small ? 1 : reduce ? PATHS_NUMEL : 6000;
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
        end->wrong += ends_run_op(end, &coll, &running, &op, (uint64_t)i + 1) != 1;
        was_direct[rank][i] = coll.spare->path == COLL_DIRECT;
        for (int64_t k = 0; k < numel; k++) end->wrong += data[k] != (reduce ? 2 * (i + k) + 1 : i - k);
    }
    coll_close(&coll);
    free(data);
    return NULL;
}

static void test_both_take_the_same_path(void **state)
{
    struct end end[2];
    int large = 0;
    (void)state;
    ends_open_and_run(end, paths);
    assert_memory_equal(was_direct[0], was_direct[1], sizeof was_direct[0]);
    for (int i = 0; i < PATHS; i++) large += was_direct[0][i];
    assert_in_range(large, PATHS / 40, PATHS / 5); /* of the quarter that may take either path */
}

/* These operations use fragment buffers in either case, but not the same ones if the caches are separate: an all_reduce
 * that each rank reduces whole, data for one reader alone, and, without single-copy reads, everything. */
enum { FRAGMENTS = 4000, FRAGMENTS_NUMEL = 20000 };

static bool may_read, was_separate[2][FRAGMENTS], was_lockstep[2][FRAGMENTS];

static void *fragments(void *argument)
{
    static const tutti_kind kinds[] = {TUTTI_ALL_REDUCE, TUTTI_REDUCE, TUTTI_BROADCAST};
    struct end *end = argument;
    struct coll_segment coll;
    struct coll_list running = LIST_HEAD_INITIALIZER(running);
    int rank = end->shm.local_rank;
    int64_t *data = malloc(FRAGMENTS_NUMEL * sizeof *data);
    uint64_t random = 7;
    end->shm.can_read_memory = may_read;
    end->shm.peer[1 - rank].pid = getpid();
    coll_open(&coll, &end->shm, COLL_FIRST, rank, 2, (int32_t[]){0, 1});
    for (int64_t i = 0; i < FRAGMENTS && end->lost == 0 && end->wrong == 0; i++) {
        ends_next_random(&random);
        tutti_kind kind = kinds[(random >> 50) % 3];
        int root = (int)(random >> 40 & 1);
        int64_t numel = random >> 60 == 0 && (kind != TUTTI_ALL_REDUCE || !may_read) ? FRAGMENTS_NUMEL : 3000;
        bool has_result = kind != TUTTI_REDUCE || rank == root;
        for (int64_t k = 0; k < numel; k++)
            data[k] = kind != TUTTI_BROADCAST ? i + k + rank : rank == root ? i - k : -1;
        tutti_tensor tensor = {data, numel, TUTTI_INT64, {TUTTI_CPU, 0}};
        tutti_op op = {.kind = kind,
                       .dtype = TUTTI_INT64,
                       .root = root,
                       .async = (int)(random >> 30 & 127) == rank, /* then no lockstep for some time */
                       .n_in = kind != TUTTI_BROADCAST,
                       .n_out = has_result,
                       .in = &tensor,
                       .out = &tensor};
        if (rank == 0) coll.fragment_ps = random >> 33 & 1 ? 5 : 5000;
        end->wrong += ends_run_op(end, &coll, &running, &op, (uint64_t)i + 1) != 1;
        was_separate[rank][i] = coll.spare->is_separate;
        was_lockstep[rank][i] = coll.spare->path == COLL_LOCKSTEP;
        end->wrong += coll.spare->path == COLL_DIRECT || (coll.spare->is_separate && coll.spare->path == COLL_LOCKSTEP);
        for (int64_t k = 0; has_result && k < numel; k++)
            end->wrong += data[k] != (kind != TUTTI_BROADCAST ? 2 * (i + k) + 1 : i - k);
    }
    coll_close(&coll);
    free(data);
    return NULL;
}

static void run_fragments(bool reads)
{
    struct end end[2];
    int separate = 0, lockstep = 0;
    may_read = reads;
    ends_open_and_run(end, fragments);
    assert_memory_equal(was_separate[0], was_separate[1], sizeof was_separate[0]);
    assert_memory_equal(was_lockstep[0], was_lockstep[1], sizeof was_lockstep[0]);
    for (int i = 0; i < FRAGMENTS; i++) separate += was_separate[0][i], lockstep += was_lockstep[0][i];
    assert_in_range(separate, FRAGMENTS / 8, FRAGMENTS * 7 / 8);
    assert_in_range(lockstep, FRAGMENTS / 40, FRAGMENTS / 2);
}

static void test_both_fill_fragments_alike(void **state)
{
    (void)state;
    run_fragments(true);
    run_fragments(false);
}

/* In lockstep no rank fills a fragment buffer, so the operation is timed as a whole. */
static void *run_lockstep(void *argument)
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
        end->wrong += ends_run_op(end, &coll, &running, &op, i) != 1;
        end->wrong += (coll.spare->path == COLL_LOCKSTEP) !=
                      (i > 1); /* at the first one, neither rank knows whether the other one waits */
        end->wrong += i > 1 && (coll.fragment_ps != 0) != (rank == 0);
        coll.fragment_ps = 0; /* the next one is in lockstep, however long this one took */
    }
    coll_close(&coll);
    return NULL;
}

static void test_lockstep_is_timed(void **state)
{
    struct end end[2];
    (void)state;
    ends_open_and_run(end, run_lockstep);
}

static bool shares_cache(struct coll_segment *coll, uint64_t step)
{
    struct coll_op op = {.first = step};
    return coll_cache_is_shared(coll, &op);
}

static void test_shared_cache_is_noticed_again(void **state)
{
    struct end end[2];
    struct coll_segment coll;
    (void)state;
    ends_open(end, 2);
    coll_open(&coll, &end[0].shm, COLL_FIRST, 0, 2, (int32_t[]){0, 1});
    uint64_t step = 1, tried = 0;
    coll.fragment_ps = 1000;
    assert_true(shares_cache(&coll, step++)); /* the other rank may find separate caches, and cannot know yet */
    for (; step <= 10000; step++) tried += shares_cache(&coll, step);
    assert_in_range(tried, 50, 500);
    coll.fragment_ps = 10;
    for (tried = 0; step <= 10100; step++)
        tried += shares_cache(&coll, step); /* no rank is known to have seen the latest change */
    assert_in_range(tried, 0, 10);
    coll.all_in = 10100;
    shares_cache(&coll, step++);
    for (; step < 20000; step++) assert_true(shares_cache(&coll, step));
    coll_close(&coll);
    ends_close(end, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_both_take_the_same_path), cmocka_unit_test(test_both_fill_fragments_alike),
        cmocka_unit_test(test_lockstep_is_timed), cmocka_unit_test(test_shared_cache_is_noticed_again)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
