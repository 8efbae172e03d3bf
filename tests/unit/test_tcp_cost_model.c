/* Which way a large message goes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../../backends/tcp/shm/cost_model.c"

enum { SIZE = 512 << 10 };

enum { PUSH = COST_FIRST, PULL = COST_SECOND };

/* Of n messages that take these times, how many are pushed. */
static int pushed_of(struct cost_model *cost, int n, uint64_t push_ns, uint64_t pull_ns)
{
    int pushed = 0;
    for (int i = 0; i < n; i++) {
        int way = cost_choose(cost, SIZE);
        pushed += way == PUSH;
        cost_learn(cost, way, SIZE, way == PUSH ? push_ns : pull_ns);
    }
    return pushed;
}

static void test_the_faster_way_is_taken(void **state)
{
    (void)state;
    struct cost_model fast = {0}, slow = {0};
    assert_in_range(pushed_of(&fast, 1000, 30000, 63000), 1000 - 1000 / TRY_EVERY - 8, 999);
    assert_in_range(pushed_of(&slow, 1000, 110000, 63000), 1, 1000 / TRY_EVERY + 8);
}

/* What a first time takes says little: memory has no pages yet. */
static void test_the_first_time_is_not_trusted(void **state)
{
    (void)state;
    struct cost_model cost = {0};
    cost_learn(&cost, PUSH, SIZE, 300000);
    assert_in_range(pushed_of(&cost, 20, 30000, 63000), 14, 19);
}

static void test_times_change(void **state)
{
    (void)state;
    struct cost_model cost = {0};
    pushed_of(&cost, 100, 30000, 63000);
    assert_in_range(pushed_of(&cost, 1000, 110000, 63000), 1, 40);   /* soon found out, for it is what is done */
    assert_in_range(pushed_of(&cost, 1000, 30000, 63000), 900, 999); /* found out when it is tried again */
}

static void test_one_long_time_is_chance(void **state)
{
    (void)state;
    struct cost_model cost = {0};
    pushed_of(&cost, 100, 30000, 63000);
    cost_learn(&cost, PUSH, SIZE, 20000000); /* the peer had lost its core */
    assert_in_range(pushed_of(&cost, 20, 30000, 63000), 19, 20);
}

static void test_sizes_differ(void **state)
{
    (void)state;
    struct cost_model cost = {0};
    pushed_of(&cost, 100, 110000, 63000);
    assert_int_equal(cost_choose(&cost, SIZE), PULL);
    assert_int_equal(cost_choose(&cost, SIZE / 2 + 1), PULL);
    assert_int_equal(cost_choose(&cost, SIZE / 2), PUSH); /* not known yet */
    assert_int_equal(cost_choose(&cost, SIZE + 1), PUSH);
}

/* A peer says what its side took: it may say anything. */
static void test_nonsense_is_bounded(void **state)
{
    (void)state;
    struct cost_model cost = {0};
    cost_learn(&cost, PULL, SIZE, 0);
    cost_learn(&cost, PULL, SIZE, UINT64_MAX);
    cost_learn(&cost, PULL, 0, 1);
    for (int i = 0; i < 200; i++) cost_learn(&cost, PUSH, SIZE_MAX, UINT64_MAX);
    for (int i = 0; i < 200; i++) cost_learn(&cost, PULL, SIZE, UINT64_MAX);
    for (int c = 0; c < COST_CLASSES; c++)
        for (int way = 0; way < 2; way++) assert_in_range(cost.ps[way][c], 0, PS_MOST);
    assert_int_not_equal(cost.ps[PULL][class_of(SIZE)], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_faster_way_is_taken),
        cmocka_unit_test(test_the_first_time_is_not_trusted),
        cmocka_unit_test(test_times_change),
        cmocka_unit_test(test_one_long_time_is_chance),
        cmocka_unit_test(test_sizes_differ),
        cmocka_unit_test(test_nonsense_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
