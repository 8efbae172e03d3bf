/* backends/tcp/shm/coll/path.c: the path of a collective before anything is measured. */
#include "unit/small_groups.h"

struct usual_case {
    tutti_kind kind;
    int n;
    bool shares_cores, can_read_memory;
    int64_t bytes; /* of a block */
    enum coll_path path;
};

/* Returns the description of an operation.  `named` is a row of the core, or NULL.  A description needs no more of the
 * other ranks than their number, which also sets the sizes of the buffers. */
static struct coll_op describe(const struct usual_case *c, const tutti_path_row *named)
{
    struct end end[ENDS];
    struct small small;
    struct coll_op made = {0};
    ends_open(end, ENDS);
    end[0].shm.shares_cores = c->shares_cores;
    end[0].shm.can_read_memory = c->can_read_memory;
    small_open(&end[0], &small, ENDS);
    small.coll.n = c->n;
    coll_lay_out(&small.coll, &end[0].shm, COLL_FIRST, c->n);
    small.coll.choices = named;
    small.coll.n_choices = named != NULL;
    tutti_tensor in = {small.x, c->bytes, TUTTI_UINT8, {TUTTI_CPU, 0}}, out = in;
    if (tutti_kind_in_blocks(c->kind)) in.numel *= c->n;
    if (tutti_kind_out_blocks(c->kind)) out.numel *= c->n;
    tutti_op op = {.kind = c->kind, .dtype = TUTTI_UINT8, .n_in = 1, .n_out = 1, .in = &in, .out = &out};
    if (!coll_describe(&small.coll, &op, &made)) made.path = COLL_NO_PATH; /* it runs as a plan */
    small.coll.n = ENDS;
    coll_close(&small.coll);
    ends_close(end, ENDS);
    return made;
}

static void check(const struct usual_case *c)
{
    assert_int_equal(describe(c, NULL).path, c->path);
}

enum { LARGE = 1 << 20 };

/* One copy instead of two, where a byte has one reader and memory can be read. */
static void test_reads(void **state)
{
    static const struct usual_case cases[] = {
        {TUTTI_ALL_TO_ALL, 2, false, true, LARGE, COLL_DIRECT},
        {TUTTI_ALL_TO_ALL, 3, false, true, LARGE, COLL_DIRECT},
        {TUTTI_GATHER, 3, false, true, LARGE, COLL_DIRECT},
        {TUTTI_SCATTER, 3, false, true, LARGE, COLL_DIRECT},
        {TUTTI_BROADCAST, 2, false, true, LARGE, COLL_DIRECT},
        {TUTTI_ALL_GATHER, 2, false, true, LARGE, COLL_DIRECT},
        {TUTTI_REDUCE_SCATTER, 2, false, true, LARGE, COLL_DIRECT},
        {TUTTI_ALL_TO_ALL, 2, false, false, LARGE, COLL_PIPELINED},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check(&cases[i]);
}

static void test_copies(void **state)
{
    static const struct usual_case cases[] = {
        {TUTTI_ALL_TO_ALL, 2, false, true, 8 << 10, COLL_EAGER},
        {TUTTI_ALL_REDUCE, 2, false, true, 16 << 10, COLL_EAGER},
        {TUTTI_ALL_REDUCE, 2, false, true, LARGE, COLL_PIPELINED}, /* each rank reduces all of it */
        {TUTTI_ALL_REDUCE, 3, false, true, LARGE, COLL_PIPELINED},
        {TUTTI_BROADCAST, 3, false, true, LARGE, COLL_PIPELINED}, /* several readers */
        {TUTTI_ALL_GATHER, 3, false, true, LARGE, COLL_PIPELINED},
        {TUTTI_ALL_TO_ALL, 3, true, true, LARGE, COLL_PIPELINED},
        {TUTTI_REDUCE_SCATTER, 2, true, true, LARGE, COLL_PIPELINED}, /* as a row of a grid of ranks */
        {TUTTI_BROADCAST, 2, true, true, 64 << 10, COLL_PIPELINED},
        {TUTTI_SCATTER, 3, true, true, 64 << 10, COLL_PIPELINED}, /* the root need not wait */
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check(&cases[i]);
}

/* Where ranks share cores, a scatter that exceeds the root's two fragment buffers runs as messages unless it is named.
 */
static void test_scatter_by_messages(void **state)
{
    enum { FITS = 2 * (256 << 10) / 4 };
    static const struct usual_case cases[] = {
        {TUTTI_SCATTER, 4, true, true, FITS, COLL_PIPELINED},
        {TUTTI_SCATTER, 4, true, true, FITS + 1, COLL_NO_PATH},
        {TUTTI_SCATTER, 4, true, false, FITS + 1, COLL_NO_PATH},
        {TUTTI_SCATTER, 4, false, true, FITS + 1, COLL_DIRECT},
    };
    static const tutti_path_row pipelined = {TUTTI_SCATTER, COLL_PIPELINED, INT64_MAX};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check(&cases[i]);
    assert_int_equal(describe(&cases[1], &pipelined).path, COLL_PIPELINED);
}

/* Two ranks with a core each ask ahead for the lines of little data.  They take more in lockstep, up to where they
 * measure, unless a root can run ahead. */
static void test_usually_lockstep(void **state)
{
    static const struct usual_case cases[] = {
        {TUTTI_ALL_REDUCE, 2, false, true, COLL_ASKED, COLL_EAGER},
        {TUTTI_ALL_REDUCE, 2, false, true, COLL_ASKED + 1, COLL_LOCKSTEP},
        {TUTTI_ALL_REDUCE, 2, false, true, CHOICE_MIN - 1, COLL_LOCKSTEP},
        {TUTTI_ALL_REDUCE, 2, false, true, CHOICE_MIN, COLL_EAGER},
        {TUTTI_ALL_REDUCE, 2, true, true, COLL_ASKED + 1, COLL_EAGER},
        {TUTTI_ALL_REDUCE, 3, false, true, COLL_ASKED + 1, COLL_EAGER},
        {TUTTI_REDUCE, 2, false, true, COLL_ASKED + 1, COLL_EAGER},
        {TUTTI_ALL_TO_ALL, 2, false, true, COLL_ASKED / 2, COLL_EAGER}, /* the size of a block */
        {TUTTI_ALL_TO_ALL, 2, false, true, COLL_ASKED / 2 + 1, COLL_LOCKSTEP},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check(&cases[i]);
}

/* A calibration times the lower number first: copies with non-temporal stores, and direct with plain ones. */
static void test_order_of_ways(void **state)
{
    (void)state;
    for (int path = COLL_EAGER; path <= COLL_DIRECT; path++) {
        assert_true((COLL_WAY(path, 1) < COLL_WAY(path, 0)) == (path != COLL_DIRECT));
        assert_true(COLL_BYPASSES(COLL_WAY(path, 1)) && !COLL_BYPASSES(COLL_WAY(path, 0)));
        for (int bypasses = 0; bypasses < 2; bypasses++)
            assert_int_equal(COLL_WAY_PATH(COLL_WAY(path, bypasses)), path);
    }
}

static bool has_path(const struct coll_op *op, enum coll_path path)
{
    return (op->ways >> COLL_WAY(path, 0) & 1) != 0;
}

/* Two ranks try lockstep up to its maximum, which counts all blocks of a rank. */
static void test_lockstep(void **state)
{
    enum { MOST = 64 << 10 };
    (void)state;
    for (int more = 0; more < 2; more++) {
        struct usual_case all_reduce = {TUTTI_ALL_REDUCE, 2, false, true, MOST + more, COLL_PIPELINED};
        struct usual_case all_to_all = {TUTTI_ALL_TO_ALL, 2, false, true, MOST / 2 + more, COLL_DIRECT};
        struct coll_op made = describe(&all_reduce, NULL);
        assert_int_equal(has_path(&made, COLL_LOCKSTEP), !more);
        made = describe(&all_to_all, NULL);
        assert_int_equal(has_path(&made, COLL_LOCKSTEP), !more);
    }
}

/* The root of a reduce reduces little data alone.  With a core each, more than two ranks share the work of more. */
static void test_reduce(void **state)
{
    enum { ALONE = (64 << 10) / 3 };
    static const tutti_path_row pipelined = {TUTTI_REDUCE, COLL_PIPELINED, INT64_MAX};
    static const struct {
        struct usual_case op;
        bool sliced; /* if pipelined */
    } cases[] = {
        {{TUTTI_REDUCE, 3, false, true, 0, COLL_EAGER}, false},
        {{TUTTI_REDUCE, 3, false, true, 16 << 10, COLL_EAGER}, false},
        {{TUTTI_REDUCE, 3, false, true, ALONE, COLL_PIPELINED}, false},
        {{TUTTI_REDUCE, 3, false, true, ALONE + 1, COLL_PIPELINED}, true},
        {{TUTTI_REDUCE, 3, false, true, LARGE, COLL_PIPELINED}, true},
        {{TUTTI_REDUCE, 8, false, true, 8 << 10, COLL_EAGER}, false},
        {{TUTTI_REDUCE, 8, false, true, (8 << 10) + 1, COLL_PIPELINED}, true},
        {{TUTTI_REDUCE, 8, true, true, 16 << 10, COLL_PIPELINED}, false},
        {{TUTTI_REDUCE, 3, true, true, 512 << 10, COLL_PIPELINED}, false},
        {{TUTTI_REDUCE, 3, true, true, (512 << 10) + 1, COLL_PIPELINED}, true},
        {{TUTTI_REDUCE, 2, false, true, 8 << 20, COLL_PIPELINED}, false},
        {{TUTTI_REDUCE, 2, false, true, (8 << 20) + 1, COLL_DIRECT}, true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        check(&cases[i].op);
        struct coll_op made = describe(&cases[i].op, &pipelined);
        assert_int_equal(made.sliced, cases[i].sliced);
        assert_int_equal(made.path, cases[i].op.bytes > 0 ? COLL_PIPELINED : COLL_EAGER);
    }
}

/* Where ranks share cores, those that need not wait run ahead in small buffers or in parts of fragment buffers. */
static void test_runs_ahead(void **state)
{
    static const struct usual_case cases[] = {
        {TUTTI_BROADCAST, 4, true, true, COLL_SMALL, COLL_EAGER},
        {TUTTI_BROADCAST, 4, true, true, COLL_SMALL + 1, COLL_PIPELINED},
        {TUTTI_BROADCAST, 4, false, true, COLL_SMALL + 1, COLL_PIPELINED},
        {TUTTI_BROADCAST, 2, false, true, CHOICE_MIN - 1, COLL_PIPELINED},
        {TUTTI_BROADCAST, 2, false, true, CHOICE_MIN, COLL_EAGER},  /* measured from there on */
        {TUTTI_SCATTER, 4, true, true, COLL_SMALL / 4, COLL_EAGER}, /* the root has four blocks */
        {TUTTI_SCATTER, 4, true, true, COLL_SMALL / 4 + 1, COLL_PIPELINED},
        {TUTTI_GATHER, 4, true, true, COLL_SMALL + 1, COLL_PIPELINED},
        {TUTTI_REDUCE, 4, true, true, COLL_SMALL + 1, COLL_PIPELINED},
        {TUTTI_ALL_GATHER, 4, true, true, COLL_SMALL + 1, COLL_EAGER}, /* all wait for all */
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        check(&cases[i]);
        assert_int_equal(describe(&cases[i], NULL).parts, cases[i].path == COLL_PIPELINED);
    }
}

/* Many ranks have small fragment buffers.  They take eager buffers where these last for more steps. */
static void test_many_run_ahead(void **state)
{
    static const struct usual_case cases[] = {
        {TUTTI_BROADCAST, 128, true, true, 4 << 10, COLL_PIPELINED},
        {TUTTI_BROADCAST, 256, true, true, 4 << 10, COLL_PIPELINED},
        {TUTTI_SCATTER, 64, true, true, 64, COLL_PIPELINED},
        {TUTTI_SCATTER, 64, true, true, 17, COLL_PIPELINED},
        {TUTTI_SCATTER, 128, true, true, 32, COLL_EAGER}, /* in a fragment buffer each block takes a line */
        {TUTTI_SCATTER, 256, true, true, 16, COLL_EAGER},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check(&cases[i]);
}

/* A path with a name is taken even if the choice would not try it. */
static void test_named_eager(void **state)
{
    static const tutti_path_row eager = {TUTTI_REDUCE, COLL_EAGER, INT64_MAX};
    static const struct usual_case reduce = {TUTTI_REDUCE, 8, false, true, 16 << 10, COLL_PIPELINED};
    (void)state;
    struct coll_op made = describe(&reduce, NULL);
    assert_false(has_path(&made, COLL_EAGER));
    made = describe(&reduce, &eager);
    assert_int_equal(made.path, COLL_EAGER);
    assert_false(made.sliced);
}

/* Returns whether an operation whose blocks may differ in size runs natively, not as a plan. */
static bool takes(tutti_op op, int n, bool shares_cores, bool can_read_memory)
{
    struct end end[ENDS];
    struct small small;
    struct coll_op made = {0};
    ends_open(end, ENDS);
    end[0].shm.shares_cores = shares_cores;
    end[0].shm.can_read_memory = can_read_memory;
    small_open(&end[0], &small, ENDS);
    small.coll.n = n;
    bool native = coll_describe(&small.coll, &op, &made);
    if (native) assert_int_equal(made.path, COLL_UNEVEN);
    small.coll.n = ENDS;
    coll_close(&small.coll);
    ends_close(end, ENDS);
    return native;
}

static char memory[6];
static const tutti_tensor all = {memory, 6, TUTTI_UINT8, {TUTTI_CPU, 0}};

static void test_splits(void **state)
{
    static const int64_t splits[ENDS] = {1, 2, 3};
    (void)state;
    tutti_op op = {.kind = TUTTI_ALL_TO_ALL, .dtype = TUTTI_UINT8, .n_in = 1, .n_out = 1, .in = &all, .out = &all};
    op.in_splits = op.out_splits = splits;
    assert_true(takes(op, 3, false, true));
    assert_true(takes(op, 3, true, true));
    assert_true(takes(op, 2, true, true));
    assert_false(takes(op, 2, false, true)); /* two ranks with a core each exchange messages */
    assert_false(takes(op, 3, false, false));
}

/* Only the root has a list. */
static void test_lists_of_the_root(void **state)
{
    const tutti_tensor list[ENDS] = {all, all, all};
    (void)state;
    for (int root = 0; root < 2; root++) {
        tutti_op gather = {.kind = TUTTI_GATHER, .dtype = TUTTI_UINT8, .root = root, .list = true};
        tutti_op scatter = {.kind = TUTTI_SCATTER, .dtype = TUTTI_UINT8, .root = root, .list = true};
        gather.n_in = scatter.n_out = 1;
        gather.in = scatter.out = &all;
        if (root == 0) gather.n_out = scatter.n_in = ENDS, gather.out = scatter.in = list;
        for (int n = 2; n <= ENDS; n++)
            for (int shares = 0; shares < 2; shares++) {
                assert_true(takes(gather, n, shares, true));
                assert_true(takes(scatter, n, shares, true));
                assert_false(takes(gather, n, shares, false));
            }
    }
}

/* Ranks that share cores read memory of tutti_alloc in place only if that is much.  A gather looks at each block. */
static void test_looks_for_shared_memory(void **state)
{
    enum { KIB = 1024 };
    static const struct {
        struct usual_case usual;
        bool probes;
    } cases[] = {
        {{TUTTI_BROADCAST, 3, false, true, 64 * KIB, COLL_PIPELINED}, true},
        {{TUTTI_BROADCAST, 3, true, true, 256 * KIB, COLL_PIPELINED}, false},
        {{TUTTI_BROADCAST, 3, true, true, 257 * KIB, COLL_PIPELINED}, true},
        {{TUTTI_ALL_GATHER, 4, true, true, 64 * KIB, COLL_PIPELINED}, false},
        {{TUTTI_ALL_GATHER, 4, true, true, 65 * KIB, COLL_PIPELINED}, true},
        {{TUTTI_GATHER, 4, true, true, 256 * KIB, COLL_PIPELINED}, false},
        {{TUTTI_GATHER, 4, true, true, 257 * KIB, COLL_PIPELINED}, true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct coll_op op = describe(&cases[i].usual, NULL);
        assert_int_equal(op.path, cases[i].usual.path);
        assert_int_equal(op.probes, cases[i].probes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_looks_for_shared_memory),
        cmocka_unit_test(test_reads),
        cmocka_unit_test(test_copies),
        cmocka_unit_test(test_scatter_by_messages),
        cmocka_unit_test(test_usually_lockstep),
        cmocka_unit_test(test_order_of_ways),
        cmocka_unit_test(test_lockstep),
        cmocka_unit_test(test_reduce),
        cmocka_unit_test(test_runs_ahead),
        cmocka_unit_test(test_many_run_ahead),
        cmocka_unit_test(test_named_eager),
        cmocka_unit_test(test_splits),
        cmocka_unit_test(test_lists_of_the_root),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
