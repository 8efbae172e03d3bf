/* The cores that a test may use, for tests that move between them. */
#ifndef GIVEN_CORES_H
#define GIVEN_CORES_H

#include <sched.h>

static cpu_set_t given;

static int remember(void **state)
{
    (void)state;
    return sched_getaffinity(0, sizeof given, &given);
}

static int nth_of(const cpu_set_t *mask, int n)
{
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, mask) && n-- == 0) return cpu;
    return -1;
}

static void skip_on_one_core(void)
{
    if (CPU_COUNT(&given) > 1) return;
    print_message("skipped: the test needs two cores\n");
    skip();
}

#endif
