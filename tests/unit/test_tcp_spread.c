/* Ranks that share cores: who moves where, by what the seats say. */
#include "shm_ends.h"

static cpu_set_t given;
static int here, there;

static int nth(int n)
{
    for (int core = 0; core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, &given) && n-- == 0) return core;
    return -1;
}

static void go_to(int core)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(sched_setaffinity(0, sizeof given, &given), 0);
}

static int two_cores(void **state)
{
    (void)state;
    if (sched_getaffinity(0, sizeof given, &given) != 0) return -1;
    here = nth(0);
    there = nth(1);
    if (there < 0) return 0;
    CPU_ZERO(&given);
    CPU_SET(here, &given);
    CPU_SET(there, &given);
    return sched_setaffinity(0, sizeof given, &given);
}

/* Which core this rank, of three, is on after it has looked; the others' are the arguments. */
static int core_after(int seat, int first, int second, void (*change)(struct end *end))
{
    struct end end[ENDS];
    cpu_set_t found;
    int others[] = {first, second}, next = 0, core;
    ends_open(end, ENDS);
    for (int i = 0; i < ENDS; i++)
        if (i != seat) shm_seat_at(&end->shm, i)->core = (uint32_t)(others[next++] + 1);
    if (change != NULL) change(&end[seat]);
    do { /* the kernel may move it, too */
        go_to(here);
        shm_spread(&end[seat].shm);
        core = (int)shm_seat_at(&end->shm, seat)->core - 1;
    } while (core != here && end[seat].shm.spread_gap_ns == 0);
    assert_int_equal(sched_getaffinity(0, sizeof found, &found), 0);
    assert_true(CPU_EQUAL(&found, &given));
    ends_close(end, ENDS);
    return core;
}

static void skip_on_one_core(void)
{
    if (there >= 0) return;
    print_message("skipped: there is one core, and no other to be on\n");
    skip();
}

static void test_last_of_three_moves(void **state)
{
    (void)state;
    skip_on_one_core();
    assert_int_equal(core_after(2, here, here, NULL), there);
    assert_int_equal(core_after(1, here, here, NULL), here); /* one of them is enough */
    assert_int_equal(core_after(0, here, here, NULL), here);
}

static void test_two_and_one_stay(void **state)
{
    (void)state;
    skip_on_one_core();
    assert_int_equal(core_after(2, here, there, NULL), here);
    assert_int_equal(core_after(2, there, there, NULL), here);
}

static void forget_one(struct end *end)
{
    shm_seat_at(&end->shm, 0)->core = 0;
}

static void lose_one(struct end *end)
{
    end->shm.peer[0].lost = true;
}

static void spoil_one(struct end *end)
{
    shm_seat_at(&end->shm, 0)->core = UINT32_MAX;
}

static void hold(struct end *end)
{
    end->shm.spread_ns = INT64_MAX;
}

static void test_nobody_moves_by_half_the_picture(void **state)
{
    (void)state;
    skip_on_one_core();
    assert_int_equal(core_after(2, here, here, forget_one), here);
    assert_int_equal(core_after(2, here, here, spoil_one), here);
    assert_int_equal(core_after(2, here, here, hold), here);
    assert_int_equal(core_after(2, here, there, lose_one), here);
}

static void test_the_dead_do_not_count(void **state)
{
    (void)state;
    skip_on_one_core();
    assert_int_equal(core_after(2, there, here, lose_one), there); /* two here, and nobody there any more */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_last_of_three_moves),
        cmocka_unit_test(test_two_and_one_stay),
        cmocka_unit_test(test_nobody_moves_by_half_the_picture),
        cmocka_unit_test(test_the_dead_do_not_count),
    };
    return cmocka_run_group_tests(tests, two_cores, NULL);
}
