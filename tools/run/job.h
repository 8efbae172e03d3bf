/* The job: runs the ranks of this node until they have ended and their output has been written. */
#ifndef RUN_JOB_H
#define RUN_JOB_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <uv.h>

#include "agent.h"
#include "feed.h"
#include "members.h"
#include "node.h"
#include "options.h"
#include "rank.h"
#include "round.h"
#include "signals.h"
#include "sink.h"
#include "ssh.h"

#include <tutti/store.h>

/* Destination of the ranks' output: stdout with prefixes, the launcher's own stdout and stderr, or log files. */
enum job_output { JOB_PREFIXED, JOB_PASSED, JOB_FILED };

struct job {
    const struct options *options;
    const struct signals *signals;
    const char *starter; /* MPI's launcher, if it starts the ranks: then it is the job's only process; else NULL */
    struct node *node;   /* if another tutti-run has started this one over ssh; else NULL */
    struct ssh *ssh;     /* if the job's processes are ssh's, one for each host; else NULL */
    int token_fd;        /* -1 if the ranks get no token */
    int out_fd;          /* duplicate of the launcher's stdout, for the ranks */
    struct rlimit files; /* the launcher's original limits, for the ranks */

    struct round round;
    tutti_store *store; /* the ranks' store in this round, or NULL if this launcher does not host it */

    uv_loop_t loop;
    uv_poll_t signal_poll;
    int signal_fd;
    uv_timer_t grace, timeout, drain;
    uv_timer_t backoff; /* runs before the next round */
    uv_timer_t records; /* runs while the ranks write their flight records, before they are ended */

    enum job_output output;
    struct sink out, err;
    struct sink *to_out, *to_err; /* the same sink if both are the same file, so that lines cannot mix */

    int n;
    struct rank *ranks;
    cpu_set_t *processors; /* of each rank, or NULL if they are not bound */
    struct feed *feeds;    /* rank i's stdout at 2i, its stderr at 2i + 1 */
    int running, open_feeds;
    int pending;      /* reasons to go on without a running rank: the next round, a replacement */
    int early;        /* rounds in a row that failed soon after their start */
    int64_t round_ms; /* the start of the round */
    struct members members;
    struct agent agent;

    struct rank *first; /* the first rank that failed before the launcher began to end the job */
    bool quiet;         /* `first` died of a signal that was passed on, so there is nothing to report */
    bool reported;      /* the last lines of `first` */
    bool ending, timed_out, finished;
    int passed;     /* the last signal that was passed on */
    int interrupts; /* number of SIGINTs */
    int status;     /* the exit status, if it is not that of a rank */
};

/* Starts the ranks and forwards output and signals.  Returns the launcher's exit status once all have ended. */
int job_run(struct job *job);

/* Ends the ranks: SIGTERM now, SIGKILL after the grace period.  A SIGTERM that was passed on is not sent again, because
 * a second one would interrupt what the ranks do at their end. */
void job_end(struct job *job);

/* Does the same, after the ranks have had time to write their flight records, if they keep any.  failed: a rank has
 * failed, which the others may notice themselves. */
void job_end_recorded(struct job *job, bool failed);

/* Ends a job of which no rank is running, but which would go on. */
void job_stop(struct job *job, int status);

/* Finishes the job, or begins the next round, once all ranks have ended and all their output has been read. */
void job_finish_if_over(struct job *job);

/* Closes the feeds of ended ranks that have nothing more to read. */
void job_drain(struct job *job, int i);

/* Reaps the ranks that have ended, the one with this pid first. */
void job_reap(struct job *job, pid_t pid);

/* job_restart.c.  Starts all ranks of this node.  On a failure sets job->status after a message. */
void job_begin_round(struct job *job);

/* Returns the exported variables and those of the round, which the caller frees. */
struct exports job_exports(const struct job *job);

/* Plans the next round if all ranks are to be started again.  Returns false if the job is over. */
bool job_restart(struct job *job);

/* Returns the time to wait before a start after `early` early ends in a row. */
int64_t job_backoff_ms(const struct options *options, int early);

/* Counts one more early end of what was started at that time, or none. */
int job_count_early(int early, int64_t started_ms);
int64_t job_now_ms(void);

/* job_start.c.  Starts rank i with its streams.  Returns 0, or an exit status after a message. */
int job_start(struct job *job, int i);
int job_open_logs(struct job *job);
enum job_output job_choose_output(const struct options *options);

/* Returns what all processes of the job are started with. */
struct rank_start job_rank_start(const struct job *job, char **program, char **environment);

/* job_records.c.  Asks the ranks for their flight records.  Returns the time to give them. */
int64_t job_ask_for_records(struct job *job, bool failed);

/* job_signals.c.  Starts to handle signals.  Returns 0, or an exit status after a message. */
int job_watch_signals(struct job *job);

/* Handles a signal that the launcher of this node has passed on. */
void job_take_signal(struct job *job, int signal);

/* job_report.c.  Messages go to stderr, between the ranks' lines. */
const char *job_name(const struct job *job, const struct rank *rank, char *text,
                     size_t bytes); /* for example "rank 3" */
void job_say(struct job *job, const char *format, ...) __attribute__((format(printf, 2, 3)));
void job_report_first(struct job *job);                               /* at the time of the failure */
void job_report_last_lines(struct job *job, const struct rank *rank); /* once all its output has been read */
char *job_log_path(const struct job *job, const struct rank *rank, bool is_err);

#endif
