/* A sink: the launcher's stdout or stderr, which it writes without blocking the loop.
 *
 * libuv's worker threads do the writes, one at a time for each sink.  The descriptor stays blocking, because a change
 * would affect the shell and every other process that shares it. */
#ifndef RUN_SINK_H
#define RUN_SINK_H

#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

struct buffer {
    char *data;
    size_t used, capacity;
};

struct sink {
    uv_loop_t *loop;
    int fd;
    bool writing;
    bool broken;        /* a write has failed, and further data are dropped */
    struct buffer next; /* collected for the next write */
    struct buffer now;  /* being written; the worker thread owns it and `failed` meanwhile */
    bool failed;
    uv_work_t work;
    void (*written)(struct sink *sink); /* called in the loop after each write */
    void *owner;
};

void sink_init(struct sink *sink, uv_loop_t *loop, int fd);
void sink_free(struct sink *sink);

/* Appends bytes.  sink_flush starts to write them unless a write is in progress. */
void sink_append(struct sink *sink, const void *data, size_t bytes);
void sink_flush(struct sink *sink);

/* True if so many bytes wait that feeds should pause until `written` is called. */
bool sink_is_full(const struct sink *sink);

#endif
