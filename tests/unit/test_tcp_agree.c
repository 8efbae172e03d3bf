/* backends/tcp/shm/coll/agree.c: two ranks take the same way in every operation, whatever rank 0 measures. */
#include <sched.h>
#include <unistd.h>

#include "sanitizer.h"
#include "unit/shm_ends.h"

#include "../../backends/tcp/shm/coll/agree.c"

enum { OPS = 10000, NUMEL_MOST = 6000, KINDS = 3 };

static const tutti_kind kinds[KINDS] = {TUTTI_ALL_REDUCE, TUTTI_REDUCE, TUTTI_BROADCAST};

struct history {
    struct end *end;
    int n;
    int path[OPS];
};

static struct history histories[2];

/* Rank 0's clock, which only reductions advance: little on the fastest way, and most on all but a second one. */
static const struct coll_class *current;
static int64_t clock_ns;
static int fastest, second = -1;

static int64_t made_up_ns(void)
{
    return clock_ns;
}

static void reduce_in_time(tutti_dtype dtype, tutti_reduce_op op, void *data, const void *const *src, int32_t n_src,
                           int64_t n)
{
    clock_ns += n * (current->way == fastest ? 10 : current->way == second ? 14 : 40);
    ends_add(dtype, op, data, src, n_src, n);
}

static tutti_op make_op(const struct coll_segment *coll, tutti_kind kind, int root, tutti_tensor *tensor)
{
    bool has_out = kind != TUTTI_REDUCE || coll->rank == root;
    return (tutti_op){.kind = kind,
                      .dtype = TUTTI_INT64,
                      .root = root,
                      .n_in = kind != TUTTI_BROADCAST,
                      .n_out = has_out,
                      .in = tensor,
                      .out = tensor};
}

static int run_one(struct end *end, struct coll_segment *coll, tutti_kind kind, int root, int64_t numel, uint64_t i)
{
    static int64_t both[2][NUMEL_MOST];
    struct coll_list running = LIST_HEAD_INITIALIZER(running);
    int64_t *data = both[coll->rank], value = (int64_t)i;
    for (int64_t k = 0; k < numel; k++)
        data[k] = kind != TUTTI_BROADCAST ? value + k + coll->rank : coll->rank == root ? value - k : -1;
    tutti_tensor tensor = {data, numel, TUTTI_INT64, {TUTTI_CPU, 0}};
    tutti_op op = make_op(coll, kind, root, &tensor);
    end->wrong += ends_run_op(end, coll, &running, &op, i + 1) != 1;
    for (int64_t k = 0; op.n_out > 0 && k < numel; k++)
        end->wrong += data[k] != (kind != TUTTI_BROADCAST ? 2 * (value + k) + 1 : value - k);
    const struct coll_op *ended = SLIST_FIRST(&coll->spare);
    return COLL_WAY(ended->path, ended->bypasses);
}

static void open_one(struct end *end, struct coll_segment *coll)
{
    end->shm.can_read_memory = true;
    end->shm.peer[1 - end->shm.local_rank].pid = getpid();
    coll_open(coll, &end->shm, COLL_FIRST, end->shm.local_rank, 2, (int32_t[]){0, 1});
}

/* Operations of several sizes and kinds in random order, with small ones and other roots between them, so that a rank
 * runs ahead at times.  Rank 0's clock is random. */
static void *run_mixed(void *argument)
{
    static const int64_t numels[] = {1, 600, 1000, 3000, NUMEL_MOST};
    struct end *end = argument;
    int rank = end->shm.local_rank;
    struct history *history = &histories[rank];
    struct coll_segment coll;
    tutti_host strange = ends_host;
    uint64_t random = 7;
    strange.now_ns = ends_random_clock_ns;
    ends_clock_seed = 1;
    end->shm.config.host = &strange;
    open_one(end, &coll);
    for (history->n = 0; history->n < OPS && end->lost == 0 && end->wrong == 0; history->n++) {
        ends_next_random(&random);
        history->path[history->n] = run_one(end, &coll, kinds[(random >> 50) % KINDS], (int)(random >> 40 & 1),
                                            numels[(random >> 33) % 5], (uint64_t)history->n);
    }
    coll_close(&coll);
    return NULL;
}

static void test_both_take_the_same_way(void **state)
{
    struct end end[2];
    int count[CHOICE_WAYS] = {0};
    (void)state;
    ends_open_and_run(end, run_mixed);
    assert_int_equal(histories[0].n, OPS);
    assert_memory_equal(histories[0].path, histories[1].path, sizeof histories[0].path);
    for (int i = 0; i < OPS; i++) count[histories[0].path[i]]++;
    for (int way = 0; way < CHOICE_WAYS; way++)
        if (way != COLL_WAY(COLL_LOCKSTEP, 1)) assert_in_range(count[way], COLL_BYPASSES(way) ? 8 : 50, OPS);
}

/* Opens a segment whose rank 0 has the clock that reductions advance. */
static void open_timed(struct end *end, struct coll_segment *coll, tutti_host *timed)
{
    *timed = ends_host;
    if (end->shm.local_rank == 0) timed->now_ns = made_up_ns, timed->reduce_many = reduce_in_time;
    end->shm.config.host = timed;
    open_one(end, coll);
}

/* Makes the clock follow the way of all_reduces of this size. */
static void time_all_reduce(const struct coll_segment *coll, size_t bytes)
{
    if (coll->rank == 0) current = &coll->classes[TUTTI_ALL_REDUCE * CHOICE_CLASSES + choice_class(bytes)];
}

/* The fastest way is found, and another one after a change.  */
static void *run_alike(void *argument)
{
    static const int changes[] = {COLL_WAY(COLL_DIRECT, 0), COLL_WAY(COLL_PIPELINED, 1), COLL_WAY(COLL_LOCKSTEP, 0)};
    struct end *end = argument;
    struct coll_segment coll;
    tutti_host timed;
    int rank = end->shm.local_rank;
    open_timed(end, &coll, &timed);
    uint64_t call = 0;
    time_all_reduce(&coll, NUMEL_MOST * 8);
    for (int i = 0; i < 3; i++) {
        int way = -1;
        if (rank == 0) fastest = changes[i];
        for (int k = 0; k < 3000 && end->wrong == 0 && end->lost == 0; k++) {
            way = run_one(end, &coll, TUTTI_ALL_REDUCE, 0, NUMEL_MOST, call++);
        }
        end->wrong += way != changes[i];
    }
    coll_close(&coll);
    return NULL;
}

static void test_takes_the_fastest(void **state)
{
    struct end end[2];
    (void)state;
    ends_open_and_run(end, run_alike);
}

/* Each rank's own clock, which its reductions alone advance: by ns per element on the usual way, and on the one with
 * non-temporal stores. */
static _Thread_local int64_t own_clock_ns;
static _Thread_local int own_cost_ns[2];
static _Thread_local const struct coll_class *own_class;

static int64_t own_ns(void)
{
    return own_clock_ns;
}

static void reduce_in_own_time(tutti_dtype dtype, tutti_reduce_op op, void *data, const void *const *src, int32_t n_src,
                               int64_t n)
{
    own_clock_ns += n * own_cost_ns[COLL_BYPASSES(own_class->way)];
    ends_add(dtype, op, data, src, n_src, n);
}

/* Ranks that share cores compare the work of all of them on their cores, or that of the busier one. */
static void run_working(struct end *end, int n_cores, int64_t numel, enum coll_path path)
{
    static const struct {
        int usual[2], stores[2]; /* of each rank */
        bool bypasses[2];        /* on one core and on two */
    } turns[] = {
        {{10, 10}, {12, 0}, {true, false}}, {{0, 90}, {30, 30}, {true, true}},  {{10, 10}, {90, 90}, {false, false}},
        {{90, 90}, {30, 30}, {true, true}}, {{10, 10}, {9, 9}, {false, false}},
    };
    struct coll_segment coll;
    tutti_host host = ends_host;
    int rank = end->shm.local_rank;
    uint64_t call = 0;
    host.now_ns = own_ns, host.reduce_many = reduce_in_own_time;
    end->shm.config.host = &host;
    end->shm.shares_cores = true;
    cpu_set_t *cores = &shm_rank_at(&end->shm, rank)->cores;
    CPU_ZERO(cores);
    for (int i = 0; i < n_cores; i++) CPU_SET(i, cores);
    open_one(end, &coll);
    own_class = &coll.classes[TUTTI_ALL_REDUCE * CHOICE_CLASSES + choice_class((size_t)numel * 8)];
    for (size_t i = 0; i < sizeof turns / sizeof *turns; i++) {
        int way = -1;
        own_cost_ns[0] = turns[i].usual[rank], own_cost_ns[1] = turns[i].stores[rank];
        for (int k = 0; k < (SANITIZED ? 6000 : 20000) && end->wrong == 0 && end->lost == 0; k++) {
            own_clock_ns += 1000000 * (k % 7); /* between operations, which counts as little as waiting */
            way = run_one(end, &coll, TUTTI_ALL_REDUCE, 0, numel, call++);
        }
        end->wrong += way != COLL_WAY(path, turns[i].bypasses[n_cores - 1]);
    }
    coll_close(&coll);
}

static void *run_on_one_core(void *argument)
{
    run_working(argument, 1, 600, COLL_EAGER);
    return NULL;
}

static void *run_on_two_cores(void *argument)
{
    run_working(argument, 2, 2100, COLL_PIPELINED);
    return NULL;
}

static void test_compares_work(void **state)
{
    struct end end[2];
    (void)state;
    ends_open_and_run(end, run_on_one_core);
    ends_open_and_run(end, run_on_two_cores);
}

/* Counts that no correct rank stores do no harm. */
static void test_a_faulty_count(void **state)
{
    static const uint64_t counts[] = {0, 1, UINT64_MAX, INT64_MAX, UINT64_MAX / 5 * 4};
    struct end end[2];
    struct coll_segment coll;
    struct coll_op op = {.kind = TUTTI_BROADCAST, .in_bytes = 64 << 10, .bytes = 64 << 10};
    (void)state;
    ends_open(end, 2);
    end[0].shm.shares_cores = true;
    coll_open(&coll, &end[0].shm, COLL_FIRST, 0, 2, (int32_t[]){0, 1});
    op.ways = 1u << COLL_WAY(COLL_PIPELINED, 0) | 1u << COLL_WAY(COLL_PIPELINED, 1);
    op.usual = COLL_WAY(COLL_PIPELINED, 0);
    op.class = coll_class_of(&coll, &op);
    for (uint64_t i = 0; i < 1000; i++) {
        coll_agree_start(&coll, &op);
        op.class->calls++;
        atomic_store(work_of(&coll, op.class, 1), counts[i % 5]);
        if (op.agrees) coll_agree(&coll, &op);
        assert_int_equal(op.path, COLL_PIPELINED);
        assert_true(op.class->end >= op.class->calls);
    }
    coll_close(&coll);
    ends_close(end, 2);
}

/* Large asynchronous operations of ranks without spare cores: direct after the first span, though it is not fastest. */
static void *run_beside(void *argument)
{
    enum { NUMEL = BESIDE_MIN / 8, CALLS = 40 };
    static int64_t both[2][NUMEL];
    struct end *end = argument;
    struct coll_segment coll;
    struct coll_list running = LIST_HEAD_INITIALIZER(running);
    tutti_host timed;
    int rank = end->shm.local_rank;
    open_timed(end, &coll, &timed);
    time_all_reduce(&coll, BESIDE_MIN);
    if (rank == 0) fastest = COLL_WAY(COLL_PIPELINED, 0);
    for (int call = 0; call < CALLS && end->lost == 0; call++) {
        tutti_tensor tensor = {both[rank], NUMEL, TUTTI_INT64, {TUTTI_CPU, 0}};
        tutti_op op = make_op(&coll, TUTTI_ALL_REDUCE, 0, &tensor);
        op.async = true;
        end->wrong += ends_run_op(end, &coll, &running, &op, (uint64_t)call + 1) != 1;
        end->wrong += (SLIST_FIRST(&coll.spare)->path == COLL_DIRECT) != (call >= SPAN_MIN);
    }
    coll_close(&coll);
    return NULL;
}

static void test_leaves_cores(void **state)
{
    struct end end[2];
    (void)state;
    ends_open_and_run(end, run_beside);
}

/* All_reduces of 256 KiB find that direct is the fastest, and pipelined with non-temporal stores far slower.  Those of
 * 512 KiB take the one for 17 spans, although another way is usual, and do not try the other. */
static void *run_larger(void *argument)
{
    enum { NUMEL = 64 << 10, SMALLER = 600, CALLS = 800 };
    static int64_t both[2][NUMEL];
    static bool tried[2];
    struct end *end = argument;
    struct coll_segment coll;
    struct coll_list running = LIST_HEAD_INITIALIZER(running);
    tutti_host timed;
    int rank = end->shm.local_rank;
    bool others = false;
    open_timed(end, &coll, &timed);
    if (rank == 0) fastest = COLL_WAY(COLL_DIRECT, 0), second = COLL_WAY(COLL_PIPELINED, 0);
    for (int call = 0; call < CALLS && end->lost == 0; call++) {
        bool larger = call >= SMALLER;
        tutti_tensor tensor = {both[rank], larger ? NUMEL : NUMEL / 2, TUTTI_INT64, {TUTTI_CPU, 0}};
        tutti_op op = make_op(&coll, TUTTI_ALL_REDUCE, 0, &tensor);
        time_all_reduce(&coll, (size_t)tensor.numel * 8);
        const char *how = call == SMALLER ? coll_explain(&coll, &op) : NULL;
        end->wrong += call == SMALLER && (how == NULL || strncmp(how, "direct: ", 8) != 0);
        end->wrong += ends_run_op(end, &coll, &running, &op, (uint64_t)call + 1) != 1;
        const struct coll_op *ended = SLIST_FIRST(&coll.spare);
        int way = COLL_WAY(ended->path, ended->bypasses);
        bool bypasses = way == COLL_WAY(COLL_PIPELINED, 1);
        int calls = call - SMALLER;
        if (larger && calls < (1 + CHOICE_REPAY) * SPAN_MIN)
            end->wrong += way != COLL_WAY(COLL_DIRECT, 0) || way == ended->usual;
        others |= calls >= (1 + CHOICE_REPAY) * SPAN_MIN && way != COLL_WAY(COLL_DIRECT, 0);
        end->wrong += larger && bypasses;
        tried[rank] |= !larger && bypasses;
    }
    end->wrong += !tried[rank] || !others;
    if (rank == 0) second = -1;
    coll_close(&coll);
    return NULL;
}

static void test_learns_from_a_smaller_class(void **state)
{
    struct end end[2];
    (void)state;
    ends_open_and_run(end, run_larger);
}

/* Makes the first calls of a size class.  The class below has kept one way before them, and another one after the first
 * call.  Returns the calls of the second span. */
static int second_span(int kept_before, int kept_after)
{
    struct end end[2];
    struct coll_segment coll;
    struct coll_op op = {.kind = TUTTI_BROADCAST, .in_bytes = 512 << 10, .bytes = 512 << 10};
    ends_open(end, 2);
    coll_open(&coll, &end[0].shm, COLL_FIRST, 0, 2, (int32_t[]){0, 1});
    op.ways = 1u << COLL_WAY(COLL_PIPELINED, 0) | 1u << COLL_WAY(COLL_DIRECT, 0);
    op.usual = COLL_WAY(COLL_PIPELINED, 0);
    op.class = coll_class_of(&coll, &op);
    op.class[-1].kept = (uint8_t)(kept_before + 1);
    for (int i = 0; i <= SPAN_MIN; i++) {
        coll_agree_start(&coll, &op);
        op.class[-1].kept = (uint8_t)(kept_after + 1);
        if (op.agrees) coll_agree(&coll, &op);
        op.class->calls++;
    }
    int length = (int)op.class->end - SPAN_MIN;
    assert_int_equal(op.class->kept, 0); /* nothing has been timed yet */
    coll_close(&coll);
    ends_close(end, 2);
    return length;
}

/* Only a way that has been learned is taken for many calls. */
static void test_second_span(void **state)
{
    enum { USUAL = COLL_WAY(COLL_PIPELINED, 0), OTHER = COLL_WAY(COLL_DIRECT, 0) };
    (void)state;
    assert_int_equal(second_span(-1, -1), SPAN_MIN);
    assert_int_equal(second_span(OTHER, OTHER), SPAN_MIN * CHOICE_REPAY);
    assert_int_equal(second_span(USUAL, USUAL), SPAN_MIN * CHOICE_REPAY);
    assert_int_equal(second_span(-1, OTHER), SPAN_MIN);
    assert_int_equal(second_span(OTHER, USUAL), SPAN_MIN);
}

/* A word that no correct rank publishes leads to a possible way and a later span. */
static void test_a_faulty_word(void **state)
{
    struct end end[2];
    struct coll_segment coll;
    struct coll_op op = {.kind = TUTTI_BROADCAST, .in_bytes = CHOICE_MIN, .bytes = CHOICE_MIN, .ways = 1};
    (void)state;
    ends_open(end, 2);
    coll_open(&coll, &end[1].shm, COLL_FIRST, 1, 2, (int32_t[]){0, 1});
    op.class = coll_class_of(&coll, &op);
    for (uint64_t i = 0; i < 64; i++) {
        uint64_t calls = op.class->calls = op.class->end = 1000 + i;
        atomic_store(word_of(&coll, op.class), i);
        coll_use_way(&coll, &op, COLL_WAY(COLL_PIPELINED, 0));
        coll_agree_start(&coll, &op);
        assert_true(op.agrees);
        op.class->calls++;
        coll_agree(&coll, &op);
        assert_int_equal(op.path, COLL_EAGER);
        assert_true(op.class->end > calls);
    }
    coll_close(&coll);
    ends_close(end, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_both_take_the_same_way), cmocka_unit_test(test_takes_the_fastest),
        cmocka_unit_test(test_leaves_cores),           cmocka_unit_test(test_learns_from_a_smaller_class),
        cmocka_unit_test(test_a_faulty_word),          cmocka_unit_test(test_compares_work),
        cmocka_unit_test(test_a_faulty_count),         cmocka_unit_test(test_second_span),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
