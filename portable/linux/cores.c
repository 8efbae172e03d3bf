#include "portable/cores.h"

#include <sched.h>

int cores_usable(pid_t pid)
{
    cpu_set_t mask;
    return sched_getaffinity(pid, sizeof mask, &mask) == 0 ? CPU_COUNT(&mask) : 1;
}

void cores_move_to(int nth)
{
    cpu_set_t mask, one;
    if (sched_getaffinity(0, sizeof mask, &mask) != 0) return;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &mask) || nth-- != 0) continue;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        if (sched_setaffinity(0, sizeof one, &one) == 0) sched_setaffinity(0, sizeof mask, &mask);
        return;
    }
}
