/* The limit of a file's size (ulimit -f).  Who writes beyond it gets SIGXFSZ, which would end the user's process: so
 * whatever writes a file asks first. */
#ifndef BASE_FILE_LIMIT_H
#define BASE_FILE_LIMIT_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/resource.h>

/* Whether a file may have so many bytes; else false, with errno set. */
static inline bool file_limit_allows(size_t bytes)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || bytes <= limit.rlim_cur) return true;
    errno = EFBIG;
    return false;
}

#endif
