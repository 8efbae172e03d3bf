/* The mpi backend with idle or missing ranks: an idle group sleeps and still answers its peers, and making a group ends
 * at its timeout.  Skipped if no MPI launcher is installed.
 *
 * Ranks exchange through a file store beside the groups under test. */
#include <sys/resource.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include "conformance/mpi_launch.h"

enum { ARRIVE_MS = 60000 };

static char self[4096];
static tutti_store *beside;

#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "rank %d, line %d: %s: %s\n", tutti_get_rank(NULL), __LINE__, #condition,                  \
                    tutti_last_error());                                                                               \
            return 1;                                                                                                  \
        }                                                                                                              \
    } while (0)

static int notify_others(const char *what)
{
    return tutti_store_set(beside, what, "", 0);
}

static int await(const char *what)
{
    return tutti_store_wait(beside, &what, 1, ARRIVE_MS);
}

/* ---- idle ------------------------------------------------------------------------------------------------------ */

static long sleeps(void)
{
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return used.ru_nvcsw;
}

static int nap(int ms)
{
    return usleep((useconds_t)ms * 1000);
}

/* True if the process hardly wakes.  Each poll ends a sleep, and four polls a second would make twelve sleeps.  The
 * polls become rare after a while only, which is longer on a busy machine. */
static bool is_idle(void)
{
    enum { SETTLE_MS = 1500, IDLE_MS = 3000, SLEEPS_MOST = 8, TRIES = 5 };
    long woken = SLEEPS_MOST + 1;
    for (int i = 0; i < TRIES && woken > SLEEPS_MOST; i++) {
        nap(SETTLE_MS);
        long before = sleeps();
        nap(IDLE_MS);
        woken = sleeps() - before;
        if (woken > SLEEPS_MOST) fprintf(stderr, "rank %d woke %ld times\n", tutti_get_rank(NULL), woken);
    }
    return woken <= SLEEPS_MOST;
}

static int rank_of_idleness(void)
{
    char place[60];
    int x = 1, rank, last;
    EXPECT(tutti_init_process_group("mpi", NULL) == TUTTI_OK);
    rank = tutti_get_rank(NULL);
    last = tutti_get_world_size(NULL) - 1;
    snprintf(place, sizeof place, "rank %d (is at #1 all_reduce", last);
    EXPECT(tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM, NULL) == TUTTI_OK);
    EXPECT(is_idle());
    EXPECT(notify_others(rank == 0 ? "idle 0" : "idle 1") == TUTTI_OK);
    EXPECT(await(rank == 0 ? "idle 1" : "idle 0") == TUTTI_OK);

    /* The group has slept for long and still answers at once.  Without a doorbell it would poll only seconds later. */
    if (rank == 0) {
        int status = tutti_broadcast(tutti_view(&x, 1), last, tutti_with(.timeout_ms = 1000));
        EXPECT(status == TUTTI_ERR_TIMEOUT);
        EXPECT(strstr(tutti_last_error(), place) != NULL);
        EXPECT(notify_others("asked") == TUTTI_OK);
    } else {
        EXPECT(await("asked") == TUTTI_OK);
        EXPECT(tutti_barrier(NULL) == TUTTI_ERR_ABORTED);
    }
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

/* ---- missing members ------------------------------------------------------------------------------------------ */

static int refused(int absent, int *late, const char *first, const char *second)
{
    char message[48], done[40];
    const int ranks[] = {0, 1, 2};
    tutti_group *group = NULL;
    tutti_group_opts opts = {.timeout_ms = 1500, .members_only = true, .name = "three"};
    bool comes = tutti_get_rank(NULL) != absent;
    snprintf(message, sizeof message, "rank %d has not made this group", absent);
    if (!comes) EXPECT(await(first) == TUTTI_OK && await(second) == TUTTI_OK);
    int status = tutti_new_group(ranks, 3, &opts, &group);
    EXPECT(status == TUTTI_ERR_TIMEOUT && group == NULL);
    EXPECT(strstr(tutti_last_error(), "group three was not made within 1.500 s") != NULL);
    if (comes) EXPECT(strstr(tutti_last_error(), message) != NULL);
    snprintf(done, sizeof done, "%d without %d", tutti_get_rank(NULL), absent);
    if (comes) EXPECT(notify_others(done) == TUTTI_OK);
    *late += !comes;
    return 0;
}

static int rank_of_absence(void)
{
    int x = 1, late = 0;
    EXPECT(tutti_init_process_group("mpi", NULL) == TUTTI_OK);
    EXPECT(refused(1, &late, "0 without 1", "2 without 1") == 0);
    EXPECT(refused(0, &late, "1 without 0", "2 without 0") == 0);
    EXPECT(late == (tutti_get_rank(NULL) < 2));
    EXPECT(tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM, NULL) == TUTTI_OK && x == 3); /* the parent stays usable */
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

/* ---- lists that differ ------------------------------------------------------------------------------------------ */

/* Rank 1 passes the list in another order.  MPI is not asked for such a group, because it would never return. */
static int lists_differ(bool members_only)
{
    const int all[] = {0, 1, 2, 3}, other[] = {0, 1, 3, 2};
    float x = 1;
    tutti_group *group = NULL;
    tutti_group_opts opts = {.timeout_ms = 20000, .members_only = members_only};
    int status = tutti_new_group(tutti_get_rank(NULL) == 1 ? other : all, 4, &opts, &group);
    if (status == TUTTI_OK) status = tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM, tutti_with(.group = group));
    EXPECT(status == TUTTI_ERR_MISMATCH);
    EXPECT(strstr(tutti_last_error(), "[0,1,3,2]") != NULL && strstr(tutti_last_error(), "[0,1,2,3]") != NULL);
    if (group != NULL) EXPECT(tutti_destroy_process_group(group) == TUTTI_OK);
    return 0;
}

static int rank_of_lists(void)
{
    int x = 1;
    EXPECT(tutti_init_process_group("mpi", NULL) == TUTTI_OK);
    EXPECT(lists_differ(false) == 0);
    EXPECT(lists_differ(true) == 0);
    EXPECT(tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM, NULL) == TUTTI_OK && x == 4); /* the parent stays usable */
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

/* ---- another tag ----------------------------------------------------------------------------------------------- */

static int rank_of_tags(void)
{
    int x[16] = {0}, met = 1;
    EXPECT(tutti_init_process_group("mpi", NULL) == TUTTI_OK);
    if (tutti_get_rank(NULL) == 1) EXPECT(tutti_send(tutti_view(x, 16), 0, tutti_with(.tag = 7)) == TUTTI_OK);
    if (tutti_get_rank(NULL) == 0) {
        EXPECT(tutti_recv(tutti_view(x, 16), 1, tutti_with(.tag = 5, .timeout_ms = 1000)) == TUTTI_ERR_TIMEOUT);
        EXPECT(strstr(tutti_last_error(), "; rank 1 has sent 64 bytes under tag 7") != NULL);
        EXPECT(tutti_recv(tutti_view(x, 16), 1, tutti_with(.tag = 7)) == TUTTI_OK);
    }
    EXPECT(tutti_all_reduce(tutti_view(&met, 1), TUTTI_SUM, NULL) == TUTTI_OK && met == 2);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

/* ---- the exit ---------------------------------------------------------------------------------------------------- */

/* A rank exits with groups open, before the others or after.  It blocks no rank in MPI_Finalize. */
static int rank_of_leaving(int first)
{
    EXPECT(tutti_init_process_group("mpi", NULL) == TUTTI_OK);
    bool leaves = tutti_get_rank(NULL) == 1;
    if (leaves != (first == 1)) EXPECT(await("first") == TUTTI_OK);
    if (leaves == (first == 1)) EXPECT(notify_others("first") == TUTTI_OK);
    if (!leaves) EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

/* A rank waits for one that has exited.  It gets PEER_LOST, neither a timeout nor a signal of the launcher. */
static int rank_of_waiting(void)
{
    int x = 1;
    EXPECT(tutti_init_process_group("mpi", NULL) == TUTTI_OK);
    EXPECT(tutti_barrier(NULL) == TUTTI_OK);
    if (tutti_get_rank(NULL) == 1) return 0;
    EXPECT(tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM, tutti_with(.timeout_ms = 20000)) == TUTTI_ERR_PEER_LOST);
    EXPECT(strstr(tutti_last_error(), "left the group") != NULL);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

/* MPI keeps an operation that cannot be cancelled at its timeout. */
static int rank_of_giving_up(void)
{
    static char many[1 << 20];
    EXPECT(tutti_init_process_group("mpi", NULL) == TUTTI_OK);
    if (tutti_get_rank(NULL) == 0) {
        EXPECT(await("gone") == TUTTI_OK);
        int status = tutti_send(tutti_tensor_of(many, sizeof many, TUTTI_INT8), 1, tutti_with(.timeout_ms = 300));
        EXPECT(status == TUTTI_ERR_TIMEOUT);
    }
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    if (tutti_get_rank(NULL) != 0) EXPECT(notify_others("gone") == TUTTI_OK);
    return 0;
}

/* ---- under the launchers ---------------------------------------------------------------------------------------- */

static int rank_main(const char *part, const char *path)
{
    setenv("TUTTI_BACKEND_PATH", TUTTI_BACKENDS_DIR, 1);
    if (tutti_store_file(path, NULL, &beside) != TUTTI_OK) return 1;
    int failed = 1;
    if (strcmp(part, "idle") == 0) failed = rank_of_idleness();
    if (strcmp(part, "absent") == 0) failed = rank_of_absence();
    if (strcmp(part, "lists") == 0) failed = rank_of_lists();
    if (strcmp(part, "tags") == 0) failed = rank_of_tags();
    if (strcmp(part, "leaves_first") == 0) failed = rank_of_leaving(1);
    if (strcmp(part, "leaves_last") == 0) failed = rank_of_leaving(0);
    if (strcmp(part, "waits") == 0) failed = rank_of_waiting();
    if (strcmp(part, "gives_up") == 0) failed = rank_of_giving_up();
    tutti_store_free(beside);
    if (failed == 0) printf("all right\n");
    return failed;
}

static const char *const mpis[] = {"openmpi", "mpich"};

static void start(const char *mpi, const char *part, int ranks, struct launch *launch)
{
    char path[] = "/tmp/tutti-test-mpi-XXXXXX", arguments[64];
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    unlink(path);
    snprintf(arguments, sizeof arguments, "%s %s", part, path);
    mpi_launch_run(mpi, "", ranks, self, arguments, launch);
    unlink(path);
}

static void expect_ranks(const char *part, int ranks)
{
    for (int i = 0; i < 2; i++) {
        struct launch launch;
        if (!mpi_launch_has(mpis[i])) continue;
        start(mpis[i], part, ranks, &launch);
        if (launch.status != 0 || launch.out.data == NULL || text_count(launch.out.data, "all right") != ranks)
            fail_msg("%s: status %d\n%s", mpis[i], launch.status, launch.err.data);
        launch_free(&launch);
    }
}

/* Expects that the job ends by itself and reports which rank skipped MPI_Finalize.  Open MPI's launcher may end the
 * others before they do. */
static void expect_end(const char *part, const char *message, const char *others)
{
    for (int i = 0; i < 2; i++) {
        struct launch launch;
        if (!mpi_launch_has(mpis[i])) continue;
        start(mpis[i], part, 2, &launch);
        const char *err = launch.err.data != NULL ? launch.err.data : "";
        bool reported = strstr(err, message) != NULL && (i == 0 || strstr(err, others) != NULL);
        if (launch.status == 124 || !reported) fail_msg("%s %s: status %d\n%s", mpis[i], part, launch.status, err);
        launch_free(&launch);
    }
}

static void idle(void **state)
{
    (void)state;
    expect_ranks("idle", 2);
}

static void absent(void **state)
{
    (void)state;
    expect_ranks("absent", 3);
}

static void lists(void **state)
{
    (void)state;
    expect_ranks("lists", 4);
}

static void tags(void **state)
{
    (void)state;
    expect_ranks("tags", 2);
}

static void exits(void **state)
{
    (void)state;
    expect_end("leaves_first", "skipping MPI_Finalize on rank 1 of MPI_COMM_WORLD: the process exits with open groups",
               "skipping MPI_Finalize on rank 0 of MPI_COMM_WORLD: rank 1 exited without it");
    expect_end("leaves_last", "skipping MPI_Finalize on rank 1 of MPI_COMM_WORLD: the process exits with open groups",
               "skipping MPI_Finalize on rank 0 of MPI_COMM_WORLD: rank 1 exited without it");
    expect_end("gives_up", "skipping MPI_Finalize on rank 0 of MPI_COMM_WORLD: abandoned operations are still pending",
               "skipping MPI_Finalize on rank 1 of MPI_COMM_WORLD: rank 0 exited without it");
}

/* Open MPI's launcher ends the others, before or after they are notified. */
static void waiting(void **state)
{
    struct launch launch;
    (void)state;
    if (!mpi_launch_has("mpich")) skip();
    start("mpich", "waits", 2, &launch);
    if (launch.status != 0 || text_count(launch.out.data != NULL ? launch.out.data : "", "all right") != 2)
        fail_msg("status %d\n%s", launch.status, launch.err.data);
    launch_free(&launch);
}

int main(int argc, char **argv)
{
    if (argc > 2) return rank_main(argv[1], argv[2]);
    if (realpath("/proc/self/exe", self) == NULL) return 1;
    if (!mpi_launch_has("openmpi") && !mpi_launch_has("mpich")) {
        fprintf(stderr, "skipped: no mpi backend was built, or no launcher of its MPI is installed\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(idle), cmocka_unit_test(absent), cmocka_unit_test(lists),
                                       cmocka_unit_test(tags), cmocka_unit_test(exits),  cmocka_unit_test(waiting)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
