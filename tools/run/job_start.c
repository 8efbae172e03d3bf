/* Opens the streams of a rank and starts it. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "environment.h"
#include "job.h"
#include "memory.h"

/* Chooses the output.  A single rank on a terminal keeps the terminal, with its colours and progress bars. */
enum job_output job_choose_output(const struct options *options)
{
    if (options->hosts.n) return JOB_PREFIXED; /* by the nodes */
    if (options->log_dir) return JOB_FILED;
    if (options->is_node) return JOB_PREFIXED; /* stdout and stderr belong to the launcher's protocol */
    bool alone = options->nproc == 1 && options->nnodes == 1 && options->mpi != OPTIONS_MPI_RANK;
    return options->no_prefix || (alone && isatty(STDOUT_FILENO)) ? JOB_PASSED : JOB_PREFIXED;
}

int job_open_logs(struct job *job)
{
    char *path = memory_print("%s", job->options->log_dir);
    int status = 0;
    for (char *slash = path + 1; status == 0; *slash++ = '/') {
        slash += strcspn(slash, "/");
        bool last = !*slash;
        *slash = '\0';
        if (mkdir(path, 0777) != 0 && errno != EEXIST) {
            job_say(job, "cannot create the folder %s for --log-dir: %s", path, strerror(errno));
            status = 1;
        }
        if (last) break;
    }
    free(path);
    return status;
}

/* The rank's end of one stream and, for a pipe, the launcher's end. */
struct stream {
    int rank_end, launcher_end;
};

static bool open_pipe(struct job *job, int i, struct stream *stream)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        job_say(job, "cannot create a pipe for rank %d: %s", job->ranks[i].number, strerror(errno));
        return false;
    }
    *stream = (struct stream){ends[1], ends[0]};
    return true;
}

static bool open_log(struct job *job, int i, bool is_err, struct stream *stream)
{
    char *path = job_log_path(job, &job->ranks[i], is_err);
    stream->rank_end = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC | O_NOCTTY, 0666);
    if (stream->rank_end < 0) job_say(job, "cannot open %s: %s", path, strerror(errno));
    free(path);
    return stream->rank_end >= 0;
}

/* Opens a rank's stdout or stderr.  Returns false after a message. */
static bool open_stream(struct job *job, int i, bool is_err, struct stream *stream)
{
    if (job->output == JOB_PREFIXED) return open_pipe(job, i, stream);
    if (job->output == JOB_FILED) return open_log(job, i, is_err, stream);
    stream->rank_end = is_err ? STDERR_FILENO : STDOUT_FILENO;
    return true;
}

/* Closes the rank's end.  Reads the launcher's end if the rank was started, otherwise closes it too. */
static void settle(struct job *job, int i, bool is_err, struct stream *stream, bool started)
{
    if (stream->rank_end > STDERR_FILENO) close(stream->rank_end);
    if (stream->launcher_end < 0) return;
    if (!started) {
        close(stream->launcher_end);
        return;
    }
    char prefix[FEED_PREFIX_MAX] = "";
    if (!job->ssh && !job->options->no_prefix) snprintf(prefix, sizeof prefix, "[%d] ", job->ranks[i].number);
    job->open_feeds++;
    feed_open(&job->feeds[2 * i + is_err], &job->loop, stream->launcher_end, is_err ? job->to_err : job->to_out,
              prefix);
}

struct rank_start job_rank_start(const struct job *job, char **program, char **environment)
{
    return (struct rank_start){.program = program,
                               .environment = environment,
                               .token_fd = job->token_fd,
                               .out_fd = job->out_fd,
                               .mask = &job->signals->old_mask,
                               .old_pipe = &job->signals->old_pipe,
                               .old_size = &job->signals->old_size,
                               .old_child = &job->signals->old_child,
                               .old_files = &job->files};
}

static int start_with(struct job *job, int i, int in, const struct stream *out, const struct stream *err)
{
    char **environment = environment_of(job->options, &job->round, &job->ranks[i], job->token_fd, job->out_fd);
    struct rank_start start = job_rank_start(job, job->options->program, environment);
    bool in_exec;
    start.in = in;
    start.out = out->rank_end;
    start.err = err->rank_end;
    /* a rank that reads a terminal stays in the launcher's group: other groups would be stopped */
    start.own_group = in != STDIN_FILENO || !isatty(STDIN_FILENO);
    start.processors = job->processors != NULL ? &job->processors[i] : NULL;
    int failure = rank_start(&job->ranks[i], &start, &in_exec);
    environment_free(environment);
    if (!failure) return 0;
    if (in_exec)
        job_say(job, "cannot run %s: %s", start.program[0], strerror(failure));
    else
        job_say(job, "cannot start rank %d: %s", job->ranks[i].number, strerror(failure));
    return !in_exec ? 1 : failure == ENOENT ? 127 : 126;
}

/* Returns the stdin of a rank: the launcher's for rank 0, /dev/null for the others. */
static int open_stdin(struct job *job, int i)
{
    if (job->ranks[i].number == 0) return job->node ? node_open_input(job) : STDIN_FILENO;
    int in = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (in < 0) job_say(job, "cannot open /dev/null: %s", strerror(errno));
    return in;
}

int job_start(struct job *job, int i)
{
    struct stream out = {-1, -1}, err = {-1, -1};
    int status = 1;
    int in = job->ssh ? STDIN_FILENO : open_stdin(job, i);
    if (in >= 0 && open_stream(job, i, false, &out) && open_stream(job, i, true, &err))
        status = job->ssh ? ssh_start(job, i, out.rank_end, err.rank_end) : start_with(job, i, in, &out, &err);
    bool takes_input = status == 0 && job->node && job->ranks[i].number == 0;
    if (takes_input && !job->ranks[i].newcomer) node_say_input(job); /* it holds for a replacement, too */
    settle(job, i, false, &out, status == 0);
    settle(job, i, true, &err, status == 0);
    if (in > STDERR_FILENO) close(in);
    job->ranks[i].started_ms = job_now_ms();
    job->running += status == 0;
    return status;
}
