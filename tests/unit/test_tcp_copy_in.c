/* Plain or non-temporal stores for data that others read: the choice follows from measured times, on the test's own
 * clock. */
#include "unit/shm_ends.h"

#include "../../backends/tcp/shm/coll/store.c"
#include "../../backends/tcp/shm/copy_in.c"
#include "../../backends/tcp/shm/cost_model.c"

enum { BYTES = 64 << 10, NON_TEMPORAL_PS = 40 };

static int64_t clock_ns;
static int clock_readings; /* readings of the clock */

static int64_t made_up_ns(void)
{
    clock_readings++;
    return clock_ns;
}

static const tutti_host timed_host = {.now_ns = made_up_ns, .error = ends_error, .reduce_many = ends_add};
static struct shm timed = {.config = {.host = &timed_host}};

/* Returns how many of n writes use non-temporal stores, if plain stores take plain_ps a byte. */
static int count_non_temporal(struct cost_model *cost, int n, int plain_ps, enum shm_cost cost_ps, size_t bytes)
{
    int non_temporal = 0;
    for (int i = 0; i < n; i++) {
        struct shm_copy_in copy;
        shm_copy_in_begin(&timed, &copy, cost, bytes);
        clock_ns += (int64_t)bytes * (copy.non_temporal ? NON_TEMPORAL_PS : plain_ps) / 1000;
        shm_copy_in_end(&timed, &copy, cost_ps);
        non_temporal += copy.non_temporal;
    }
    return non_temporal;
}

/* Readers on the same core, on a core with a shared last-level cache, and on a core with a separate one. */
static const struct {
    int plain_ps;
    bool away, parts, here;
} times[] = {{20, false, false, false}, {120, true, true, false}, {400, true, true, true}};

static void expect(int plain_ps, enum shm_cost cost_ps, bool non_temporal)
{
    struct cost_model cost = {0};
    int n = count_non_temporal(&cost, 1000, plain_ps, cost_ps, BYTES);
    assert_in_range(n, non_temporal ? 960 : 1, non_temporal ? 999 : 40); /* the other way is tried now and then */
}

static void test_by_measured_time(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        expect(times[i].plain_ps, SHM_COST_AWAY, times[i].away);
        expect(times[i].plain_ps, SHM_COST_PARTS, times[i].parts);
        expect(times[i].plain_ps, SHM_COST_HERE, times[i].here);
    }
}

static void test_times_change(void **state)
{
    (void)state;
    struct cost_model cost = {0};
    count_non_temporal(&cost, 200, 20, SHM_COST_HERE, BYTES);
    assert_in_range(count_non_temporal(&cost, 1000, 400, SHM_COST_HERE, BYTES), 900, 999);
    assert_in_range(count_non_temporal(&cost, 1000, 20, SHM_COST_HERE, BYTES), 1, 100);
}

static void test_little_is_not_timed(void **state)
{
    struct cost_model cost = {0};
    (void)state;
    clock_readings = 0;
    assert_int_equal(count_non_temporal(&cost, 100, 400, SHM_COST_AWAY, TIMED_MIN - 1), 0);
    assert_int_equal(clock_readings, 0);
}

/* Both ways write the same bits, and nothing beyond the result. */
static void test_results(void **state)
{
    enum { N = 3 * BLOCK / 8 + 5, RANKS = 3 };
    static _Alignas(SHM_LINE) int64_t in[RANKS][N + 1], out[N + 1];
    const void *from[RANKS] = {in[0], in[1], in[2]};
    struct coll_segment coll = {.shm = &timed, .host = &timed_host, .n = RANKS};
    struct coll_op op = {.dtype = TUTTI_INT64, .element = sizeof(int64_t)};
    (void)state;
    for (int non_temporal = 0; non_temporal < 2; non_temporal++) {
        for (int64_t i = 0; i <= N; i++) in[0][i] = i, in[1][i] = i * 1000, in[2][i] = non_temporal, out[i] = -1;
        coll_result_begin(&coll, &op, N * sizeof(int64_t));
        coll.copy.non_temporal = non_temporal;
        coll_result_reduce(&coll, &op, (char *)out, from, N * sizeof(int64_t));
        for (int64_t i = 0; i < N; i++) assert_int_equal(out[i], i * 1001 + non_temporal);
        assert_int_equal(out[N], -1);
    }
}

/* Only the rank's own writes count: all blocks but its own part, and nothing if it only reads. */
static void test_what_is_filled(void **state)
{
    struct coll_segment coll = {.n = 4, .rank = 1};
    struct coll_op op = {.bytes = 4096, .chunk = 4096, .element = 4, .root = 1};
    static const struct {
        tutti_kind kind;
        bool sliced;
        size_t as_root, else_;
        enum shm_cost cost;
    } cases[] = {
        {TUTTI_BROADCAST, false, 4096, 0, SHM_COST_AWAY},
        {TUTTI_SCATTER, false, 12288, 0, SHM_COST_AWAY},
        {TUTTI_GATHER, false, 0, 4096, SHM_COST_HERE},
        {TUTTI_REDUCE, false, 0, 4096, SHM_COST_HERE},
        {TUTTI_REDUCE, true, 3072, 3072, SHM_COST_PARTS},
        {TUTTI_ALL_REDUCE, true, 3072, 3072, SHM_COST_PARTS},
        {TUTTI_ALL_GATHER, false, 4096, 4096, SHM_COST_HERE},
        {TUTTI_ALL_TO_ALL, false, 12288, 12288, SHM_COST_PARTS},
        {TUTTI_REDUCE_SCATTER, false, 12288, 12288, SHM_COST_PARTS},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        op.kind = cases[i].kind;
        op.sliced = cases[i].sliced;
        coll.rank = 1;
        assert_int_equal(fill_bytes(&coll, &op), cases[i].as_root);
        assert_int_equal(reader_cost(&coll, &op), cases[i].cost);
        coll.rank = 2;
        assert_int_equal(fill_bytes(&coll, &op), cases[i].else_);
    }
}

/* Only plain stores show whether the caches are shared.  As long as they count as shared, every store is plain. */
static void test_shared_cache_means_plain(void **state)
{
    static char data[BYTES];
    struct end end[2];
    struct coll_segment coll;
    struct coll_op op = {.kind = TUTTI_ALL_GATHER,
                         .path = COLL_PIPELINED,
                         .separate = COLL_PIPELINED,
                         .bytes = BYTES,
                         .chunk = BYTES,
                         .first = 1,
                         .in = data};
    (void)state;
    ends_open(end, 2);
    coll_open(&coll, &end[0].shm, COLL_FIRST, 0, 2, (int32_t[]){0, 1});
    struct cost_model *cost = &coll.fragment_costs[TUTTI_ALL_GATHER];
    cost_record(cost, PLAIN, BYTES, 1000000);
    cost_record(cost, NON_TEMPORAL, BYTES, 1);
    cost->turns[class_of(BYTES)] = TRY_EVERY + 1;
    op.is_separate = true;
    coll_store_chunk(&coll, &op);
    assert_true(coll.copy.non_temporal);
    assert_int_equal(coll.fragment_ps, 0);
    op.is_separate = false;
    coll_store_chunk(&coll, &op);
    assert_false(coll.copy.non_temporal);
    assert_int_not_equal(coll.fragment_ps, 0);
    coll.rank = 1; /* rank 1 uses its own cost, because rank 0 may never fill a fragment buffer */
    coll_store_chunk(&coll, &op);
    assert_true(coll.copy.non_temporal);
    coll_close(&coll);
    ends_close(end, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_measured_time),    cmocka_unit_test(test_times_change),
        cmocka_unit_test(test_little_is_not_timed), cmocka_unit_test(test_results),
        cmocka_unit_test(test_what_is_filled),      cmocka_unit_test(test_shared_cache_means_plain)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
