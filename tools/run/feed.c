#include "feed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "memory.h"

static void emit(struct feed *feed, const char *rest, size_t bytes, bool newline)
{
    if (feed->filter && !newline && feed->filter(feed, feed->line.data ? feed->line.data : "", feed->line.used)) {
        feed->line.used = 0;
        return;
    }
    sink_append(feed->sink, feed->prefix, strlen(feed->prefix));
    sink_append(feed->sink, feed->line.data, feed->line.used);
    sink_append(feed->sink, rest, bytes);
    if (newline) sink_append(feed->sink, "\n", 1);
    feed->line.used = 0;
}

static void hold(struct feed *feed, const char *data, size_t bytes)
{
    if (!feed->line.data) feed->line.data = memory_resize(NULL, FEED_LINE_MAX);
    memcpy(feed->line.data + feed->line.used, data, bytes);
    feed->line.used += bytes;
}

/* Handles bytes without a newline: emits lines of line_max bytes and keeps the rest. */
static void take_part(struct feed *feed, const char *data, size_t bytes)
{
    while (feed->line.used + bytes > feed->line_max) {
        size_t space = feed->line_max - feed->line.used;
        emit(feed, data, space, true);
        data += space;
        bytes -= space;
    }
    if (bytes) hold(feed, data, bytes);
}

static void take(struct feed *feed, const char *data, size_t bytes)
{
    while (bytes) {
        const char *newline = memchr(data, '\n', bytes);
        size_t part = newline ? (size_t)(newline - data) : bytes;
        take_part(feed, data, part);
        if (!newline) return;
        emit(feed, newline, 1, false);
        data += part + 1;
        bytes -= part + 1;
    }
}

static void remember(struct feed *feed, const char *data, size_t bytes)
{
    size_t fresh = bytes < FEED_TAIL_MAX ? bytes : FEED_TAIL_MAX;
    size_t kept = feed->tail_used < FEED_TAIL_MAX - fresh ? feed->tail_used : FEED_TAIL_MAX - fresh;
    if (!feed->tail) feed->tail = memory_resize(NULL, FEED_TAIL_MAX);
    memmove(feed->tail, feed->tail + feed->tail_used - kept, kept);
    memcpy(feed->tail + kept, data + bytes - fresh, fresh);
    feed->tail_used = kept + fresh;
}

/* Provides the buffer for a read.  One buffer serves all feeds, because on_read has consumed it when it returns. */
static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer)
{
    static char shared[64 << 10];
    (void)handle, (void)suggested;
    *buffer = uv_buf_init(shared, sizeof shared);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buffer)
{
    struct feed *feed = stream->data;
    if (n < 0) {
        feed_close(feed);
        return;
    }
    feed->active = true;
    remember(feed, buffer->base, (size_t)n);
    take(feed, buffer->base, (size_t)n);
    if (sink_is_full(feed->sink)) {
        uv_read_stop(stream);
        feed->paused = true;
    }
    sink_flush(feed->sink);
}

void feed_open(struct feed *feed, uv_loop_t *loop, int fd, struct sink *sink, const char *prefix)
{
    feed->sink = sink;
    feed->open = true;
    feed->paused = false;
    feed->tail_used = 0;
    snprintf(feed->prefix, sizeof feed->prefix, "%s", prefix);
    uv_pipe_init(loop, &feed->pipe, 0);
    feed->pipe.data = feed;
    uv_pipe_open(&feed->pipe, fd);
    uv_read_start((uv_stream_t *)&feed->pipe, on_alloc, on_read);
}

void feed_resume(struct feed *feed)
{
    if (!feed->open || !feed->paused || sink_is_full(feed->sink)) return;
    feed->paused = false;
    uv_read_start((uv_stream_t *)&feed->pipe, on_alloc, on_read);
}

static void on_close(uv_handle_t *handle)
{
    struct feed *feed = handle->data;
    feed->closing = false;
    feed->closed(feed);
}

void feed_close(struct feed *feed)
{
    if (!feed->open) return;
    feed->open = false;
    feed->closing = true;
    if (feed->line.used) emit(feed, "\n", 1, false);
    sink_flush(feed->sink);
    uv_close((uv_handle_t *)&feed->pipe, on_close);
}

bool feed_is_free(const struct feed *feed)
{
    return !feed->open && !feed->closing;
}

bool feed_was_active(struct feed *feed)
{
    bool active = feed->active || feed->paused;
    feed->active = false;
    return active;
}

void feed_free(struct feed *feed)
{
    free(feed->line.data);
    free(feed->tail);
}
