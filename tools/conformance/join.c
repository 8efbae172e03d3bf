#include "conformance/join.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "conformance/meeting.h"
#include "conformance/place.h"
#include "conformance/rank.h"
#include "conformance/report.h"
#include "conformance/watch.h"

/* The other ranks wait LATER times LATER_NS longer, so that rank 0 reports before they fail: many launchers end a job
 * with its first failed rank. */
enum { LATER_NS = 1000000000, LATER = 10, GOODBYE_MS = 60000 };

struct join {
    const struct options *options;
    const struct cases *cases;
    struct scoreboard *scoreboard;
    struct report *report;
    struct rank watched; /* the watch thread's copy of this rank */
    atomic_bool finished;
};

static bool reports(const struct join *join)
{
    return join->watched.rank == 0;
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

/* Prints the report.  The cases from `at` on were not run.  Returns the exit status. */
static int conclude(const struct join *join, int at)
{
    if (!reports(join)) {
        if (at < join->cases->n) fprintf(stderr, "tutti-conformance: %s\n", join->scoreboard->end);
        return at < join->cases->n;
    }
    report_add(join->report, join->scoreboard);
    if (at < join->cases->n) report_broken(join->report, join->scoreboard, at);
    return report_end(join->report);
}

/* Ends the run at this rank's current case, because the suite cannot restart ranks that a launcher started. */
static int cut(struct join *join)
{
    struct scoreboard *scoreboard = join->scoreboard;
    int at = atomic_load(&scoreboard->states[join->watched.rank].at);
    if (at >= join->cases->n) at = join->cases->n - 1;
    if (strstr(scoreboard->end, "no groups") != NULL)
        return conclude(join, at + (scoreboard_result(scoreboard, at, join->watched.rank)->verdict != NOT_RUN));
    watch_blame(scoreboard, at);
    return conclude(join, at + 1);
}

/* ---- the watch --------------------------------------------------------------------------------------------------- */

static void fetch_results(struct join *join)
{
    join->watched.at = atomic_load(&join->scoreboard->states[join->watched.rank].at);
    meeting_fetch(&join->watched);
}

static sigset_t mask_ends(int how)
{
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    pthread_sigmask(how, &ends, NULL);
    return ends;
}

/* Watches the cases in a thread.  Ends the process if a case does not end. */
static void *watch(void *argument)
{
    struct join *join = argument;
    int64_t limit_ns = watch_limit_ns(join->options) + (reports(join) ? 0 : LATER * (int64_t)LATER_NS);
    sigset_t ends = mask_ends(SIG_BLOCK);
    while (!atomic_load(&join->finished)) {
        bool terminated = sigtimedwait(&ends, NULL, &(struct timespec){.tv_nsec = 20000000}) == SIGTERM;
        int at = atomic_load(&join->scoreboard->states[join->watched.rank].at);
        if (reports(join)) watch_print_progress(join->options, join->scoreboard, join->cases, at);
        bool hung = watch_quiet_ns(join->scoreboard) > limit_ns;
        if (!terminated && !hung) continue;
        if (terminated && !reports(join)) _exit(128 + SIGTERM);
        fetch_results(join);
        if (terminated)
            scoreboard_end(join->scoreboard,
                           "the launcher ended the job (SIGTERM); it says which rank failed, and how");
        else
            watch_say_hung(join->scoreboard, join->watched.at);
        int status = cut(join);
        fflush(NULL);
        _exit(status != 0 ? status : 1);
    }
    return NULL;
}

/* ------------------------------------------------------------------------------------------------------------------ */

/* Waits on rank 0 until the other ranks have left, because rank 0 may serve the store. */
static void say_goodbye(const struct rank *rank)
{
    char key[32];
    for (int i = 1; i < rank->size; i++) {
        const char *name = key;
        snprintf(key, sizeof key, "gone/%d", i);
        if (rank->rank == i) tutti_store_set(rank->store, key, "", 0);
        if (rank->rank == 0) tutti_store_wait(rank->store, &name, 1, GOODBYE_MS);
    }
}

static int run(struct join *join, tutti_store *store)
{
    pthread_t watcher;
    struct rank *watched = &join->watched;
    watched->store = store;
    watched->scoreboard = join->scoreboard;
    watched->options = join->options;
    scoreboard_begin(join->scoreboard, 0);
    if (pthread_create(&watcher, NULL, watch, join) != 0) {
        fprintf(stderr, "tutti-conformance: cannot start the watch thread\n");
        return 2;
    }
    int broken = rank_run(join->scoreboard, join->options, join->cases, store, watched->rank);
    atomic_store(&join->finished, true);
    pthread_join(watcher, NULL);
    mask_ends(SIG_UNBLOCK);
    if (broken) return cut(join);
    say_goodbye(watched);
    return conclude(join, join->cases->n);
}

int join_run(struct options *options, const struct cases *cases)
{
    struct join join = {.options = options, .cases = cases, .report = report_new(options, cases)};
    struct rendezvous_spec place;
    mask_ends(SIG_BLOCK); /* before the library starts threads, so that only the watch thread receives it */
    setenv("TUTTI_LOG", "error", 0);
    if (!rendezvous_spec_parse(&place, options->backend)) return 2;
    options->from_ranks = options->to_ranks = place.size;
    join.watched = (struct rank){.rank = place.rank, .size = place.size};
    join.scoreboard = scoreboard_new(cases->n, place.size);
    if (join.scoreboard == NULL) perror("tutti-conformance: no memory for the results");
    int status = join.scoreboard != NULL ? run(&join, place.store) : 2;
    if (join.scoreboard != NULL) scoreboard_free(join.scoreboard);
    place_free(&place);
    report_free(join.report);
    fflush(NULL);
    if (status != 0) _exit(status); /* no exit handlers: a backend's may wait for lost ranks */
    return status;
}
