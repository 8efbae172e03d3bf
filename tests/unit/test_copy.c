/* tutti_copy at every place that decides how it copies, also for ranges that overlap. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <tutti/backend.h>

enum { BYTES = 3 * 4096 + 5, SLACK = 4096 + 64 };

static char ours[2 * (BYTES + SLACK)], theirs[sizeof ours];

/* Copies between these offsets of one array, as memmove does in another. */
static void one(size_t to, size_t from, size_t bytes)
{
    for (size_t i = 0; i < sizeof ours; i++) ours[i] = theirs[i] = (char)(i * 31 + i / 256);
    memmove(theirs + to, theirs + from, bytes);
    tutti_copy(ours + to, ours + from, bytes);
    assert_memory_equal(ours, theirs, sizeof ours);
}

static void test_copies_as_memmove_does(void **state)
{
    static const size_t sizes[] = {0, 1, 4, 8, 1023, 1024, 1025, 2047, 2048, 2049, 4096, BYTES};
    static const size_t distances[] = {0, 1, 16, 31, 32, 2048, 4095, 4096, 4097, 4112, 4127, 4128};
    (void)state;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (size_t d = 0; d < sizeof distances / sizeof *distances; d++) {
            one(distances[d], 0, sizes[s]); /* they overlap if the distance is smaller */
            one(0, distances[d], sizes[s]);
            one(BYTES + distances[d], 0, sizes[s]);
        }
}

static void test_finds_slow_places(void **state)
{
    (void)state;
    assert_true(tutti_copy_is_slow(ours + 4097, ours, 4096));
    assert_true(tutti_copy_is_slow(ours + 4096 + 31, ours, 4096));
    assert_true(tutti_copy_is_slow(ours, ours + 4080, 2048)); /* 16 bytes after its place in another page */
    assert_false(tutti_copy_is_slow(ours + 4096, ours, 4096));
    assert_false(tutti_copy_is_slow(ours + 4096 + 32, ours, 4096));
    assert_false(tutti_copy_is_slow(ours + 4097, ours, 2047));
    assert_false(tutti_copy_is_slow(ours + 16, ours, 4096)); /* they overlap */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_copies_as_memmove_does),
                                       cmocka_unit_test(test_finds_slow_places)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
