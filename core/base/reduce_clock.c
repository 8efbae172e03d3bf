#include "base/reduce_clock.h"

atomic_bool reduce_clock_runs;
_Thread_local uint64_t reduce_clock_ticks;

void reduce_clock_start(void)
{
    ticks_prepare();
    atomic_store_explicit(&reduce_clock_runs, true, memory_order_release);
}
