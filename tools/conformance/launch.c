#include "conformance/launch.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conformance/rank.h"
#include "conformance/watch.h"

struct start {
    struct scoreboard *scoreboard;
    const struct options *options;
    const struct cases *cases;
    tutti_store *store;
    int rank, result;
};

/* ---- in the launched process ------------------------------------------------------------------------------------ */

static int spawned_rank(int number, void *argument)
{
    const struct start *start = argument;
    tutti_store *store = NULL;
    if (rank_store(&store) != TUTTI_OK) {
        scoreboard_end(start->scoreboard, "rank %d has no store: %s", number, tutti_last_error());
        return 1;
    }
    int result = rank_run(start->scoreboard, start->options, start->cases, store, number);
    tutti_store_free(store);
    return result;
}

static void *thread_rank(void *argument)
{
    struct start *start = argument;
    start->result = rank_run(start->scoreboard, start->options, start->cases, start->store, start->rank);
    return NULL;
}

static int run_threads(struct start start)
{
    struct start starts[RANKS_MAX];
    pthread_t threads[RANKS_MAX];
    int result = 0;
    if (tutti_store_memory(NULL, &start.store) != TUTTI_OK) return 1;
    for (int i = 0; i < start.scoreboard->ranks; i++) {
        starts[i] = start;
        starts[i].rank = i;
        if (pthread_create(&threads[i], NULL, thread_rank, &starts[i]) != 0) _exit(1);
    }
    for (int i = 0; i < start.scoreboard->ranks; i++) {
        pthread_join(threads[i], NULL);
        result |= starts[i].result;
    }
    tutti_store_free(start.store);
    return result;
}

static int run_processes(struct start start)
{
    if (tutti_spawn(spawned_rank, &start, start.scoreboard->ranks) == TUTTI_OK) return 0;
    scoreboard_end(start.scoreboard, "%s", tutti_last_error());
    return 1;
}

/* ---- in the parent ----------------------------------------------------------------------------------------------- */

/* Returns the last case that all ranks have reached. */
static int reached(struct scoreboard *scoreboard)
{
    int least = scoreboard->n_cases;
    for (int i = 0; i < scoreboard->ranks; i++) {
        int at = atomic_load(&scoreboard->states[i].at);
        if (at < least) least = at;
    }
    return least;
}

static void end_launch(struct scoreboard *scoreboard, pid_t pid)
{
    for (int i = 0; i < scoreboard->ranks; i++) {
        int rank = atomic_load(&scoreboard->states[i].pid);
        if (rank > 0) kill(rank, SIGKILL);
    }
    kill(pid, SIGKILL);
}

/* Watches a launched process until it ends.  Returns true if it ran all cases. */
static bool watch(struct scoreboard *scoreboard, const struct options *options, const struct cases *cases, pid_t pid)
{
    int64_t limit_ns = watch_limit_ns(options);
    bool hung = false;
    int status = 0;
    while (waitpid(pid, &status, WNOHANG) == 0) {
        watch_print_progress(options, scoreboard, cases, reached(scoreboard));
        if (!hung && watch_quiet_ns(scoreboard) > limit_ns) {
            watch_say_hung(scoreboard, reached(scoreboard));
            end_launch(scoreboard, pid);
            hung = true;
        }
        usleep(10000);
    }
    if (!hung && WIFEXITED(status) && WEXITSTATUS(status) == 0 && reached(scoreboard) == cases->n) return true;
    if (WIFSIGNALED(status)) scoreboard_end(scoreboard, "the ranks' process died of signal %d", WTERMSIG(status));
    return false;
}

int launch_run(struct scoreboard *scoreboard, const struct options *options, const struct cases *cases)
{
    for (int first = 0; first < cases->n;) {
        scoreboard_begin(scoreboard, first);
        struct start start = {.scoreboard = scoreboard, .options = options, .cases = cases};
        fflush(NULL);
        pid_t parent = getpid(), pid = fork();
        if (pid < 0) {
            scoreboard_end(scoreboard, "fork failed: %s", strerror(errno));
            return first;
        }
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGTERM);
            if (getppid() != parent) _exit(1);
            setenv("TUTTI_LOG", "error", 0); /* no warnings, because many cases provoke some */
            _exit(options->threads ? run_threads(start) : run_processes(start));
        }
        if (watch(scoreboard, options, cases, pid)) break;
        int at = reached(scoreboard);
        if (at == first && scoreboard_result(scoreboard, at, 0)->verdict == NOT_RUN &&
            strstr(scoreboard->end, "no groups") != NULL)
            return at;
        if (at == cases->n) at--;
        watch_blame(scoreboard, at);
        first = at + 1;
    }
    return cases->n;
}
