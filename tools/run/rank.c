#include "rank.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "portable/environment.h"

/* ---- in the child: only async-signal-safe calls, because the store's thread may have held any lock ------------- */

static void become(int from, int to)
{
    if (from != to) dup2(from, to); /* the duplicate is not close-on-exec */
}

static void run_program(const struct rank_start *start, pid_t launcher)
{
    if (start->own_group) setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != launcher) _exit(1); /* the launcher died before the prctl */
    become(start->in, 0);
    become(start->out, 1);
    become(start->err, 2);
    fcntl(start->token_fd, F_SETFD, 0);
    fcntl(start->out_fd, F_SETFD, 0);
    sigaction(SIGPIPE, start->old_pipe, NULL);
    sigaction(SIGXFSZ, start->old_size, NULL);
    sigaction(SIGCHLD, start->old_child, NULL);
    setrlimit(RLIMIT_NOFILE, start->old_files); /* programs that use select() rely on the usual 1024 */
    if (start->processors != NULL && sched_setaffinity(0, sizeof *start->processors, start->processors) != 0) return;
    sigprocmask(SIG_SETMASK, start->mask, NULL);
    execvpe(start->program[0], start->program, start->environment);
}

/* ---- in the launcher ----------------------------------------------------------------------------------------- */

/* Returns the errno of a child that failed, or 0 if exec closed the pipe. */
static int read_failure(int fd)
{
    int failure = 0;
    ssize_t n;
    do n = read(fd, &failure, sizeof failure);
    while (n < 0 && errno == EINTR);
    return n == sizeof failure ? failure : 0;
}

int rank_start(struct rank *rank, const struct rank_start *start, bool *in_exec)
{
    int report[2];
    *in_exec = false;
    if (pipe2(report, O_CLOEXEC) != 0) return errno;
    pid_t launcher = getpid(), pid = fork();
    if (pid == 0) {
        run_program(start, launcher);
        int failure = errno;
        ssize_t n = write(report[1], &failure, sizeof failure);
        _exit(n < 0 ? 126 : 127);
    }
    int failure = pid < 0 ? errno : 0;
    close(report[1]);
    if (pid > 0) {
        failure = read_failure(report[0]);
        *in_exec = failure != 0;
        if (failure) waitpid(pid, NULL, 0);
    }
    close(report[0]);
    if (failure) return failure;
    rank->pid = pid;
    rank->own_group = start->own_group;
    return 0;
}

/* Kills the group before it reaps the leader, because a zombie's number cannot be reused. */
bool rank_reap(struct rank *rank)
{
    siginfo_t info = {0};
    if (!rank->pid || rank->ended) return false;
    if (waitid(P_PID, (id_t)rank->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return false;
    rank_signal(rank, SIGKILL, true);
    while (waitid(P_PID, (id_t)rank->pid, &info, WEXITED) != 0 && errno == EINTR) continue;
    rank->ended = true;
    rank->signalled = info.si_code != CLD_EXITED;
    rank->dumped = info.si_code == CLD_DUMPED;
    rank->code = info.si_status;
    return true;
}

void rank_signal(const struct rank *rank, int signal, bool whole_group)
{
    if (!rank->pid || rank->ended) return;
    kill(whole_group && rank->own_group ? -rank->pid : rank->pid, signal);
}

bool rank_failed(const struct rank *rank)
{
    return rank->ended && (rank->signalled || rank->code != 0);
}

const char *rank_how(const struct rank *rank, char *text, size_t bytes)
{
    const char *name = rank->signalled ? environment_signal(rank->code) : NULL;
    if (!rank->signalled)
        snprintf(text, bytes, "exited with code %d", rank->code);
    else if (name)
        snprintf(text, bytes, "died of SIG%s%s", name, rank->dumped ? " (core dumped)" : "");
    else
        snprintf(text, bytes, "died of signal %d%s", rank->code, rank->dumped ? " (core dumped)" : "");
    return text;
}

int rank_exit_status(const struct rank *rank)
{
    return rank->signalled ? 128 + rank->code : rank->code;
}
