#include "base/ticks.h"

#include <pthread.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

bool ticks_are_counted;
static double ns_per_tick = 1;

/* True if the counter runs at a constant rate, also while a core sleeps. */
static bool counter_is_constant(void)
{
#if defined(__x86_64__)
    enum { LEAF = (int)0x80000007, INVARIANT = 1 << 8 };
    unsigned a, b, c, d;
    return __get_cpuid((unsigned)LEAF, &a, &b, &c, &d) != 0 && (d & INVARIANT) != 0;
#else
    return false;
#endif
}

void ticks_pair(uint64_t *ticks, int64_t *ns)
{
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < 5; i++) { /* the shortest of a few tries was not interrupted */
        uint64_t before = ticks_now();
        int64_t now = clock_now_ns();
        uint64_t took = ticks_now() - before;
        if (took >= least) continue;
        least = took;
        *ticks = before + took / 2;
        *ns = now;
    }
}

static void measure(void)
{
    uint64_t first, last;
    int64_t first_ns, last_ns;
    ticks_are_counted = counter_is_constant();
    if (!ticks_are_counted) return;
    ticks_pair(&first, &first_ns);
    do ticks_pair(&last, &last_ns);
    while (last_ns - first_ns < 2000000);
    ns_per_tick = (double)(last_ns - first_ns) / (double)(last - first);
}

void ticks_prepare(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, measure);
}

int64_t ticks_to_ns(uint64_t ticks)
{
    return (int64_t)((double)ticks * ns_per_tick);
}
