/* Prints the launcher's messages about a job. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "job.h"
#include "memory.h"

enum { LAST_LINES = 10 };

void job_say(struct job *job, const char *format, ...)
{
    char *text;
    va_list args;
    va_start(args, format);
    int length = vasprintf(&text, format, args);
    va_end(args);
    if (length < 0) return;
    sink_append(job->to_err, "tutti-run", 9);
    if (job->node) sink_append(job->to_err, " on ", 4);
    if (job->node) sink_append(job->to_err, job->node->config.host, strlen(job->node->config.host));
    sink_append(job->to_err, ": ", 2);
    sink_append(job->to_err, text, (size_t)length);
    sink_append(job->to_err, "\n", 1);
    sink_flush(job->to_err);
    free(text);
}

const char *job_name(const struct job *job, const struct rank *rank, char *text, size_t bytes)
{
    if (job->starter) return job->starter;
    if (job->ssh) {
        snprintf(text, bytes, "host %s", job->options->hosts.list[rank - job->ranks].name);
        return text;
    }
    if (rank->newcomer)
        snprintf(text, bytes, "member %d in rank %d's place", rank->member, rank->number);
    else
        snprintf(text, bytes, "rank %d", rank->number);
    return text;
}

void job_report_first(struct job *job)
{
    const struct rank *first = job->first;
    char name[48], how[64];
    if (job->quiet) return;
    job_say(job, "%s (pid %d) %s%s", job_name(job, first, name, sizeof name), (int)first->pid,
            rank_how(first, how, sizeof how), job->running ? "; ending the other ranks" : "");
}

char *job_log_path(const struct job *job, const struct rank *rank, bool is_err)
{
    const char *end = is_err ? "err" : "out", *dir = job->options->log_dir;
    int other = rank->newcomer ? rank->member : rank->starts;
    return other ? memory_print("%s/rank_%d.%d.%s", dir, rank->number, other, end)
                 : memory_print("%s/rank_%d.%s", dir, rank->number, end);
}

/* Reads the end of a log file, at most FEED_TAIL_MAX bytes.  Returns how many. */
static size_t read_tail(const char *path, char *tail)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return 0;
    off_t size = lseek(fd, 0, SEEK_END);
    ssize_t n = pread(fd, tail, FEED_TAIL_MAX, size > FEED_TAIL_MAX ? size - FEED_TAIL_MAX : 0);
    close(fd);
    return n > 0 ? (size_t)n : 0;
}

/* Returns the last lines of a text, without the last newline. */
static const char *last_lines(const char *text, size_t *bytes)
{
    if (*bytes && text[*bytes - 1] == '\n') --*bytes;
    size_t begin = *bytes;
    for (int lines = 0; begin > 0; begin--)
        if (text[begin - 1] == '\n' && ++lines == LAST_LINES) break;
    *bytes -= begin;
    return text + begin;
}

static void say_lines(struct job *job, const char *text, size_t bytes)
{
    text = last_lines(text, &bytes);
    for (const char *end = text + bytes; text <= end;) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        if (!newline) newline = end;
        sink_append(job->to_err, "    ", 4);
        sink_append(job->to_err, text, (size_t)(newline - text));
        sink_append(job->to_err, "\n", 1);
        text = newline + 1;
    }
    sink_flush(job->to_err);
}

void job_report_last_lines(struct job *job, const struct rank *rank)
{
    if (job->quiet || job->ssh || job->output == JOB_PASSED || (job->output == JOB_PREFIXED && job->n == 1)) return;
    const struct feed *feed = &job->feeds[2 * (rank - job->ranks) + 1];
    char filed[FEED_TAIL_MAX], how[64];
    char *path = job->output == JOB_FILED ? job_log_path(job, rank, true) : NULL;
    const char *text = path ? filed : feed->tail;
    size_t bytes = path ? read_tail(path, filed) : feed->tail_used;
    rank_how(rank, how, sizeof how);
    if (bytes) {
        job_say(job, "rank %d %s; the last lines of its stderr%s%s:", rank->number, how, path ? ", from " : "",
                path ? path : "");
        say_lines(job, text, bytes);
    } else {
        job_say(job, "rank %d %s; it wrote nothing to stderr", rank->number, how);
    }
    free(path);
}
