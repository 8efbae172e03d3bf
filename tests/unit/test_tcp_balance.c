/* Ranks that share cores measure what they compute, and the balance between the cores decides which core they prefer.
 */
#include <time.h>

#include "unit/shm_ends.h"

static int64_t used_ns; /* processor time of this process */

static int read_clock(clockid_t clock, struct timespec *time)
{
    (void)clock;
    *time = (struct timespec){.tv_sec = used_ns / 1000000000, .tv_nsec = used_ns % 1000000000};
    return 0;
}

#define clock_gettime read_clock
#include "../../backends/tcp/shm/balance.c"
#undef clock_gettime

enum { HALF = WHOLE / 2, QUARTER = WHOLE / 4 };

static struct end end[ENDS];
static int64_t time_ns;

static int set_up(void **state)
{
    (void)state;
    ends_open(end, ENDS);
    for (int i = 0; i < ENDS; i++) shm_rank_at(&end[0].shm, i)->pid = i + 1;
    time_ns = 100 * (int64_t)WINDOW_NS;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    ends_close(end, ENDS);
    return 0;
}

/* ---- loads ------------------------------------------------------------------------------------------------------- */

/* Looks at the cores until a window has ended, after as many pauses as there are between two looks and after work. */
static uint32_t measure(int64_t pause_ns, int64_t work_ns, int64_t look_ns)
{
    struct shm *shm = &end[0].shm;
    bool ended = false;
    int64_t begin_ns = shm->load.begin_ns;
    for (int64_t began_ns = time_ns; !ended; time_ns += look_ns) {
        assert_true(time_ns - began_ns <= 2 * (int64_t)WINDOW_NS);
        used_ns += SHM_RESTORE_EVERY * pause_ns + work_ns;
        ended = shm_measure_load(shm, time_ns);
        if (ended) assert_true(time_ns - begin_ns >= WINDOW_NS);
    }
    return shm_rank_at(shm, 0)->load;
}

static void test_pauses_are_no_load(void **state)
{
    (void)state;
    measure(1500, 0, 200000);
    assert_int_equal(measure(1500, 0, 200000), 0);
    assert_int_equal(measure(600, 0, 200000), 0); /* which takes less where no other rank is ready */
    assert_in_range(end[0].shm.load.pause_ns, 600, 700);
}

static void test_work_is_load(void **state)
{
    (void)state;
    measure(1000, 0, 1000000);
    assert_in_range(measure(1000, 500000, 1000000), HALF - HALF / 8, HALF + HALF / 8);
    assert_in_range(measure(1000, 250000, 1000000), QUARTER - QUARTER / 8, QUARTER + QUARTER / 8);
    assert_int_equal(measure(1000, 4000000, 1000000), WHOLE); /* four threads */
    int64_t begin_ns = end[0].shm.load.begin_ns;
    assert_true(shm_rank_at(&end[0].shm, 0)->load_ns == begin_ns && begin_ns >= time_ns - 1000000);
}

/* Ranks that differ little must not seem to differ much, and what grows slowly is no pause. */
static void test_little_work_is_load(void **state)
{
    (void)state;
    measure(500, 350000, 400000);
    uint32_t less = measure(500, 340000, 400000), more = measure(500, 400000, 440000);
    assert_in_range(more, less, less + less / 4);
    assert_in_range(less, WHOLE / 3, WHOLE);
    for (int64_t work_ns = 1000; work_ns < 1000000; work_ns += work_ns / 8) measure(500, work_ns, 32000 + work_ns);
    assert_in_range(measure(500, 1000000, 1032000), WHOLE / 2, WHOLE);
}

/* ---- cores ------------------------------------------------------------------------------------------------------- */

static void give(int local_rank, int core, uint32_t load)
{
    shm_rank_at(&end[0].shm, local_rank)->prefers = (uint32_t)core + 1;
    shm_rank_at(&end[0].shm, local_rank)->load = load;
    shm_rank_at(&end[0].shm, local_rank)->load_ns = time_ns;
}

/* Returns what the rank prefers, of two cores, at the end of a window.  Its own core is `home`. */
static int choose(int local_rank, int core, int home)
{
    struct shm *shm = &end[local_rank].shm;
    cpu_set_t mask;
    CPU_ZERO(&mask);
    CPU_SET(0, &mask);
    CPU_SET(1, &mask);
    shm->load.begin_ns = time_ns += WINDOW_NS / 2;
    return shm_balance(shm, core, home, &mask);
}

/* Two ranks with much work on the first core, and one with little on the second. */
static void unbalance(void)
{
    give(0, 0, HALF);
    give(1, 0, HALF);
    give(2, 1, QUARTER / 2);
    for (int i = 0; i < ENDS; i++) end[i].shm.load.better = -1;
}

static void test_leaves_what_carries_more(void **state)
{
    (void)state;
    unbalance();
    assert_int_equal(choose(0, 0, 0), 0); /* one window may be an accident */
    assert_int_equal(choose(1, 0, 0), 0);
    assert_int_equal(choose(2, 1, 1), 1);
    assert_int_equal(choose(1, 0, 0), 1);
    assert_int_equal(shm_rank_at(&end[0].shm, 1)->prefers, 2);
    assert_int_equal(choose(0, 0, 0), 0); /* the balance is good now */
    assert_int_equal(choose(0, 0, 0), 0);
}

static void test_one_at_a_time(void **state)
{
    (void)state;
    unbalance();
    choose(0, 0, 0);
    choose(1, 0, 0);
    shm_rank_at(&end[0].shm, 0)->moved_ns = time_ns + WINDOW_NS / 4; /* another rank moves, whose load is not seen */
    assert_int_equal(choose(0, 0, 0), 0);
    time_ns += WINDOW_NS;
    assert_int_equal(choose(0, 0, 0), 1);
}

static void test_goes_home(void **state)
{
    (void)state;
    unbalance();
    give(1, 1, HALF);
    assert_int_equal(choose(1, 1, 0), 1); /* the balance needs it */
    assert_int_equal(choose(1, 1, 0), 1);
    give(0, 0, 0);
    choose(1, 1, 0);
    assert_int_equal(choose(1, 1, 0), 0);
}

static void test_stays(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) { /* small differences, which are those of measurements */
        give(0, 0, HALF);
        give(1, 0, HALF);
        give(2, 1, HALF - QUARTER / 4 * (uint32_t)i);
        choose(1, 0, 0);
        assert_int_equal(choose(1, 0, 0), 0);
    }
    unbalance();
    shm_rank_at(&end[0].shm, 2)->prefers = 0; /* not known yet */
    choose(1, 0, 0);
    assert_int_equal(choose(1, 0, 0), 0);
    give(2, 1, 0);
    give(0, 0, WHOLE + 1); /* a faulty rank */
    choose(1, 0, 0);
    assert_int_equal(choose(1, 0, 0), 0);
}

static void test_small_loads_stay(void **state)
{
    (void)state;
    unbalance();
    give(1, 0, LOAD_LEAST - 1);
    give(0, 0, WHOLE);
    choose(1, 0, 0);
    assert_int_equal(choose(1, 0, 0), 0);
    assert_int_equal(choose(1, 1, 0), 0); /* or go home, although that carries more */
}

static void test_old_loads_do_not_count(void **state)
{
    (void)state;
    unbalance();
    give(2, 1, WHOLE);
    choose(1, 0, 0);
    assert_int_equal(choose(1, 0, 0), 0);
    time_ns += OLD_NS;
    give(0, 0, HALF);
    choose(1, 0, 0);
    assert_int_equal(choose(1, 0, 0), 1);
}

static void test_lost_ranks_carry_nothing(void **state)
{
    (void)state;
    unbalance();
    end[1].shm.peer[0].lost = true;
    choose(1, 0, 0);
    assert_int_equal(choose(1, 0, 0), 0);
}

/* The processor time of a process is that of all its threads. */
static void test_ranks_of_one_process_stay(void **state)
{
    (void)state;
    unbalance();
    shm_rank_at(&end[0].shm, 0)->pid = shm_rank_at(&end[0].shm, 1)->pid;
    choose(1, 0, 0);
    assert_int_equal(choose(1, 0, 0), 0);
}

static void test_impossible_times(void **state)
{
    static const int64_t times[] = {INT64_MIN, INT64_MAX};
    (void)state;
    for (int i = 0; i < 2; i++) {
        unbalance();
        shm_rank_at(&end[0].shm, 0)->moved_ns = times[i];
        choose(1, 0, 0);
        assert_int_equal(choose(1, 0, 0), 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_pauses_are_no_load, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_work_is_load, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_leaves_what_carries_more, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_one_at_a_time, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_goes_home, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_stays, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_little_work_is_load, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_small_loads_stay, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_old_loads_do_not_count, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_lost_ranks_carry_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_ranks_of_one_process_stay, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_impossible_times, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
