/* One rank: a child process, usually the leader of a process group of its own. */
#ifndef RUN_RANK_H
#define RUN_RANK_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/resource.h>
#include <sys/types.h>

struct rank {
    int number;     /* in the world */
    pid_t pid;      /* 0: not started */
    bool own_group; /* its children can be reached through its process group */
    bool ended;
    bool signalled; /* how it ended: by a signal, or with an exit code */
    bool dumped;    /* it also left a core */
    int code;       /* exit code or signal */
};

/* What a rank is started with.  The descriptors become its 0, 1 and 2. */
struct rank_start {
    char **program;
    char **environment;
    int in, out, err;
    int token_fd, out_fd; /* inherited unchanged */
    bool own_group;
    const sigset_t *mask;             /* the mask and dispositions to restore */
    const struct sigaction *old_pipe; /* SIGPIPE's */
    const struct sigaction *old_size; /* SIGXFSZ's */
    const struct sigaction *old_child;
    const struct rlimit *old_files; /* RLIMIT_NOFILE */
};

/* Starts it and returns once the program runs.  Returns 0, or the errno of what failed; *in_exec tells whether that was
 * the program itself. */
int rank_start(struct rank *rank, const struct rank_start *start, bool *in_exec);

/* True if it has ended.  Then it has been reaped, its fields tell how, and the rest of its process group has been
 * killed. */
bool rank_reap(struct rank *rank);

/* Sends a signal to the whole group or to the process alone, unless it has ended. */
void rank_signal(const struct rank *rank, int signal, bool whole_group);

bool rank_failed(const struct rank *rank);

/* Describes how it ended: "exited with code 3", "died of SIGSEGV (core dumped)". */
const char *rank_how(const struct rank *rank, char *text, size_t bytes);

/* Returns the exit status that a shell would: the code, or 128 + the signal. */
int rank_exit_status(const struct rank *rank);

#endif
