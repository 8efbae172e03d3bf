#include "job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "memory.h"

enum { DRAIN_MS = 200 };

/* Finishes the job once all ranks have ended and all their output has been read.  Only writes remain. */
static void finish_if_over(struct job *job)
{
    if (job->running || job->open_feeds || job->finished) return;
    job->finished = true;
    job_report_last_lines(job);
    uv_timer_stop(&job->grace);
    uv_timer_stop(&job->timeout);
    uv_timer_stop(&job->drain);
    uv_unref(
        (uv_handle_t *)&job->signal_poll); /* signals are still handled while the sinks' writes keep the loop running */
}

/* Closes inactive feeds after the ranks have ended, because a process that has left its rank's group may hold a pipe
 * open for ever. */
static void on_drain(uv_timer_t *timer)
{
    struct job *job = timer->data;
    for (int i = 0; i < 2 * job->n; i++)
        if (job->feeds[i].open && !feed_was_active(&job->feeds[i])) feed_close(&job->feeds[i]);
}

static void on_feed_closed(struct feed *feed)
{
    struct job *job = feed->owner;
    job->open_feeds--;
    finish_if_over(job);
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
    for (int i = 0; i < job->n; i++) rank_signal(&job->ranks[i], SIGTERM, true);
    uv_timer_start(&job->grace, on_grace, (uint64_t)job->options->grace_ms, 0);
}

static void on_timeout(uv_timer_t *timer)
{
    struct job *job = timer->data;
    if (job->ending || !job->running) return;
    job->timed_out = true;
    job_say(job, "the job ran longer than %g s: ending it", (double)job->options->timeout_ms / 1000);
    job_end(job);
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

static void ended(struct job *job, struct rank *rank)
{
    job->running--;
    record_end(job, rank);
    if (rank_failed(rank) && !job->first && !job->ending) {
        job->first = rank;
        job->quiet = rank->signalled && rank->code == job->passed;
        job_report_first(job);
        if (job->running) job_end(job);
    }
    if (job->running) return;
    for (int i = 0; i < 2 * job->n; i++) job->feeds[i].active = true; /* each feed gets a full period */
    uv_timer_start(&job->drain, on_drain, DRAIN_MS, DRAIN_MS);
    finish_if_over(job);
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
    job->n = job->options->nproc;
    job->ranks = calloc((size_t)job->n, sizeof *job->ranks);
    job->feeds = calloc((size_t)job->n * 2, sizeof *job->feeds);
    if (!job->ranks || !job->feeds || uv_loop_init(&job->loop) != 0) {
        fputs("tutti-run: cannot start the job: out of memory or descriptors\n", stderr);
        return 1;
    }
    init_sinks(job);
    uv_timer_t *timers[] = {&job->grace, &job->timeout, &job->drain};
    for (int i = 0; i < 3; i++) {
        uv_timer_init(&job->loop, timers[i]);
        timers[i]->data = job;
    }
    for (int i = 0; i < 2 * job->n; i++) {
        job->feeds[i].owner = job;
        job->feeds[i].closed = on_feed_closed;
    }
    job->output = job_choose_output(job->options);
    return job_watch_signals(job);
}

/* Finds the processors of each rank for --bind.  Returns 0, or an exit status after a message. */
static int bind_ranks(struct job *job)
{
    enum bind bind = job->options->bind;
    if (bind == BIND_UNSET || bind == BIND_NONE) return 0;
    job->processors = memory_resize(NULL, (size_t)job->n * sizeof *job->processors);
    return bind_find(bind, job->n, job->processors) ? 0 : 2;
}

/* Starts all ranks.  If one cannot be started, kills those that were. */
static int start_all(struct job *job)
{
    for (int i = 0; i < job->n; i++) {
        int status = job_start(job, i);
        if (status == 0) {
            job->running++;
            continue;
        }
        job->ending = true;
        for (int k = 0; k < i; k++) rank_signal(&job->ranks[k], SIGKILL, true);
        return status;
    }
    return 0;
}

static int exit_status(const struct job *job)
{
    if (job->interrupts > 1) return 128 + SIGINT;
    if (job->timed_out) return 124;
    return job->first ? rank_exit_status(job->first) : 0;
}

static void tear_down(struct job *job)
{
    uv_close((uv_handle_t *)&job->signal_poll, NULL);
    uv_close((uv_handle_t *)&job->grace, NULL);
    uv_close((uv_handle_t *)&job->timeout, NULL);
    uv_close((uv_handle_t *)&job->drain, NULL);
    uv_run(&job->loop, UV_RUN_DEFAULT);
    uv_loop_close(&job->loop);
    close(job->signal_fd);
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
    if (job->output == JOB_FILED) status = job_open_logs(job);
    if (!status) status = bind_ranks(job);
    if (!status) status = start_all(job);
    if (!status && job->options->timeout_ms)
        uv_timer_start(&job->timeout, on_timeout, (uint64_t)job->options->timeout_ms, 0);
    finish_if_over(job); /* if no rank was started */
    uv_run(&job->loop, UV_RUN_DEFAULT);
    if (!status) status = exit_status(job);
    tear_down(job);
    return status;
}
