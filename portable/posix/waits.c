#include "portable/waits.h"

#include <limits.h>
#include <stdbool.h>

/* Rounds up to poll's milliseconds. */
int waits_poll(struct pollfd *polled, nfds_t n, int64_t ns)
{
    int64_t ms = (ns + 999999) / 1000000;
    return poll(polled, n, ms > INT_MAX ? INT_MAX : (int)ms);
}

/* macOS has no clock selection. */
#if defined _POSIX_CLOCK_SELECTION && _POSIX_CLOCK_SELECTION > 0
#define HAS_CLOCK_SELECTION 1
#else
#include <unistd.h>
#if defined _POSIX_CLOCK_SELECTION && _POSIX_CLOCK_SELECTION > 0
#define HAS_CLOCK_SELECTION 1
#endif
#endif

void waits_condition_init(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
#if HAS_CLOCK_SELECTION
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
#endif
    pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
}

int waits_condition(pthread_cond_t *condition, pthread_mutex_t *lock, const struct timespec *until)
{
#if HAS_CLOCK_SELECTION
    return pthread_cond_timedwait(condition, lock, until);
#else
    struct timespec now, wall;
    clock_gettime(CLOCK_MONOTONIC, &now);
    clock_gettime(CLOCK_REALTIME, &wall);
    int64_t left = (int64_t)(until->tv_sec - now.tv_sec) * 1000000000 + (until->tv_nsec - now.tv_nsec);
    int64_t at = wall.tv_nsec + (left > 0 ? left : 0);
    wall.tv_sec += at / 1000000000;
    wall.tv_nsec = at % 1000000000;
    return pthread_cond_timedwait(condition, lock, &wall);
#endif
}
