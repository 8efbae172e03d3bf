/* What the agents of a job, one on each node, and their leader write into the store for each other.
 *
 * An agent reports how its ranks do.  The leader, the agent that runs the store, decides and publishes one plan.  Both
 * texts are parsed with checks, because another process wrote them. */
#ifndef RUN_PLAN_H
#define RUN_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PLAN_HOST_MAX = 64, PLAN_REASON_MAX = 256, PLAN_REPORT_MAX = 512, PLAN_NODES_MAX = 1 << 16 };

/* What has become of a node's ranks in a round. */
enum plan_outcome {
    PLAN_OPEN,   /* nothing has happened to them, or there are none */
    PLAN_DONE,   /* all have succeeded */
    PLAN_FAILED, /* one has failed */
    PLAN_BROKEN, /* one could not be started, so another round would not help */
    PLAN_LEAVES, /* the node leaves the job: a signal, or its time is over */
    PLAN_OUTCOMES
};

struct plan_report {
    int64_t beat;     /* grows with each report */
    int round;        /* the last one in which this node had ranks; -1: none yet */
    bool running;     /* some of them are still running */
    int outcome;      /* of enum plan_outcome */
    int status;       /* exit status of PLAN_FAILED, PLAN_BROKEN and PLAN_LEAVES */
    int nproc;        /* ranks that this node offers */
    int node_rank;    /* as given on the command line; -1: any */
    int first_member; /* of the plan that it follows */
    char host[PLAN_HOST_MAX];
    char reason[PLAN_REASON_MAX]; /* for example "rank 3 exited with code 1" */
};

enum plan_verb {
    PLAN_RUN,  /* the nodes named start their ranks */
    PLAN_STOP, /* all end them */
    PLAN_OVER  /* and then themselves */
};

struct plan {
    int64_t serial; /* grows with each plan */
    enum plan_verb verb;
    int round;
    int status; /* PLAN_OVER: the job's exit status */
    char reason[PLAN_REASON_MAX];

    /* PLAN_RUN, as one of the agents sees it. */
    int restarts;
    uint16_t port; /* of the ranks' store */
    int n_nodes, world_size;
    int node_rank; /* of this agent; -1: not in this round */
    int first_rank;
    int first_member; /* number of its first rank's process if its ranks are replacements, else -1 */
};

/* Writes a report as text of at most PLAN_REPORT_MAX bytes. */
void plan_write_report(const struct plan_report *report, char text[PLAN_REPORT_MAX]);
bool plan_read_report(const char *text, struct plan_report *report);

/* Reads the plan for the agent with this id. */
bool plan_read(const char *text, int id, struct plan *plan);

#endif
