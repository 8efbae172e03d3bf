#include "file_faults.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FDS = 1024 };

static const char *watched;
static atomic_int fault, at, calls;
static atomic_bool is_watched[FDS], is_dirty[FDS], is_folder[FDS], too_early;
static atomic_int dirty_files, dirty_names;

int __real_open(const char *path, int flags, ...);
int __real_mkdir(const char *path, mode_t mode);
ssize_t __real_write(int fd, const void *data, size_t n);
int __real_fsync(int fd);
int __real_close(int fd);
int __real_rename(const char *from, const char *to);
int __wrap_open(const char *path, int flags, ...);
int __wrap_mkdir(const char *path, mode_t mode);
ssize_t __wrap_write(int fd, const void *data, size_t n);
int __wrap_fsync(int fd);
int __wrap_close(int fd);
int __wrap_rename(const char *from, const char *to);

void file_faults_arm(const char *folder, enum file_fault which, int nth)
{
    watched = folder;
    fault = which;
    at = nth;
    calls = dirty_files = dirty_names = 0;
    too_early = false;
}

int file_faults_calls(void)
{
    return calls;
}

bool file_faults_renamed_too_early(void)
{
    return too_early;
}

bool file_faults_unsynced(void)
{
    return dirty_files > 0 || dirty_names > 0;
}

static bool watches(const char *path)
{
    return watched != NULL && strncmp(path, watched, strlen(watched)) == 0;
}

static bool watches_fd(int fd)
{
    return fd >= 0 && fd < FDS && is_watched[fd];
}

/* Counts a call.  True if it fails; or ends the process. */
static bool strikes(void)
{
    if (++calls != at || fault == FILE_FAULT_NONE) return false;
    if (fault == FILE_FAULT_CRASH) kill(getpid(), SIGKILL);
    errno = fault == FILE_FAULT_EIO ? EIO : ENOSPC;
    return true;
}

int __wrap_open(const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = flags & O_CREAT ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    bool ours = watches(path);
    if (ours && strikes()) return -1;
    int fd = __real_open(path, flags, mode);
    if (!ours || fd < 0 || fd >= FDS) return fd;
    if (flags & O_CREAT) dirty_names++;
    is_watched[fd] = true;
    is_dirty[fd] = false;
    is_folder[fd] = flags & O_DIRECTORY;
    return fd;
}

int __wrap_mkdir(const char *path, mode_t mode)
{
    if (watches(path) && strikes()) return -1;
    return __real_mkdir(path, mode);
}

ssize_t __wrap_write(int fd, const void *data, size_t n)
{
    if (!watches_fd(fd)) return __real_write(fd, data, n);
    if (fault == FILE_FAULT_CRASH && calls + 1 == at && __real_write(fd, data, n / 2) < 0) return -1;
    if (strikes()) return -1;
    if (!is_dirty[fd]) dirty_files++;
    is_dirty[fd] = true;
    return __real_write(fd, data, n > 100 ? n - n / 3 : n); /* short writes, too */
}

int __wrap_fsync(int fd)
{
    if (!watches_fd(fd)) return __real_fsync(fd);
    if (strikes()) return -1;
    if (is_folder[fd]) dirty_names = 0;
    if (is_dirty[fd]) dirty_files--;
    is_dirty[fd] = false;
    return __real_fsync(fd);
}

int __wrap_close(int fd)
{
    if (fd >= 0 && fd < FDS) is_watched[fd] = false;
    return __real_close(fd);
}

int __wrap_rename(const char *from, const char *to)
{
    if (!watches(from)) return __real_rename(from, to);
    if (strikes()) return -1;
    bool completes = strstr(to, ".partial") == NULL;
    if (completes && (dirty_files > 0 || dirty_names > 0)) too_early = true;
    if (completes) dirty_names++;
    return __real_rename(from, to);
}
