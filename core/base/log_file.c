#include "base/log_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/descriptors.h"

static struct {
    pthread_mutex_t lock;
    struct descriptor_identity file; /* .fd is -1 if there is none */
    char name[PATH_MAX];             /* of the file that was opened, or could not be */
    char wanted[PATH_MAX];           /* scratch space: the threads of programs may have small stacks */
    bool warned;
} log_file = {.lock = PTHREAD_MUTEX_INITIALIZER, .file.fd = -1};

/* A fork waits until the lock is free, so that the child can take it. */
static void before_fork(void)
{
    pthread_mutex_lock(&log_file.lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&log_file.lock);
}

static void watch_forks(void)
{
    pthread_atfork(before_fork, after_fork, after_fork);
}

bool log_file_name(const char *pattern, const char *host, int pid, const char *rank, char *name, size_t capacity)
{
    char number[16];
    size_t used = 0;
    snprintf(number, sizeof number, "%d", pid);
    for (; *pattern != '\0'; pattern++) {
        char one[2] = {*pattern, '\0'};
        const char *part = one;
        if (*pattern == '%') {
            pattern++;
            part = *pattern == 'h'   ? host
                   : *pattern == 'p' ? number
                   : *pattern == 'r' ? rank
                   : *pattern == '%' ? one
                                     : NULL;
        }
        if (part == NULL || used + strlen(part) >= capacity) return false;
        used += (size_t)snprintf(name + used, capacity - used, "%s", part);
    }
    return used > 0;
}

/* Returns a descriptor above stderr's, or -1 with errno set.  Only plain files and devices are used: writing to a pipe
 * or a socket without a reader would end the process. */
static int open_for_lines(const char *name)
{
    struct stat status;
    int fd = open(name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0666);
    if (fd >= 0 && fd <= STDERR_FILENO) {
        int higher = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
        close(fd);
        fd = higher;
    }
    if (fd < 0 || (fstat(fd, &status) == 0 && (S_ISREG(status.st_mode) || S_ISCHR(status.st_mode)))) return fd;
    close(fd);
    errno = EINVAL;
    return -1;
}

/* True if the descriptor is the file's.  False once the program has closed it, as daemons do with all descriptors. */
static bool is_open(void)
{
    return log_file.file.fd >= 0 && descriptors_is_same(&log_file.file);
}

/* Opens the file of this name, unless it is open or could not be opened before.  Returns false with errno set. */
static bool open_named(const char *name)
{
    bool same = strcmp(name, log_file.name) == 0;
    if (same && is_open()) return true;
    if (same && log_file.file.fd < 0) {
        errno = EBADF;
        return false;
    }
    if (is_open()) close(log_file.file.fd);
    snprintf(log_file.name, sizeof log_file.name, "%s", name);
    log_file.file.fd = open_for_lines(name);
    return log_file.file.fd >= 0 && descriptors_identify(&log_file.file, log_file.file.fd);
}

/* Returns NULL if the line is in the file, else what failed. */
static const char *append_line(const char *pattern, const char *host, const char *rank, const char *line, size_t bytes)
{
    if (!log_file_name(pattern, host, (int)getpid(), rank, log_file.wanted, sizeof log_file.wanted)) {
        errno = EINVAL;
        return "it has a % that is none of %h, %p, %r and %%, or is too long";
    }
    if (!open_named(log_file.wanted)) return "cannot open it";
    ssize_t written = write(log_file.file.fd, line, bytes);
    if (written == (ssize_t)bytes) return NULL;
    if (written >= 0) errno = ENOSPC;
    return "cannot write to it";
}

bool log_file_write(const char *pattern, const char *host, const char *rank, const char *line, size_t bytes,
                    char warning[LOG_FILE_WARNING])
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    warning[0] = '\0';
    pthread_mutex_lock(&log_file.lock);
    const char *failed = append_line(pattern, host, rank, line, bytes);
    if (failed != NULL && !log_file.warned) {
        snprintf(warning, LOG_FILE_WARNING, "TUTTI_LOG_FILE=%.160s: %s: %s; lines that it does not take go to stderr",
                 pattern, failed, strerror(errno));
        log_file.warned = true;
    }
    pthread_mutex_unlock(&log_file.lock);
    return failed == NULL;
}
