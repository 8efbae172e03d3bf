/* The job: the ranks of this node, from their start until nothing of them is left. */
#ifndef RUN_JOB_H
#define RUN_JOB_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <uv.h>

#include "feed.h"
#include "options.h"
#include "rank.h"
#include "signals.h"
#include "sink.h"

#include <tutti/store.h>

/* Where the ranks' output goes. */
enum job_output { JOB_PREFIXED, JOB_PASSED, JOB_FILED };

struct job {
    const struct options *options;
    const struct signals *signals;
    const char *starter; /* the program that starts the ranks, if it is not tutti-run: then it is the job's one process;
                            or NULL */
    uint16_t port;
    int token_fd;        /* -1: the ranks get none */
    int out_fd;          /* the launcher's own stdout, for the ranks */
    struct rlimit files; /* the launcher's original limits, for the ranks */

    tutti_store *store; /* the ranks' store, if this launcher hosts it; or NULL */

    uv_loop_t loop;
    uv_poll_t signal_poll;
    int signal_fd;
    uv_timer_t grace, timeout, drain;

    enum job_output output;
    struct sink out, err;
    struct sink *to_out, *to_err; /* the same sink if both are one file, otherwise lines could mix */

    int n;
    struct rank *ranks;
    struct feed *feeds; /* stdout and stderr of rank i at 2i and 2i + 1 */
    int running, open_feeds;

    struct rank *first; /* the first rank that failed before the job was being ended */
    bool quiet;         /* it died of a signal that was passed on: the sender knows */
    bool ending, timed_out, finished;
    int passed;     /* the last signal that was passed on */
    int interrupts; /* number of SIGINTs */
};

/* Starts the ranks, passes output and signals on, and returns the launcher's exit status once all have ended. */
int job_run(struct job *job);

/* Ends the ranks: SIGTERM now, SIGKILL after the grace period. */
void job_end(struct job *job);

/* Reaps ranks that have ended, the one with this pid first. */
void job_reap(struct job *job, pid_t pid);

/* job_start.c: starts rank i with its streams.  Returns 0, or an exit status after a message. */
int job_start(struct job *job, int i);
int job_open_logs(struct job *job);
enum job_output job_choose_output(const struct options *options);

/* job_signals.c: starts handling signals. */
int job_watch_signals(struct job *job);

/* job_report.c: messages on stderr, between the ranks' lines. */
const char *job_name(const struct job *job, const struct rank *rank, char *text, size_t bytes); /* "rank 3" */
void job_say(struct job *job, const char *format, ...) __attribute__((format(printf, 2, 3)));
void job_report_first(struct job *job);      /* immediately */
void job_report_last_lines(struct job *job); /* at the end, so that they are the last output */
char *job_log_path(const struct job *job, int i, bool is_err);

#endif
