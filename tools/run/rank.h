/* One rank: a child process, usually the leader of a process group of its own. */
#ifndef RUN_RANK_H
#define RUN_RANK_H

#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

struct rank {
    int number;    /* global rank */
    int starts;    /* in this place, before this one */
    int member;    /* number of the process in the job, if failed ranks are replaced */
    int early;     /* ends in this place in a row that came soon after the start */
    bool newcomer; /* replaces another process */
    int64_t started_ms;

    pid_t pid;      /* 0: not started */
    bool own_group; /* leads a process group, through which its children can be signalled */
    bool ended;
    bool signalled; /* ended by a signal, not with an exit code */
    bool dumped;    /* the signal also dumped a core */
    int code;       /* exit code or signal */
};

/* Arguments of rank_start.  in, out and err become descriptors 0, 1 and 2. */
struct rank_start {
    char **program;
    char **environment;
    int in, out, err;
    int token_fd, out_fd; /* inherited with the same numbers */
    bool own_group;
    const cpu_set_t *processors;       /* that it may use; NULL: the launcher's */
    const sigset_t *mask;              /* the signal mask to restore, and the dispositions below */
    const struct sigaction *old_pipe;  /* SIGPIPE's disposition */
    const struct sigaction *old_size;  /* SIGXFSZ's disposition */
    const struct sigaction *old_child; /* SIGCHLD's disposition */
    const struct rlimit *old_files;    /* the original RLIMIT_NOFILE */
};

/* Starts a rank and waits until its program runs.  Returns 0, or the errno of the failed call.  Sets *in_exec if that
 * was in the child, usually exec. */
int rank_start(struct rank *rank, const struct rank_start *start, bool *in_exec);

/* Reaps a rank if it has ended.  Returns true if so: then its fields are set, and the rest of its process group has
 * been killed. */
bool rank_reap(struct rank *rank);

/* Sends a signal to the rank's whole group or to its process alone, unless the rank has ended. */
void rank_signal(const struct rank *rank, int signal, bool whole_group);

bool rank_failed(const struct rank *rank);

/* Describes how a rank ended: "exited with code 3", "died of SIGSEGV (core dumped)". */
const char *rank_how(const struct rank *rank, char *text, size_t bytes);

/* Returns the exit status that a shell would return: the code, or 128 + the signal. */
int rank_exit_status(const struct rank *rank);

#endif
