#include "portable/waits.h"

int waits_poll(struct pollfd *polled, nfds_t n, int64_t ns)
{
    struct timespec time = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    return ppoll(polled, n, &time, NULL);
}

void waits_condition_init(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
}

int waits_condition(pthread_cond_t *condition, pthread_mutex_t *lock, const struct timespec *until)
{
    return pthread_cond_timedwait(condition, lock, until);
}
