/* The cost model: which way a large message takes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../../backends/tcp/shm/cost_model.c"

enum { SIZE = 512 << 10 };

enum { PUSH = COST_FIRST, PULL = COST_SECOND };

/* Returns how many of n messages are pushed, if either way takes these times. */
static int count_pushed(struct cost_model *cost, int n, uint64_t push_ns, uint64_t pull_ns)
{
    int pushed = 0;
    for (int i = 0; i < n; i++) {
        int way = cost_choose(cost, SIZE);
        pushed += way == PUSH;
        cost_record(cost, way, SIZE, way == PUSH ? push_ns : pull_ns);
    }
    return pushed;
}

static void test_the_faster_way_is_taken(void **state)
{
    (void)state;
    struct cost_model fast = {0}, slow = {0};
    assert_in_range(count_pushed(&fast, 1000, 30000, 63000), 1000 - 1000 / TRY_EVERY - 8, 999);
    assert_in_range(count_pushed(&slow, 1000, 110000, 63000), 1, 1000 / TRY_EVERY + 8);
}

/* The first measurement is not used, because the memory has no pages yet. */
static void test_the_first_time_is_not_trusted(void **state)
{
    (void)state;
    struct cost_model cost = {0};
    cost_record(&cost, PUSH, SIZE, 300000);
    assert_in_range(count_pushed(&cost, 20, 30000, 63000), 14, 19);
}

static void test_times_change(void **state)
{
    (void)state;
    struct cost_model cost = {0};
    count_pushed(&cost, 100, 30000, 63000);
    assert_in_range(count_pushed(&cost, 1000, 110000, 63000), 1,
                    40); /* found soon, because the model measures the way in use */
    assert_in_range(count_pushed(&cost, 1000, 30000, 63000), 900,
                    999); /* found when the model tries the other way again */
}

static void test_one_long_time_is_chance(void **state)
{
    (void)state;
    struct cost_model cost = {0};
    count_pushed(&cost, 100, 30000, 63000);
    cost_record(&cost, PUSH, SIZE, 20000000); /* the peer had lost its core */
    assert_in_range(count_pushed(&cost, 20, 30000, 63000), 19, 20);
}

static void test_sizes_differ(void **state)
{
    (void)state;
    struct cost_model cost = {0};
    count_pushed(&cost, 100, 110000, 63000);
    assert_int_equal(cost_choose(&cost, SIZE), PULL);
    assert_int_equal(cost_choose(&cost, SIZE / 2 + 1), PULL);
    assert_int_equal(cost_choose(&cost, SIZE / 2), PUSH); /* not measured yet */
    assert_int_equal(cost_choose(&cost, SIZE + 1), PUSH);
}

/* A peer reports its own time, which may be any number. */
static void test_reports_are_bounded(void **state)
{
    (void)state;
    struct cost_model cost = {0};
    cost_record(&cost, PULL, SIZE, 0);
    cost_record(&cost, PULL, SIZE, UINT64_MAX);
    cost_record(&cost, PULL, 0, 1);
    for (int i = 0; i < 200; i++) cost_record(&cost, PUSH, SIZE_MAX, UINT64_MAX);
    for (int i = 0; i < 200; i++) cost_record(&cost, PULL, SIZE, UINT64_MAX);
    for (int c = 0; c < COST_CLASSES; c++)
        for (int way = 0; way < 2; way++) assert_in_range(cost.ps[way][c], 0, PS_MAX);
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
        cmocka_unit_test(test_reports_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
