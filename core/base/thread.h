/* Threads that the library starts. */
#ifndef THREAD_H
#define THREAD_H

#include <pthread.h>

/* Starts a thread with all signals blocked, because the program's handlers must not run on it.  Its stack has at least
 * 256 KiB, even if the program runs with a smaller one (ulimit -s).  Returns 0 or an errno value. */
int thread_start(pthread_t *thread, void *(*main)(void *), void *argument);

#endif
