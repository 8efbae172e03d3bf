/* Monotonic time and deadlines, and the time of day. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>
#include <time.h>
#include <tutti/types.h>

#define CLOCK_NEVER INT64_MAX

static inline int64_t clock_read_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static inline int64_t clock_now_ns(void)
{
    return clock_read_ns(CLOCK_MONOTONIC);
}

/* Returns the nanoseconds since 1970. */
static inline int64_t clock_unix_ns(void)
{
    return clock_read_ns(CLOCK_REALTIME);
}

/* Converts a time or a duration in nanoseconds to a timespec. */
static inline struct timespec clock_timespec(int64_t ns)
{
    return (struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
}

/* Returns the time in timeout_ms from now; CLOCK_NEVER for TUTTI_INFINITE and on overflow. */
static inline int64_t clock_deadline_ns(int64_t timeout_ms)
{
    if (timeout_ms >= INT64_MAX / 2000000) return CLOCK_NEVER;
    return clock_now_ns() + timeout_ms * 1000000;
}

/* Returns the milliseconds until the deadline, rounded up and at most 1,000,000: 0 after it, and -1 (poll's "no limit")
 * for CLOCK_NEVER. */
static inline int clock_left_ms(int64_t deadline_ns)
{
    if (deadline_ns == CLOCK_NEVER) return -1;
    int64_t left = (deadline_ns - clock_now_ns() + 999999) / 1000000;
    return left <= 0 ? 0 : left > 1000000 ? 1000000 : (int)left;
}

#endif
