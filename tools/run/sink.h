/* A sink: the launcher's stdout or stderr, written without ever blocking the loop.
 *
 * libuv's worker threads do the writes, one at a time for each sink.  The descriptor stays as it is, because making it
 * non-blocking would change it for the shell and for everybody else who shares it. */
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
    bool broken;        /* the reader has gone: further data is dropped */
    struct buffer next; /* collected */
    struct buffer now;  /* being written; the worker owns it and `failed` while writing */
    bool failed;
    uv_work_t work;
    void (*written)(struct sink *sink); /* called in the loop after each write */
    void *owner;
};

void sink_init(struct sink *sink, uv_loop_t *loop, int fd);
void sink_free(struct sink *sink);

/* Appends bytes. sink_flush starts writing them, unless a write is in progress. */
void sink_append(struct sink *sink, const void *data, size_t bytes);
void sink_flush(struct sink *sink);

/* True if so much is waiting that feeds should pause until `written`. */
bool sink_is_full(const struct sink *sink);

#endif
