/* Names, indices and the table of which op reduces which dtype. */
#include "base/dtype.h"
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
// clang-format on

static void test_indices_and_names(void **state)
{
    (void)state;
    for (int i = 0; i < DTYPE_COUNT; i++) {
        tutti_dtype dtype = dtype_from_index(i);
        assert_true(dtype_valid(dtype));
        assert_int_equal(dtype_index(dtype), i);
        for (int j = 0; j < i; j++) {
            assert_int_not_equal(dtype, dtype_from_index(j));
            assert_string_not_equal(dtype_name(dtype), dtype_name(dtype_from_index(j)));
        }
    }
    assert_int_equal(dtype_index(TUTTI_INT8), DTYPE_INT8);
    assert_int_equal(dtype_index(TUTTI_FLOAT32), DTYPE_FLOAT32);
    assert_int_equal(dtype_index(TUTTI_BOOL), DTYPE_BOOL);
    assert_int_equal(dtype_index(TUTTI_FLOAT8_E5M2), DTYPE_FLOAT8_E5M2);
    assert_string_equal(dtype_name(TUTTI_FLOAT32), "float32");
    assert_string_equal(dtype_name(TUTTI_UINT16), "uint16");
    assert_string_equal(dtype_name(TUTTI_COMPLEX128), "complex128");
    assert_string_equal(dtype_name(TUTTI_FLOAT8_E4M3FN), "float8_e4m3fn");
}

static void test_what_is_no_dtype(void **state)
{
    static const int wrong[] = {0, -1, 1, 0x0007, 0x0021, 0x0310, 0x0508, 0x0210 | 1 << 16, INT32_MIN, INT32_MAX};

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        tutti_dtype dtype = (tutti_dtype)wrong[i];
        assert_false(dtype_valid(dtype));
        assert_int_equal(dtype_index(dtype), -1);
        assert_string_equal(dtype_name(dtype), "?");
        assert_false(dtype_reduces(dtype, TUTTI_SUM));
    }
    assert_string_equal(reduce_op_name((tutti_reduce_op)-1), "?");
    assert_string_equal(reduce_op_name(TUTTI_REDUCE_OP_COUNT), "?");
    assert_false(dtype_reduces(TUTTI_FLOAT32, (tutti_reduce_op)-1));
    assert_false(dtype_reduces(TUTTI_FLOAT32, TUTTI_REDUCE_OP_COUNT));
}

/* One letter per op, in the order of types.h.  The letters repeat what types.h says about each op. */
static void test_which_op_reduces_which_dtype(void **state)
{
    static const struct {
        tutti_dtype dtype;
        const char *ops;
    } rows[] = {
        {TUTTI_INT8, "SPmMA-&|^"},        {TUTTI_INT16, "SPmMA-&|^"},         {TUTTI_INT32, "SPmMA-&|^"},
        {TUTTI_INT64, "SPmMA-&|^"},       {TUTTI_UINT8, "SPmMA-&|^"},         {TUTTI_UINT16, "SPmMA-&|^"},
        {TUTTI_UINT32, "SPmMA-&|^"},      {TUTTI_UINT64, "SPmMA-&|^"},        {TUTTI_FLOAT16, "SPmMAF---"},
        {TUTTI_FLOAT32, "SPmMAF---"},     {TUTTI_FLOAT64, "SPmMAF---"},       {TUTTI_BFLOAT16, "SPmMAF---"},
        {TUTTI_COMPLEX64, "SP--AF---"},   {TUTTI_COMPLEX128, "SP--AF---"},    {TUTTI_BOOL, "SPmM--&|^"},
        {TUTTI_FLOAT8_E5M2, "SPmMAF---"}, {TUTTI_FLOAT8_E4M3FN, "SPmMAF---"},
    };

    (void)state;
    assert_int_equal(sizeof rows / sizeof rows[0], DTYPE_COUNT);
    for (int i = 0; i < DTYPE_COUNT; i++)
        for (int op = 0; op < TUTTI_REDUCE_OP_COUNT; op++)
            assert_int_equal(dtype_reduces(rows[i].dtype, op), rows[i].ops[op] != '-');
}

static void test_names_of_ops(void **state)
{
    static const char *const names[] = {"SUM", "PRODUCT", "MIN", "MAX", "AVG", "PREMUL_SUM", "BAND", "BOR", "BXOR"};

    (void)state;
    for (int op = 0; op < TUTTI_REDUCE_OP_COUNT; op++) assert_string_equal(reduce_op_name(op), names[op]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_indices_and_names),
        cmocka_unit_test(test_what_is_no_dtype),
        cmocka_unit_test(test_which_op_reduces_which_dtype),
        cmocka_unit_test(test_names_of_ops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
