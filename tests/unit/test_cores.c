/* The cores of a host's ranks: they start evenly spread without being bound. */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cores.h"
#include "unit/given_cores.h"

static int restore(void **state)
{
    (void)state;
    return sched_setaffinity(0, sizeof given_cores, &given_cores);
}

static void assert_mask(const cpu_set_t *wanted)
{
    cpu_set_t found;
    assert_int_equal(sched_getaffinity(0, sizeof found, &found), 0);
    assert_true(CPU_EQUAL(&found, wanted));
}

/* Checks an unbound process, and one bound as by a launcher.  Returns the line of the failed check. */
static int own(void)
{
    int cores = CPU_COUNT(&given_cores);
    cpu_set_t one;
    if (cores_are_own(-1) || cores_are_own(0)) return __LINE__;
    if (!cores_are_own(1) || !cores_are_own(cores)) return __LINE__;
    if (cores_are_own(cores + 1)) return __LINE__;
    CPU_ZERO(&one);
    CPU_SET(given_cores_nth(&given_cores, cores - 1), &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0) return __LINE__;
    if (cores_are_own(cores + 1)) return __LINE__; /* bound, but the launcher has too few cores as well */
    return cores_are_own(cores) ? 0 : __LINE__;
}

/* The answer also depends on the masks of parent and grandparent.  In a grandchild both are `given_cores`. */
static void test_own(void **state)
{
    (void)state;
    int status = -1;
    pid_t child = fork();
    if (child == 0) {
        pid_t grandchild = fork();
        if (grandchild == 0) _exit(own());
        if (grandchild < 0 || waitpid(grandchild, &status, 0) != grandchild) _exit(1);
        _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* Returns the core of `given_cores` on which a rank must start. */
static int core_of(int local_rank, int local_world_size)
{
    return given_cores_nth(&given_cores, local_rank / (local_world_size / CPU_COUNT(&given_cores)));
}

/* The kernel may move the thread at once, so a single try may miss it.  Each core must be found within several tries.
 */
static void test_even(void **state)
{
    (void)state;
    enum { TRIES = 40 };
    int cores = CPU_COUNT(&given_cores), found = 0, looked = 0;
    given_cores_need_two();
    for (int i = 0; i < TRIES; i++)
        for (int each = 1; each <= 4; each++)
            for (int rank = each * cores - 1; rank >= 0; rank -= cores - 1) { /* seldom on the same core twice */
                cores_start_even(rank, each * cores);
                found += sched_getcpu() == core_of(rank, each * cores);
                looked++;
                assert_mask(&given_cores);
            }
    assert_in_range(found, looked * 9 / 10, looked);
}

/* Ranks stay where they are if they are bound, or if there are more cores than ranks. */
static void test_left_alone(void **state)
{
    (void)state;
    enum { TRIES = 20 };
    int cores = CPU_COUNT(&given_cores), moved = 0, here = given_cores_nth(&given_cores, 0), last = cores - 1;
    cpu_set_t one;
    given_cores_need_two();
    for (int i = 0; i < TRIES; i++) {
        CPU_ZERO(&one);
        CPU_SET(here, &one);
        assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
        cores_start_even(last, cores);
        assert_mask(&one);
        assert_int_equal(sched_setaffinity(0, sizeof given_cores, &given_cores), 0);
        cores_start_even(last, cores - 1);
        cores_start_even(-1, cores);
        assert_mask(&given_cores);
        moved += sched_getcpu() != here;
    }
    assert_in_range(moved, 0, TRIES / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_own, given_cores_save, restore),
        cmocka_unit_test_setup_teardown(test_even, given_cores_save, restore),
        cmocka_unit_test_setup_teardown(test_left_alone, given_cores_save, restore),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
