#include "trace/trace_ranges.h"

#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "base/ticks.h"
#include "portable/process.h"
#include "trace/trace_file.h"

enum { DEPTH_MAX = 16, BUFFERED = 128 };

/* The ranges that this thread is in.  Deeper ones are counted and not recorded. */
static _Thread_local struct {
    int depth;
    uint32_t thread;
    tutti_trace_range open[DEPTH_MAX];
} own;

static struct {
    pthread_mutex_t lock;
    struct trace_file *file;
    int n;
    tutti_trace_range ended[BUFFERED];
} all = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void flush_locked(void)
{
    if (all.file != NULL && all.n > 0)
        trace_file_write(all.file, TUTTI_TRACE_RANGES, all.ended, (size_t)all.n * sizeof all.ended[0], NULL, 0);
    all.n = 0;
}

void trace_ranges_push(void *argument, const char *name)
{
    (void)argument;
    int depth = own.depth++;
    if (depth >= DEPTH_MAX) return;
    if (own.thread == 0) own.thread = process_thread();
    tutti_trace_range *range = &own.open[depth];
    *range = (tutti_trace_range){.begin = ticks_now(), .thread = own.thread, .depth = (uint32_t)depth};
    snprintf(range->name, sizeof range->name, "%s", name);
}

void trace_ranges_pop(void *argument)
{
    (void)argument;
    if (own.depth == 0) return;
    int depth = --own.depth;
    if (depth >= DEPTH_MAX) return;
    own.open[depth].end = ticks_now();
    pthread_mutex_lock(&all.lock);
    if (all.n == BUFFERED) flush_locked();
    all.ended[all.n++] = own.open[depth];
    pthread_mutex_unlock(&all.lock);
}

void trace_ranges_set_file(struct trace_file *file)
{
    pthread_mutex_lock(&all.lock);
    if (all.file != NULL) flush_locked(); /* in a forked child this drops the parent's ranges */
    all.file = file;
    pthread_mutex_unlock(&all.lock);
}

void trace_ranges_reset(void)
{
    pthread_mutex_init(&all.lock, NULL);
}

void trace_ranges_flush(const struct trace_file *file)
{
    pthread_mutex_lock(&all.lock);
    if (all.file == file) flush_locked();
    pthread_mutex_unlock(&all.lock);
}
