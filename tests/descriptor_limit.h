/* The limit of open files, for tests that need many. */
#ifndef TESTS_DESCRIPTOR_LIMIT_H
#define TESTS_DESCRIPTOR_LIMIT_H

#include <stdbool.h>
#include <stdio.h>
#include <sys/resource.h>

/* Raises the soft limit to n.  Returns false, and prints why the test is skipped, if the hard limit is lower. */
static inline bool may_have_descriptors(rlim_t n)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_max < n) {
        printf("skipped: the test needs %llu open files, and the hard limit is %llu (ulimit -Hn)\n",
               (unsigned long long)n, (unsigned long long)limit.rlim_max);
        return false;
    }
    if (limit.rlim_cur < n) limit.rlim_cur = n;
    return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

#endif
