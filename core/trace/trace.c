/* A group tree has one stream, with a file and a buffer of its own: the callbacks of a tree are called under its lock,
 * so that recording an operation takes no other lock and no atomic operation. */
#include "trace/trace.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/tool.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/env.h"
#include "base/log.h"
#include "base/ticks.h"
#include "tool/tools.h"
#include "trace/trace_align.h"
#include "trace/trace_file.h"
#include "trace/trace_ranges.h"

enum { BUFFERED = 64 * 1024 / sizeof(tutti_trace_op) };

/* The start of an operation that had to wait before a backend got it. */
struct late {
    uint64_t issued, started;
    struct late *next_free;
};

struct stream {
    uint64_t tree;
    pid_t pid;
    int n_groups; /* groups of the tree that have not ended */
    uint32_t last_group;
    struct late *free_lates;
    struct stream *next;
    atomic_int n; /* written under the tree's lock, read at exit */
    struct trace_file file;
    tutti_trace_op ops[BUFFERED];
};

/* What the callbacks of a group get. */
struct traced {
    struct stream *stream;
    uint32_t number;
};

static struct {
    pthread_mutex_t lock;
    struct stream *first;
    const char *folder;
} streams = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- streams ----------------------------------------------------------------------------------------------- */

static void flush(struct stream *stream)
{
    /* acquire: pairs with record's release, because at exit the tree's lock is not held */
    int n = atomic_load_explicit(&stream->n, memory_order_acquire);
    if (n > 0)
        trace_file_write(&stream->file, TUTTI_TRACE_OPS, stream->ops, (size_t)n * sizeof stream->ops[0], NULL, 0);
    if (n > 0) trace_file_write_clock(&stream->file);
    atomic_store_explicit(&stream->n, 0, memory_order_relaxed);
}

static void flush_at_exit(void)
{
    if (pthread_mutex_trylock(&streams.lock) != 0) return; /* in a forked child nobody might unlock it */
    for (struct stream *stream = streams.first; stream != NULL; stream = stream->next) {
        if (stream->pid != getpid()) continue; /* a forked child's copy */
        flush(stream);
        trace_ranges_flush(&stream->file);
    }
    pthread_mutex_unlock(&streams.lock);
}

static bool open_file(struct stream *stream, const tutti_tool_group *group)
{
    int rank = group->global_ranks[group->rank];
    tutti_trace_begin begin = {.version = TUTTI_TRACE_VERSION,
                               .op_bytes = sizeof(tutti_trace_op),
                               .rank = rank,
                               .world_size = rank < group->world_size ? group->world_size : rank + 1,
                               .pid = stream->pid,
                               .realtime_ns = clock_unix_ns()};
    gethostname(begin.host, sizeof begin.host - 1);
    snprintf(begin.library, sizeof begin.library, "%s", TUTTI_VERSION);
    return trace_file_open(&stream->file, streams.folder, &begin, stream->tree);
}

/* Returns the stream of the group's tree, which the tree's first group makes.  Lock held. */
static struct stream *find_stream(const tutti_tool_group *group, bool *is_new)
{
    struct stream *stream = streams.first;
    pid_t pid = getpid();
    while (stream != NULL && (stream->tree != group->tree || stream->pid != pid)) stream = stream->next;
    *is_new = stream == NULL;
    if (stream != NULL) return stream;
    stream = calloc(1, sizeof *stream);
    if (stream == NULL) return NULL;
    stream->tree = group->tree;
    stream->pid = pid;
    open_file(stream, group); /* without a file the stream records nothing */
    stream->next = streams.first;
    streams.first = stream;
    trace_ranges_set_file(&stream->file);
    return stream;
}

static void free_stream(struct stream *stream)
{
    struct stream **at = &streams.first;
    flush(stream);
    trace_ranges_flush(&stream->file);
    while (*at != stream) at = &(*at)->next;
    *at = stream->next;
    trace_ranges_set_file(streams.first != NULL ? &streams.first->file : NULL);
    trace_file_close(&stream->file);
    for (struct late *late = stream->free_lates, *next; late != NULL; late = next) {
        next = late->next_free;
        free(late);
    }
    free(stream);
}

/* ---- groups ------------------------------------------------------------------------------------------------ */

/* Returns an id that differs from those of a job's earlier starts, whose files are in the same folder. */
static uint64_t id_of(const tutti_tool_group *group)
{
    int64_t restarts = 0;
    (void)env_int("TUTTI_RESTART_COUNT", 0, 0, INT32_MAX, &restarts);
    return group->id + (uint64_t)restarts * UINT64_C(0x9e3779b97f4a7c15);
}

static void write_group(struct stream *stream, uint32_t number, const tutti_tool_group *group)
{
    static const int32_t padding;
    size_t ranks = (size_t)group->world_size * sizeof(int32_t);
    size_t bytes = sizeof(tutti_trace_group) + ranks + (group->world_size % 2 != 0 ? sizeof padding : 0);
    tutti_trace_group *block = calloc(1, bytes);
    if (block == NULL) return;
    block->id = id_of(group);
    block->number = number;
    block->rank = group->rank;
    block->world_size = group->world_size;
    snprintf(block->name, sizeof block->name, "%s", group->name);
    snprintf(block->backend, sizeof block->backend, "%s", group->backend);
    memcpy(block + 1, group->global_ranks, ranks);
    trace_file_write(&stream->file, TUTTI_TRACE_GROUP, block, bytes, NULL, 0);
    free(block);
}

static void *group_made(void *argument, const tutti_tool_group *group)
{
    (void)argument;
    bool is_new;
    tutti_trace_align align;
    struct traced *traced = calloc(1, sizeof *traced);
    if (traced == NULL) return NULL;
    pthread_mutex_lock(&streams.lock);
    traced->stream = find_stream(group, &is_new);
    if (traced->stream != NULL) {
        traced->stream->n_groups++;
        traced->number = ++traced->stream->last_group;
        write_group(traced->stream, traced->number, group);
    }
    pthread_mutex_unlock(&streams.lock);
    if (traced->stream == NULL || !is_new) return traced;
    trace_align(group, &align);
    trace_file_write(&traced->stream->file, TUTTI_TRACE_ALIGN, &align, sizeof align, NULL, 0);
    return traced;
}

static void group_ended(void *context, const tutti_tool_group *group)
{
    (void)group;
    struct traced *traced = context;
    if (traced == NULL) return;
    pthread_mutex_lock(&streams.lock);
    if (traced->stream != NULL && --traced->stream->n_groups == 0) free_stream(traced->stream);
    pthread_mutex_unlock(&streams.lock);
    free(traced);
}

/* ---- operations -------------------------------------------------------------------------------------------- */

/* An operation's word holds the time of its issue with a lowest bit of 0, or the address of a `late` plus 1. */
static void op_issued(void *context, const tutti_tool_op *op, void **data)
{
    (void)context;
    (void)op;
    *data = (void *)(uintptr_t)(ticks_now() & ~UINT64_C(1));
}

/* Keeps the time of the start if it is later than the call.  The start of others follows their issue at once. */
static void op_started(void *context, const tutti_tool_op *op, void **data)
{
    enum { SOON_NS = 1000 };
    (void)op;
    const struct traced *traced = context;
    uint64_t issued = (uint64_t)(uintptr_t)*data, now = ticks_now();
    if (traced == NULL || traced->stream == NULL || ticks_to_ns(now - issued) < SOON_NS) return;
    struct late *late = traced->stream->free_lates;
    if (late != NULL)
        traced->stream->free_lates = late->next_free;
    else
        late = malloc(sizeof *late);
    if (late == NULL) return;
    *late = (struct late){.issued = issued, .started = now};
    *data = (char *)late + 1;
}

static uint32_t saturate(uint64_t value)
{
    return value < UINT32_MAX ? (uint32_t)value : UINT32_MAX;
}

static void record(const struct traced *traced, const tutti_tool_op *op, void **data, int flags)
{
    if (traced == NULL || traced->stream == NULL) return;
    struct stream *stream = traced->stream;
    uint64_t now = ticks_now(), issued = (uint64_t)(uintptr_t)*data, waited = 0;
    if (issued & 1) {
        struct late *late = (struct late *)(void *)((char *)*data - 1);
        issued = late->issued;
        waited = late->started - late->issued;
        late->next_free = stream->free_lates;
        stream->free_lates = late;
    }
    /* relaxed: the tree's lock is held, and a reader at exit needs no more than whole records */
    int n = atomic_load_explicit(&stream->n, memory_order_relaxed);
    flags |= (op->async ? TUTTI_TRACE_ASYNC : 0) | (op->by_thread ? TUTTI_TRACE_BY_THREAD : 0);
    stream->ops[n] = (tutti_trace_op){.issued = issued,
                                      .ended = now,
                                      .bytes = (uint64_t)op->bytes,
                                      .started = saturate(waited),
                                      .sequence = (uint32_t)op->sequence,
                                      .root = op->root,
                                      .group = traced->number,
                                      .kind = (uint8_t)op->kind,
                                      .flags = (uint8_t)(flags | (waited > 0 ? TUTTI_TRACE_LATE : 0)),
                                      .dtype = (uint16_t)op->dtype};
    if (op->sequence > 0)
        stream->ops[n].reduce_ns = saturate((uint64_t)op->reduce_ns);
    else
        stream->ops[n].tag = op->tag;
    /* release: pairs with flush's acquire, so a reader at exit sees the whole record */
    atomic_store_explicit(&stream->n, n + 1, memory_order_release);
    if (n + 1 == BUFFERED) flush(stream);
}

static void op_ended(void *context, const tutti_tool_op *op, void **data)
{
    record(context, op, data, 0);
}

static void op_failed(void *context, const tutti_tool_op *op, void **data, int status, const char *why)
{
    (void)status;
    (void)why;
    record(context, op, data, TUTTI_TRACE_FAILED);
}

static const tutti_tool tool = {TUTTI_TOOL_HEADER,
                                .name = "trace",
                                .times_reductions = true,
                                .group_made = group_made,
                                .group_ended = group_ended,
                                .op_issued = op_issued,
                                .op_started = op_started,
                                .op_ended = op_ended,
                                .op_failed = op_failed,
                                .range_pushed = trace_ranges_push,
                                .range_popped = trace_ranges_pop};

/* Another thread of the parent may have held the locks.  The parent's streams stay in the list, and are not used. */
static void reset_in_child(void)
{
    pthread_mutex_init(&streams.lock, NULL);
    trace_ranges_reset();
}

static void load(void)
{
    streams.folder = env_string("TUTTI_TRACE", NULL);
    if (streams.folder == NULL) return;
    ticks_prepare();
    pthread_atfork(NULL, NULL, reset_in_child);
    atexit(flush_at_exit);
    if (tools_register(&tool) != TUTTI_OK)
        log_write(LOG_WARN, LOG_OP, "TUTTI_TRACE: too many tools; nothing is recorded");
}

void trace_load(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load);
}
