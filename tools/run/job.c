#include "job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "memory.h"

enum { DRAIN_MS = 200, NODE_GRACE_MS = 5000 };

static void finish(struct job *job)
{
    job->finished = true;
    atomic_store(&job->members.cancel, true);
    agent_stop(job);
    if (job->ssh) ssh_finish(job);
    if (job->node) node_finish(job);
    uv_timer_t *timers[] = {&job->grace,   &job->timeout, &job->drain,
                            &job->backoff, &job->records, &job->members.starter};
    for (size_t i = 0; i < sizeof timers / sizeof *timers; i++) uv_timer_stop(timers[i]);
    uv_unref(
        (uv_handle_t *)&job->signal_poll); /* signals are still handled while the sinks' writes keep the loop running */
}

/* Only writes remain after this. */
void job_finish_if_over(struct job *job)
{
    if (job->running || job->open_feeds || job->finished || job->pending) return;
    if (job->node && job->node->holds && !job->status) return;
    if (job->first && !job->reported) job_report_last_lines(job, job->first);
    job->reported = true;
    if (!job_restart(job)) finish(job);
}

void job_stop(struct job *job, int status)
{
    if (job->finished) return;
    members_cancel(job);
    if (agent_leave(job, status, "it was stopped")) return;
    job->status = status;
    job->ending = true;
    job->pending = 0;
    finish(job);
}

/* Closes inactive feeds after the ranks have ended, because a process that has left its rank's group may hold a pipe
 * open for ever. */
static void on_drain(uv_timer_t *timer)
{
    struct job *job = timer->data;
    for (int i = 0; i < 2 * job->n; i++) {
        bool ended = !job->running || job->ranks[i / 2].ended;
        if (ended && job->feeds[i].open && !feed_was_active(&job->feeds[i])) feed_close(&job->feeds[i]);
    }
    if (!job->open_feeds) uv_timer_stop(timer);
}

void job_drain(struct job *job, int i)
{
    job->feeds[2 * i].active = job->feeds[2 * i + 1].active = true; /* each feed gets a full period */
    if (!uv_is_active((uv_handle_t *)&job->drain)) uv_timer_start(&job->drain, on_drain, DRAIN_MS, DRAIN_MS);
}

static void on_feed_closed(struct feed *feed)
{
    struct job *job = feed->owner;
    job->open_feeds--;
    if (job->ssh) ssh_settle(job, (int)(feed - job->feeds) / 2);
    job_finish_if_over(job);
}

/* Resumes the feeds of a sink.  If nobody reads the sink's output, closes them, so that the ranks get SIGPIPE. */
static void on_written(struct sink *sink)
{
    struct job *job = sink->owner;
    for (int i = 0; i < 2 * job->n; i++) {
        struct feed *feed = &job->feeds[i];
        if (!feed->open || feed->sink != sink) continue;
        if (sink->broken)
            feed_close(feed);
        else
            feed_resume(feed);
    }
}

static void on_grace(uv_timer_t *timer)
{
    struct job *job = timer->data;
    for (int i = 0; i < job->n; i++) {
        struct rank *rank = &job->ranks[i];
        char name[32];
        if (!rank->pid || rank->ended) continue;
        job_say(job, "%s (pid %d) did not end within %g s of SIGTERM: killed", job_name(job, rank, name, sizeof name),
                (int)rank->pid, (double)job->options->grace_ms / 1000);
        rank_signal(rank, SIGKILL, true);
    }
}

void job_end(struct job *job)
{
    if (job->ending) return;
    job->ending = true;
    members_cancel(job);
    for (int i = 0; i < job->n; i++) {
        if (job->ssh)
            ssh_end(job, i);
        else if (job->passed != SIGTERM)
            rank_signal(&job->ranks[i], SIGTERM, true);
    }
    uint64_t more = job->ssh ? NODE_GRACE_MS : 0; /* the nodes have the same limit for their ranks */
    uv_timer_start(&job->grace, on_grace, (uint64_t)job->options->grace_ms + more, 0);
}

static void on_records(uv_timer_t *timer)
{
    struct job *job = timer->data;
    if (job->running || job->options->on_failure == OPTIONS_CONTINUE)
        job_end(job); /* also if replacements are to come */
}

void job_end_recorded(struct job *job, bool failed)
{
    if (job->ending || uv_is_active((uv_handle_t *)&job->records)) return;
    int64_t ms = job_ask_for_records(job, failed);
    if (ms > 0)
        uv_timer_start(&job->records, on_records, (uint64_t)ms, 0);
    else
        job_end(job);
}

static void on_timeout(uv_timer_t *timer)
{
    struct job *job = timer->data;
    if (job->ending && job->options->on_failure != OPTIONS_RESTART) return; /* nothing follows */
    if (!job->running && !job->pending) return;
    job->timed_out = true;
    job_say(job, "the job ran longer than %g s: ending it", (double)job->options->timeout_ms / 1000);
    if (job->running)
        job_end_recorded(job, false);
    else
        job_stop(job, 124);
}

/* Records in the store that a rank has ended, because ranks that wait for it in init would wait for ever.  Ranks that
 * have completed init do not read this. */
static void record_end(const struct job *job, const struct rank *rank)
{
    char value[200], how[100];
    if (job->store == NULL || job->running == 0) return;
    snprintf(value, sizeof value, "L%d rank %d is lost: its process %d %s", TUTTI_ERR_PEER_LOST, rank->number,
             (int)rank->pid, rank_how(rank, how, sizeof how));
    tutti_store_compare_set(job->store, "tutti/world/lost", "", 0, value, strlen(value), NULL, 0, NULL);
}

/* Reports the first failure and ends the others. */
static void fail(struct job *job, struct rank *rank)
{
    job->first = rank;
    job->quiet = job->ssh ? job->passed != 0 : rank->signalled && rank->code == job->passed;
    if (job->node) node_say_failed(job);
    if (!job->ssh) job_report_first(job); /* the nodes have */
    agent_report_failure(job);
    if (job->running) job_end_recorded(job, true);
}

static void ended(struct job *job, struct rank *rank)
{
    job->running--;
    record_end(job, rank);
    bool known = job->ssh && ssh_take_end(job, rank);
    if (members_go_on(job))
        members_take_end(job, rank);
    else if (rank_failed(rank) && !known && !job->first && !job->ending && !job->timed_out)
        fail(job, rank);
    if (members_go_on(job)) job_drain(job, (int)(rank - job->ranks));
    for (int i = 0; i < job->n && !job->running; i++) job_drain(job, i);
    job_finish_if_over(job);
}

void job_reap(struct job *job, pid_t pid)
{
    for (int i = 0; i < job->n; i++)
        if (job->ranks[i].pid == pid && rank_reap(&job->ranks[i])) ended(job, &job->ranks[i]);
    for (int i = 0; i < job->n; i++)
        if (rank_reap(&job->ranks[i])) ended(job, &job->ranks[i]);
}

static bool same_file(int a, int b)
{
    struct stat first, second;
    return fstat(a, &first) == 0 && fstat(b, &second) == 0 && first.st_dev == second.st_dev &&
           first.st_ino == second.st_ino;
}

static void init_sinks(struct job *job)
{
    sink_init(&job->out, &job->loop, STDOUT_FILENO);
    sink_init(&job->err, &job->loop, STDERR_FILENO);
    job->out.owner = job->err.owner = job;
    job->out.written = job->err.written = on_written;
    job->to_out = &job->out;
    job->to_err = same_file(STDOUT_FILENO, STDERR_FILENO) ? &job->out : &job->err;
}

static int init(struct job *job)
{
    const struct options *options = job->options;
    job->n = options->hosts.n ? options->hosts.n : options->nproc;
    job->ranks = calloc((size_t)job->n, sizeof *job->ranks);
    job->feeds = calloc((size_t)job->n * 2, sizeof *job->feeds);
    if (!job->ranks || !job->feeds || uv_loop_init(&job->loop) != 0) {
        fputs("tutti-run: cannot start the job: out of memory or descriptors\n", stderr);
        return 1;
    }
    init_sinks(job);
    uv_timer_t *timers[] = {&job->grace, &job->timeout, &job->drain, &job->backoff, &job->records};
    for (size_t i = 0; i < sizeof timers / sizeof *timers; i++) {
        uv_timer_init(&job->loop, timers[i]);
        timers[i]->data = job;
    }
    for (int i = 0; i < 2 * job->n; i++) {
        job->feeds[i].owner = job;
        job->feeds[i].closed = on_feed_closed;
        job->feeds[i].filter = options->hosts.n ? ssh_take_line : NULL;
        job->feeds[i].line_max = FEED_LINE_MAX - (job->node ? FEED_PREFIX_MAX : 0); /* the launcher cuts no more */
    }
    if (options->hosts.n) ssh_init(job);
    if (job->node) node_init(job);
    job->output = job_choose_output(job->options);
    members_init(job);
    return job_watch_signals(job);
}

/* Finds the processors of each rank for --bind.  Returns 0, or an exit status after a message. */
static int bind_ranks(struct job *job)
{
    enum bind bind = job->options->bind;
    if (bind == BIND_UNSET || bind == BIND_NONE || job->ssh) return 0;
    job->processors = memory_resize(NULL, (size_t)job->n * sizeof *job->processors);
    return bind_find(bind, job->n, job->processors) ? 0 : 2;
}

static int exit_status(const struct job *job)
{
    if (job->interrupts > 1) return 128 + SIGINT;
    if (job->timed_out) return 124;
    if (job->status) return job->status;
    if (job->first) return rank_exit_status(job->first);
    return job->node ? 0 : job->members.failure; /* a node's launcher has been told of each failure */
}

static void tear_down(struct job *job)
{
    uv_close((uv_handle_t *)&job->signal_poll, NULL);
    uv_close((uv_handle_t *)&job->grace, NULL);
    uv_close((uv_handle_t *)&job->timeout, NULL);
    uv_close((uv_handle_t *)&job->drain, NULL);
    uv_close((uv_handle_t *)&job->backoff, NULL);
    uv_close((uv_handle_t *)&job->records, NULL);
    members_close(job);
    if (job->ssh) ssh_close(job);
    if (job->node) node_close(job);
    uv_run(&job->loop, UV_RUN_DEFAULT);
    uv_loop_close(&job->loop);
    close(job->signal_fd);
    if (job->ssh) ssh_free(job);
    for (int i = 0; i < 2 * job->n; i++) feed_free(&job->feeds[i]);
    sink_free(&job->out);
    sink_free(&job->err);
    free(job->ranks);
    free(job->feeds);
    free(job->processors);
}

int job_run(struct job *job)
{
    int status = init(job);
    if (status) return status;
    if (job->output == JOB_FILED) job->status = job_open_logs(job);
    if (!job->status) job->status = bind_ranks(job);
    if (!job->status && agent_is_needed(job))
        agent_init(job);
    else if (!job->status)
        job_begin_round(job);
    if (!job->status && job->options->timeout_ms)
        uv_timer_start(&job->timeout, on_timeout, (uint64_t)job->options->timeout_ms, 0);
    job_finish_if_over(job); /* if no rank was started */
    uv_run(&job->loop, UV_RUN_DEFAULT);
    status = exit_status(job);
    tear_down(job);
    return status;
}
