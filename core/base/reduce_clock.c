#include "base/reduce_clock.h"

atomic_bool reduce_clock_runs;
_Atomic uint64_t reduce_clock_ticks[REDUCE_CLOCK_TREES][REDUCE_CLOCK_LINE];
_Thread_local unsigned reduce_clock_tree;

void reduce_clock_start(void)
{
    ticks_prepare();
    atomic_store_explicit(&reduce_clock_runs, true, memory_order_release);
}
