/* Threads of the library. */
#ifndef THREAD_H
#define THREAD_H

#include <pthread.h>

/* Starts a thread that takes no signals: the program's handlers must not run on it.  Its stack does not shrink with the
 * program's (ulimit -s).  Returns 0 or an errno value. */
int thread_start(pthread_t *thread, void *(*main)(void *), void *argument);

#endif
