#include "trace/trace_file.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/file_limit.h"
#include "base/log.h"
#include "base/ticks.h"

/* Warns once, because each group tree has a file, and the cause is most likely the same for all. */
static void fail(struct trace_file *file, const char *what)
{
    static atomic_bool warned;
    int level = atomic_exchange(&warned, true) ? LOG_DEBUG : LOG_WARN;
    log_write(level, LOG_OP, "TUTTI_TRACE: cannot %s %s: %s; the job continues without this trace", what, file->path,
              strerror(errno));
    atomic_store(&file->failed, true);
}

bool trace_file_open(struct trace_file *file, const char *folder, const tutti_trace_begin *begin, uint64_t tree)
{
    file->written = 0;
    file->pid = begin->pid;
    snprintf(file->path, sizeof file->path, "%s/rank-%d.pid-%d.%llu%s", folder, begin->rank, begin->pid,
             (unsigned long long)tree, TUTTI_TRACE_SUFFIX);
    atomic_store(&file->failed, false);
    (void)mkdir(folder, 0777); /* if it cannot be made, open has the reason */
    file->fd = open(file->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (file->fd < 0) {
        fail(file, "make");
        return false;
    }
    trace_file_write(file, TUTTI_TRACE_BEGIN, begin, sizeof *begin, NULL, 0);
    trace_file_write_clock(file);
    return true;
}

/* Writes all parts.  Returns false with errno set. */
static bool write_all(struct trace_file *file, struct iovec *part, int n, size_t bytes)
{
    if (!file_limit_allows(file->written + bytes)) return false;
    for (size_t left = bytes; left > 0;) {
        ssize_t done = writev(file->fd, part, n);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return false;
        left -= (size_t)done;
        for (; n > 0 && (size_t)done >= part->iov_len; n--, part++) done -= (ssize_t)part->iov_len;
        if (n > 0) *part = (struct iovec){(char *)part->iov_base + done, part->iov_len - (size_t)done};
    }
    file->written += bytes;
    return true;
}

void trace_file_write(struct trace_file *file, enum tutti_trace_type type, const void *first, size_t first_bytes,
                      const void *second, size_t second_bytes)
{
    int old;
    tutti_trace_block block = {TUTTI_TRACE_MAGIC, (uint32_t)type, first_bytes + second_bytes};
    struct iovec part[3] = {
        {&block, sizeof block}, {(void *)(uintptr_t)first, first_bytes}, {(void *)(uintptr_t)second, second_bytes}};
    if (file->fd < 0 || atomic_load_explicit(&file->failed, memory_order_relaxed) || file->pid != getpid()) return;
    /* A thread that is cancelled here would keep the lock of its group. */
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
    if (!write_all(file, part, 3, sizeof block + first_bytes + second_bytes)) fail(file, "write to");
    pthread_setcancelstate(old, NULL);
}

void trace_file_write_clock(struct trace_file *file)
{
    tutti_trace_clock clock = {0, 0};
    ticks_pair(&clock.ticks, &clock.monotonic_ns);
    trace_file_write(file, TUTTI_TRACE_CLOCK, &clock, sizeof clock, NULL, 0);
}

void trace_file_close(struct trace_file *file)
{
    if (file->fd >= 0) close(file->fd);
    file->fd = -1;
}
