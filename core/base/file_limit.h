/* The file size limit (ulimit -f).  A process that writes beyond it gets SIGXFSZ, which would end the user's program.
 * So every writer of a file checks the limit first. */
#ifndef BASE_FILE_LIMIT_H
#define BASE_FILE_LIMIT_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/resource.h>

/* True if a file may have this size; otherwise false, with errno set. */
static inline bool file_limit_allows(size_t bytes)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || bytes <= limit.rlim_cur) return true;
    errno = EFBIG;
    return false;
}

#endif
