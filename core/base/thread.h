/* Threads that the library starts. */
#ifndef THREAD_H
#define THREAD_H

#include <pthread.h>

/* Starts a thread with all signals blocked, because the program's handlers must not run on it.  Its stack is not as
 * small as the program's may be (ulimit -s).  Returns 0 or an errno value. */
int thread_start(pthread_t *thread, void *(*main)(void *), void *argument);

#endif
