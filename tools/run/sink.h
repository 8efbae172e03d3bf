/* A sink: our stdout or stderr, written without ever blocking the loop.
 *
 * The writes are done by libuv's worker threads, one at a time for each sink.  The descriptor stays as it is: making
 * it non-blocking would change it for the shell and for everybody else who shares it. */
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
    bool broken;        /* nobody reads any more: what comes is dropped */
    struct buffer next; /* gathered */
    struct buffer now;  /* being written; the worker's while writing, as is failed */
    bool failed;
    uv_work_t work;
    void (*written)(struct sink *sink); /* in the loop, after each write */
    void *owner;
};

void sink_init(struct sink *sink, uv_loop_t *loop, int fd);
void sink_free(struct sink *sink);

/* Puts bytes behind what is gathered; sink_flush starts writing it, unless a write is under way already. */
void sink_append(struct sink *sink, const void *data, size_t bytes);
void sink_flush(struct sink *sink);

/* So much is waiting that those who fill the sink should pause until `written`. */
bool sink_is_full(const struct sink *sink);

#endif
