#include "agent.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <tutti/tutti.h>

#include "job.h"
#include "leader.h"
#include "memory.h"

enum { STEP_MS = 1000, PERIOD_MS = 200 };

bool agent_is_needed(const struct job *job)
{
    const struct options *options = job->options;
    bool over_ssh = options->is_node; /* then the launcher decides */
    return options->elastic || (!over_ssh && options->nnodes > 1 && options->on_failure != OPTIONS_END);
}

/* ---- in the worker thread --------------------------------------------------------------------------------------- */

/* Joins the store of another agent, which may start later. */
static int join(struct job *job)
{
    struct agent *agent = &job->agent;
    const struct options *options = job->options;
    int64_t deadline = job_now_ms() + options->join_timeout_ms;
    int status = TUTTI_ERR_TIMEOUT;
    while (status != TUTTI_OK && status != TUTTI_ERR_AUTH && !atomic_load(&agent->cancel) && job_now_ms() < deadline) {
        int64_t start = job_now_ms();
        status =
            round_join_store(options->rdzv_host, (uint16_t)options->rdzv_port, job->token_fd, STEP_MS, &agent->base);
        if (status != TUTTI_OK && job_now_ms() - start < 50) usleep(50000);
    }
    return status;
}

/* Runs the store if the endpoint is an address of this host, else joins it. */
static int open_base(struct job *job)
{
    struct agent *agent = &job->agent;
    const struct options *options = job->options;
    int status = TUTTI_ERR_STORE;
    if (options->elastic || options->node_rank == 0)
        status = round_host_store(options->rdzv_host, (uint16_t)options->rdzv_port, options->nnodes, job->token_fd,
                                  &agent->server);
    if (status == TUTTI_OK) agent->base = agent->server;
    if (status == TUTTI_OK || (!options->elastic && options->node_rank == 0)) return status;
    return join(job);
}

/* Opens the agents' store and takes an id. */
static int open_store(struct job *job)
{
    struct agent *agent = &job->agent;
    char prefix[256];
    int64_t id = 0;
    if (agent->store) return TUTTI_OK;
    int status = open_base(job);
    if (status != TUTTI_OK) return status;
    snprintf(prefix, sizeof prefix, "agents/%s", job->options->rdzv_id);
    status = tutti_store_prefix(agent->base, prefix, &agent->store);
    if (status == TUTTI_OK) status = tutti_store_set_timeout(agent->store, leader_silent_ms());
    if (status == TUTTI_OK) status = tutti_store_add(agent->store, "ids", 1, &id);
    agent->id = (int)id;
    return status;
}

/* Sends the report.  The first one comes before the agent's name in the list, where the leader finds it. */
static int tell(struct agent *agent)
{
    char key[32], line[16];
    snprintf(key, sizeof key, "agent/%d", agent->id);
    int status = tutti_store_set(agent->store, key, agent->sent, strlen(agent->sent));
    if (status != TUTTI_OK || agent->joined) return status;
    int bytes = snprintf(line, sizeof line, "%d\n", agent->id);
    status = tutti_store_append(agent->store, "joined", line, (size_t)bytes);
    agent->joined = status == TUTTI_OK;
    return status;
}

static int fetch_plan(struct agent *agent)
{
    tutti_bytes value = {0};
    int status = tutti_store_multi_get(agent->store, (const char *const[]){"plan"}, 1, &value, 0);
    if (status == TUTTI_ERR_TIMEOUT) return TUTTI_OK; /* none yet */
    if (status != TUTTI_OK) return status;
    agent->text = memory_print("%.*s", (int)value.bytes, (const char *)value.data);
    tutti_bytes_free(&value, 1);
    return TUTTI_OK;
}

static void talk(uv_work_t *work)
{
    struct job *job = work->data;
    struct agent *agent = &job->agent;
    agent->status = open_store(job);
    if (agent->status == TUTTI_OK) agent->status = tell(agent);
    if (agent->status == TUTTI_OK) agent->status = fetch_plan(agent);
    if (agent->status != TUTTI_OK) snprintf(agent->error, sizeof agent->error, "%s", tutti_last_error());
}

/* ---- in the loop ------------------------------------------------------------------------------------------------ */

static void after_talk(uv_work_t *work, int status);

void agent_wake(struct job *job)
{
    struct agent *agent = &job->agent;
    agent->again = agent->working;
    if (agent->working || agent->left || agent->over.serial || job->finished) return;
    agent->report.beat++;
    plan_write_report(&agent->report, agent->sent);
    agent->sent_leaving = agent->leaving;
    agent->working = true;
    agent->work.data = job;
    uv_queue_work(&job->loop, &agent->work, talk, after_talk);
}

static void on_timer(uv_timer_t *timer)
{
    struct job *job = timer->data;
    if (!job->agent.working) agent_wake(job);
}

/* Ends this node's part of the job without another word to the leader. */
static void quit(struct job *job, int status)
{
    job->agent.left = true;
    job->status = status;
    if (job->running)
        job_end(job);
    else
        job_stop(job, status);
}

static void lose_store(struct job *job)
{
    const struct options *options = job->options;
    struct agent *agent = &job->agent;
    if (!agent->store && !agent->cancel)
        job_say(job, "cannot meet the other nodes at %s port %d: %s", options->rdzv_host, options->rdzv_port,
                agent->error);
    else if (agent->store)
        job_say(job, "the node that runs the rendezvous, %s port %d, is lost, and the job with it: %s",
                options->rdzv_host, options->rdzv_port, agent->error);
    quit(job, agent->leaving ? job->status : 1);
}

/* Starts this node's ranks of a round. */
static void begin(struct job *job, const struct plan *plan)
{
    struct round *round = &job->round;
    *round = (struct round){.number = plan->round,
                            .restarts = plan->restarts,
                            .node_rank = plan->node_rank,
                            .n_nodes = plan->n_nodes,
                            .first_rank = plan->first_rank,
                            .world_size = plan->world_size,
                            .first_member = plan->first_member,
                            .addr = job->options->rdzv_host,
                            .port = plan->port};
    job->pending = 0;
    struct plan_report *report = &job->agent.report;
    report->round = plan->round;
    report->first_member = plan->first_member;
    report->running = true;
    report->outcome = PLAN_OPEN;
    report->status = 0;
    job_begin_round(job);
    job_finish_if_over(job); /* if no rank was started */
}

static void follow_run(struct job *job, const struct plan *plan)
{
    struct agent *agent = &job->agent;
    bool same = plan->round == agent->report.round && plan->first_member == job->round.first_member;
    if (agent->leaving || (same && plan->node_rank >= 0)) return; /* another node has changed */
    if (agent->report.running) {
        if (!job->ending) job_say(job, "the other nodes have given this one up: ending its ranks");
        job_end(job);
        agent->serial = 0; /* look again once they have ended */
    } else if (plan->node_rank >= 0) {
        begin(job, plan);
    } else if (plan->n_nodes == job->options->nnodes) {
        job_say(job, "the job has its %d nodes: this one waits until one of them is lost", plan->n_nodes);
    }
}

static void follow_over(struct job *job, const struct plan *plan)
{
    job->agent.over = *plan;
    if (plan->status && plan->reason[0] && !job->agent.leaving) job_say(job, "the job ends: %s", plan->reason);
    if (job->agent.report.running)
        job_end_recorded(job, plan->status != 0); /* also if replacements alone are to come */
    else
        job->pending = 0; /* it has waited for the plan */
    job_finish_if_over(job);
}

static void follow(struct job *job, const struct plan *plan)
{
    struct agent *agent = &job->agent;
    if (plan->serial == agent->serial) return;
    agent->serial = plan->serial;
    if (plan->verb == PLAN_RUN) {
        follow_run(job, plan);
    } else if (plan->verb == PLAN_OVER) {
        follow_over(job, plan);
    } else if (job->running && !job->ending && !uv_is_active((uv_handle_t *)&job->records) &&
               plan->round == job->round.number) {
        job_say(job, "ending the ranks of this node: %s", plan->reason);
        job_end_recorded(job, true);
    }
}

static void take_plan(struct job *job)
{
    struct agent *agent = &job->agent;
    struct plan plan;
    if (agent->text && plan_read(agent->text, agent->id, &plan)) follow(job, &plan);
    free(agent->text);
    agent->text = NULL;
}

static void after_talk(uv_work_t *work, int status)
{
    struct job *job = work->data;
    struct agent *agent = &job->agent;
    (void)status; /* 0, because the work is never cancelled */
    agent->working = false;
    if (agent->left || agent->over.serial || job->finished) return; /* the store may be gone after the last plan */
    if (agent->status != TUTTI_OK) {
        lose_store(job);
        return;
    }
    if (agent->server && !agent->leader) agent->leader = leader_start(job, agent->store, agent->id);
    take_plan(job);
    if (agent->sent_leaving && !agent->leader && !job->finished) quit(job, job->status);
    if (agent->again) agent_wake(job);
}

void agent_report_failure(struct job *job)
{
    struct plan_report *report = &job->agent.report;
    char name[48], how[64];
    if (!agent_is_needed(job) || job->passed || report->outcome != PLAN_OPEN) return;
    report->outcome = PLAN_FAILED;
    report->status = rank_exit_status(job->first);
    snprintf(report->reason, sizeof report->reason, "%s on %s %s", job_name(job, job->first, name, sizeof name),
             report->host, rank_how(job->first, how, sizeof how));
    agent_wake(job);
}

bool agent_leave(struct job *job, int status, const char *reason)
{
    struct agent *agent = &job->agent;
    if (!agent_is_needed(job) || agent->leaving || agent->left || agent->over.serial) return false;
    atomic_store(&agent->cancel, true); /* if it waits for the store */
    agent->leaving = true;
    agent->report.running = false;
    agent->report.outcome = PLAN_LEAVES;
    agent->report.status = status;
    snprintf(agent->report.reason, sizeof agent->report.reason, "%s", reason);
    job->status = status;
    job->pending++; /* the answers about members that are still to come count too */
    agent_wake(job);
    return true;
}

/* Sets the report of a node whose ranks have all ended. */
static void conclude(struct job *job)
{
    struct plan_report *report = &job->agent.report;
    report->running = false;
    if (job->status) {
        report->outcome = PLAN_BROKEN;
        report->status = job->status;
        snprintf(report->reason, sizeof report->reason, "the ranks of %s cannot be started", report->host);
    } else if (job->members.failure) {
        report->outcome = PLAN_FAILED;
        report->status = job->members.failure;
        snprintf(report->reason, sizeof report->reason, "the last ranks of %s failed", report->host);
    } else if (!job->first && !job->ending && report->outcome == PLAN_OPEN) {
        report->outcome = PLAN_DONE;
    }
}

bool agent_end_round(struct job *job)
{
    struct agent *agent = &job->agent;
    if (!agent_is_needed(job) || agent->left) return false;
    if (agent->over.serial) {
        job->status = agent->over.status;
        if (!job->status) job->first = NULL;
        if (!job->status) job->members.failure = 0;
        return false;
    }
    if (job->timed_out) return agent_leave(job, 124, "it ran longer than its --timeout");
    if (job->passed) return agent_leave(job, job->first ? rank_exit_status(job->first) : 0, "it got a signal");
    conclude(job);
    job->pending = 1;
    agent_wake(job);
    return true;
}

/* ---- beginning and end ------------------------------------------------------------------------------------------ */

void agent_init(struct job *job)
{
    struct agent *agent = &job->agent;
    struct plan_report *report = &agent->report;
    *report = (struct plan_report){.round = -1, .first_member = -1, .nproc = job->options->nproc};
    report->node_rank = job->options->elastic ? -1 : job->options->node_rank;
    if (gethostname(report->host, sizeof report->host - 1) != 0) report->host[0] = '\0';
    for (char *at = report->host; *at; at++)
        if (*at <= ' ') *at = '_';
    job->pending = 1;
    int period = leader_silent_ms() / 5;
    uv_timer_init(&job->loop, &agent->timer);
    agent->timer.data = job;
    uv_timer_start(&agent->timer, on_timer, 0, (uint64_t)(period < PERIOD_MS ? period : PERIOD_MS));
}

void agent_stop(struct job *job)
{
    struct agent *agent = &job->agent;
    atomic_store(&agent->cancel, true);
    if (!agent_is_needed(job) || !agent->timer.data || uv_is_closing((uv_handle_t *)&agent->timer)) return;
    uv_close((uv_handle_t *)&agent->timer, NULL);
    if (agent->leader) leader_stop(agent->leader);
}

void agent_free(struct job *job, int linger_ms)
{
    struct agent *agent = &job->agent;
    tutti_store_free(agent->store);
    if (agent->server) tutti_store_linger(agent->server, linger_ms); /* the others still have to read the last plan */
    tutti_store_free(agent->base);
    leader_free(agent->leader);
    free(agent->text);
}
