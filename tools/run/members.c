#include "members.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/tutti.h>

#include "job.h"
#include "leader.h"
#include "memory.h"

enum {
    JOIN_STEP_MS = 1000,
    JOIN_STEPS = 60,    /* time for node 0's launcher to start */
    CALL_MS = 10000,    /* for one request to the store */
    STARTER_MS = 20,    /* period of the check for due replacements */
    EARLY_ENDS_MAX = 5, /* in a row, in one place, then nothing more is started there */
};

bool members_go_on(const struct job *job)
{
    return job->options->on_failure == OPTIONS_CONTINUE && !job->ssh && !job->passed && !job->ending;
}

/* ---- in the worker thread --------------------------------------------------------------------------------------- */

static int join(struct job *job)
{
    struct members *members = &job->members;
    int status = TUTTI_OK;
    if (members->store) return TUTTI_OK;
    for (int i = 0; i < JOIN_STEPS && !members->store && !atomic_load(&members->cancel); i++)
        status = round_join_store(job->round.addr, job->round.port, job->token_fd, JOIN_STEP_MS, &members->store);
    if (members->store) return tutti_store_set_timeout(members->store, CALL_MS);
    return status;
}

/* Takes numbers for n replacements, if as many are left.  What is refused is given back, but a number never is, so the
 * numbers have a counter of their own. */
static int take_numbers(struct job *job, struct members_request *request, int n)
{
    int64_t used = 0, last = 0;
    tutti_store *store = job->members.store;
    int status = tutti_store_add(store, "members/replaced", n, &used);
    if (status == TUTTI_OK && used > job->options->replace)
        return tutti_store_add(store, "members/replaced", -n, &used);
    if (status == TUTTI_OK) status = tutti_store_add(store, "members/numbers", n, &last);
    request->used = (int)used;
    if (status == TUTTI_OK) request->replacement = job->round.world_size + (int)last - n;
    return status;
}

/* Adds lines about the members from first to last to a text from malloc. */
static char *add_lines(char *text, const char *what, int first, int last)
{
    for (int member = first; member <= last; member++) {
        char *longer = memory_print("%s%s %d\n", text, what, member);
        free(text);
        text = longer;
    }
    return text;
}

/* Appends lines to the log of a node, from which node 0 knows whom it loses with the node. */
static int append_to_node(struct job *job, int node, const char *text)
{
    char key[48];
    if (!*text || job->round.n_nodes < 2) return TUTTI_OK;
    snprintf(key, sizeof key, "members/node/%d", node);
    return tutti_store_append(job->members.store, key, text, strlen(text));
}

/* Appends lines to the log and to that of their node.  The node may be lost between the two, and no member may stay in
 * the log without an end: so the node's log has starts before and ends after. */
static int append(struct job *job, int node, const char *ends, const char *starts)
{
    char *text = memory_print("%s%s", ends, starts);
    int status = append_to_node(job, node, starts);
    if (status == TUTTI_OK && *text) status = tutti_store_append(job->members.store, "members/log", text, strlen(text));
    if (status == TUTTI_OK) status = append_to_node(job, node, ends);
    free(text);
    return status;
}

/* Reads the log of a node and returns the ends of the members that are in it without one.  NULL: *status says why. */
static char *read_ends(struct job *job, int node, int *status)
{
    char key[48], start[32], end[32];
    tutti_bytes value = {0};
    snprintf(key, sizeof key, "members/node/%d", node);
    *status = tutti_store_multi_get(job->members.store, (const char *const[]){key}, 1, &value, 0);
    if (*status != TUTTI_OK && *status != TUTTI_ERR_TIMEOUT) return NULL;
    *status = TUTTI_OK; /* TIMEOUT: the node has written nothing yet */
    char *log = memory_print("\n%.*s", (int)value.bytes, value.bytes ? (const char *)value.data : "");
    char *text = memory_print("%s", "");
    tutti_bytes_free(&value, 1);
    for (char *at = log; (at = strstr(at, "\nstart ")) != NULL; at++) {
        int member = atoi(at + 7);
        snprintf(start, sizeof start, "\nstart %d\n", member);
        snprintf(end, sizeof end, "\nend %d\n", member);
        if (strncmp(at, start, strlen(start)) == 0 && !strstr(log, end)) text = add_lines(text, "end", member, member);
    }
    free(log);
    return text;
}

/* Ends the members of a lost node and starts others in one entry of the log. */
static int replace_node(struct job *job, struct members_request *request)
{
    int status;
    char *ends = read_ends(job, request->node, &status);
    if (!ends) return status;
    char *starts = memory_print("%s", "");
    if (request->wanted) status = take_numbers(job, request, request->wanted);
    if (request->replacement >= 0)
        starts = add_lines(starts, "start", request->replacement, request->replacement + request->wanted - 1);
    if (status == TUTTI_OK) status = append(job, request->node, ends, starts);
    free(ends);
    free(starts);
    return status;
}

static int write_one(struct job *job, struct members_request *request)
{
    if (request->lost) return replace_node(job, request);
    int status = request->replace ? take_numbers(job, request, 1) : TUTTI_OK;
    if (status != TUTTI_OK) return status;
    char *ends = memory_print("%s", ""), *starts = memory_print("%s", "");
    if (request->ended >= 0) ends = add_lines(ends, "end", request->ended, request->ended);
    if (request->replacement >= 0) starts = add_lines(starts, "start", request->replacement, request->replacement);
    starts = add_lines(starts, "start", request->first, request->last);
    status = append(job, job->round.node_rank, ends, starts);
    free(ends);
    free(starts);
    return status;
}

static void write_all(uv_work_t *work)
{
    struct job *job = work->data;
    struct members *members = &job->members;
    members->status = join(job);
    for (int i = 0; i < members->n_now && members->status == TUTTI_OK; i++)
        members->status = write_one(job, &members->now[i]);
    if (members->status != TUTTI_OK) snprintf(members->error, sizeof members->error, "%s", tutti_last_error());
}

/* ---- in the loop ------------------------------------------------------------------------------------------------ */

static void after_write(uv_work_t *work, int status);

static void flush(struct job *job)
{
    struct members *members = &job->members;
    if (members->working || !members->n_next) return;
    struct members_request *empty = members->now;
    members->now = members->next;
    members->n_now = members->n_next;
    members->next = empty;
    members->n_next = 0;
    members->working = true;
    members->work.data = job;
    uv_queue_work(&job->loop, &members->work, write_all, after_write);
}

static void ask(struct job *job, struct members_request request)
{
    struct members *members = &job->members;
    members->next = memory_resize(members->next, (size_t)(members->n_next + 1) * sizeof *members->next);
    request.replacement = -1;
    members->next[members->n_next++] = request;
    flush(job);
}

/* Starts a replacement.  If that fails, it counts as a member that has ended. */
static void start(struct job *job, int i)
{
    struct members_place *place = &job->members.places[i];
    struct rank *rank = &job->ranks[i];
    *rank = (struct rank){.number = rank->number, .member = place->replacement, .early = rank->early, .newcomer = true};
    *place = (struct members_place){0};
    job->pending--;
    rank->code = job_start(job, i);
    rank->ended = rank->code != 0;
    if (rank->ended) members_take_end(job, rank);
}

/* Starts the replacements whose time has come, once all output in their place has been read. */
static void on_starter(uv_timer_t *timer)
{
    struct job *job = timer->data;
    bool left = false;
    for (int i = 0; i < job->n; i++) {
        const struct members_place *place = &job->members.places[i];
        bool read = feed_is_free(&job->feeds[2 * i]) && feed_is_free(&job->feeds[2 * i + 1]);
        if (place->due && read && job_now_ms() >= place->due_ms) start(job, i);
        left |= place->due;
    }
    if (!left) uv_timer_stop(timer);
    job_finish_if_over(job);
}

/* Plans the start of a replacement in the place of an ended rank. */
static void plan(struct job *job, const struct members_request *request)
{
    struct members_place *place = &job->members.places[request->place];
    place->due = true;
    place->due_ms = job_now_ms() + job_backoff_ms(job->options, job->ranks[request->place].early);
    place->replacement = request->replacement;
    job->pending++;
    uv_timer_start(&job->members.starter, on_starter, 0, STARTER_MS);
}

/* Says that a member failed and what follows from it. */
static void report(struct job *job, const struct members_request *request)
{
    const struct rank *rank = &job->ranks[request->place];
    char name[48], how[64], next[128] = "";
    if (request->replacement >= 0)
        snprintf(next, sizeof next, ", and member %d starts in its place in %g s (replacement %d of %d)",
                 request->replacement, (double)job_backoff_ms(job->options, rank->early) / 1000, request->used,
                 job->options->replace);
    else if (rank->early > EARLY_ENDS_MAX)
        snprintf(next, sizeof next, ", without a replacement: %d processes in its place ended early", rank->early);
    else if (request->replace)
        snprintf(next, sizeof next, ", without a replacement: all %d are used", job->options->replace);
    char others[64] = "no other process runs on this node";
    if (job->running)
        snprintf(others, sizeof others, "%d other%s on this node go%s on", job->running, job->running == 1 ? "" : "s",
                 job->running == 1 ? "es" : "");
    job_say(job, "%s (pid %d) %s; %s%s", job_name(job, rank, name, sizeof name), (int)rank->pid,
            rank_how(rank, how, sizeof how), others, next);
}

/* Ends the job, because its store is lost. */
static void lose_store(struct job *job)
{
    if (job->ending) return;
    job_say(job, "the store of the job at %s port %d is lost: %s", job->round.addr, job->round.port,
            job->members.error);
    job->status = 1;
    if (job->running)
        job_end(job);
    else
        job_stop(job, 1);
}

static void take_answer(struct job *job, const struct members_request *request)
{
    if (request->lost && request->wanted && job->agent.leader)
        leader_take_members(job->agent.leader, request->node, request->replacement);
    if (request->place < 0) return;
    job->pending--;
    report(job, request);
    if (job->output == JOB_FILED) job_report_last_lines(job, &job->ranks[request->place]); /* else they are above */
    if (request->replacement < 0) return;
    if (members_go_on(job))
        plan(job, request);
    else
        ask(job, (struct members_request){.place = -1, .last = -1, .ended = request->replacement});
}

static void after_write(uv_work_t *work, int status)
{
    struct job *job = work->data;
    struct members *members = &job->members;
    (void)status; /* 0, because the work is never cancelled */
    for (int i = 0; i < members->n_now && !job->finished; i++) take_answer(job, &members->now[i]);
    members->working = false;
    if (job->finished && members->status != TUTTI_OK) return;
    if (members->status != TUTTI_OK && !atomic_load(&members->cancel)) lose_store(job);
    flush(job);
    job_finish_if_over(job);
}

void members_announce(struct job *job)
{
    if (job->options->on_failure != OPTIONS_CONTINUE || job->ssh) return;
    if (job->round.first_member >= 0) return; /* the leader has */
    int first = job->round.first_rank;
    ask(job, (struct members_request){.place = -1, .first = first, .last = first + job->n - 1, .ended = -1});
}

void members_count_end(struct job *job, int status)
{
    struct members *members = &job->members;
    if (status == 0 || members->failure == 0) members->failure = status;
}

void members_take_end(struct job *job, struct rank *rank)
{
    struct members *members = &job->members;
    int place = (int)(rank - job->ranks);
    struct members_request request = {.place = -1, .first = 0, .last = -1, .ended = rank->member};
    members->places[place] = (struct members_place){0};
    members_count_end(job, rank_exit_status(rank));
    if (job->node) node_say_ended(job, rank_exit_status(rank));
    if (rank_failed(rank)) {
        rank->early = job_count_early(rank->early, rank->started_ms);
        bool others = job->running > 0 || job->pending > 0 || job->round.n_nodes > 1;
        request.place = place;
        request.replace = others && job->options->replace > 0 && rank->early <= EARLY_ENDS_MAX;
        job->pending++;
    }
    ask(job, request);
}

void members_lose_node(struct job *job, int node, int wanted)
{
    ask(job,
        (struct members_request){.place = -1, .last = -1, .ended = -1, .lost = true, .node = node, .wanted = wanted});
}

void members_cancel(struct job *job)
{
    struct members *members = &job->members;
    for (int i = 0; i < job->n; i++) {
        if (!members->places[i].due) continue;
        members->places[i].due = false;
        job->pending--;
        ask(job, (struct members_request){.place = -1, .last = -1, .ended = members->places[i].replacement});
    }
}

void members_init(struct job *job)
{
    struct members *members = &job->members;
    members->places = memory_resize(NULL, (size_t)job->n * sizeof *members->places);
    memset(members->places, 0, (size_t)job->n * sizeof *members->places);
    uv_timer_init(&job->loop, &members->starter);
    members->starter.data = job;
}

void members_close(struct job *job)
{
    struct members *members = &job->members;
    uv_close((uv_handle_t *)&members->starter, NULL);
    tutti_store_free(members->store);
    free(members->next);
    free(members->now);
    free(members->places);
}
