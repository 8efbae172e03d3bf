/* How is written what others will read: by what it takes, in a time that the test makes up. */
#include "shm_ends.h"

enum { BYTES = 64 << 10, PAST_PS = 40 };

static int64_t clock_ns;
static int asked; /* of the clock */

static int64_t made_up_ns(void)
{
    asked++;
    return clock_ns;
}

static const tutti_host timed_host = {.now_ns = made_up_ns, .error = error, .reduce_many = add_many};
static struct shm timed = {.config = {.host = &timed_host}};

/* Of n that take so long with plain stores, how many go past the caches. */
static int past_of(struct cost_model *pace, int n, int plain_ps, enum shm_cost cost_ps, size_t bytes)
{
    int past = 0;
    for (int i = 0; i < n; i++) {
        struct shm_put put;
        shm_put_begin(&timed, &put, pace, bytes);
        clock_ns += (int64_t)bytes * (put.past ? PAST_PS : plain_ps) / 1000;
        shm_put_end(&timed, &put, cost_ps);
        past += put.past;
    }
    return past;
}

/* A thread of the same core; a core that shares the last cache; one that shares nothing. */
static const struct {
    int plain_ps;
    bool away, parts, here;
} times[] = {{20, false, false, false}, {120, true, true, false}, {400, true, true, true}};

static void expect(int plain_ps, enum shm_cost cost_ps, bool past)
{
    struct cost_model pace = {0};
    int n = past_of(&pace, 1000, plain_ps, cost_ps, BYTES);
    assert_in_range(n, past ? 960 : 1, past ? 999 : 40); /* now and then the other way */
}

static void test_by_what_it_takes(void **state)
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
    struct cost_model pace = {0};
    past_of(&pace, 200, 20, SHM_COST_HERE, BYTES);
    assert_in_range(past_of(&pace, 1000, 400, SHM_COST_HERE, BYTES), 900, 999);
    assert_in_range(past_of(&pace, 1000, 20, SHM_COST_HERE, BYTES), 1, 100);
}

static void test_little_is_not_timed(void **state)
{
    struct cost_model pace = {0};
    (void)state;
    asked = 0;
    assert_int_equal(past_of(&pace, 100, 400, SHM_COST_AWAY, TIMED_LEAST - 1), 0);
    assert_int_equal(asked, 0);
}

/* The same bits either way, to where they belong and no further. */
static void test_results(void **state)
{
    enum { N = 3 * BLOCK / 8 + 5, RANKS = 3 };
    static _Alignas(SHM_LINE) int64_t in[RANKS][N + 1], out[N + 1];
    const void *from[RANKS] = {in[0], in[1], in[2]};
    struct board board = {.shm = &timed, .host = &timed_host, .n = RANKS};
    struct board_op op = {.dtype = TUTTI_INT64, .element = sizeof(int64_t)};
    (void)state;
    for (int past = 0; past < 2; past++) {
        for (int64_t i = 0; i <= N; i++) in[0][i] = i, in[1][i] = i * 1000, in[2][i] = past, out[i] = -1;
        board_begin_result(&board, &op, N * sizeof(int64_t));
        board.put.past = past;
        board_reduce_result(&board, &op, (char *)out, from, N * sizeof(int64_t));
        for (int64_t i = 0; i < N; i++) assert_int_equal(out[i], i * 1001 + past);
        assert_int_equal(out[N], -1);
    }
}

/* What counts is what the rank writes: all but its own part, nothing where it only reads. */
static void test_what_is_filled(void **state)
{
    struct board board = {.n = 4, .rank = 1};
    struct board_op op = {.bytes = 4096, .chunk = 4096, .element = 4, .root = 1};
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
        board.rank = 1;
        assert_int_equal(fill_bytes(&board, &op), cases[i].as_root);
        assert_int_equal(reader_cost(&board, &op), cases[i].cost);
        board.rank = 2;
        assert_int_equal(fill_bytes(&board, &op), cases[i].else_);
    }
}

/* Whether cores are near each other is told by plain stores: as long as they are thought to be, there is no other. */
static void test_near_is_plain(void **state)
{
    static char data[BYTES];
    struct end end[2];
    struct board board;
    struct board_op op = {
        .kind = TUTTI_ALL_GATHER, .either = true, .bytes = BYTES, .chunk = BYTES, .first = 1, .in = data};
    (void)state;
    pair_open(end);
    board_open(&board, &end[0].shm, BOARD_FIRST, 0, 2, (int32_t[]){0, 1});
    struct cost_model *pace = &board.fills[TUTTI_ALL_GATHER];
    cost_learn(pace, PLAIN, BYTES, 1000000);
    cost_learn(pace, PAST, BYTES, 1);
    pace->turns[class_of(BYTES)] = TRY_EVERY + 1;
    op.far = true;
    board_fill(&board, &op);
    assert_true(board.put.past);
    assert_int_equal(board.tray_ps, 0);
    op.far = false;
    board_fill(&board, &op);
    assert_false(board.put.past);
    assert_int_not_equal(board.tray_ps, 0);
    board.rank = 1; /* which goes by its own pace, for the other one may never fill a tray */
    board_fill(&board, &op);
    assert_true(board.put.past);
    board_close(&board);
    pair_close(end);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_what_it_takes),    cmocka_unit_test(test_times_change),
        cmocka_unit_test(test_little_is_not_timed), cmocka_unit_test(test_results),
        cmocka_unit_test(test_what_is_filled),      cmocka_unit_test(test_near_is_plain)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
