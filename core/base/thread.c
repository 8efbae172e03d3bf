#include "base/thread.h"

#include <signal.h>
#include <stddef.h>

enum { STACK_LEAST = 256 << 10 };

int thread_start(pthread_t *thread, void *(*main)(void *), void *argument)
{
    sigset_t all, before;
    pthread_attr_t attributes;
    size_t stack = 0;
    int error = pthread_attr_init(&attributes);
    if (error != 0) return error;
    pthread_attr_getstacksize(&attributes, &stack);
    if (stack < STACK_LEAST) pthread_attr_setstacksize(&attributes, STACK_LEAST);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(thread, &attributes, main, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return error;
}
