/* Rounds: starts all ranks of this node, and again after a failure (--on-failure=restart). */
#include <stdlib.h>

#include <tutti/tutti.h>

#include "job.h"
#include "memory.h"

enum { EARLY_MS = 10000, BACKOFF_MAX_MS = 30000 };

int64_t job_now_ms(void)
{
    return (int64_t)(uv_hrtime() / 1000000);
}

int64_t job_backoff_ms(const struct options *options, int early)
{
    int64_t ms = early > 0 ? options->backoff_ms : 0;
    for (int i = 1; i < early && ms < BACKOFF_MAX_MS; i++) ms *= 2;
    return ms < BACKOFF_MAX_MS || ms == options->backoff_ms ? ms : BACKOFF_MAX_MS;
}

int job_count_early(int early, int64_t started_ms)
{
    return job_now_ms() - started_ms < EARLY_MS ? early + 1 : 0;
}

/* Sets the round of a job whose nodes are fixed. */
static void set_round(struct job *job)
{
    const struct options *options = job->options;
    job->round.first_member = -1;
    job->round.node_rank = options->node_rank;
    job->round.n_nodes = options->nnodes;
    job->round.first_rank = options->world_size ? options->first_rank : options->node_rank * options->nproc;
    job->round.world_size = options->world_size ? options->world_size : options->nnodes * options->nproc;
    job->round.addr = options->master_addr;
    job->round.port = (uint16_t)options->master_port;
}

/* Opens a new store, so that no key of an earlier round is in it.  Returns 0, or an exit status after a message. */
static int open_store(struct job *job)
{
    struct round *round = &job->round;
    set_round(job);
    tutti_store_free(job->store);
    job->store = NULL;
    if (round->node_rank != 0 || job->options->mpi != OPTIONS_NO_MPI || job->ssh) return 0;
    if (round_host_store(round->addr, round->port, round->world_size, job->token_fd, &job->store) != TUTTI_OK) {
        job_say(job, "%s", tutti_last_error());
        return 1;
    }
    round->port = tutti_store_port(job->store);
    if (job->node) node_say_port(job, round->port);
    return 0;
}

static void reset_ranks(struct job *job)
{
    const struct round *round = &job->round;
    bool newcomer = round->first_member >= 0;
    for (int i = 0; i < job->n; i++)
        job->ranks[i] = (struct rank){.number = round->first_rank + i,
                                      .member = (newcomer ? round->first_member : round->first_rank) + i,
                                      .newcomer = newcomer,
                                      .starts = round->number};
    job->first = NULL;
    job->quiet = job->reported = job->ending = false;
}

/* Starts all ranks.  If one cannot be started, kills those that were. */
static int start_all(struct job *job)
{
    members_announce(job);
    if (job->ssh) ssh_begin_round(job);
    for (int i = 0; i < job->n; i++) {
        int status = job_start(job, i);
        if (status == 0) continue;
        job->ending = true;
        for (int k = 0; k < i; k++) rank_signal(&job->ranks[k], SIGKILL, true);
        return status;
    }
    return 0;
}

void job_begin_round(struct job *job)
{
    uv_timer_stop(&job->grace);
    uv_timer_stop(&job->records);
    job->round_ms = job_now_ms();
    job->status = agent_is_needed(job) ? 0 : open_store(job); /* else the leader has opened it */
    reset_ranks(job);
    if (!job->status) job->status = start_all(job);
}

static void add_export(struct exports *exports, const char *name, const char *value, int number)
{
    char *entry = value ? memory_print("%s=%s", name, value) : memory_print("%s=%d", name, number);
    exports_add(exports, entry);
    free(entry);
}

struct exports job_exports(const struct job *job)
{
    const struct options *options = job->options;
    struct exports exports = {0};
    for (int i = 0; i < options->exports.n; i++) exports_add(&exports, options->exports.list[i]);
    if (options->on_failure != OPTIONS_RESTART) return exports;
    add_export(&exports, "TUTTI_ON_FAILURE", "restart", 0);
    add_export(&exports, "TUTTI_RESTART_COUNT", NULL, job->round.number);
    add_export(&exports, "TORCHELASTIC_RESTART_COUNT", NULL, job->round.restarts);
    add_export(&exports, "TORCHELASTIC_MAX_RESTARTS", NULL, options->max_restarts);
    add_export(&exports, "TORCHELASTIC_RUN_ID", options->rdzv_id, 0);
    return exports;
}

static void on_backoff(uv_timer_t *timer)
{
    struct job *job = timer->data;
    job->pending = 0;
    job->round.number++;
    job->round.restarts++;
    job_begin_round(job);
    job_finish_if_over(job); /* if no rank was started */
}

bool job_restart(struct job *job)
{
    const struct options *options = job->options;
    char name[48], how[64];
    if (agent_is_needed(job)) return agent_end_round(job);
    bool ends = !job->first || job->passed || job->timed_out || job->status;
    if (options->on_failure != OPTIONS_RESTART || ends || options->max_restarts == 0) return false;
    if (job->round.restarts == options->max_restarts) {
        job_say(job, "no restart after this failure: %d of %d restarts are used", job->round.restarts,
                options->max_restarts);
        return false;
    }
    job->early = job_count_early(job->early, job->round_ms);
    int64_t ms = job_backoff_ms(options, job->early);
    job_say(job, "restart %d of %d in %g s, because %s %s", job->round.restarts + 1, options->max_restarts,
            (double)ms / 1000, job_name(job, job->first, name, sizeof name), rank_how(job->first, how, sizeof how));
    job->pending = 1;
    uv_timer_start(&job->backoff, on_backoff, (uint64_t)ms, 0);
    return true;
}
