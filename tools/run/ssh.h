/* Starts the nodes of a job over ssh (--hosts, --hostfile).
 *
 * Each host gets one ssh, which starts a tutti-run there (node.h) and passes its output back.  To the job these are its
 * processes, in the place of ranks.  What a node is to do, the job's secret too, goes to ssh's stdin (node_wire.h).
 *
 *     CONNECTING -- its hello --> READY -- all hosts are, the store's port is known --> STARTED
 *         |
 *         +-- ssh ends, or says nothing for too long --> UNREACHABLE; the job ends once all hosts are known
 *
 * A node ends its ranks when this process's beats stop or ssh's connection breaks.  If the others go on when a rank
 * fails (--on-failure=continue), the nodes replace their ranks themselves, and the job goes on without a lost node.
 * Node 0, which runs the ranks' store, stays until it is the last one. */
#ifndef RUN_SSH_H
#define RUN_SSH_H

#include <stdbool.h>
#include <uv.h>

#include "rank.h"
#include "sink.h"

struct job;
struct feed;

enum ssh_state { SSH_CONNECTING, SSH_READY, SSH_STARTED, SSH_UNREACHABLE };

struct ssh_node {
    enum ssh_state state;
    bool asked;  /* its ssh has been ended, so that there is nothing more to report */
    bool failed; /* it has reported a failed rank */
    uv_pipe_t in;
    bool open, closing;
    char last[512]; /* the last line before its hello */
};

struct ssh {
    struct ssh_node *nodes;
    struct buffer config; /* of the node that is being started */
    int waiting;          /* nodes in CONNECTING */
    int unreachable;
    int port; /* of the store, once node 0 has said it */
    uv_timer_t limit, beat;
    uv_poll_t input; /* of input_fd, an epoll that contains stdin */
    int input_fd;
    bool input_polls, input_ended; /* input_polls: false for a file, which is always readable */
    bool input_waits;              /* rank 0 can take more, once this process is in the terminal's foreground */
};

/* Prepares the job for nodes, once its loop is there. */
void ssh_init(struct job *job);
void ssh_finish(struct job *job); /* only writes of output remain */
void ssh_close(struct job *job);
void ssh_free(struct job *job);

/* A round begins: all nodes are to be started. */
void ssh_begin_round(struct job *job);

/* Starts node i's ssh, with these ends of its streams.  Returns 0, or an exit status after a message. */
int ssh_start(struct job *job, int i, int out, int err);

/* Passes a signal to node i. */
void ssh_signal(struct job *job, int i, int signal);

/* Tells node i to end its ranks. */
void ssh_end(struct job *job, int i);

/* Handles the end of a node's ssh.  Returns true unless it may be the failure that ends the job: if the node was
 * unreachable, and if the job goes on without it. */
bool ssh_take_end(struct job *job, struct rank *rank);

/* Reports an unreachable node once its ssh has ended and its stderr has been read. */
void ssh_settle(struct job *job, int i);

/* Looks at a line of a node, without its end.  Returns true if it is not to be shown. */
bool ssh_take_line(struct feed *feed, const char *line, size_t bytes);

#endif
