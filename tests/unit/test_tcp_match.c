/* Matching of messages and receives. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#include "../../backends/tcp/p2p/match.c"

static struct match_item item_of(uint64_t group, int32_t source, uint64_t tag)
{
    return (struct match_item){.group = group, .source = source, .tag = tag};
}

static void test_order_within_a_key(void **state)
{
    (void)state;
    struct match_table table;
    assert_true(match_init(&table));
    struct match_item a = item_of(1, 2, 3), b = item_of(1, 2, 3), c = item_of(1, 2, 3);
    match_put(&table, &a);
    match_put(&table, &b);
    match_put(&table, &c);
    assert_ptr_equal(match_exact(&table, 1, 2, 3), &a);
    match_take(&table, &a);
    assert_ptr_equal(match_exact(&table, 1, 2, 3), &b);
    match_take(&table, &c); /* from the middle and the end as well */
    assert_ptr_equal(match_loose(&table, 1, 3), &b);
    match_take(&table, &b);
    match_take(&table, &b); /* twice does no harm */
    assert_null(match_exact(&table, 1, 2, 3));
    assert_int_equal(table.count, 0);
    match_free(&table);
    match_free(&table);
}

static void test_all_of_the_key_counts(void **state)
{
    (void)state;
    struct match_table table;
    assert_true(match_init(&table));
    struct match_item a = item_of(1, 2, 3);
    match_put(&table, &a);
    assert_null(match_exact(&table, 9, 2, 3));
    assert_null(match_exact(&table, 1, 9, 3));
    assert_null(match_exact(&table, 1, 2, 9));
    assert_null(match_exact(&table, 1, MATCH_ANY, 3));
    assert_null(match_loose(&table, 9, 3));
    assert_null(match_loose(&table, 1, 9));
    assert_ptr_equal(match_loose(&table, 1, 3), &a);
    match_take(&table, &a);
    match_free(&table);
}

static void test_any_source(void **state)
{
    (void)state;
    struct match_table table;
    assert_true(match_init(&table));
    /* receives: named and open ones take a message in the order in which they were posted */
    struct match_item named = item_of(1, 5, 3), open = item_of(1, MATCH_ANY, 3), later = item_of(1, 5, 3);
    match_put(&table, &named);
    match_put(&table, &open);
    match_put(&table, &later);
    assert_ptr_equal(match_posted(&table, 1, 5, 3), &named);
    assert_ptr_equal(match_posted(&table, 1, 6, 3), &open);
    match_take(&table, &named);
    assert_ptr_equal(match_posted(&table, 1, 5, 3), &open);
    match_take(&table, &open);
    assert_ptr_equal(match_posted(&table, 1, 5, 3), &later);
    assert_null(match_posted(&table, 1, 6, 3));
    match_take(&table, &later);
    /* messages: an open receive takes the oldest of whoever */
    struct match_item x = item_of(1, 8, 4), y = item_of(1, 7, 4);
    match_put(&table, &x);
    match_put(&table, &y);
    assert_ptr_equal(match_loose(&table, 1, 4), &x);
    assert_ptr_equal(match_exact(&table, 1, 7, 4), &y);
    match_take(&table, &x);
    assert_ptr_equal(match_loose(&table, 1, 4), &y);
    match_take(&table, &y);
    match_free(&table);
}

/* Against a plain list, through growth and collisions. */
static void test_against_a_list(void **state)
{
    (void)state;
    enum { N = 3000, ROUNDS = 60000 };
    struct match_table table;
    assert_true(match_init(&table));
    struct match_item *items = calloc(N, sizeof *items), **list = calloc(N, sizeof *list);
    size_t n = 0;
    srand(2);
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t group = (uint64_t)(rand() % 3), tag = (uint64_t)(rand() % 40) << (rand() % 2 * 32);
        int32_t source = rand() % 5 - 1;
        if (rand() % 2 && n < N) {
            struct match_item *item = NULL;
            for (size_t i = 0; i < N && item == NULL; i++)
                if (!items[(i + (size_t)round) % N].in) item = &items[(i + (size_t)round) % N];
            *item = item_of(group, source, tag);
            match_put(&table, item);
            list[n++] = item;
            continue;
        }
        size_t exact = n, loose = n, posted = n;
        for (size_t i = n; i-- > 0;) {
            if (list[i]->group != group || list[i]->tag != tag) continue;
            loose = i;
            if (list[i]->source == source) exact = i;
            if (list[i]->source == source || list[i]->source == MATCH_ANY) posted = i;
        }
        assert_ptr_equal(match_exact(&table, group, source, tag), exact < n ? list[exact] : NULL);
        assert_ptr_equal(match_loose(&table, group, tag), loose < n ? list[loose] : NULL);
        assert_ptr_equal(match_posted(&table, group, source, tag), posted < n ? list[posted] : NULL);
        size_t gone = rand() % 2 ? posted : n > 0 ? (size_t)rand() % n : 0;
        if (gone >= n) continue;
        match_take(&table, list[gone]);
        for (size_t i = gone; i + 1 < n; i++) list[i] = list[i + 1];
        n--;
    }
    assert_int_equal(table.count, n);
    match_free(&table);
    free(items);
    free(list);
}

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Nanoseconds to find and replace one of n items that differ in kind: 0 tag, 1 source, 2 nothing. */
static double cost(size_t n, int kind)
{
    struct match_table table;
    struct match_item *items = calloc(n, sizeof *items);
    assert_true(match_init(&table));
    for (size_t i = 0; i < n; i++) {
        items[i] = item_of(1, kind == 1 ? (int32_t)i : 0, kind == 0 ? i : 0);
        match_put(&table, &items[i]);
    }
    enum { ROUNDS = 200000 };
    double start = now_s();
    for (size_t i = 0; i < ROUNDS; i++) {
        size_t k = i * 7919 % n;
        struct match_item *found = match_posted(&table, 1, kind == 1 ? (int32_t)k : 0, kind == 0 ? k : 0);
        match_take(&table, found);
        match_put(&table, found);
    }
    double ns = (now_s() - start) / ROUNDS * 1e9;
    match_free(&table);
    free(items);
    return ns;
}

static void test_thousands_cost_what_few_do(void **state)
{
    (void)state;
    for (int kind = 0; kind < 3; kind++) {
        double few = cost(8, kind), many = cost(20000, kind);
        print_message("kind %d: %.0f ns with 8, %.0f ns with 20,000\n", kind, few, many);
        assert_true(many < 50 * few + 1000); /* a walk through the list would take 2,500 times as long */
    }
}

#define MESSAGE(tag) (UINT64_C(1) << 63 | (tag))

/* Receives of any tag and of one meet messages in the order in which they were posted; other tags are none of theirs.
 */
static void test_any_tag(void **state)
{
    (void)state;
    struct match_table table;
    assert_true(match_init(&table));
    struct match_item named = item_of(1, 4, MESSAGE(7)), open = item_of(1, 4, MATCH_ANY_TAG);
    struct match_item whoever = item_of(1, MATCH_ANY, MATCH_ANY_TAG), last = item_of(1, 4, MESSAGE(7));
    match_put(&table, &named);
    match_put(&table, &open);
    match_put(&table, &whoever);
    match_put(&table, &last);
    assert_null(match_posted(&table, 1, 4, 7)); /* not a message's tag */
    assert_null(match_posted(&table, 2, 4, MESSAGE(7)));
    assert_ptr_equal(match_posted(&table, 1, 5, MESSAGE(7)), &whoever);
    assert_ptr_equal(match_posted(&table, 1, 4, MESSAGE(8)), &open);
    assert_ptr_equal(match_posted(&table, 1, 4, MESSAGE(7)), &named);
    match_take(&table, &named);
    assert_ptr_equal(match_posted(&table, 1, 4, MESSAGE(7)), &open);
    match_take(&table, &open);
    match_take(&table, &whoever);
    assert_ptr_equal(match_posted(&table, 1, 4, MESSAGE(7)), &last);
    assert_true(table.any_tags == 0);
    match_free(&table);
}

static void test_oldest(void **state)
{
    (void)state;
    struct match_table table;
    struct match_item items[300];
    assert_true(match_init(&table));
    assert_null(match_oldest(&table, 1, MATCH_ANY));
    for (uint64_t i = 0; i < 300; i++) { /* the table grows meanwhile */
        items[i] = item_of(1 + i % 2, (int32_t)(i % 3), i < 9 ? i : MESSAGE(i));
        match_put(&table, &items[i]);
    }
    assert_ptr_equal(match_oldest(&table, 1, MATCH_ANY), &items[10]);
    assert_ptr_equal(match_oldest(&table, 2, 0), &items[9]);
    assert_ptr_equal(match_oldest(&table, 2, 2), &items[11]);
    assert_null(match_oldest(&table, 3, MATCH_ANY));
    match_take(&table, &items[10]);
    assert_ptr_equal(match_oldest(&table, 1, MATCH_ANY), &items[12]);
    match_free(&table);
}

static bool has_tag(const struct match_item *item, const void *tag)
{
    return item->tag == *(const uint64_t *)tag;
}

static void test_search(void **state)
{
    (void)state;
    struct match_table table;
    assert_true(match_init(&table));
    struct match_item items[300];
    for (uint64_t i = 0; i < 300; i++) {
        items[i] = item_of(i % 7, (int32_t)(i % 5), i);
        match_put(&table, &items[i]);
    }
    uint64_t tag = 299, none = 300;
    assert_ptr_equal(match_search(&table, has_tag, &tag), &items[299]);
    assert_null(match_search(&table, has_tag, &none));
    match_free(&table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order_within_a_key),
        cmocka_unit_test(test_all_of_the_key_counts),
        cmocka_unit_test(test_any_source),
        cmocka_unit_test(test_against_a_list),
        cmocka_unit_test(test_any_tag),
        cmocka_unit_test(test_oldest),
        cmocka_unit_test(test_search),
        cmocka_unit_test(test_thousands_cost_what_few_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
