/* Fingerprints are equal on all ranks that make the same call, differ if anything that matters differs, and can be put
 * into words by peers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <tutti/tutti.h>

#include <cmocka.h>

#include "op/fingerprint.h"

enum { SIZE = 4 };

static tutti_tensor tensor(int64_t numel, tutti_dtype dtype)
{
    return (tutti_tensor){NULL, numel, dtype, {TUTTI_CPU, 0}};
}

/* Returns the fingerprint of an operation with one tensor a side. */
static uint64_t of(tutti_kind kind, tutti_dtype dtype, tutti_reduce_op reduce_op, int64_t numel, int root)
{
    tutti_tensor in = tensor(numel, dtype), out = tensor(numel, dtype);
    tutti_op op = {.kind = kind,
                   .dtype = dtype,
                   .reduce_op = reduce_op,
                   .root = root,
                   .n_in = 1,
                   .n_out = 1,
                   .in = &in,
                   .out = &out};
    uint64_t value = fingerprint_of(&op, SIZE);
    assert_int_not_equal(value, 0);
    return value;
}

static const char *words(uint64_t fingerprint)
{
    static char text[256];
    fingerprint_describe(fingerprint, text, sizeof text);
    return text;
}

static void test_words(void **state)
{
    (void)state;
    assert_string_equal(words(of(TUTTI_ALL_REDUCE, TUTTI_FLOAT32, TUTTI_SUM, 1024, -1)),
                        "all_reduce(float32, 1024 elements, SUM)");
    assert_string_equal(words(of(TUTTI_BROADCAST, TUTTI_INT8, TUTTI_SUM, 0, 0)), "broadcast(int8, 0 elements, root 0)");
    assert_string_equal(words(of(TUTTI_BROADCAST, TUTTI_BFLOAT16, TUTTI_SUM, 7, 32765)),
                        "broadcast(bfloat16, 7 elements, root 32765)");
    assert_string_equal(words(of(TUTTI_REDUCE, TUTTI_COMPLEX128, TUTTI_AVG, 3, 2)),
                        "reduce(complex128, 3 elements, AVG, root 2)");
    assert_string_equal(words(of(TUTTI_ALL_TO_ALL, TUTTI_UINT8, TUTTI_SUM, 12, -1)), "all_to_all(uint8, 3 elements)");
    assert_string_equal(words(of(TUTTI_BARRIER, TUTTI_UINT8, TUTTI_SUM, 0, -1)), "barrier");
    assert_string_equal(words(of(TUTTI_MONITORED_BARRIER, TUTTI_UINT8, TUTTI_SUM, 0, -1)), "monitored_barrier");
    assert_string_equal(words(of(TUTTI_SEND, TUTTI_BOOL, TUTTI_SUM, 9, 3)), "message(bool, 9 elements)");
    assert_non_null(strstr(words(0), "unknown"));
    assert_non_null(strstr(words(UINT64_MAX), "unknown"));
}

/* Any bits become words, whole or cut, within their buffer. */
static void test_any_bits(void **state)
{
    (void)state;
    uint64_t bits = 1;
    for (int i = 0; i < 100000; i++) {
        char text[128];
        size_t size = 1 + (size_t)(bits % 100);
        bits = bits * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        memset(text, 0x55, sizeof text);
        fingerprint_describe(bits, text, size);
        assert_true(memchr(text, '\0', size) != NULL && text[size] == 0x55);
    }
}

static const tutti_kind kinds[] = {
    TUTTI_BROADCAST,      TUTTI_ALL_REDUCE, TUTTI_REDUCE,  TUTTI_ALL_GATHER,        TUTTI_GATHER, TUTTI_SCATTER,
    TUTTI_REDUCE_SCATTER, TUTTI_ALL_TO_ALL, TUTTI_BARRIER, TUTTI_MONITORED_BARRIER, TUTTI_SEND};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* One property at a time differs: kind, dtype, count, reduce op, root. */
static void test_differences(void **state)
{
    static const tutti_dtype dtypes[] = {
        TUTTI_INT8,   TUTTI_INT16,     TUTTI_INT32,      TUTTI_INT64,         TUTTI_UINT8,      TUTTI_UINT16,
        TUTTI_UINT32, TUTTI_UINT64,    TUTTI_FLOAT16,    TUTTI_FLOAT32,       TUTTI_FLOAT64,    TUTTI_BFLOAT16,
        TUTTI_BOOL,   TUTTI_COMPLEX64, TUTTI_COMPLEX128, TUTTI_FLOAT8_E4M3FN, TUTTI_FLOAT8_E5M2};
    (void)state;
    for (int a = 0; a < KINDS; a++)
        for (int b = 0; b < a; b++)
            assert_int_not_equal(of(kinds[a], TUTTI_INT8, TUTTI_SUM, 8, 1), of(kinds[b], TUTTI_INT8, TUTTI_SUM, 8, 1));
    for (size_t a = 0; a < sizeof dtypes / sizeof *dtypes; a++)
        for (size_t b = 0; b < a; b++)
            assert_int_not_equal(of(TUTTI_SEND, dtypes[a], TUTTI_SUM, 8, 1),
                                 of(TUTTI_SEND, dtypes[b], TUTTI_SUM, 8, 1));
    for (int a = 0; a < TUTTI_REDUCE_OP_COUNT; a++)
        for (int b = 0; b < a; b++)
            assert_int_not_equal(of(TUTTI_REDUCE, TUTTI_INT8, (tutti_reduce_op)a, 8, 1),
                                 of(TUTTI_REDUCE, TUTTI_INT8, (tutti_reduce_op)b, 8, 1));
    for (int root = 1; root < 5000; root++)
        assert_int_not_equal(of(TUTTI_GATHER, TUTTI_INT8, TUTTI_SUM, 8, root),
                             of(TUTTI_GATHER, TUTTI_INT8, TUTTI_SUM, 8, root - 1));
    for (int kind = 0; kind < KINDS; kind++) {
        if (kinds[kind] == TUTTI_BARRIER || kinds[kind] == TUTTI_MONITORED_BARRIER) continue;
        assert_int_not_equal(of(kinds[kind], TUTTI_INT8, TUTTI_SUM, 8, 1),
                             of(kinds[kind], TUTTI_INT8, TUTTI_SUM, 12, 1));
        assert_int_not_equal(of(kinds[kind], TUTTI_INT8, TUTTI_SUM, 0, 1),
                             of(kinds[kind], TUTTI_INT8, TUTTI_SUM, INT64_C(1) << 33, 1));
    }
}

static void nothing(void *inout, const void *in, int64_t n, tutti_dtype dtype, void *argument)
{
    (void)inout, (void)in, (void)n, (void)dtype, (void)argument;
}

/* The program's own ops differ by their name and properties.  Large counts are hashed. */
static void test_user_ops(void **state)
{
    tutti_reduce_op least, most, wide;
    (void)state;
    assert_int_equal(tutti_op_create("least", nothing, NULL, NULL, &least), TUTTI_OK);
    assert_int_equal(tutti_op_create("most", nothing, NULL, NULL, &most), TUTTI_OK);
    assert_int_equal(tutti_op_create("least", nothing, NULL, &(tutti_op_opts){.element_bytes = 8}, &wide), TUTTI_OK);
    uint64_t of_least = of(TUTTI_REDUCE, TUTTI_UINT8, least, 8, 1);
    assert_int_not_equal(of_least, of(TUTTI_REDUCE, TUTTI_UINT8, most, 8, 1));
    assert_int_not_equal(of_least, of(TUTTI_REDUCE, TUTTI_UINT8, wide, 8, 1));
    assert_int_not_equal(of_least, of(TUTTI_REDUCE, TUTTI_UINT8, TUTTI_SUM, 8, 1));
    assert_int_not_equal(of(TUTTI_SCAN, TUTTI_UINT8, least, 1 << 20, -1),
                         of(TUTTI_SCAN, TUTTI_UINT8, least, 1 << 21, -1));
    assert_string_equal(words(of_least), "reduce(uint8, 8 elements, op least, root 1)");
    assert_string_equal(words(of(TUTTI_SCAN, TUTTI_UINT8, most, 1 << 30, -1)),
                        "scan(uint8, at least 524288 elements, op most)");
    assert_int_equal(tutti_op_free(least), TUTTI_OK);
    assert_int_equal(tutti_op_free(wide), TUTTI_OK);
    assert_string_equal(words(of_least), "reduce(uint8, 8 elements, an op that this process has not created, root 1)");
    assert_int_equal(tutti_op_free(most), TUTTI_OK);
}

/* Properties that do not belong to an operation do not count: a reduce op without a reduction, a message's peer. */
static void test_sameness(void **state)
{
    (void)state;
    assert_int_equal(of(TUTTI_BROADCAST, TUTTI_INT8, TUTTI_SUM, 8, 1),
                     of(TUTTI_BROADCAST, TUTTI_INT8, TUTTI_MAX, 8, 1));
    assert_int_equal(of(TUTTI_SEND, TUTTI_INT8, TUTTI_SUM, 8, 1), of(TUTTI_RECV, TUTTI_INT8, TUTTI_SUM, 8, 2));
    assert_int_equal(of(TUTTI_BARRIER, TUTTI_INT8, TUTTI_SUM, 8, 1), of(TUTTI_BARRIER, TUTTI_INT64, TUTTI_MAX, 9, 2));
}

static uint64_t of_list(tutti_kind kind, const int64_t *counts, bool list_is_out)
{
    tutti_tensor list[SIZE], one = tensor(counts[0], TUTTI_INT8);
    for (int i = 0; i < SIZE; i++) list[i] = tensor(counts[i], TUTTI_INT8);
    tutti_op op = {.kind = kind, .dtype = TUTTI_INT8, .list = true, .root = -1, .n_in = 1, .n_out = 1};
    op.in = list_is_out ? &one : list;
    op.out = list_is_out ? list : &one;
    *(list_is_out ? &op.n_out : &op.n_in) = SIZE;
    return fingerprint_of(&op, SIZE);
}

/* A list of even parts equals the flat form.  The order of uneven parts matters if every rank knows all of them. */
static void test_lists(void **state)
{
    static const int64_t even[] = {5, 5, 5, 5}, uneven[] = {5, 6, 7, 8}, turned[] = {5, 7, 6, 8};
    (void)state;
    assert_int_equal(of_list(TUTTI_ALL_GATHER, even, true), of(TUTTI_ALL_GATHER, TUTTI_INT8, TUTTI_SUM, 5, -1));
    assert_int_equal(of_list(TUTTI_REDUCE_SCATTER, even, false),
                     of(TUTTI_REDUCE_SCATTER, TUTTI_INT8, TUTTI_SUM, 5, -1));
    assert_int_not_equal(of_list(TUTTI_ALL_GATHER, uneven, true), of_list(TUTTI_ALL_GATHER, turned, true));
    assert_int_not_equal(of_list(TUTTI_ALL_GATHER, uneven, true), of_list(TUTTI_ALL_GATHER, even, true));
    assert_non_null(strstr(words(of_list(TUTTI_ALL_GATHER, uneven, true)), "all_gather(int8, parts of given sizes)"));
    /* here no rank knows the sizes of the others, so they must not count */
    assert_int_equal(of_list(TUTTI_ALL_TO_ALL, uneven, true), of_list(TUTTI_ALL_TO_ALL, turned, true));
}

/* A receive of up to a size takes any count of its dtype. */
static void test_mask(void **state)
{
    float x[9];
    tutti_tensor sent = tutti_view(x, 3), larger = tutti_view(x, 9), other = tutti_tensor_of(x, 3, TUTTI_INT32);
    tutti_op send = {.kind = TUTTI_SEND, .dtype = TUTTI_FLOAT32, .n_in = 1, .in = &sent};
    tutti_op recv = {.kind = TUTTI_RECV, .dtype = TUTTI_FLOAT32, .n_out = 1, .out = &larger};
    tutti_op wrong = {.kind = TUTTI_SEND, .dtype = TUTTI_INT32, .n_in = 1, .in = &other};
    (void)state;
    uint64_t mine = fingerprint_of(&recv, 2), theirs = fingerprint_of(&send, 2), odd = fingerprint_of(&wrong, 2);
    assert_true(((mine ^ theirs) & fingerprint_mask(&recv)) != 0);
    recv.up_to = true;
    assert_true(((mine ^ theirs) & fingerprint_mask(&recv)) == 0);
    assert_true(((mine ^ odd) & fingerprint_mask(&recv)) != 0);
}

static void test_kind_names(void **state)
{
    (void)state;
    assert_string_equal(tutti_kind_find(TUTTI_BROADCAST)->name, "broadcast");
    assert_string_equal(tutti_kind_find(TUTTI_REDUCE_SCATTER)->name, "reduce_scatter");
    assert_string_equal(tutti_kind_find(TUTTI_COALESCED)->name, "coalesced");
    assert_string_equal(tutti_kind_find(TUTTI_COPY)->name, "copy");
    assert_string_equal(tutti_kind_find(TUTTI_PROBE)->name, "probe");
    assert_string_equal(tutti_kind_find(TUTTI_KIND_COUNT)->name, "unknown operation");
    assert_string_equal(tutti_kind_find((tutti_kind)-1)->name, "unknown operation");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words),    cmocka_unit_test(test_any_bits),   cmocka_unit_test(test_differences),
        cmocka_unit_test(test_user_ops), cmocka_unit_test(test_sameness),   cmocka_unit_test(test_lists),
        cmocka_unit_test(test_mask),     cmocka_unit_test(test_kind_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
