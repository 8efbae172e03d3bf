/* Resources of this process: descriptors, threads, memory. */
#ifndef TESTS_USAGE_H
#define TESTS_USAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/resource.h>

/* Return the number of open descriptors and of threads. */
int usage_fds(void);
int usage_threads(void);

/* Returns the bytes that the allocator has handed out, a sanitizer's or malloc's. */
size_t usage_bytes(void);

/* Raises the soft limit of open files to n.  Returns false, and prints why the test is skipped, if the hard limit is
 * lower. */
bool usage_allow_fds(rlim_t n);

/* Lowers the limit of descriptors, soft and hard, so that n are free. */
void usage_leave_fds(int n);

#endif
