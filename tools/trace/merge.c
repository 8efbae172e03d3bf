/* tutti-trace merge: writes one time line of all ranks as Chrome's trace events, which Perfetto reads, too. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/doc.h"
#include "trace/commands.h"

enum { OUTPUT = 1 };

static bool set(void *target, int id, const char *value)
{
    (void)id;
    *(const char **)target = value;
    return true;
}

const struct cli trace_merge_cli = {
    .program = "tutti-trace",
    .command = "merge",
    .usage = "tutti-trace merge DIR [-o FILE]",
    .summary = "Writes one time line of all ranks, for ui.perfetto.dev and chrome://tracing.\n"
               "It reads the files that a job has written to TUTTI_TRACE, and writes JSON.  A rank is a\n"
               "process there, and a group is a thread of it.",
    .options =
        (const struct cli_option[]){{"output", "FILE", CLI_FILE, "(trace.json; - is the standard output)", 'o', OUTPUT},
                                    {0}},
    .words = CLI_FOLDER,
    .set = set,
};

static int merge(const char *folder, const char *path);

int trace_merge(int argc, char **argv)
{
    const char *path = "trace.json";
    int first = 0, status = cli_parse(&trace_merge_cli, argc, argv, &path, &first);
    if (status != CLI_GO_ON) return status;
    if (!doc_is_possible("tutti-trace", "merge")) return CLI_USAGE;
    if (first + 1 == argc) return merge(argv[first], path);
    cli_refuse(&trace_merge_cli, "name one folder");
    return CLI_USAGE;
}

#ifndef TRACE_HAS_JSON

static int merge(const char *folder, const char *path)
{
    (void)folder, (void)path;
    return 1;
}

#else

#include <jansson.h>
#include <tutti/tutti.h>

#include "trace/messages.h"
#include "trace/steps.h"

enum { RANGE_THREADS = 2000000000, ASYNC_THREADS = 1000000000, WAIT_SHOWN_NS = 1000, BUFFER = 1 << 16 };

/* An event that is written again and again with other values: making it anew would take most of the time. */
struct kept {
    json_t *event, *name, *pid, *tid, *ts;
    json_t *dur; /* of a span */
    json_t *id;  /* of the begin or the end of an asynchronous operation */
};

struct out {
    FILE *file;
    const struct load *load;
    struct kept op, plain; /* spans; only those of operations have arguments */
    struct kept begin, end;
    json_t *args, *bytes, *sequence, *root, *wait_ns, *reduce_ns, *thread;
    bool any;
    int failed; /* errno of the first failure, or 0 */
    size_t used;
    char buffer[BUFFER];
};

/* Keeps the reason of the first failure, because later ones may be its consequences. */
static void fail(struct out *out, int reason)
{
    if (out->failed == 0) out->failed = reason;
}

/* Writes the buffer's content. */
static void flush(struct out *out)
{
    if (fwrite(out->buffer, 1, out->used, out->file) != out->used) fail(out, errno);
    out->used = 0;
}

/* Takes a part of the text, of which an event has dozens: jansson's callback. */
static int write_part(const char *text, size_t size, void *argument)
{
    struct out *out = argument;
    if (size > BUFFER - out->used) flush(out);
    if (size > BUFFER) return -1;
    memcpy(out->buffer + out->used, text, size);
    out->used += size;
    return 0;
}

static void write_text(struct out *out, const char *text)
{
    write_part(text, strlen(text), out);
}

/* Writes a value.  jansson fails only for want of memory: write_part keeps its own failures. */
static void write_json(struct out *out, const json_t *value)
{
    if (json_dump_callback(value, write_part, out, JSON_COMPACT | JSON_REAL_PRECISION(15)) != 0) fail(out, ENOMEM);
}

static void put_kept(struct out *out, const json_t *event)
{
    if (out->any) write_text(out, ",\n");
    out->any = true;
    write_json(out, event);
}

static void put_event(struct out *out, json_t *event)
{
    if (event != NULL)
        put_kept(out, event);
    else
        fail(out, ENOMEM);
    json_decref(event);
}

/* Adds a value to an object, which then owns it.  Returns it, to be changed.  Without memory the output fails. */
static json_t *add(struct out *out, json_t *object, const char *key, json_t *value)
{
    if (json_object_set_new(object, key, value) == 0) return value;
    fail(out, ENOMEM);
    return NULL;
}

static struct kept make_event(struct out *out, const char *phase, json_t *args)
{
    json_t *event = json_object();
    struct kept kept = {.event = event};
    bool is_span = strcmp(phase, "X") == 0;
    add(out, event, "ph", json_string(phase));
    if (!is_span) add(out, event, "cat", json_string("async"));
    kept.name = add(out, event, "name", json_string(""));
    if (!is_span) kept.id = add(out, event, "id", json_integer(0));
    kept.pid = add(out, event, "pid", json_integer(0));
    kept.tid = add(out, event, "tid", json_integer(0));
    kept.ts = add(out, event, "ts", json_real(0));
    if (is_span) kept.dur = add(out, event, "dur", json_real(0));
    if (args != NULL) add(out, event, "args", json_incref(args));
    return kept;
}

static void make_events(struct out *out)
{
    out->args = json_object();
    out->bytes = add(out, out->args, "bytes", json_integer(0));
    out->sequence = add(out, out->args, "sequence", json_integer(0));
    out->root = add(out, out->args, "root", json_integer(0));
    out->wait_ns = add(out, out->args, "wait_ns", json_integer(0));
    out->reduce_ns = add(out, out->args, "reduce_ns", json_integer(0));
    out->thread = add(out, out->args, "thread", json_string(""));
    out->op = make_event(out, "X", out->args);
    out->plain = make_event(out, "X", NULL);
    out->begin = make_event(out, "b", out->args);
    out->end = make_event(out, "e", NULL);
}

static double us_of(const struct out *out, int64_t ns)
{
    return (double)(ns - out->load->begin_ns) / 1e3;
}

static void put_name(struct out *out, const char *what, int rank, int thread, const char *name)
{
    put_event(out, json_pack("{s:s, s:s, s:i, s:i, s:{s:s}}", "ph", "M", "name", what, "pid", rank, "tid", thread,
                             "args", "name", name));
}

static void put_names(struct out *out, const struct load_rank *rank)
{
    char text[256];
    int pid = rank->begin.rank;
    snprintf(text, sizeof text, "rank %d (%s, process %d)", pid, rank->begin.host, rank->begin.pid);
    put_name(out, "process_name", pid, 0, text);
    put_event(out, json_pack("{s:s, s:s, s:i, s:{s:i}}", "ph", "M", "name", "process_sort_index", "pid", pid, "args",
                             "sort_index", pid));
    for (int i = 0; i < rank->n_groups; i++)
        if (rank->groups[i] != NULL) put_name(out, "thread_name", pid, i + 1, rank->groups[i]->name);
}

/* Sets the arguments to those of an operation. */
static void set_args(struct out *out, const struct load_rank *rank, size_t i)
{
    const tutti_trace_op *op = &rank->ops[i];
    json_integer_set(out->bytes, (json_int_t)op->bytes);
    json_integer_set(out->sequence, op->sequence);
    json_integer_set(out->root, op->root);
    json_integer_set(out->wait_ns, rank->wait_ns[i]);
    json_integer_set(out->reduce_ns, op->sequence > 0 ? op->reduce_ns : 0);
    const char *thread = op->flags & TUTTI_TRACE_BY_THREAD ? "progress" : "caller";
    if (json_string_set(out->thread, thread) != 0) fail(out, ENOMEM);
}

static void put_again(struct out *out, const struct kept *kept, const struct load_rank *rank, const char *name,
                      int thread, int64_t time)
{
    if (json_string_set(kept->name, name) != 0) fail(out, ENOMEM);
    json_integer_set(kept->pid, rank->begin.rank);
    json_integer_set(kept->tid, thread);
    json_real_set(kept->ts, us_of(out, time));
    put_kept(out, kept->event);
}

static void put_span(struct out *out, const struct kept *span, const struct load_rank *rank, const char *name,
                     int thread, int64_t begin, int64_t ns)
{
    json_real_set(span->dur, (double)ns / 1e3);
    put_again(out, span, rank, name, thread, begin);
}

/* Asynchronous operations overlap, which spans of one thread must not. */
static void put_async(struct out *out, const struct load_rank *rank, size_t i, const char *name, int64_t begin,
                      int64_t end)
{
    json_int_t id = (json_int_t)((uint64_t)rank->begin.rank << 40 | i); /* a file may have any rank */
    int thread = ASYNC_THREADS + (int)(rank->ops[i].group % ASYNC_THREADS);
    json_integer_set(out->begin.id, id);
    json_integer_set(out->end.id, id);
    put_again(out, &out->begin, rank, name, thread, begin);
    put_again(out, &out->end, rank, name, thread, end);
}

static void put_op(struct out *out, const struct load_rank *rank, size_t i)
{
    const tutti_trace_op *op = &rank->ops[i];
    int64_t begin = load_time_ns(rank, op->issued), end = load_time_ns(rank, op->ended);
    const char *name = tutti_kind_name((tutti_kind)op->kind);
    set_args(out, rank, i);
    if (op->flags & TUTTI_TRACE_ASYNC) {
        put_async(out, rank, i, name, begin, end);
        return;
    }
    put_span(out, &out->op, rank, name, (int)op->group, begin, end - begin);
    if (rank->wait_ns[i] >= WAIT_SHOWN_NS)
        put_span(out, &out->plain, rank, "waiting", (int)op->group, load_arrival_ns(rank, op), rank->wait_ns[i]);
}

static void put_rank(struct out *out, const struct load_rank *rank)
{
    put_names(out, rank);
    for (size_t i = 0; i < rank->n_ops; i++) put_op(out, rank, i);
    for (size_t i = 0; i < rank->n_ranges; i++) {
        const tutti_trace_range *range = &rank->ranges[i];
        int64_t begin = load_time_ns(rank, range->begin);
        put_span(out, &out->plain, rank, range->name, RANGE_THREADS + (int)(range->thread % 1000000), begin,
                 load_time_ns(rank, range->end) - begin);
    }
}

/* Writes the ranks' clocks. */
static void put_head(struct out *out)
{
    json_t *clocks = json_object();
    for (int i = 0; i < out->load->n; i++) {
        char key[32];
        snprintf(key, sizeof key, "rank %d", out->load->ranks[i].begin.rank);
        add(out, clocks, key, json_integer(out->load->ranks[i].align.error_ns));
    }
    write_text(out, "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"clock_error_ns\":");
    write_json(out, clocks);
    write_text(out, "},\"traceEvents\":[\n");
    json_decref(clocks);
}

/* Writes all events one by one: the whole would need many times the memory.  Returns errno's value, or 0. */
static int write_all(FILE *file, const struct load *load)
{
    static struct out out; /* too large for the stack */
    out.file = file;
    out.load = load;
    make_events(&out);
    put_head(&out);
    for (int i = 0; i < load->n && out.failed == 0; i++) put_rank(&out, &load->ranks[i]);
    write_text(&out, "\n]}\n");
    flush(&out);
    if (fflush(file) != 0) fail(&out, errno);
    json_decref(out.args);
    const struct kept *kept[] = {&out.op, &out.plain, &out.begin, &out.end};
    for (int i = 0; i < 4; i++) json_decref(kept[i]->event);
    return out.failed;
}

/* Returns errno's value, or 0. */
static int write_file(const char *path, const struct load *load)
{
    if (strcmp(path, "-") == 0) return write_all(stdout, load);
    FILE *file = fopen(path, "w");
    if (file == NULL) return errno;
    int reason = write_all(file, load);
    if (fclose(file) != 0 && reason == 0) reason = errno;
    return reason;
}

static int merge(const char *folder, const char *path)
{
    struct load load;
    if (!load_folder(folder, &load)) return 1;
    int reason = steps_find(&load, NULL, NULL) && messages_find(&load) ? write_file(path, &load) : ENOMEM;
    if (reason != 0) fprintf(stderr, "tutti-trace: cannot write %s: %s\n", path, strerror(reason));
    load_free(&load);
    return reason == 0 ? 0 : 1;
}

#endif
