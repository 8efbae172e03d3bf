/* The agent of a node in a job of several nodes that go on after a failure, or that may join and leave.
 *
 * The agents meet in a store of their own at the endpoint (--rdzv-endpoint, or --master-addr and --master-port).  Each
 * reports how its ranks do and follows the leader's plan (plan.h).  Requests to the store run in a worker thread,
 * because its host may be slow or lost. */
#ifndef RUN_AGENT_H
#define RUN_AGENT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include <tutti/store.h>

#include "plan.h"

struct job;
struct leader;

struct agent {
    uv_timer_t timer; /* between reports */
    uv_work_t work;
    bool working, again; /* again: something has changed since the report in work */
    struct plan_report report;
    int64_t serial; /* of the last plan that was followed */
    bool leaving, left;
    struct plan over;      /* the last plan; its serial is 0 before */
    struct leader *leader; /* NULL on other nodes */
    atomic_bool cancel;    /* the worker gives up */

    /* The worker's, the loop's when it has returned. */
    tutti_store *server; /* if this agent runs the store */
    tutti_store *base, *store;
    int id;
    bool joined; /* the list of agents has the id */
    char sent[PLAN_REPORT_MAX];
    bool sent_leaving;
    char *text; /* the plan; NULL: none yet */
    int status;
    char error[512];
};

/* True if the job has agents. */
bool agent_is_needed(const struct job *job);

/* Joins the other agents, and starts ranks when there is a plan. */
void agent_init(struct job *job);

/* Ends the reports when the job is finished. */
void agent_stop(struct job *job);

/* Frees the stores.  The leader's waits until the others have left. */
void agent_free(struct job *job, int linger_ms);

/* Reports the first failed rank of this node. */
void agent_report_failure(struct job *job);

/* Reports that no rank of this node is running, and waits for a plan.  Returns false if the job is over. */
bool agent_end_round(struct job *job);

/* Leaves the job when no rank of this node is running.  Returns false if it is leaving already. */
bool agent_leave(struct job *job, int status, const char *reason);

/* Sends a report soon. */
void agent_wake(struct job *job);

#endif
