#include "sink.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "memory.h"

enum { SINK_FULL = 256 << 10 };

void sink_init(struct sink *sink, uv_loop_t *loop, int fd)
{
    *sink = (struct sink){.loop = loop, .fd = fd};
    sink->work.data = sink;
}

void sink_free(struct sink *sink)
{
    free(sink->next.data);
    free(sink->now.data);
}

void sink_append(struct sink *sink, const void *data, size_t bytes)
{
    struct buffer *next = &sink->next;
    if (sink->broken || bytes == 0) return; /* memcpy of 0 bytes must not get the NULL of an empty buffer */
    if (next->capacity - next->used < bytes) {
        next->capacity = 2 * next->capacity + bytes;
        next->data = memory_resize(next->data, next->capacity);
    }
    memcpy(next->data + next->used, data, bytes);
    next->used += bytes;
}

bool sink_is_full(const struct sink *sink)
{
    return sink->next.used >= SINK_FULL;
}

/* Writes all of `now`, however long the reader takes.  Runs in a worker thread; the loop does not touch `now` and
 * `failed` until it has finished. */
static void write_all(uv_work_t *work)
{
    struct sink *sink = work->data;
    for (size_t done = 0; done < sink->now.used;) {
        ssize_t n = write(sink->fd, sink->now.data + done, sink->now.used - done);
        if (n >= 0) {
            done += (size_t)n;
        } else if (errno == EAGAIN) { /* another process has made the descriptor non-blocking */
            poll(&(struct pollfd){.fd = sink->fd, .events = POLLOUT}, 1, -1);
        } else if (errno != EINTR) {
            sink->failed = true;
            return;
        }
    }
}

static void after_write(uv_work_t *work, int status)
{
    struct sink *sink = work->data;
    (void)status; /* 0, because the work is never cancelled */
    sink->writing = false;
    if (sink->failed) sink->next.used = 0;
    sink->broken = sink->failed;
    sink->now.used = 0;
    if (sink->written) sink->written(sink);
    sink_flush(sink);
}

void sink_flush(struct sink *sink)
{
    if (sink->writing || sink->next.used == 0) return;
    struct buffer empty = sink->now;
    sink->now = sink->next;
    sink->next = empty;
    sink->writing = true;
    uv_queue_work(sink->loop, &sink->work, write_all, after_write);
}
