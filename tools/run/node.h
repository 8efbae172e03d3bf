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
    bool holds;      /* other nodes still need the ranks' store, which this one runs */
    uv_pipe_t input; /* rank 0's stdin */
    bool input_open;
    int input_end; /* rank 0's end of it, kept for replacements; -1: none */
};

/* Reads the configuration into node and options, and waits until the ranks are to start.  Returns OPTIONS_GO_ON, or the
 * exit status. */
int node_receive(struct node *node, struct options *options);

/* Starts to read what else the launcher sends, in the job's loop. */
void node_init(struct job *job);
void node_finish(struct job *job); /* only writes of output remain */
void node_close(struct job *job);

/* Opens rank 0's stdin.  A replacement gets what the rank before it has not read.  Returns a descriptor for the rank,
 * or -1 after a message. */
int node_open_input(struct job *job);

/* Tell the launcher the port of the store, that a rank has failed and the others are ended, that one has ended and they
 * go on, and that rank 0 can take input. */
void node_say_port(struct job *job, int port);
void node_say_failed(struct job *job);
void node_say_ended(struct job *job, int status);
void node_say_input(struct job *job);

#endif
