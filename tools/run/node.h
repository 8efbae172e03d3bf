/* A node of a job that another tutti-run has started over ssh (ssh.h): this process, with --ssh-node.
 *
 * It gets its configuration and signals on stdin (node_wire.h), runs its part of the ranks like any other job, and ends
 * them when stdin ends or nothing has come for too long. */
#ifndef RUN_NODE_H
#define RUN_NODE_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "node_wire.h"
#include "options.h"

struct job;

struct node {
    struct node_config config;
    char addr[300]; /* of the ranks' store */
    uv_pipe_t in;
    struct buffer frames; /* what has been read, up to the end of a frame */
    uv_timer_t silence;
    int64_t heard_ms;
    bool paused; /* the launcher is stopped, and silent */
    bool lost;
    uv_pipe_t input; /* rank 0's stdin */
    bool input_open;
};

/* Reads the configuration into node and options, and waits until the ranks are to start.  Returns OPTIONS_GO_ON, or the
 * exit status. */
int node_receive(struct node *node, struct options *options);

/* Starts to read what else the launcher sends, in the job's loop. */
void node_init(struct job *job);
void node_close(struct job *job);

/* Makes rank 0's stdin.  Returns the rank's end, or -1 after a message. */
int node_open_input(struct job *job);

/* Tell the launcher the port of the store, that a rank has failed, and that rank 0 can take input. */
void node_say_port(struct job *job, int port);
void node_say_failed(struct job *job);
void node_say_input(struct job *job);

#endif
