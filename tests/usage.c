#include "usage.h"

#include <dirent.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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

/* True if the thread is past the end of its function.  pthread_join returns before such a thread has left /proc. */
static bool is_ending(const char *thread)
{
    enum { PF_EXITING = 4 }; /* of the flags that the kernel shows in /proc */
    char path[64], text[512] = "";
    unsigned flags = 0;
    snprintf(path, sizeof path, "/proc/self/task/%.20s/stat", thread);
    FILE *file = fopen(path, "re");
    if (file == NULL) return true;
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    const char *end = strrchr(text, ')'); /* of the thread's name */
    return end == NULL || sscanf(end + 1, " %*c %*d %*d %*d %*d %*d %u", &flags) != 1 || (flags & PF_EXITING) != 0;
}

int usage_threads(void)
{
    DIR *directory = opendir("/proc/self/task");
    struct dirent *entry;
    int n = 0;
    while (directory != NULL && (entry = readdir(directory)) != NULL)
        n += *entry->d_name != '.' && !is_ending(entry->d_name);
    if (directory != NULL) closedir(directory);
    return n;
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

void usage_leave_fds(int n)
{
    int next = fcntl(0, F_DUPFD_CLOEXEC, 0); /* the lowest free number */
    close(next);
    struct rlimit limit = {(rlim_t)(next + n), (rlim_t)(next + n)};
    setrlimit(RLIMIT_NOFILE, &limit);
}
