/* The tables of kinds and reduce ops: the properties of each kind, the results for an operation, and a compile error
 * for a kind or a reduce op without a row. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <tutti/op.h>

enum { SIZE = 3, RANK = 1 };

static void test_sets_are_the_rows(void **state)
{
    (void)state;
    for (int i = -2; i < 70; i++) {
        tutti_kind kind = (tutti_kind)i;
        const tutti_kind_row *row = tutti_kind_find(kind);
        assert_int_equal(tutti_kind_is_collective(kind), row->group == TUTTI_CLASS_COLLECTIVE);
        assert_int_equal(tutti_kind_is_message(kind), row->group == TUTTI_CLASS_MESSAGE);
        assert_int_equal(tutti_kind_has_root(kind), row->has_root);
        assert_int_equal(tutti_kind_reduces(kind), row->reduces);
        assert_int_equal(tutti_kind_in_blocks(kind), (row->in & TUTTI_SIDE_BLOCKS) != 0);
        assert_int_equal(tutti_kind_out_blocks(kind), (row->out & TUTTI_SIDE_BLOCKS) != 0);
    }
    assert_string_equal(tutti_kind_find(TUTTI_ALL_REDUCE)->name, "all_reduce");
    assert_string_equal(tutti_kind_find(TUTTI_KIND_COUNT)->name, "unknown operation");
    assert_string_equal(tutti_kind_find((tutti_kind)-1)->name, "unknown operation");
}

static void test_sides(void **state)
{
    (void)state;
    assert_false(tutti_kind_has_in(TUTTI_BROADCAST, 0, 0));
    assert_true(tutti_kind_has_out(TUTTI_REDUCE, 2, 2) && !tutti_kind_has_out(TUTTI_REDUCE, 1, 2));
    assert_true(tutti_kind_has_in(TUTTI_SCATTER, 2, 2) && !tutti_kind_has_in(TUTTI_SCATTER, 1, 2));
    assert_true(tutti_kind_has_in(TUTTI_GATHER, 1, 2) && !tutti_kind_has_out(TUTTI_GATHER, 1, 2));
    assert_true(tutti_kind_has_out(TUTTI_ALL_GATHER, 1, -1));
    assert_false(tutti_kind_has_in(TUTTI_BARRIER, 0, -1) || tutti_kind_has_out(TUTTI_BARRIER, 0, -1));
    assert_true(tutti_kind_knows_blocks(TUTTI_ALL_GATHER) && tutti_kind_knows_blocks(TUTTI_REDUCE_SCATTER));
    assert_false(tutti_kind_knows_blocks(TUTTI_GATHER) || tutti_kind_knows_blocks(TUTTI_ALL_TO_ALL));
    assert_false(tutti_kind_knows_blocks(TUTTI_ALL_REDUCE));
}

static char memory[256];

static tutti_tensor at(int place, int64_t numel)
{
    return (tutti_tensor){memory + 4 * place, numel, TUTTI_FLOAT32, {TUTTI_CPU, 0}};
}

/* True if a flat operation with these in and out addresses is in place. */
static bool in_place(tutti_kind kind, int in, int64_t in_numel, int out, int64_t out_numel)
{
    tutti_tensor tensors[2] = {at(in, in_numel), at(out, out_numel)};
    tutti_op op = {.kind = kind, .dtype = TUTTI_FLOAT32, .n_in = 1, .in = tensors, .n_out = 1, .out = tensors + 1};
    return tutti_op_is_in_place(&op, RANK);
}

static void test_in_place(void **state)
{
    (void)state;
    assert_true(in_place(TUTTI_ALL_REDUCE, 0, 5, 0, 5));
    assert_false(in_place(TUTTI_ALL_REDUCE, 0, 5, 8, 5));
    assert_false(in_place(TUTTI_ALL_REDUCE, 0, 0, 0, 0));
    assert_true(in_place(TUTTI_ALL_GATHER, 5, 5, 0, 15));
    assert_false(in_place(TUTTI_ALL_GATHER, 0, 5, 0, 15));
    assert_true(in_place(TUTTI_REDUCE_SCATTER, 0, 15, 5, 5));
    assert_false(in_place(TUTTI_REDUCE_SCATTER, 0, 15, 0, 5));
    assert_true(in_place(TUTTI_ALL_TO_ALL, 0, 15, 0, 15));
    assert_false(in_place(TUTTI_ALL_TO_ALL, 0, 15, 20, 15));
    tutti_tensor one = at(0, 5);
    tutti_op op = {.kind = TUTTI_REDUCE, .dtype = TUTTI_FLOAT32, .n_in = 1, .in = &one, .out = &one};
    assert_false(tutti_op_is_in_place(&op, RANK)); /* no output, because it is not the root */
}

static void test_lists_in_place(void **state)
{
    (void)state;
    tutti_tensor list[SIZE] = {at(0, 2), at(10, 3), at(20, 4)}, other[SIZE] = {at(0, 2), at(10, 3), at(30, 4)};
    tutti_tensor own = at(10, 3), only[SIZE] = {at(0, 0), at(10, 3), at(20, 0)};
    tutti_op op = {.kind = TUTTI_ALL_GATHER, .dtype = TUTTI_FLOAT32, .list = true, .n_in = 1, .in = &own};
    op.n_out = SIZE;
    op.out = list;
    assert_true(tutti_op_is_in_place(&op, RANK));
    assert_false(tutti_op_is_in_place(&op, 0));
    op = (tutti_op){.kind = TUTTI_ALL_TO_ALL, .dtype = TUTTI_FLOAT32, .list = true, .n_in = SIZE, .n_out = SIZE};
    op.in = list;
    op.out = list;
    assert_true(tutti_op_is_in_place(&op, RANK));
    op.out = other;
    assert_false(tutti_op_is_in_place(&op, RANK));
    op.in = op.out = only; /* nothing goes to a peer */
    assert_false(tutti_op_is_in_place(&op, RANK));
}

static void test_block(void **state)
{
    (void)state;
    tutti_tensor in = at(0, 6), out = at(10, 18);
    tutti_op op = {.kind = TUTTI_ALL_GATHER, .n_in = 1, .in = &in, .n_out = 1, .out = &out};
    assert_int_equal(tutti_op_block_numel(&op, SIZE), 6);
    op.kind = TUTTI_REDUCE_SCATTER;
    assert_int_equal(tutti_op_block_numel(&op, SIZE), 18);
    op.kind = TUTTI_ALL_TO_ALL;
    assert_int_equal(tutti_op_block_numel(&op, SIZE), 2);
    op.list = true;
    assert_int_equal(tutti_op_block_numel(&op, SIZE), 0);
    op = (tutti_op){.kind = TUTTI_BROADCAST, .n_out = 1, .out = &out};
    assert_int_equal(tutti_op_block_numel(&op, SIZE), 18);
    op = (tutti_op){.kind = TUTTI_BARRIER};
    assert_int_equal(tutti_op_block_numel(&op, SIZE), 0);
}

static void test_pairwise(void **state)
{
    (void)state;
    assert_int_equal(tutti_reduce_op_pairwise(TUTTI_AVG), TUTTI_SUM);
    assert_int_equal(tutti_reduce_op_pairwise(TUTTI_PREMUL_SUM), TUTTI_SUM);
    assert_int_equal(tutti_reduce_op_pairwise(TUTTI_BXOR), TUTTI_BXOR);
}

/* True if the header compiles with `added` inserted before the line `before`. */
static bool compiles_with(const char *header, const char *before, const char *added)
{
    char path[512], line[1024];
    snprintf(path, sizeof path, TUTTI_SOURCE_DIR "/include/tutti/%s", header);
    FILE *from = fopen(path, "r"), *to = popen("cc -x c -std=c11 -fsyntax-only - 2>/dev/null", "w");
    assert_non_null(from);
    assert_non_null(to);
    bool found = false;
    while (fgets(line, sizeof line, from) != NULL) {
        if (strstr(line, before) != NULL && !found) found = fputs(added, to) >= 0;
        fputs(line, to);
    }
    fclose(from);
    assert_true(found);
    return pclose(to) == 0;
}

static void test_missing_rows(void **state)
{
    (void)state;
    assert_true(compiles_with("kinds.h", "    TUTTI_KIND_COUNT\n", ""));
    assert_false(compiles_with("kinds.h", "    TUTTI_KIND_COUNT\n", "TUTTI_NEW,\n"));
    assert_false(compiles_with("kinds.h", "    TUTTI_GATHER,\n", "TUTTI_NEW,\n"));
    assert_true(compiles_with("dtypes.h", "    TUTTI_REDUCE_OP_COUNT\n", ""));
    assert_false(compiles_with("dtypes.h", "    TUTTI_REDUCE_OP_COUNT\n", "TUTTI_NEW,\n"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sets_are_the_rows), cmocka_unit_test(test_sides), cmocka_unit_test(test_in_place),
        cmocka_unit_test(test_lists_in_place),    cmocka_unit_test(test_block), cmocka_unit_test(test_pairwise),
        cmocka_unit_test(test_missing_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
