/* The monotonic clock. */
#ifndef TESTS_MONOTONIC_H
#define TESTS_MONOTONIC_H

#include <stdint.h>

/* Return the time in nanoseconds, and in seconds. */
int64_t monotonic_ns(void);
double monotonic_s(void);

#endif
