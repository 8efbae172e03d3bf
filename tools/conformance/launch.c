#include "conformance/launch.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conformance/rank.h"

struct start {
    struct board *board;
    const struct options *options;
    const struct cases *cases;
    tutti_store *store;
    int rank, result;
};

/* ---- in the launched process ------------------------------------------------------------------------------------ */

/* The store that tutti_spawn serves, from what it put into the environment. */
static int spawned_rank(int number, void *argument)
{
    const struct start *start = argument;
    tutti_store *store = NULL, *own = NULL;
    char prefix[32];
    const char *port = getenv("MASTER_PORT");
    int status = tutti_store_tcp(getenv("MASTER_ADDR"), (uint16_t)atoi(port != NULL ? port : "0"), NULL, &store);
    snprintf(prefix, sizeof prefix, "conformance");
    if (status == TUTTI_OK) status = tutti_store_prefix(store, prefix, &own);
    if (status != TUTTI_OK) {
        snprintf(start->board->end, sizeof start->board->end, "rank %d has no store: %s", number, tutti_last_error());
        return 1;
    }
    int result = rank_run(start->board, start->options, start->cases, own, number);
    tutti_store_free(own);
    tutti_store_free(store);
    return result;
}

static void *thread_rank(void *argument)
{
    struct start *start = argument;
    start->result = rank_run(start->board, start->options, start->cases, start->store, start->rank);
    return NULL;
}

static int run_threads(struct start start)
{
    struct start starts[RANKS_MOST];
    pthread_t threads[RANKS_MOST];
    int result = 0;
    if (tutti_store_memory(NULL, &start.store) != TUTTI_OK) return 1;
    for (int i = 0; i < start.board->ranks; i++) {
        starts[i] = start;
        starts[i].rank = i;
        if (pthread_create(&threads[i], NULL, thread_rank, &starts[i]) != 0) _exit(1);
    }
    for (int i = 0; i < start.board->ranks; i++) {
        pthread_join(threads[i], NULL);
        result |= starts[i].result;
    }
    tutti_store_free(start.store);
    return result;
}

static int run_processes(struct start start)
{
    if (tutti_spawn(spawned_rank, &start, start.board->ranks) == TUTTI_OK) return 0;
    if (start.board->end[0] == '\0') snprintf(start.board->end, sizeof start.board->end, "%s", tutti_last_error());
    return 1;
}

/* ---- in the parent ------------------------------------------------------------------------------------------------
 */

/* The case that all ranks have reached. */
static int reached(struct board *board)
{
    int least = board->n_cases;
    for (int i = 0; i < board->ranks; i++) {
        int at = atomic_load(&board->seats[i].at);
        if (at < least) least = at;
    }
    return least;
}

static void tell_progress(const struct board *board, const struct cases *cases, int *told, int at)
{
    for (; *told < at; ++*told) {
        bool ends = *told + 1 == cases->n || strcmp(cases->check[*told].kind, cases->check[*told + 1].kind) != 0;
        if (ends)
            fprintf(stderr, "  %d rank%s: %s\n", board->ranks, board->ranks == 1 ? "" : "s", cases->check[*told].kind);
    }
}

/* Since when nothing has moved. */
static int64_t quiet_ns(struct board *board)
{
    int64_t latest = 0;
    for (int i = 0; i < board->ranks; i++) {
        int64_t since = atomic_load(&board->seats[i].since_ns);
        if (since > latest) latest = since;
    }
    return board_now_ns() - latest;
}

static void say_where(struct board *board, int at, char *text, size_t room)
{
    size_t used = (size_t)snprintf(text, room, "hung: no end after %lld s; still in it: rank",
                                   (long long)(quiet_ns(board) / 1000000000));
    for (int i = 0; i < board->ranks && used < room; i++)
        if (board_result(board, at, i)->verdict == NOT_RUN)
            used += (size_t)snprintf(text + used, room - used, " %d", i);
}

static void end_launch(struct board *board, pid_t pid)
{
    for (int i = 0; i < board->ranks; i++) {
        int rank = atomic_load(&board->seats[i].pid);
        if (rank > 0) kill(rank, SIGKILL);
    }
    kill(pid, SIGKILL);
}

/* Whether the launched process went through all cases. */
static bool watch(struct board *board, const struct options *options, const struct cases *cases, pid_t pid, int *told)
{
    int64_t limit_ns = (options->timeout_ms * 3 + 20000) * 1000000;
    bool hung = false;
    int status = 0;
    while (waitpid(pid, &status, WNOHANG) == 0) {
        tell_progress(board, cases, told, reached(board));
        if (!hung && quiet_ns(board) > limit_ns) {
            say_where(board, reached(board), board->end, sizeof board->end);
            end_launch(board, pid);
            hung = true;
        }
        usleep(10000);
    }
    if (!hung && WIFEXITED(status) && WEXITSTATUS(status) == 0 && reached(board) == cases->n) {
        tell_progress(board, cases, told, cases->n);
        return true;
    }
    if (board->end[0] == '\0' && WIFSIGNALED(status))
        snprintf(board->end, sizeof board->end, "the ranks' process died of signal %d", WTERMSIG(status));
    return false;
}

/* The case at which a launch ended counts as failed, on the ranks that had no result yet, or all. */
static void blame(struct board *board, int at)
{
    bool any = false;
    for (int i = 0; i < board->ranks; i++) {
        struct result *result = board_result(board, at, i);
        if (result->verdict != NOT_RUN) continue;
        result->verdict = FAILED;
        snprintf(result->text, sizeof result->text, "%s", board->end);
        any = true;
    }
    if (any) return;
    board_result(board, at, 0)->verdict = FAILED;
    snprintf(board_result(board, at, 0)->text, TEXT_MOST, "%s", board->end);
}

bool launch_run(struct board *board, const struct options *options, const struct cases *cases)
{
    int told = 0;
    for (int first = 0; first < cases->n;) {
        board_begin(board, first);
        struct start start = {.board = board, .options = options, .cases = cases};
        fflush(NULL);
        pid_t parent = getpid(), pid = fork();
        if (pid < 0) return false;
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGTERM);
            if (getppid() != parent) _exit(1);
            setenv("TUTTI_LOG", "error", 0); /* what ranks warn of is what cases provoke */
            _exit(options->threads ? run_threads(start) : run_processes(start));
        }
        if (watch(board, options, cases, pid, &told)) return true;
        int at = reached(board);
        if (at == first && board_result(board, at, 0)->verdict == NOT_RUN && strstr(board->end, "no groups") != NULL)
            return false;
        if (at == cases->n) at--;
        blame(board, at);
        first = at + 1;
    }
    return true;
}
