/* The ranks of the jobs in stuck_ranks.h. */
#include "stuck_ranks.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <tutti/tutti.h>
#include <unistd.h>

enum { MESSAGES = 3000 };

#define TRY(condition)                                                                                                 \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "line %d: %s\n", __LINE__, tutti_last_error());                                            \
            return 1;                                                                                                  \
        }                                                                                                              \
    } while (0)

/* Two collectives that all ranks call. */
static int begin(void)
{
    float x[4] = {0};
    TRY(tutti_init_process_group("tcp", &(tutti_init_opts){.timeout_ms = STUCK_HANG_MS}) == TUTTI_OK);
    TRY(tutti_mark("epoch 3") == TUTTI_OK && tutti_mark(NULL) == TUTTI_ERR_INVALID_ARGUMENT);
    TRY(tutti_all_reduce(tutti_view(x, 4), TUTTI_SUM, NULL) == TUTTI_OK);
    TRY(tutti_mark("100% done") == TUTTI_OK);
    TRY(tutti_barrier(NULL) == TUTTI_OK);
    return 0;
}

/* Returns the path of a rank's file in the folder of the records. */
static const char *path_of(const char *what, int rank, const char *end)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s-%d%s", getenv("TUTTI_RECORD_DIR"), what, rank, end);
    return path;
}

/* Makes a file that says where this rank is. */
static int announce(const char *what)
{
    int fd = open(path_of(what, tutti_get_rank(NULL), ""), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    TRY(fd >= 0);
    close(fd);
    return 0;
}

static int await_rank(int rank, const char *what)
{
    for (int ms = 0; access(path_of(what, rank, ""), F_OK) != 0; ms++) {
        TRY(ms < STUCK_HANG_MS);
        usleep(1000);
    }
    return 0;
}

/* Rank 1 waits outside of the library, or for a message, until the progress thread has heard of the failure. */
static int stay_away(bool in_message)
{
    double x = 0;
    tutti_work *work = NULL;
    TRY(!in_message || tutti_irecv(tutti_view(&x, 1), 2, tutti_with(.tag = 7), &work) == TUTTI_OK);
    TRY(announce("here") == 0);
    int status = in_message ? tutti_wait(&work, STUCK_HANG_MS) : TUTTI_ERR_ABORTED;
    /* TIMEOUT: it was too slow to tell rank 0 where it is, so that it does not learn that it was given up */
    TRY(status == TUTTI_ERR_ABORTED || status == TUTTI_ERR_TIMEOUT);
    while (!in_message && tutti_irecv(tutti_view(&x, 1), 2, NULL, &work) == TUTTI_OK) {
        tutti_work_free(work);
        usleep(200000);
    }
    return announce("done");
}

/* Rank 1 does not call the second all_reduce.  Rank 0's times out, once the others are where they wait. */
static int skip_one(bool in_message)
{
    double x[5] = {0};
    tutti_work *work = NULL;
    TRY(begin() == 0);
    int rank = tutti_get_rank(NULL);
    if (rank == 1) return stay_away(in_message);
    TRY(await_rank(1, "here") == 0 && (rank == 2 || await_rank(2, "here") == 0));
    tutti_opts opts = {.async_op = &work, .timeout_ms = rank == 0 ? STUCK_WAIT_MS : STUCK_HANG_MS};
    TRY(tutti_all_reduce(tutti_view(x, 5), TUTTI_MAX, &opts) == TUTTI_OK);
    TRY(announce("here") == 0);
    TRY(tutti_wait(&work, STUCK_HANG_MS) == TUTTI_ERR_TIMEOUT);
    return await_rank(1, "done"); /* else rank 1 may find that they have left */
}

static int differ(void)
{
    float x[4] = {0};
    TRY(begin() == 0);
    int status = tutti_all_reduce(tutti_view(x, tutti_get_rank(NULL) == 1 ? 3 : 4), TUTTI_SUM, NULL);
    TRY(status == TUTTI_ERR_MISMATCH);
    return 0;
}

static atomic_llong ended_ns; /* the time of day when this rank was to end */

static long long now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void note_end(int signal)
{
    (void)signal;
    ended_ns = now_ns();
}

/* Computes until the launcher ends this rank.  Says for how long rank 1 had been gone, or longer. */
static int compute_until_ended(void)
{
    struct stat killed;
    while (ended_ns == 0 || access(path_of("rank", 2, ".record"), F_OK) != 0) usleep(1000);
    TRY(stat(path_of("here", 1, ""), &killed) == 0);
    long long ns = ended_ns - killed.st_mtim.tv_sec * 1000000000LL - killed.st_mtim.tv_nsec;
    printf("ended after %.3f s\n", (double)ns / 1e9);
    return 0;
}

/* Rank 0 waits for rank 1, and rank 2 computes.  The launcher gives both time to write before it ends them.  A starved
 * rank takes more. */
static int die(void)
{
    float x[4] = {0};
    TRY(begin() == 0);
    int rank = tutti_get_rank(NULL);
    signal(SIGTERM, rank == 0 ? SIG_IGN : note_end);
    if (rank != 1) TRY(announce("here") == 0);
    if (rank == 2) return compute_until_ended();
    TRY(rank == 0 || (await_rank(0, "here") == 0 && await_rank(2, "here") == 0 && announce("here") == 0));
    if (rank == 1) raise(SIGKILL);
    TRY(tutti_all_reduce(tutti_view(x, 4), TUTTI_SUM, NULL) == TUTTI_ERR_PEER_LOST);
    return 0;
}

static volatile sig_atomic_t is_asked;

static void own_handler(int signal)
{
    (void)signal;
    is_asked = 1;
    if (write(STDOUT_FILENO, "own\n", 4) < 0) _exit(1);
}

/* Rank 1 has a handler of its own, and writes by call.  The others are in a barrier when they say that they are ready.
 */
static int wait_for_signal(void)
{
    if (strcmp(getenv("RANK"), "1") == 0) signal(SIGUSR2, own_handler);
    tutti_work *work = NULL;
    TRY(begin() == 0);
    if (tutti_get_rank(NULL) != 1) TRY(tutti_barrier(tutti_with(.async_op = &work)) == TUTTI_OK);
    printf("ready\n");
    fflush(stdout);
    if (work) return tutti_wait(&work, TUTTI_DEFAULT_TIMEOUT) == TUTTI_OK ? 0 : 1;
    while (!is_asked) usleep(1000);
    TRY(tutti_record_write(NULL) == TUTTI_OK);
    pause();
    return 0;
}

/* Prints "ready" once a signal would make this rank write, or after a while. */
static void *say_when_ready(void *argument)
{
    struct sigaction found = {.sa_handler = SIG_DFL};
    for (int i = 0; i < STUCK_HANG_MS / 5 && found.sa_handler == SIG_DFL; i++) {
        usleep(5000);
        sigaction(SIGUSR2, NULL, &found);
    }
    printf("ready\n");
    fflush(stdout);
    return argument;
}

/* Rank 1 does not come to init, so the others hang there. */
static int wait_in_init(void)
{
    pthread_t thread;
    bool comes = strcmp(getenv("RANK"), "1") != 0;
    if (!comes) signal(SIGUSR2, own_handler);
    TRY(pthread_create(&thread, NULL, say_when_ready, NULL) == 0);
    if (comes) TRY(begin() == 0);
    pthread_join(thread, NULL);
    while (true) pause();
}

static int exchange(void)
{
    static int32_t in[MESSAGES], out[MESSAGES];
    int peer = 1 - tutti_get_rank(NULL);
    for (int i = 0; i < MESSAGES; i++) {
        tutti_work *works[2];
        TRY(tutti_irecv(tutti_view(&in[i], 1), peer, NULL, &works[0]) == TUTTI_OK);
        TRY(tutti_isend(tutti_view(&out[i], 1), peer, NULL, &works[1]) == TUTTI_OK);
        TRY(tutti_wait_all(works, 2, TUTTI_DEFAULT_TIMEOUT) == TUTTI_OK);
    }
    for (int i = 0; i < MESSAGES; i++) { /* which do not displace the messages */
        bool found;
        tutti_message message;
        TRY(tutti_iprobe(peer, NULL, &found, &message) == TUTTI_OK && !found);
    }
    return 0;
}

/* Rank 0 and rank 1 exchange more messages than are recorded.  Then each writes, into a folder of its own. */
static int write_by_call(void)
{
    char name[128];
    TRY(begin() == 0);
    int rank = tutti_get_rank(NULL);
    if (rank < 2 && exchange() != 0) return 1;
    TRY(tutti_record_write(NULL) == TUTTI_ERR_INVALID_ARGUMENT);
    snprintf(name, sizeof name, "%s/by-%%r-%%x%%", getenv("TEST_FOLDER"));
    TRY(tutti_record_write(name) == TUTTI_OK);
    TRY(tutti_record_write("/proc/none") == TUTTI_ERR_SYSTEM);
    struct rlimit none = {0, RLIM_INFINITY}; /* as on a full disk */
    TRY(setrlimit(RLIMIT_FSIZE, &none) == 0);
    TRY(tutti_record_write(name) == TUTTI_ERR_SYSTEM && strstr(tutti_last_error(), "cannot write the record") != NULL);
    TRY(tutti_barrier(NULL) == TUTTI_OK);
    return tutti_destroy_process_group(NULL) == TUTTI_OK ? 0 : 1;
}

int stuck_rank_main(const char *what)
{
    if (strcmp(what, "skip") == 0) return skip_one(false);
    if (strcmp(what, "message") == 0) return skip_one(true);
    if (strcmp(what, "differ") == 0) return differ();
    if (strcmp(what, "die") == 0) return die();
    if (strcmp(what, "init") == 0) return wait_in_init();
    return strcmp(what, "signal") == 0 ? wait_for_signal() : write_by_call();
}
