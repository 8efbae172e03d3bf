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

/* The place of a node in a round. */
struct place {
    int id; /* the agent; 0: its node is lost */
    int nproc;
    int first_member; /* of a node that took the place of a lost one; else -1 */
    int candidate;    /* the agent that is to take the place; 0: none yet */
    bool closed;      /* stays empty */
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
    struct place *places; /* of the round */
    int n_places;
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

/* Opens a new store for the ranks.  Returns false after a message. */
static bool open_store(struct leader *leader, int world_size)
{
    struct job *job = leader->job;
    tutti_store_free(job->store);
    job->store = NULL;
    if (round_host_store(job->options->rdzv_host, 0, world_size, job->token_fd, &job->store) == TUTTI_OK) return true;
    job_say(job, "%s", tutti_last_error());
    return false;
}

/* Gives the places of the round to the first n nodes.  Returns the number of ranks. */
static int64_t place_nodes(struct leader *leader, int n)
{
    int64_t world = 0;
    leader->places = memory_resize(leader->places, (size_t)n * sizeof *leader->places);
    leader->n_places = n;
    for (int i = 0; i < n; i++) {
        struct leader_peer *peer = &leader->peers.list[i];
        peer->in_round = true;
        leader->places[i] = (struct place){.id = peer->id, .nproc = peer->report.nproc, .first_member = -1};
        world += peer->report.nproc;
    }
    return world;
}

/* Publishes the round and its nodes, again when one of them has changed. */
static void publish_round(struct leader *leader)
{
    char *text = memory_print("%d", tutti_store_port(leader->job->store));
    for (int i = 0; i < leader->n_places; i++) {
        const struct place *place = &leader->places[i];
        char *longer = place->first_member >= 0
                           ? memory_print("%s %d:%d+%d", text, place->id, place->nproc, place->first_member)
                           : memory_print("%s %d:%d", text, place->id, place->nproc);
        free(text);
        text = longer;
    }
    publish(leader, "run", leader->round, leader->restarts, text);
    free(text);
}

static void begin(struct leader *leader)
{
    int n = leader->usable < leader->job->options->nnodes ? leader->usable : leader->job->options->nnodes;
    leader_peers_sort(&leader->peers);
    if (leader_peers_clash(&leader->peers, n)) {
        end_job(leader, 2, "two nodes have the same --node-rank");
        return;
    }
    int64_t world = place_nodes(leader, n);
    if (world > INT_MAX || !open_store(leader, (int)world)) {
        end_job(leader, 1, "the ranks' store cannot be started");
        return;
    }
    leader->phase = RUNNING;
    leader->round_ms = job_now_ms();
    publish_round(leader);
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

/* Looks for a node that can take the place of a lost one. */
static struct leader_peer *find_spare(struct leader *leader, int nproc)
{
    for (int i = 0; i < leader->peers.n; i++) {
        struct leader_peer *peer = &leader->peers.list[i];
        if (!peer->in_round && leader_peer_is_usable(peer) && peer->report.nproc == nproc) return peer;
    }
    return NULL;
}

/* Gives up a node, and tells it so in case it comes back. */
static void give_up(struct leader *leader, struct leader_peer *peer, int node)
{
    struct place *place = &leader->places[node];
    if (peer->lost)
        job_say(leader->job, "node %s is lost: silent for %g s; the other nodes go on", peer->report.host,
                leader_silent_ms() / 1000.0);
    else
        job_say(leader->job, "node %s leaves: %s; the other nodes go on", peer->report.host, peer->report.reason);
    peer->in_round = false;
    place->id = 0;
    place->first_member = -1;
    publish_round(leader);
}

/* Asks for members on a spare node, if there is one, for the place of a lost node.  Just lost: writes the ends of its
 * members in any case. */
static void fill_place(struct leader *leader, int node, bool just_lost)
{
    struct place *place = &leader->places[node];
    bool wanted = leader->job->options->replace > 0 && !place->closed && !place->candidate;
    struct leader_peer *spare = wanted ? find_spare(leader, place->nproc) : NULL;
    if (spare) {
        place->candidate = spare->id;
        spare->in_round = true;
    }
    if (spare || just_lost) members_lose_node(leader->job, node, spare ? place->nproc : 0);
}

void leader_take_members(struct leader *leader, int node, int first)
{
    struct place *place = &leader->places[node];
    struct leader_peer *peer = leader_peers_find(&leader->peers, place->candidate);
    if (leader->phase != RUNNING || !peer) return;
    place->closed = first < 0;
    if (place->closed) {
        peer->in_round = false;
        job_say(leader->job, "nothing starts in the place of the lost node: fewer than %d of %d replacements are left",
                place->nproc, leader->job->options->replace);
    } else {
        place->id = peer->id;
        place->first_member = first;
        job_say(leader->job, "members %d to %d start on node %s in the place of a lost node", first,
                first + place->nproc - 1, peer->report.host);
        publish_round(leader);
    }
    place->candidate = 0;
}

/* True if the node's ranks of this round have ended. */
static bool has_ended(const struct leader *leader, const struct leader_peer *peer, const struct place *place)
{
    const struct plan_report *report = &peer->report;
    return report->round == leader->round && report->first_member == place->first_member && !report->running &&
           report->outcome != PLAN_LEAVES;
}

/* Ends the job once all nodes of a job that goes on after failures have ended. */
static void watch_members(struct leader *leader)
{
    int status = 1;
    bool done = false, ended = true;
    for (int i = 0; i < leader->n_places; i++) {
        struct place *place = &leader->places[i];
        struct leader_peer *peer = leader_peers_find(&leader->peers, place->id);
        bool just_lost = peer && (peer->lost || peer->report.outcome == PLAN_LEAVES) && !has_ended(leader, peer, place);
        if (just_lost) give_up(leader, peer, i);
        if (just_lost || !peer) {
            fill_place(leader, i, just_lost);
            continue;
        }
        ended &= has_ended(leader, peer, place);
        if (peer->report.outcome == PLAN_DONE) done = true;
        if (peer->report.status) status = peer->report.status;
    }
    if (ended) end_job(leader, done ? 0 : status, "");
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
        bool may_leave = leader->job->options->elastic || leader->job->options->on_failure == OPTIONS_CONTINUE;
        if (peer->id != leader->peers.own_id && (may_leave || !peer->in_round)) continue;
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
    free(leader->places);
    free(leader);
}
