#include "node.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <tutti/tutti.h>

#include "job.h"
#include "memory.h"

enum { CONFIG_MS = 60000 };

/* ---- before the loop -------------------------------------------------------------------------------------------- */

static int refuse(const char *format, ...) __attribute__((format(printf, 1, 2)));

static int refuse(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("tutti-run: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    return 1;
}

/* Reads `bytes` bytes of stdin until the deadline. */
static bool read_all(char *data, size_t bytes, int64_t deadline_ms)
{
    while (bytes) {
        struct pollfd in = {STDIN_FILENO, POLLIN, 0};
        int64_t left = deadline_ms - job_now_ms();
        if (left <= 0) return false;
        int ready = poll(&in, 1, (int)left);
        if (ready < 0 && errno != EINTR) return false;
        if (ready <= 0) continue;
        ssize_t n = read(STDIN_FILENO, data, bytes);
        if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN)) return false;
        if (n < 0) continue;
        data += n;
        bytes -= (size_t)n;
    }
    return true;
}

/* Reads a frame, whose contents the caller frees.  They are followed by a NUL.  Returns NULL on failure. */
static char *read_frame(enum node_frame *frame, size_t *bytes, int64_t deadline_ms)
{
    char head[NODE_FRAME_HEAD];
    if (!read_all(head, sizeof head, deadline_ms) || !node_read_head(head, frame, bytes)) return NULL;
    char *data = memory_resize(NULL, *bytes + 1);
    data[*bytes] = '\0';
    if (read_all(data, *bytes, deadline_ms)) return data;
    free(data);
    return NULL;
}

/* Fills the options from the configuration. */
static void set_options(const struct node_config *config, struct options *options)
{
    options->nproc = config->nproc;
    options->nnodes = options->nnodes_min = config->nodes;
    options->node_rank = config->node;
    options->first_rank = config->first_rank;
    options->world_size = config->world_size;
    options->grace_ms = config->grace_ms;
    options->no_prefix = config->no_prefix;
    options->log_dir = config->log_dir[0] ? config->log_dir : NULL;
    options->bind = config->bind[0] ? bind_of(config->bind) : BIND_UNSET;
    options->program = config->program;
    options->on_failure = config->goes_on ? OPTIONS_CONTINUE : OPTIONS_END;
    options->replace = config->replace;
    options->backoff_ms = config->backoff_ms;
    for (char **word = config->variables; *word; word++) exports_add(&options->exports, *word);
}

static int read_config(struct node *node, struct options *options)
{
    enum node_frame frame;
    size_t bytes;
    if (isatty(STDIN_FILENO)) return refuse("--ssh-node is for tutti-run --hosts, which sends what to do on stdin");
    char *text = read_frame(&frame, &bytes, job_now_ms() + CONFIG_MS);
    if (!text || frame != NODE_CONFIG) {
        free(text);
        return refuse("no configuration came on stdin; --ssh-node is for tutti-run --hosts");
    }
    const char *wrong = node_read_config(text, bytes, &node->config);
    if (wrong) return refuse("the configuration of this node is wrong: %s", wrong);
    if (chdir(node->config.folder) != 0)
        return refuse("cannot change to %s, the folder of the job: %s", node->config.folder, strerror(errno));
    set_options(&node->config, options);
    return OPTIONS_GO_ON;
}

/* Reads "ADDRESS PORT". */
static bool read_go(struct node *node, const char *text, struct options *options)
{
    int used = 0;
    if (sscanf(text, "%299s %d%n", node->addr, &options->master_port, &used) != 2 || text[used]) return false;
    options->master_addr = options->rdzv_host = node->addr;
    options->rdzv_port = options->master_port;
    return options->master_port >= 0 && options->master_port <= 65535 &&
           (options->master_port > 0 || options->node_rank == 0);
}

/* True if the signal ends a node that runs no rank.  Others are for the ranks. */
static bool ends_node(int signal)
{
    return signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT || signal == SIGKILL;
}

/* Waits until the launcher has reached all hosts.  Returns OPTIONS_GO_ON, or an exit status. */
static int wait_to_go(struct node *node, struct options *options)
{
    int64_t deadline = job_now_ms() + node->config.wait_ms;
    for (;;) {
        enum node_frame frame;
        size_t bytes;
        char *data = read_frame(&frame, &bytes, deadline);
        int status = OPTIONS_GO_ON;
        if (!data) return 1;
        if (frame == NODE_GO && !read_go(node, data, options)) status = refuse("cannot parse \"%.100s\"", data);
        if (frame == NODE_SIGNAL && ends_node(data[0])) status = 128 + data[0];
        if (frame == NODE_END) status = 0;
        free(data);
        if (frame == NODE_GO || status != OPTIONS_GO_ON) return status;
    }
}

int node_receive(struct node *node, struct options *options)
{
    *node = (struct node){.heard_ms = job_now_ms(), .input_end = -1};
    int status = read_config(node, options);
    if (status != OPTIONS_GO_ON) return status;
    /* the newline ends what a login script may have printed */
    if (dprintf(STDERR_FILENO, "\n" NODE_MARK NODE_HELLO "%s\n", tutti_version()) < 0) return 1;
    return wait_to_go(node, options);
}

/* ---- what is told the launcher ---------------------------------------------------------------------------------- */

static void say(struct job *job, const char *word)
{
    sink_append(job->to_err, NODE_MARK, strlen(NODE_MARK));
    sink_append(job->to_err, word, strlen(word));
    sink_append(job->to_err, "\n", 1);
    sink_flush(job->to_err);
}

void node_say_port(struct job *job, int port)
{
    char word[32];
    snprintf(word, sizeof word, NODE_PORT "%d", port);
    say(job, word);
}

void node_say_failed(struct job *job)
{
    say(job, NODE_FAILED);
}

void node_say_ended(struct job *job, int status)
{
    char word[32];
    snprintf(word, sizeof word, NODE_ENDED "%d", status);
    say(job, word);
}

void node_say_input(struct job *job)
{
    say(job, NODE_INPUT);
}

/* ---- rank 0's stdin --------------------------------------------------------------------------------------------- */

static bool make_input(struct job *job)
{
    struct node *node = job->node;
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return false;
    uv_pipe_init(&job->loop, &node->input, 0);
    uv_pipe_open(&node->input, ends[1]);
    node->input_open = true;
    node->input_end = ends[0];
    return true;
}

int node_open_input(struct job *job)
{
    struct node *node = job->node;
    int end = node->input_end >= 0 || make_input(job) ? fcntl(node->input_end, F_DUPFD_CLOEXEC, 3) : -1;
    if (end < 0) job_say(job, "cannot create a pipe for rank 0: %s", strerror(errno));
    return end;
}

static void close_input(struct node *node)
{
    if (node->input_open) uv_close((uv_handle_t *)&node->input, NULL);
    node->input_open = false;
}

struct writing {
    uv_write_t request;
    struct job *job;
    char data[];
};

/* Asks for more once rank 0 has read what there was. */
static void on_written(uv_write_t *request, int status)
{
    struct writing *writing = request->data;
    struct job *job = writing->job;
    free(writing);
    if (status == 0)
        node_say_input(job);
    else
        close_input(job->node);
}

static void write_input(struct job *job, const char *data, size_t bytes)
{
    if (!job->node->input_open) return;
    struct writing *writing = memory_resize(NULL, sizeof *writing + bytes);
    writing->job = job;
    writing->request.data = writing;
    memcpy(writing->data, data, bytes);
    uv_buf_t buffer = uv_buf_init(writing->data, (unsigned)bytes);
    if (uv_write(&writing->request, (uv_stream_t *)&job->node->input, &buffer, 1, on_written) != 0) {
        free(writing);
        close_input(job->node);
    }
}

/* ---- frames in the loop ----------------------------------------------------------------------------------------- */

static void lose(struct job *job, const char *why)
{
    if (job->node->lost || job->finished) return;
    job->node->lost = true;
    job_say(job, "%s: ending the ranks of this host", why);
    job->status = 1;
    job_end(job);
    job_finish_if_over(job); /* if none is running */
}

/* Ends the ranks, and starts no replacement that is still to come. */
static void end_ranks(struct job *job)
{
    if (job->finished) return;
    if (job->running)
        job_end_recorded(job, false);
    else
        job_end(job);
    job_finish_if_over(job); /* if none is running */
}

/* Handles a signal.  A node that holds the store stays, although no rank of its own may be running. */
static void take_signal(struct job *job, int signal)
{
    job->node->paused = signal == SIGTSTP;
    if (job->running || !job->node->holds || !ends_node(signal)) {
        job_take_signal(job, signal);
        return;
    }
    job->passed = signal;
    members_cancel(job);
}

/* Ends the members of a lost node in the ranks' store, so that the others do not wait for them. */
static void take_lost(struct job *job, const char *data, size_t bytes)
{
    int node = node_read_lost(data, bytes, job->node->config.nodes);
    if (node > 0 && job->node->holds) members_lose_node(job, node, 0);
}

static void release(struct job *job)
{
    job->node->holds = false;
    job_finish_if_over(job);
}

static void take_frame(struct job *job, enum node_frame frame, const char *data, size_t bytes)
{
    job->node->paused = false;
    if (frame == NODE_DATA) {
        write_input(job, data, bytes);
    } else if (frame == NODE_END_DATA) {
        close_input(job->node);
    } else if (frame == NODE_END) {
        end_ranks(job);
    } else if (frame == NODE_SIGNAL) {
        take_signal(job, data[0]);
    } else if (frame == NODE_LOST) {
        take_lost(job, data, bytes);
    } else if (frame == NODE_LAST) {
        release(job);
    }
}

/* Handles the whole frames that have come.  Returns false if there is something else. */
static bool take_frames(struct job *job)
{
    struct buffer *frames = &job->node->frames;
    size_t at = 0, bytes;
    enum node_frame frame;
    while (frames->used - at >= NODE_FRAME_HEAD) {
        if (!node_read_head(frames->data + at, &frame, &bytes)) return false;
        if (frames->used - at - NODE_FRAME_HEAD < bytes) break;
        take_frame(job, frame, frames->data + at + NODE_FRAME_HEAD, bytes);
        at += NODE_FRAME_HEAD + bytes;
    }
    memmove(frames->data, frames->data + at, frames->used - at);
    frames->used -= at;
    return true;
}

/* Makes libuv read to the end of what has come. */
static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer)
{
    struct job *job = handle->data;
    struct buffer *frames = &job->node->frames;
    if (frames->capacity - frames->used < suggested) {
        frames->capacity = 2 * frames->capacity + suggested;
        frames->data = memory_resize(frames->data, frames->capacity);
    }
    *buffer = uv_buf_init(frames->data + frames->used, (unsigned)(frames->capacity - frames->used));
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buffer)
{
    struct job *job = stream->data;
    (void)buffer;
    if (n > 0) job->node->frames.used += (size_t)n;
    if (n > 0) job->node->heard_ms = job_now_ms();
    if (n >= 0 && take_frames(job)) return;
    uv_read_stop(stream);
    lose(job, n < 0 ? "the connection to the launcher is lost" : "the launcher sends what is no frame");
}

static void on_silence(uv_timer_t *timer)
{
    struct job *job = timer->data;
    struct node *node = job->node;
    if (!node->paused && job_now_ms() - node->heard_ms > node->config.silent_ms) lose(job, "the launcher is silent");
}

void node_init(struct job *job)
{
    struct node *node = job->node;
    uint64_t period = (uint64_t)node->config.silent_ms / 5;
    node->heard_ms = job_now_ms();
    node->holds = node->config.goes_on && node->config.node == 0 && node->config.nodes > 1;
    uv_pipe_init(&job->loop, &node->in, 0);
    uv_pipe_open(&node->in, STDIN_FILENO);
    node->in.data = node->silence.data = job;
    uv_timer_init(&job->loop, &node->silence);
    node->silence.data = job;
    uv_timer_start(&node->silence, on_silence, period, period);
    uv_read_start((uv_stream_t *)&node->in, on_alloc, on_read);
    uv_unref((uv_handle_t *)&node->in); /* neither keeps a job going whose ranks have ended */
    uv_unref((uv_handle_t *)&node->silence);
}

void node_finish(struct job *job)
{
    close_input(job->node); /* what nobody has read would keep the loop going */
    if (job->node->input_end >= 0) close(job->node->input_end);
    job->node->input_end = -1;
}

void node_close(struct job *job)
{
    node_finish(job);
    uv_close((uv_handle_t *)&job->node->in, NULL);
    uv_close((uv_handle_t *)&job->node->silence, NULL);
}
