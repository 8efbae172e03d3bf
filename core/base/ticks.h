/* A clock that is cheaper to read than the system's: the processor's counter where it runs at one rate on all cores,
 * else the monotonic clock in nanoseconds. */
#ifndef BASE_TICKS_H
#define BASE_TICKS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

/* True if ticks_now reads the processor's counter.  Set by ticks_prepare. */
extern bool ticks_are_counted;

/* Chooses the clock and measures the counter's rate, once.  Takes about 2 ms the first time. */
void ticks_prepare(void);

static inline uint64_t ticks_now(void)
{
#if defined(__x86_64__)
    if (ticks_are_counted) return __rdtsc();
#endif
    return (uint64_t)clock_now_ns();
}

/* Converts a duration.  Only after ticks_prepare. */
int64_t ticks_to_ns(uint64_t ticks);

/* Reads both clocks at the same moment, as well as possible. */
void ticks_pair(uint64_t *ticks, int64_t *ns);

#endif
