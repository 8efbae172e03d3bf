/* Waits by the monotonic clock. */
#ifndef PORTABLE_WAITS_H
#define PORTABLE_WAITS_H

#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <time.h>

/* Is poll(2) with a timeout in nanoseconds. */
int waits_poll(struct pollfd *polled, nfds_t n, int64_t ns);
/* Initialises a condition for waits_condition. */
void waits_condition_init(pthread_cond_t *condition);
/* Is pthread_cond_timedwait until a time of CLOCK_MONOTONIC. */
int waits_condition(pthread_cond_t *condition, pthread_mutex_t *lock, const struct timespec *until);

#endif
