#include "unit/given_cores.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

cpu_set_t given_cores;

int given_cores_save(void **state)
{
    (void)state;
    return sched_getaffinity(0, sizeof given_cores, &given_cores);
}

int given_cores_nth(const cpu_set_t *mask, int n)
{
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, mask) && n-- == 0) return cpu;
    return -1;
}

void given_cores_need_two(void)
{
    if (CPU_COUNT(&given_cores) > 1) return;
    print_message("skipped: the test needs two cores\n");
    skip();
}
