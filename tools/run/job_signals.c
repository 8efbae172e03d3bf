/* Handles the launcher's signals.  INT, TERM, HUP and QUIT go to the ranks' process groups, with their child processes.
 * USR1 and USR2 go to the ranks alone, because their child processes might die of them.  A second INT kills. */
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "job.h"
#include "portable/environment.h"

/* Forwards a signal.  A rank in the launcher's own group has already received a signal of the terminal. */
static void pass_on(struct job *job, int signal, bool whole_group, bool from_terminal)
{
    for (int i = 0; i < job->n; i++) {
        if (job->ssh)
            ssh_signal(job, i, signal);
        else if (job->ranks[i].own_group || !from_terminal)
            rank_signal(&job->ranks[i], signal, whole_group);
    }
}

static void end_by(struct job *job, int signal, bool from_terminal)
{
    if (!job->running && !job->pending)
        _exit(128 + signal); /* all ranks have ended, and the output's reader does not read */
    job->passed = signal;
    if (signal == SIGINT) job->interrupts++;
    members_cancel(job);
    if (!job->running) {
        job_say(job, "SIG%s while no rank was running: the job ends", environment_signal(signal));
        job_stop(job, 128 + signal);
        return;
    }
    if (job->interrupts < 2) {
        pass_on(job, signal, true, from_terminal);
    } else {
        job->ending = true;
        pass_on(job, SIGKILL, true, false);
    }
}

/* Stops and continues the ranks with the launcher.  Ctrl-Z reaches only the launcher, because the ranks have groups of
 * their own. */
static void stop(struct job *job, bool from_terminal)
{
    pass_on(job, job->ssh ? SIGTSTP : SIGSTOP, true, from_terminal);
    raise(SIGSTOP);
    pass_on(job, SIGCONT, true, false);
}

static void handle(struct job *job, const struct signalfd_siginfo *info)
{
    bool from_terminal = info->ssi_code == SI_KERNEL;
    int signal = (int)info->ssi_signo;
    if (signal == SIGCHLD)
        job_reap(job, (pid_t)info->ssi_pid); /* of several ranks that have ended, this one ended first */
    else if (signal == SIGTSTP)
        stop(job, from_terminal);
    else if (signal == SIGUSR1 || signal == SIGUSR2)
        pass_on(job, signal, false, false);
    else
        end_by(job, signal, from_terminal);
}

void job_take_signal(struct job *job, int signal)
{
    if (signal == SIGTSTP)
        pass_on(job, SIGSTOP, true, false);
    else if (signal == SIGCONT || signal == SIGKILL)
        pass_on(job, signal, true, false);
    else if (signal == SIGUSR1 || signal == SIGUSR2)
        pass_on(job, signal, false, false);
    else if (signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT)
        end_by(job, signal, false);
}

static void on_signal(uv_poll_t *poll, int status, int events)
{
    struct job *job = poll->data;
    struct signalfd_siginfo info;
    (void)status, (void)events;
    while (read(job->signal_fd, &info, sizeof info) == sizeof info) handle(job, &info);
}

int job_watch_signals(struct job *job)
{
    job->signal_fd = signalfd(-1, &job->signals->handled, SFD_CLOEXEC | SFD_NONBLOCK);
    if (job->signal_fd < 0) {
        perror("tutti-run: signalfd failed");
        return 1;
    }
    uv_poll_init(&job->loop, &job->signal_poll, job->signal_fd);
    job->signal_poll.data = job;
    uv_poll_start(&job->signal_poll, UV_READABLE, on_signal);
    return 0;
}
