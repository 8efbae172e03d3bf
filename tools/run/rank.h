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
    bool dumped;    /* .. and left a core */
    int code;       /* exit code or signal */
};

/* What a rank is started with.  The descriptors become its 0, 1 and 2. */
struct rank_start {
    char **program;
    char **environment;
    int in, out, err;
    int token_fd, out_fd; /* inherited as they are */
    bool own_group;
    const sigset_t *mask;             /* to be restored, as is what follows */
    const struct sigaction *old_pipe; /* SIGPIPE's */
    const struct sigaction *old_size; /* SIGXFSZ's */
    const struct sigaction *old_child;
    const struct rlimit *old_files; /* RLIMIT_NOFILE */
};

/* Starts it; returns once the program runs.  0, or errno's value of what failed; *in_exec tells whether that was
 * the program itself. */
int rank_start(struct rank *rank, const struct rank_start *start, bool *in_exec);

/* Whether it has ended by now; then it has been reaped, its fields tell how, and what it left of its process group has
 * been killed. */
bool rank_reap(struct rank *rank);

/* Sends a signal, with its whole group or to the process alone; nothing where it has ended. */
void rank_signal(const struct rank *rank, int signal, bool whole_group);

bool rank_failed(const struct rank *rank);

/* "exited with code 3", "died of SIGSEGV (core dumped)". */
const char *rank_how(const struct rank *rank, char *text, size_t bytes);

/* What a shell would give: the code, or 128 + the signal. */
int rank_exit_status(const struct rank *rank);

#endif
