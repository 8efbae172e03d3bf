#include "usage.h"

#include <dirent.h>
#include <malloc.h>
#include <stdio.h>

#ifdef __GLIBC__
#define HAVE_MALLINFO2 __GLIBC_PREREQ(2, 33)
#endif

static int count_entries(const char *path)
{
    DIR *directory = opendir(path);
    int n = 0;
    while (directory != NULL && readdir(directory) != NULL) n++;
    if (directory != NULL) closedir(directory);
    return n;
}

int usage_fds(void)
{
    return count_entries("/proc/self/fd");
}

int usage_threads(void)
{
    return count_entries("/proc/self/task");
}

/* Sanitizers replace malloc, and mallinfo2 does not know their allocations.  Other C libraries count nothing. */
size_t __sanitizer_get_current_allocated_bytes(void) __attribute__((weak));

size_t usage_bytes(void)
{
    if (__sanitizer_get_current_allocated_bytes != NULL) return __sanitizer_get_current_allocated_bytes();
#if HAVE_MALLINFO2
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
#else
    return 0;
#endif
}

bool usage_allow_fds(rlim_t n)
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
