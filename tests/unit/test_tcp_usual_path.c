/* backends/tcp/shm/coll/path.c: the path of a collective before anything is measured. */
#include "unit/small_groups.h"

struct usual_case {
    tutti_kind kind;
    int n;
    bool shares_cores, can_read_memory;
    int64_t bytes; /* of a block */
    enum coll_path path;
};

static void check(const struct usual_case *c)
{
    struct end end[ENDS];
    struct small small;
    struct coll_op made = {0};
    ends_open(end, ENDS);
    end[0].shm.shares_cores = c->shares_cores;
    end[0].shm.can_read_memory = c->can_read_memory;
    small_open(&end[0], &small, c->n);
    tutti_tensor in = {small.x, c->bytes, TUTTI_UINT8, {TUTTI_CPU, 0}}, out = in;
    if (tutti_kind_in_blocks(c->kind)) in.numel *= c->n;
    if (tutti_kind_out_blocks(c->kind)) out.numel *= c->n;
    tutti_op op = {.kind = c->kind, .dtype = TUTTI_UINT8, .n_in = 1, .n_out = 1, .in = &in, .out = &out};
    assert_true(coll_describe(&small.coll, &op, &made));
    assert_int_equal(made.path, c->path);
    coll_close(&small.coll);
    ends_close(end, ENDS);
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
        {TUTTI_REDUCE_SCATTER, 2, true, true, LARGE, COLL_DIRECT},
        {TUTTI_SCATTER, 3, true, true, LARGE, COLL_DIRECT},
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
        {TUTTI_SCATTER, 3, true, true, 64 << 10, COLL_PIPELINED}, /* the root need not wait */
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check(&cases[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_reads), cmocka_unit_test(test_copies)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
