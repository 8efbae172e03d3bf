/* The mpi backend where ranks have nothing to do, or do not come: an idle group sleeps and yet hears its peers, and
 * making a group ends at its time.  Skipped where no launcher of an MPI is installed.
 *
 * Ranks meet through a file store beside the groups under test. */
#include <sys/resource.h>
#include <tutti/tutti.h>

#include "conformance/mpi_launch.h"

enum { MEET_MS = 60000 };

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

static int tell(const char *what)
{
    return tutti_store_set(beside, what, "", 0);
}

static int await(const char *what)
{
    return tutti_store_wait(beside, &what, 1, MEET_MS);
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

/* Each look ends a sleep; four a second would be twelve. */
static int rank_of_idleness(void)
{
    enum { SETTLE_MS = 1500, IDLE_MS = 3000, SLEEPS_MOST = 8 };
    int x = 1, rank;
    EXPECT(tutti_init_process_group("mpi", NULL) == TUTTI_OK);
    rank = tutti_get_rank(NULL);
    EXPECT(tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM, NULL) == TUTTI_OK);
    nap(SETTLE_MS);
    long before = sleeps();
    nap(IDLE_MS);
    long woken = sleeps() - before;
    if (woken > SLEEPS_MOST) fprintf(stderr, "rank %d woke %ld times\n", rank, woken);
    EXPECT(woken <= SLEEPS_MOST);

    /* Long asleep, and yet it says at once where it is: by itself it would look in some seconds. */
    if (rank == 0) {
        int status = tutti_broadcast(tutti_view(&x, 1), 1, tutti_with(.timeout_ms = 1000));
        EXPECT(status == TUTTI_ERR_TIMEOUT);
        EXPECT(strstr(tutti_last_error(), "rank 1 (is at #1 all_reduce") != NULL);
        EXPECT(tell("asked") == TUTTI_OK);
    } else {
        EXPECT(await("asked") == TUTTI_OK);
        EXPECT(tutti_barrier(NULL) == TUTTI_ERR_ABORTED);
    }
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

/* ---- who does not come ------------------------------------------------------------------------------------------ */

static int refused(int absent, int *late, const char *first, const char *second)
{
    char sentence[40], done[40];
    const int ranks[] = {0, 1, 2};
    tutti_group *group = NULL;
    tutti_group_opts opts = {.timeout_ms = 1500, .members_only = true, .name = "three"};
    bool comes = tutti_get_rank(NULL) != absent;
    snprintf(sentence, sizeof sentence, "rank %d did not come", absent);
    if (!comes) EXPECT(await(first) == TUTTI_OK && await(second) == TUTTI_OK);
    int status = tutti_new_group(ranks, 3, &opts, &group);
    EXPECT(status == TUTTI_ERR_TIMEOUT && group == NULL);
    EXPECT(strstr(tutti_last_error(), "group three was not made within 1.5 s") != NULL);
    if (comes) EXPECT(strstr(tutti_last_error(), sentence) != NULL);
    snprintf(done, sizeof done, "%d without %d", tutti_get_rank(NULL), absent);
    if (comes) EXPECT(tell(done) == TUTTI_OK);
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
    EXPECT(tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM, NULL) == TUTTI_OK && x == 3); /* the parent goes on */
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

/* ---- under the launchers ---------------------------------------------------------------------------------------- */

static int rank_main(const char *part, const char *path)
{
    if (tutti_store_file(path, NULL, &beside) != TUTTI_OK) return 1;
    int failed = strcmp(part, "idle") == 0 ? rank_of_idleness() : rank_of_absence();
    tutti_store_free(beside);
    if (failed == 0) printf("all right\n");
    return failed;
}

static void expect_ranks(const char *part, int ranks)
{
    static const char *const mpis[] = {"openmpi", "mpich"};
    for (int i = 0; i < 2; i++) {
        char path[] = "/tmp/tutti-test-mpi-XXXXXX", arguments[64];
        struct launch launch;
        if (!has(mpis[i])) continue;
        int fd = mkstemp(path);
        assert_true(fd >= 0);
        close(fd);
        unlink(path);
        snprintf(arguments, sizeof arguments, "%s %s", part, path);
        under(mpis[i], "", ranks, self, arguments, &launch);
        unlink(path);
        if (launch.status != 0 || launch.out.data == NULL || count_of(launch.out.data, "all right") != ranks)
            fail_msg("%s: status %d\n%s", mpis[i], launch.status, launch.err.data);
        end(&launch);
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

int main(int argc, char **argv)
{
    if (argc > 2) return rank_main(argv[1], argv[2]);
    if (realpath("/proc/self/exe", self) == NULL) return 1;
    if (!has("openmpi") && !has("mpich")) {
        fprintf(stderr, "skipped: no mpi backend was built, or no launcher of its MPI is installed\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(idle), cmocka_unit_test(absent)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
