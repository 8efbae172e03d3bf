/* Library to load before a test (LD_PRELOAD).  It sets the wall clock by an hour, forth and back, between any two
 * readings.  The monotonic clock is left as it is. */
#include <stdatomic.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default")))

EXPORTED int moving_clock_count(void);

enum { HOUR_S = 3600 };

static atomic_int looks;

/* Returns how often the wall clock was read. */
int moving_clock_count(void)
{
    return atomic_load(&looks);
}

static time_t shift(void)
{
    return atomic_fetch_add(&looks, 1) % 2 == 0 ? HOUR_S : -HOUR_S;
}

EXPORTED int clock_gettime(clockid_t clock, struct timespec *now)
{
    int result = (int)syscall(SYS_clock_gettime, clock, now);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += shift();
    return result;
}

EXPORTED int gettimeofday(struct timeval *now, void *zone)
{
    struct timespec time;
    (void)zone;
    int result = clock_gettime(CLOCK_REALTIME, &time);
    *now = (struct timeval){time.tv_sec, time.tv_nsec / 1000};
    return result;
}

EXPORTED time_t time(time_t *out)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out != NULL) *out = now.tv_sec;
    return now.tv_sec;
}
