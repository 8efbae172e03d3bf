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
    const char *starter; /* what starts the ranks, where that is not us: the job's one process is it; or NULL */
    uint16_t port;
    int token_fd;        /* -1: the ranks get none */
    int out_fd;          /* our own stdout, for the ranks */
    struct rlimit files; /* what we were given, for the ranks */

    tutti_store *store; /* the ranks', where this launcher hosts it; or NULL */

    uv_loop_t loop;
    uv_poll_t signal_poll;
    int signal_fd;
    uv_timer_t grace, timeout, drain;

    enum job_output output;
    struct sink out, err;
    struct sink *to_out, *to_err; /* the same one where both are one file: else lines could mix */

    int n;
    struct rank *ranks;
    struct feed *feeds; /* rank i's stdout and stderr at 2i and 2i + 1 */
    int running, open_feeds;

    struct rank *first; /* the first that failed, while the job was not being ended */
    bool quiet;         /* .. by a signal that was passed on: its sender knows */
    bool ending, timed_out, finished;
    int passed;     /* the last signal passed on */
    int interrupts; /* SIGINTs */
};

/* Starts the ranks, passes output and signals on, and returns the launcher's exit status once all have ended. */
int job_run(struct job *job);

/* Ends the ranks: SIGTERM now, SIGKILL after the grace. */
void job_end(struct job *job);

/* Looks at what became of the ranks, at that of pid first. */
void job_reap(struct job *job, pid_t pid);

/* job_start.c: starts rank i with its streams.  0, or an exit status after a sentence. */
int job_start(struct job *job, int i);
int job_open_logs(struct job *job);
enum job_output job_choose_output(const struct options *options);

/* job_signals.c: what the launcher does with each signal. */
int job_watch_signals(struct job *job);

/* job_report.c: sentences on stderr, between the ranks' lines. */
const char *job_name(const struct job *job, const struct rank *rank, char *text, size_t bytes); /* "rank 3" */
void job_say(struct job *job, const char *format, ...) __attribute__((format(printf, 2, 3)));
void job_report_first(struct job *job);      /* at once */
void job_report_last_lines(struct job *job); /* when all is over, so that they stand at the end */
char *job_log_path(const struct job *job, int i, bool is_err);

#endif
