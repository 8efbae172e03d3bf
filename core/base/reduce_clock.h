/* Measures the time that is spent in reductions, for tools that ask for it: for each group tree, by all threads. */
#ifndef BASE_REDUCE_CLOCK_H
#define BASE_REDUCE_CLOCK_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/ticks.h"

/* Trees share a counter if a process has more.  A counter has a cache line. */
enum { REDUCE_CLOCK_TREES = 64, REDUCE_CLOCK_LINE = 8 };

extern atomic_bool reduce_clock_runs;
extern _Atomic uint64_t reduce_clock_ticks[REDUCE_CLOCK_TREES][REDUCE_CLOCK_LINE];
extern _Thread_local unsigned reduce_clock_tree; /* whose reductions this thread does */

/* Starts measuring, for the rest of the process. */
void reduce_clock_start(void);

/* This thread's reductions are those of a tree from now on.  The tree's lock is held. */
static inline void reduce_clock_enter(uint64_t tree)
{
    reduce_clock_tree = (unsigned)(tree % REDUCE_CLOCK_TREES);
}

/* Returns the ticks that reductions of a tree have taken.  Its lock is held, or the answer may be old. */
static inline uint64_t reduce_clock_read(uint64_t tree)
{
    return atomic_load_explicit(&reduce_clock_ticks[tree % REDUCE_CLOCK_TREES][0], memory_order_relaxed);
}

/* True if a reduction of n elements is measured.  Reading the clock twice takes longer than reducing a few elements, so
 * these count as transfer. */
static inline bool reduce_clock_measures(int64_t n)
{
    enum { ELEMENTS_LEAST = 128 };
    /* acquire: pairs with reduce_clock_start, which chooses the clock first */
    return n >= ELEMENTS_LEAST && __builtin_expect(atomic_load_explicit(&reduce_clock_runs, memory_order_acquire), 0);
}

/* Returns the time before a reduction of n elements, or 0 if it is not measured. */
static inline uint64_t reduce_clock_begin(int64_t n)
{
    return reduce_clock_measures(n) ? ticks_now() : 0;
}

static inline void reduce_clock_end(uint64_t begin)
{
    if (__builtin_expect(begin == 0, 1)) return;
    _Atomic uint64_t *ticks = &reduce_clock_ticks[reduce_clock_tree][0];
    /* relaxed, and no atomic addition: the tree's lock is held.  Trees that share a counter may lose some ticks. */
    uint64_t before = atomic_load_explicit(ticks, memory_order_relaxed);
    atomic_store_explicit(ticks, before + ticks_now() - begin, memory_order_relaxed);
}

#endif
