/* A feed: one output stream of one rank.  It reads a pipe and passes whole lines to a sink, each with the rank's
 * prefix. Bytes pass unchanged.  A line longer than line_max is cut into several. */
#ifndef RUN_FEED_H
#define RUN_FEED_H

#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

#include "sink.h"

enum { FEED_LINE_MAX = 64 << 10, FEED_PREFIX_MAX = 24, FEED_TAIL_MAX = 4096 };

struct feed {
    uv_pipe_t pipe;
    struct sink *sink;
    char prefix[FEED_PREFIX_MAX];
    bool (*filter)(struct feed *feed, const char *line, size_t bytes); /* true: drops the line.  NULL: none */
    size_t line_max;
    bool open;
    bool closing;       /* the loop still has the pipe */
    bool paused;        /* the sink is full */
    bool active;        /* data has arrived since the last feed_was_active */
    struct buffer line; /* start of a line whose end has not arrived yet */
    char *tail;         /* the last bytes of the stream, at most FEED_TAIL_MAX */
    size_t tail_used;
    void (*closed)(struct feed *feed); /* called once in the loop, after the last line */
    void *owner;
};

/* Starts to read fd, which the feed then owns. */
void feed_open(struct feed *feed, uv_loop_t *loop, int fd, struct sink *sink, const char *prefix);

/* Resumes reading once the sink has space again. */
void feed_resume(struct feed *feed);

/* Closes the feed before the rank closes its end. */
void feed_close(struct feed *feed);

/* True if the feed may be opened: never opened, or closed to the end. */
bool feed_is_free(const struct feed *feed);

/* True if data has arrived since the last call, or may arrive. */
bool feed_was_active(struct feed *feed);

void feed_free(struct feed *feed);

#endif
