/* backends/tcp/base/spares.c: memory of messages that wait. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "tcp/base/spares.h"

static struct spares spares;

static size_t memory_of(int size_class)
{
    return ((size_t)64 << size_class) + SPARES_HEADER;
}

/* All of the memory may be written, whatever it was before. */
static void *take(size_t bytes)
{
    void *memory = spares_take(&spares, bytes);
    assert_non_null(memory);
    memset(memory, 0xa5, bytes);
    return memory;
}

static void test_gives_it_again(void **state)
{
    (void)state;
    void *first = take(1000), *second = take(900);
    spares_give(&spares, first, 1000);
    spares_give(&spares, second, 900);
    assert_int_equal(spares.bytes, 2 * memory_of(4));
    assert_ptr_equal(take(1100), second); /* the same class, the last one first: it is still cached */
    assert_ptr_equal(take(memory_of(4)), first);
    assert_int_equal(spares.bytes, 0);
    spares_give(&spares, first, memory_of(4));
    void *other = take(memory_of(4) + 1); /* the next class */
    assert_ptr_not_equal(other, first);
    free(second); /* memory that is not given back is plain memory */
    free(other);
    spares_free(&spares);
    assert_int_equal(spares.bytes, 0);
}

/* Each class serves its largest payload and a header. */
static void test_classes(void **state)
{
    (void)state;
    for (int size_class = 0; size_class < SPARES_CLASSES; size_class++) {
        void *memory = take(memory_of(size_class));
        spares_give(&spares, memory, memory_of(size_class));
        assert_int_equal(spares.bytes, memory_of(size_class));
        assert_ptr_equal(take(memory_of(size_class) - (32 << size_class) + 1), memory);
        spares_give(&spares, memory, memory_of(size_class));
        spares_free(&spares);
    }
}

static void test_too_large_and_too_small(void **state)
{
    const size_t bytes[] = {memory_of(SPARES_CLASSES - 1) + 1, SPARES_HEADER, 8};
    (void)state;
    for (int i = 0; i < 3; i++) {
        void *memory = take(bytes[i]);
        spares_give(&spares, memory, bytes[i]);
        assert_int_equal(spares.bytes, 0);
    }
}

static void test_limit(void **state)
{
    enum { N = SPARES_MAX / (64 << 10) + 2 };
    void *memory[N];
    (void)state;
    for (int i = 0; i < N; i++) memory[i] = take(64 << 10);
    for (int i = 0; i < N; i++) spares_give(&spares, memory[i], 64 << 10);
    assert_in_range(spares.bytes, SPARES_MAX - (128 << 10), SPARES_MAX);
    spares_free(&spares);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_gives_it_again), cmocka_unit_test(test_classes),
                                       cmocka_unit_test(test_too_large_and_too_small), cmocka_unit_test(test_limit)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
