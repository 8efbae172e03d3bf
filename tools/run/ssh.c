#include "ssh.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <tutti/tutti.h>

#include "job.h"
#include "leader.h"
#include "memory.h"
#include "node_wire.h"
#include "ssh_command.h"

enum { SILENT_TIMES = 3, QUEUE_MOST = 64 << 10 };

static const char *name_of(const struct job *job, int i)
{
    return job->options->hosts.list[i].name;
}

/* ---- frames ----------------------------------------------------------------------------------------------------- */

/* One frame on its way to a node. */
struct sending {
    uv_write_t request;
    size_t bytes;
    char data[]; /* head and contents */
};

static void on_sent(uv_write_t *request, int status)
{
    struct sending *sending = request->data;
    (void)status; /* a broken connection ends ssh, which is noticed there */
    explicit_bzero(sending->data, sending->bytes);
    free(sending);
}

static void send_frame(struct ssh_node *node, enum node_frame frame, const void *data, size_t bytes)
{
    if (!node->open) return;
    struct sending *sending = memory_resize(NULL, sizeof *sending + NODE_FRAME_HEAD + bytes);
    sending->bytes = NODE_FRAME_HEAD + bytes;
    node_write_head(sending->data, frame, bytes);
    if (bytes) memcpy(sending->data + NODE_FRAME_HEAD, data, bytes);
    sending->request.data = sending;
    uv_buf_t buffer = uv_buf_init(sending->data, (unsigned)sending->bytes);
    if (uv_write(&sending->request, (uv_stream_t *)&node->in, &buffer, 1, on_sent) != 0)
        on_sent(&sending->request, UV_EPIPE);
}

static void on_closed(uv_handle_t *handle)
{
    struct ssh_node *node = handle->data;
    node->closing = false;
}

static void close_node(struct ssh_node *node)
{
    if (!node->open) return;
    node->open = false;
    node->closing = true;
    uv_close((uv_handle_t *)&node->in, on_closed);
}

/* ---- starting --------------------------------------------------------------------------------------------------- */

static const char *text_or(const char *text, const char *other)
{
    return text ? text : other;
}

/* Fills job->ssh->config for node i. */
static void make_config(struct job *job, int i)
{
    const struct options *options = job->options;
    const struct host *list = options->hosts.list;
    char folder[4096] = "/";
    bool bound = options->bind != BIND_UNSET && options->bind != BIND_NONE;
    struct node_config config = {.version = tutti_version(),
                                 .host = list[i].name,
                                 .folder = getcwd(folder, sizeof folder) ? folder : "/",
                                 .log_dir = text_or(options->log_dir, ""),
                                 .bind = bound ? bind_name(options->bind) : "",
                                 .node = i,
                                 .nodes = options->hosts.n,
                                 .nproc = list[i].slots,
                                 .goes_on = options->on_failure == OPTIONS_CONTINUE,
                                 .replace = options->replace,
                                 .backoff_ms = options->backoff_ms,
                                 .grace_ms = options->grace_ms,
                                 .wait_ms = options->ssh_timeout_ms + 10000,
                                 .silent_ms = SILENT_TIMES * leader_silent_ms(),
                                 .no_prefix = options->no_prefix,
                                 .program = options->program};
    for (int k = 0; k < options->hosts.n; k++) {
        if (k < i) config.first_rank += list[k].slots;
        config.world_size += list[k].slots;
    }
    if (pread(job->token_fd, config.token, sizeof config.token, 0) != (ssize_t)sizeof config.token) abort();
    struct exports exports = job_exports(job);
    config.variables = exports_for_hosts(&exports);
    job->ssh->config.used = 0;
    node_write_config(&config, &job->ssh->config);
    explicit_bzero(config.token, sizeof config.token);
    free(config.variables);
    exports_free(&exports);
}

int ssh_start(struct job *job, int i, int out, int err)
{
    struct ssh_node *node = &job->ssh->nodes[i];
    int ends[2];
    bool in_exec;
    if (pipe2(ends, O_CLOEXEC) != 0) {
        job_say(job, "cannot create a pipe for host %s: %s", name_of(job, i), strerror(errno));
        return 1;
    }
    char **command = ssh_command(job->options, &job->options->hosts.list[i]);
    struct rank_start start = job_rank_start(job, command, environ);
    start.in = ends[0];
    start.out = out;
    start.err = err;
    start.token_fd = start.out_fd = -1; /* the nodes have their own */
    start.own_group = true;             /* a terminal's signals go to the launcher alone */
    int failure = rank_start(&job->ranks[i], &start, &in_exec);
    close(ends[0]);
    if (failure) job_say(job, "cannot run %s: %s", command[0], strerror(failure));
    ssh_free_command(command);
    if (failure) {
        close(ends[1]);
        return 1;
    }
    uv_pipe_init(&job->loop, &node->in, 0);
    node->in.data = node;
    uv_pipe_open(&node->in, ends[1]);
    node->state = SSH_CONNECTING;
    node->asked = node->failed = false;
    node->last[0] = '\0';
    node->open = true;
    make_config(job, i);
    send_frame(node, NODE_CONFIG, job->ssh->config.data, job->ssh->config.used);
    explicit_bzero(job->ssh->config.data, job->ssh->config.used);
    return 0;
}

/* Sends node i the address of the ranks' store, so that it starts them. */
static void go(struct job *job, int i, int port)
{
    const struct options *options = job->options;
    const struct host *first = &options->hosts.list[0];
    const char *addr = options->master_addr    ? options->master_addr
                       : options->hosts.n == 1 ? "127.0.0.1"
                                               : hosts_address(first);
    char *text = memory_print("%s %d", addr, port);
    send_frame(&job->ssh->nodes[i], NODE_GO, text, strlen(text));
    job->ssh->nodes[i].state = SSH_STARTED;
    free(text);
}

/* Goes on once it is known of all hosts whether they can be reached. */
static void go_on(struct job *job)
{
    struct ssh *ssh = job->ssh;
    if (ssh->waiting > 0 || job->ending) return;
    uv_timer_stop(&ssh->limit);
    if (ssh->unreachable == 0) {
        go(job, 0, job->options->master_port);
        return;
    }
    job_say(job, "%d of %d hosts cannot be used: no rank was started", ssh->unreachable, job->options->hosts.n);
    job->status = 1;
    if (job->running) job_end(job);
}

static void lose(struct job *job, int i, const char *why)
{
    struct ssh_node *node = &job->ssh->nodes[i];
    node->state = SSH_UNREACHABLE;
    node->asked = true;
    job->ssh->unreachable++;
    job->ssh->waiting--;
    job_say(job, "host %s: %s", name_of(job, i), why);
    rank_signal(&job->ranks[i], SIGKILL, true);
    go_on(job);
}

static void on_limit(uv_timer_t *timer)
{
    struct job *job = timer->data;
    char why[128];
    snprintf(why, sizeof why, "no answer within %g s (--ssh-timeout); try the command \"true\" there over ssh",
             (double)job->options->ssh_timeout_ms / 1000);
    for (int i = 0; i < job->n && !job->ending; i++)
        if (job->ssh->nodes[i].state == SSH_CONNECTING && !job->ranks[i].ended) lose(job, i, why);
}

void ssh_settle(struct job *job, int i)
{
    const struct rank *rank = &job->ranks[i];
    struct ssh_node *node = &job->ssh->nodes[i];
    char why[700], how[64];
    if (!rank->ended || node->asked || node->state != SSH_CONNECTING || !feed_is_free(&job->feeds[2 * i + 1])) return;
    const char *what = rank->signalled || rank->code == 255 ? "it cannot be reached"
                       : rank->code == 127                  ? "tutti-run was not found there"
                                                            : "tutti-run does not start there";
    snprintf(why, sizeof why, "%s (%s %s)%s%s", what, text_or(job->options->ssh_command, "ssh"),
             rank_how(rank, how, sizeof how), node->last[0] ? ": " : "", node->last);
    lose(job, i, why);
}

/* ---- lines of the nodes ----------------------------------------------------------------------------------------- */

static void take_hello(struct job *job, int i, const char *version)
{
    char why[200];
    if (job->ssh->nodes[i].state != SSH_CONNECTING) return;
    if (strcmp(version, tutti_version()) != 0) {
        snprintf(why, sizeof why, "it has Tutti %.60s, and this one is %s; install the same", version, tutti_version());
        lose(job, i, why);
        return;
    }
    job->ssh->nodes[i].state = SSH_READY;
    job->ssh->waiting--;
    go_on(job);
}

static void take_port(struct job *job, int i, const char *text)
{
    int port = node_read_number(text, 65535);
    if (i != 0 || job->ssh->port || port < 1) return;
    job->ssh->port = port;
    for (int k = 1; k < job->n; k++)
        if (job->ssh->nodes[k].state == SSH_READY) go(job, k, port);
}

/* Ends the other nodes, although this one still ends its ranks. */
static void take_failure(struct job *job, int i)
{
    job->ssh->nodes[i].failed = true;
    if (job->first || job->ending) return;
    job->first = &job->ranks[i];
    job->quiet = job->passed != 0;
    job_end_recorded(job, true);
}

/* Counts the end of a rank of a job that goes on after failures. */
static void take_rank_end(struct job *job, const char *text)
{
    int status = node_read_number(text, 255);
    if (job->options->on_failure != OPTIONS_CONTINUE || status < 0) return;
    members_count_end(job, status);
}

static void read_input(struct job *job);

static void take_mark(struct job *job, int i, const char *word)
{
    if (strncmp(word, NODE_HELLO, strlen(NODE_HELLO)) == 0)
        take_hello(job, i, word + strlen(NODE_HELLO));
    else if (strncmp(word, NODE_PORT, strlen(NODE_PORT)) == 0)
        take_port(job, i, word + strlen(NODE_PORT));
    else if (strcmp(word, NODE_FAILED) == 0)
        take_failure(job, i);
    else if (strncmp(word, NODE_ENDED, strlen(NODE_ENDED)) == 0)
        take_rank_end(job, word + strlen(NODE_ENDED));
    else if (strcmp(word, NODE_INPUT) == 0 && i == 0)
        read_input(job);
}

bool ssh_take_line(struct feed *feed, const char *line, size_t bytes)
{
    struct job *job = feed->owner;
    int i = (int)(feed - job->feeds) / 2;
    struct ssh_node *node = &job->ssh->nodes[i];
    char word[512];
    size_t mark = strlen(NODE_MARK);
    snprintf(word, sizeof word, "%.*s", (int)(bytes < sizeof word ? bytes : sizeof word - 1), line);
    word[strcspn(word, "\r")] = '\0';
    if (strncmp(word, NODE_MARK, mark) == 0) {
        take_mark(job, i, word + mark);
        return true;
    }
    bool is_err = (feed - job->feeds) % 2 == 1;
    if (!is_err || node->state != SSH_CONNECTING) return node->asked && node->state == SSH_UNREACHABLE;
    if (word[0]) snprintf(node->last, sizeof node->last, "%s", word); /* shown if the host cannot be reached */
    return true;
}

/* ---- stdin ------------------------------------------------------------------------------------------------------ */

/* Sends what stdin has to node 0. */
static void pass_input(struct job *job)
{
    static char data[NODE_INPUT_MAX];
    ssize_t n = read(STDIN_FILENO, data, sizeof data);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (job->ssh->input_polls) uv_poll_stop(&job->ssh->input);
    job->ssh->input_ended = n <= 0;
    send_frame(&job->ssh->nodes[0], n > 0 ? NODE_DATA : NODE_END_DATA, data, n > 0 ? (size_t)n : 0);
}

/* True if a read of the terminal would stop this process. */
static bool is_in_background(void)
{
    pid_t foreground = tcgetpgrp(STDIN_FILENO); /* -1: stdin is not this process's terminal */
    return foreground >= 0 && foreground != getpgrp();
}

static void on_input(uv_poll_t *poll, int status, int events)
{
    struct job *job = poll->data;
    (void)status, (void)events;
    job->ssh->input_waits = is_in_background(); /* what has come is for another process */
    if (job->ssh->input_waits)
        uv_poll_stop(poll);
    else
        pass_input(job);
}

/* Reads once, because rank 0 can take more.  A file is always readable, and cannot be polled. */
static void read_input(struct job *job)
{
    struct ssh *ssh = job->ssh;
    if (ssh->input_ended) send_frame(&ssh->nodes[0], NODE_END_DATA, NULL, 0); /* rank 0 has been started again */
    ssh->input_waits = !ssh->input_ended && is_in_background(); /* on_beat looks again: the shell gives no sign */
    if (ssh->input_ended || ssh->input_waits) return;
    if (ssh->input_polls)
        uv_poll_start(&ssh->input, UV_READABLE, on_input);
    else
        pass_input(job);
}

static void stop_input(struct ssh *ssh)
{
    ssh->input_waits = false;
    if (ssh->input_polls) uv_poll_stop(&ssh->input);
}

/* ---- the end ---------------------------------------------------------------------------------------------------- */

void ssh_signal(struct job *job, int i, int signal)
{
    struct ssh_node *node = &job->ssh->nodes[i];
    char number = (char)signal;
    if (signal == SIGKILL && job->interrupts > 2) {
        rank_signal(&job->ranks[i], SIGKILL, true); /* whatever holds it up */
    } else if (node->state == SSH_CONNECTING) {
        if (signal == SIGUSR1 || signal == SIGUSR2) return; /* they are for ranks, and no rank runs yet */
        if (signal != SIGTSTP && signal != SIGCONT) node->asked = true;
        rank_signal(&job->ranks[i], signal == SIGTSTP ? SIGSTOP : signal, true);
    } else {
        send_frame(node, NODE_SIGNAL, &number, 1);
    }
}

void ssh_end(struct job *job, int i)
{
    struct ssh_node *node = &job->ssh->nodes[i];
    if (node->state == SSH_READY || node->state == SSH_STARTED) {
        send_frame(node, NODE_END, NULL, 0);
        return;
    }
    node->asked = true;
    rank_signal(&job->ranks[i], SIGTERM, true);
}

/* Goes on without a lost node, if the ranks of the others still have their store.  Returns false if not. */
static bool go_on_without(struct job *job, int i)
{
    const struct ssh *ssh = job->ssh;
    char number[16];
    bool may = job->options->on_failure == OPTIONS_CONTINUE && ssh->nodes[i].state == SSH_STARTED;
    if (!may || i == 0 || !ssh->nodes[0].open) return false;
    members_count_end(job, rank_exit_status(&job->ranks[i]));
    int bytes = snprintf(number, sizeof number, "%d", i);
    send_frame(&ssh->nodes[0], NODE_LOST, number, (size_t)bytes);
    return true;
}

bool ssh_take_end(struct job *job, struct rank *rank)
{
    int i = (int)(rank - job->ranks);
    struct ssh_node *node = &job->ssh->nodes[i];
    close_node(node);
    job_drain(job, i);
    if (i == 0) stop_input(job->ssh); /* rank 0's successor gets what comes */
    if (node->state == SSH_CONNECTING && !node->asked) {
        ssh_settle(job, i);
        return true;
    }
    bool lost = !node->asked && !node->failed && !job->passed && !job->ending && (rank->signalled || rank->code == 255);
    bool goes_on = lost && go_on_without(job, i);
    if (lost)
        job_say(job, "host %s: the connection was lost; its ranks end%s", name_of(job, i),
                goes_on ? ", and those of the other hosts go on" : ", too");
    if (job->running == 1 && job->ssh->nodes[0].open) send_frame(&job->ssh->nodes[0], NODE_LAST, NULL, 0);
    return goes_on || node->state == SSH_UNREACHABLE;
}

static void on_beat(uv_timer_t *timer)
{
    struct job *job = timer->data;
    for (int i = 0; i < job->n; i++) {
        struct ssh_node *node = &job->ssh->nodes[i];
        if (node->open && uv_stream_get_write_queue_size((uv_stream_t *)&node->in) < QUEUE_MOST)
            send_frame(node, NODE_BEAT, NULL, 0);
    }
    if (job->ssh->input_waits) read_input(job);
}

void ssh_begin_round(struct job *job)
{
    job->ssh->waiting = job->n;
    job->ssh->unreachable = job->ssh->port = 0;
    uv_timer_start(&job->ssh->limit, on_limit, (uint64_t)job->options->ssh_timeout_ms, 0);
}

void ssh_finish(struct job *job)
{
    uv_timer_stop(&job->ssh->limit);
    job->ssh->input_ended = true;
    stop_input(job->ssh);
}

/* Prepares to wait for stdin.  libuv makes a descriptor that it polls non-blocking, which would affect every process
 * that shares stdin.  So it polls an epoll of ours, which a file cannot be in. */
static void open_input(struct job *job)
{
    struct ssh *ssh = job->ssh;
    struct epoll_event event = {.events = EPOLLIN};
    ssh->input_fd = epoll_create1(EPOLL_CLOEXEC);
    ssh->input_polls = ssh->input_fd >= 0 && epoll_ctl(ssh->input_fd, EPOLL_CTL_ADD, STDIN_FILENO, &event) == 0 &&
                       uv_poll_init(&job->loop, &ssh->input, ssh->input_fd) == 0;
    ssh->input.data = job;
}

void ssh_init(struct job *job)
{
    struct ssh *ssh = memory_resize(NULL, sizeof *ssh);
    *ssh = (struct ssh){.nodes = calloc((size_t)job->n, sizeof *ssh->nodes)};
    if (!ssh->nodes) abort();
    job->ssh = ssh;
    uv_timer_init(&job->loop, &ssh->limit);
    uv_timer_init(&job->loop, &ssh->beat);
    ssh->limit.data = ssh->beat.data = job;
    uint64_t period = (uint64_t)leader_silent_ms() / 5;
    uv_timer_start(&ssh->beat, on_beat, period, period);
    uv_unref((uv_handle_t *)&ssh->beat);
    open_input(job);
}

void ssh_close(struct job *job)
{
    struct ssh *ssh = job->ssh;
    for (int i = 0; i < job->n; i++) close_node(&ssh->nodes[i]);
    uv_close((uv_handle_t *)&ssh->limit, NULL);
    uv_close((uv_handle_t *)&ssh->beat, NULL);
    if (ssh->input_polls) uv_close((uv_handle_t *)&ssh->input, NULL);
    if (ssh->input_fd >= 0) close(ssh->input_fd);
}

void ssh_free(struct job *job)
{
    free(job->ssh->config.data);
    free(job->ssh->nodes);
    free(job->ssh);
    job->ssh = NULL;
}
