/* Measures the time that each thread spends in reductions, for tools that ask for it. */
#ifndef BASE_REDUCE_CLOCK_H
#define BASE_REDUCE_CLOCK_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/ticks.h"

extern atomic_bool reduce_clock_runs;
extern _Thread_local uint64_t reduce_clock_ticks; /* of this thread, since it began */

/* Starts measuring, for the rest of the process. */
void reduce_clock_start(void);

/* Returns the time before a reduction, or 0 if none is measured. */
static inline uint64_t reduce_clock_begin(void)
{
    /* acquire: pairs with reduce_clock_start, which chooses the clock first */
    return __builtin_expect(atomic_load_explicit(&reduce_clock_runs, memory_order_acquire), 0) ? ticks_now() : 0;
}

static inline void reduce_clock_end(uint64_t begin)
{
    if (__builtin_expect(begin != 0, 0)) reduce_clock_ticks += ticks_now() - begin;
}

#endif
