#include "leader.h"

#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/tutti.h>

#include "job.h"
#include "leader_peers.h"
#include "memory.h"

enum { PERIOD_MS = 100, SILENT_MS = 5000 };

enum phase {
    MEETING,  /* waits for nodes */
    RUNNING,  /* a round's ranks run */
    STOPPING, /* they end */
    OVER
};

struct leader {
    struct job *job;
    uv_timer_t timer;
    struct leader_peers peers;
    enum phase phase;
    int64_t serial;   /* of the last plan */
    int64_t meet_ms;  /* start of the phase MEETING */
    int64_t begin_ms; /* no round begins before */
    int64_t round_ms;
    int usable; /* nodes at the last tick, and when their number changed */
    int64_t usable_ms;
    int round, restarts, early;
    bool counts;                  /* the restart to come counts against --max-restarts */
    int status;                   /* exit status if there is none */
    char reason[PLAN_REASON_MAX]; /* of the restart to come */
};

int leader_silent_ms(void)
{
    const char *text = getenv("TUTTI_SILENT_MS");
    char *end;
    long ms = text ? strtol(text, &end, 10) : 0;
    return text && end != text && !*end && ms >= 100 && ms <= 3600000 ? (int)ms : SILENT_MS;
}

static void publish(struct leader *leader, const char *verb, int round, int number, const char *rest)
{
    char *text = memory_print("%" PRId64 " %s %d %d %s", ++leader->serial, verb, round, number, rest);
    if (tutti_store_set(leader->peers.store, "plan", text, strlen(text)) != TUTTI_OK)
        job_say(leader->job, "cannot publish a plan for the nodes: %s", tutti_last_error());
    free(text);
    agent_wake(leader->job);
}

static void end_job(struct leader *leader, int status, const char *reason)
{
    leader->phase = OVER;
    publish(leader, "over", leader->round, status, reason);
}

/* ---- the start of a round ----------------------------------------------------------------------------------- */

/* Opens a new store for the ranks.  Returns its port, or 0 after a message. */
static uint16_t open_store(struct leader *leader, int world_size)
{
    struct job *job = leader->job;
    tutti_store_free(job->store);
    job->store = NULL;
    if (round_host_store(job->options->rdzv_host, 0, world_size, job->token_fd, &job->store) == TUTTI_OK)
        return tutti_store_port(job->store);
    job_say(job, "%s", tutti_last_error());
    return 0;
}

/* Lists the nodes of the round in the order of their numbers.  Returns the number of ranks. */
static int64_t list_nodes(struct leader *leader, int n, char **text)
{
    int64_t world = 0;
    *text = memory_print("%s", "");
    for (int i = 0; i < n; i++) {
        struct leader_peer *peer = &leader->peers.list[i];
        peer->in_round = true;
        peer->node = i;
        char *longer = memory_print("%s %d:%d", *text, peer->id, peer->report.nproc);
        free(*text);
        *text = longer;
        world += peer->report.nproc;
    }
    return world;
}

static void begin(struct leader *leader)
{
    char *nodes, *rest;
    int n = leader->usable < leader->job->options->nnodes ? leader->usable : leader->job->options->nnodes;
    leader_peers_sort(&leader->peers);
    if (leader_peers_clash(&leader->peers, n)) {
        end_job(leader, 2, "two nodes have the same --node-rank");
        return;
    }
    int64_t world = list_nodes(leader, n, &nodes);
    uint16_t port = world <= INT_MAX ? open_store(leader, (int)world) : 0;
    if (port) {
        rest = memory_print("%d%s", port, nodes);
        leader->phase = RUNNING;
        leader->round_ms = job_now_ms();
        publish(leader, "run", leader->round, leader->restarts, rest);
        free(rest);
    } else {
        end_job(leader, 1, "the ranks' store cannot be started");
    }
    free(nodes);
}

static void meet(struct leader *leader)
{
    const struct options *options = leader->job->options;
    int64_t now = job_now_ms();
    int usable = leader_peers_count_usable(&leader->peers);
    if (usable != leader->usable) leader->usable_ms = now;
    leader->usable = usable;
    bool enough = usable >= options->nnodes ||
                  (usable >= options->nnodes_min && now - leader->usable_ms >= options->last_call_ms);
    if (enough && now >= leader->begin_ms) {
        begin(leader);
    } else if (usable < options->nnodes_min && now - leader->meet_ms > options->join_timeout_ms) {
        char reason[PLAN_REASON_MAX];
        snprintf(reason, sizeof reason, "only %d of at least %d nodes came within %g s (join_timeout of --rdzv-conf)",
                 usable, options->nnodes_min, (double)options->join_timeout_ms / 1000);
        end_job(leader, leader->status ? leader->status : 1, reason);
    }
}

/* ---- the end of a round ------------------------------------------------------------------------------------- */

/* Ends the round on all nodes. */
static void stop(struct leader *leader, bool counts, int status, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static void stop(struct leader *leader, bool counts, int status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(leader->reason, sizeof leader->reason, format, args);
    va_end(args);
    leader->counts = counts;
    leader->status = status;
    leader->phase = STOPPING;
    publish(leader, "stop", leader->round, 0, leader->reason);
}

/* Handles a node of the round that has failed or is lost.  Returns true if the phase changes. */
static bool check_node(struct leader *leader, const struct leader_peer *peer)
{
    const struct plan_report *report = &peer->report;
    if (peer->lost)
        stop(leader, true, 1, "node %s is lost: silent for %g s", report->host, leader_silent_ms() / 1000.0);
    else if (report->outcome == PLAN_LEAVES)
        stop(leader, false, report->status, "node %s leaves: %s", report->host, report->reason);
    else if (report->round != leader->round)
        return false; /* it has not begun yet */
    else if (report->outcome == PLAN_BROKEN)
        end_job(leader, report->status, report->reason);
    else if (report->outcome == PLAN_FAILED)
        stop(leader, true, report->status, "%s", report->reason);
    else
        return false;
    return true;
}

/* Ends the round for a node that came later, unless a node has succeeded already. */
static void look_for_newcomers(struct leader *leader)
{
    const struct options *options = leader->job->options;
    const struct leader_peer *newcomer = NULL;
    int in_round = 0, done = 0;
    for (int i = 0; i < leader->peers.n; i++) {
        const struct leader_peer *peer = &leader->peers.list[i];
        in_round += peer->in_round;
        done += peer->in_round && peer->report.round == leader->round && peer->report.outcome == PLAN_DONE;
        if (!peer->in_round && leader_peer_is_usable(peer)) newcomer = peer;
    }
    if (options->on_failure == OPTIONS_RESTART && newcomer && !done && in_round < options->nnodes)
        stop(leader, false, 1, "node %s joins", newcomer->report.host);
}

static void watch(struct leader *leader)
{
    bool done = true;
    for (int i = 0; i < leader->peers.n; i++) {
        const struct leader_peer *peer = &leader->peers.list[i];
        if (!peer->in_round) continue;
        if (check_node(leader, peer)) return;
        done &= peer->report.round == leader->round && peer->report.outcome == PLAN_DONE && !peer->report.running;
    }
    if (done)
        end_job(leader, 0, "");
    else
        look_for_newcomers(leader);
}

/* Ends the job once all nodes of a job that goes on after failures have ended. */
static void watch_members(struct leader *leader)
{
    int status = 1;
    bool done = false;
    for (int i = 0; i < leader->peers.n; i++) {
        struct leader_peer *peer = &leader->peers.list[i];
        const struct plan_report *report = &peer->report;
        if (!peer->in_round) continue;
        if (peer->lost && !peer->gone) {
            peer->gone = true;
            job_say(leader->job, "node %s is lost: silent for %g s; the other nodes go on", report->host,
                    leader_silent_ms() / 1000.0);
            members_lose_node(leader->job, peer->node);
        }
        bool ended = report->round == leader->round || report->outcome == PLAN_LEAVES;
        if (!peer->lost && (!ended || report->running)) return;
        if (!peer->lost && report->outcome == PLAN_DONE) done = true;
        if (!peer->lost && report->status) status = report->status;
    }
    end_job(leader, done ? 0 : status, "");
}

/* Plans the next round, or ends the job. */
static void go_on(struct leader *leader)
{
    struct job *job = leader->job;
    const struct options *options = job->options;
    int max = options->on_failure == OPTIONS_RESTART ? options->max_restarts : 0;
    if (leader->counts && leader->restarts >= max) {
        char *reason = memory_print("%s; %d of %d restarts are used", leader->reason, leader->restarts, max);
        end_job(leader, leader->status, max ? reason : leader->reason);
        free(reason);
        return;
    }
    leader->early = leader->counts ? job_count_early(leader->early, leader->round_ms) : 0;
    int64_t ms = job_backoff_ms(options, leader->early);
    if (leader->counts)
        job_say(job, "restart %d of %d in %g s, because %s", leader->restarts + 1, max, (double)ms / 1000,
                leader->reason);
    else
        job_say(job, "restart, because %s", leader->reason);
    leader->phase = MEETING;
    leader->meet_ms = job_now_ms();
    leader->begin_ms = leader->meet_ms + ms;
    leader->usable = -1;
    leader->round++;
    leader->restarts += leader->counts;
    for (int i = 0; i < leader->peers.n; i++) leader->peers.list[i].in_round = false;
}

/* True once no node of the round runs ranks.  A node that has not begun the round skips it. */
static bool have_ended(const struct leader *leader)
{
    for (int i = 0; i < leader->peers.n; i++) {
        const struct leader_peer *peer = &leader->peers.list[i];
        if (peer->in_round && !peer->lost && peer->report.running) return false;
    }
    return true;
}

/* ---- the loop ----------------------------------------------------------------------------------------------- */

/* Ends the job if the leader's own node leaves it, because its store ends too.  A job whose nodes are fixed ends with
 * any of them. */
static bool must_end(struct leader *leader)
{
    for (int i = 0; i < leader->peers.n; i++) {
        const struct leader_peer *peer = &leader->peers.list[i];
        if (peer->lost || peer->report.outcome != PLAN_LEAVES) continue;
        if (peer->id != leader->peers.own_id && leader->job->options->elastic) continue;
        if (peer->id != leader->peers.own_id && !peer->in_round) continue;
        char reason[PLAN_REASON_MAX + 100];
        snprintf(reason, sizeof reason, "node %s leaves: %s", peer->report.host, peer->report.reason);
        end_job(leader, peer->report.status, reason);
        return true;
    }
    return false;
}

static void on_timer(uv_timer_t *timer)
{
    struct leader *leader = timer->data;
    if (leader->phase == OVER || !leader_peers_read(&leader->peers, leader_silent_ms()) || must_end(leader)) return;
    if (leader->phase == MEETING)
        meet(leader);
    else if (leader->phase == RUNNING && leader->job->options->on_failure == OPTIONS_CONTINUE)
        watch_members(leader);
    else if (leader->phase == RUNNING)
        watch(leader);
    else if (leader->phase == STOPPING && have_ended(leader))
        go_on(leader);
}

struct leader *leader_start(struct job *job, tutti_store *store, int id)
{
    struct leader *leader = memory_resize(NULL, sizeof *leader);
    *leader = (struct leader){.job = job, .meet_ms = job_now_ms(), .usable = -1};
    leader->peers = (struct leader_peers){.store = store, .own_id = id};
    uv_timer_init(&job->loop, &leader->timer);
    leader->timer.data = leader;
    uv_timer_start(&leader->timer, on_timer, 0, PERIOD_MS);
    return leader;
}

void leader_stop(struct leader *leader)
{
    uv_close((uv_handle_t *)&leader->timer, NULL);
}

void leader_free(struct leader *leader)
{
    if (!leader) return;
    free(leader->peers.list);
    free(leader);
}
