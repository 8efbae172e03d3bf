/* Several group trees on mpi in one process.  They are made one after the other on one store, or made and used by
 * threads at once, with an MPI that takes one thread at a time.  Subgroups are made while messages are received.  Some
 * ranks cannot take part: they lack the plug-in, call from the wrong thread, or belong to another job.  Skipped if no
 * MPI launcher is installed. */
#include <pthread.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include "conformance/mpi_launch.h"

enum { TREES = 4, TURNS = 3, TIMES = 300, WAIT_MS = 30000 };

static char self[4096];
static int rank, size;
static tutti_store *shared;

#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "rank %d, line %d: %s: %s\n", rank, __LINE__, #condition, tutti_last_error());             \
            return 1;                                                                                                  \
        }                                                                                                              \
    } while (0)
#define OK(call) EXPECT((call) == TUTTI_OK)

/* ---- ranks ------------------------------------------------------------------------------------------------------ */

static int open_shared_store(void)
{
    int32_t port = 0;
    OK(tutti_init_process_group("tcp", NULL));
    rank = tutti_get_rank(NULL);
    size = tutti_get_world_size(NULL);
    tutti_store_opts opts = {.server = rank == 0};
    if (rank == 0) {
        OK(tutti_store_tcp("127.0.0.1", 0, &opts, &shared));
        port = tutti_store_port(shared);
    }
    OK(tutti_broadcast(tutti_view(&port, 1), 0, NULL));
    if (rank > 0) OK(tutti_store_tcp("127.0.0.1", (uint16_t)port, &opts, &shared));
    return 0;
}

/* Uses a group tree.  The results of two trees differ. */
static int use(tutti_group *group, int seed)
{
    for (int i = 0; i < TIMES; i++) {
        int32_t x = seed + i;
        OK(tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM, tutti_with(.group = group, .timeout_ms = WAIT_MS)));
        EXPECT(x == size * (seed + i));
    }
    return 0;
}

struct tree {
    pthread_t thread;
    int number, failed;
    tutti_store *store;
    tutti_group *group;
};

static int make(struct tree *tree, int number)
{
    char name[20];
    tree->number = number;
    snprintf(name, sizeof name, "tree%d", number);
    OK(tutti_store_prefix(shared, name, &tree->store));
    OK(tutti_create_group("mpi", tree->store, rank, size, NULL, &tree->group));
    return 0;
}

static int end_tree(struct tree *tree)
{
    OK(tutti_destroy_process_group(tree->group));
    tutti_store_free(tree->store);
    return 0;
}

static void *make_and_use(void *argument)
{
    struct tree *tree = argument;
    for (int turn = 0; turn < TURNS && tree->failed == 0; turn++)
        tree->failed =
            make(tree, tree->number) != 0 || use(tree->group, 1000 * tree->number) != 0 || end_tree(tree) != 0;
    return NULL;
}

static void *use_only(void *argument)
{
    struct tree *tree = argument;
    tree->failed = use(tree->group, 1000 * tree->number);
    return NULL;
}

static int in_threads(struct tree *trees, int n, void *(*what)(void *))
{
    int failed = 0;
    for (int i = 0; i < n; i++) {
        trees[i].number = i;
        if (pthread_create(&trees[i].thread, NULL, what, &trees[i]) != 0) return 1;
    }
    for (int i = 0; i < n; i++) {
        pthread_join(trees[i].thread, NULL);
        failed |= trees[i].failed;
    }
    return failed;
}

/* Threads make group trees of the same ranks at the same time, and use them. */
static int at_once(void)
{
    struct tree trees[TREES] = {0};
    return in_threads(trees, TREES, make_and_use);
}

/* Threads use earlier group trees at the same time. */
static int in_turn(void)
{
    struct tree trees[2] = {0};
    int failed = make(&trees[0], 0) != 0 || make(&trees[1], 1) != 0;
    if (failed == 0) failed = in_threads(trees, 2, use_only);
    for (int i = 0; failed == 0 && i < 2; i++) failed = end_tree(&trees[i]);
    return failed;
}

/* Trees on one store find the entries of the last one.  Rank 0 comes last or first.  The plug-in for the other MPI,
 * which cannot work here, is loaded before this one and while this one runs. */
static int again(const char *other)
{
    char both[60];
    snprintf(both, sizeof both, "cpu:%s|mpi", other);
    for (int turn = 0; turn < 5; turn++) {
        tutti_group *group = NULL;
        if (turn > 0 && rank == turn % 2) usleep(50000);
        OK(tutti_create_group(turn % 4 == 0 ? both : "mpi", shared, rank, size, NULL, &group));
        EXPECT(strcmp(tutti_get_backend(group), "cpu:mpi") == 0);
        if (use(group, turn) != 0) return 1;
        OK(tutti_destroy_process_group(group));
    }
    return 0;
}

/* Makes subgroups under the receive that takes the headers of all messages. */
static int subgroups(void)
{
    struct tree tree = {0};
    int ranks[8];
    if (make(&tree, 0) != 0) return 1;
    for (int i = 0; i < size; i++) ranks[i] = size - 1 - i;
    for (int turn = 0; turn < 5; turn++) {
        tutti_group *group = NULL;
        OK(tutti_new_group(ranks, size, &(tutti_group_opts){.parent = tree.group}, &group));
        if (use(group, turn) != 0) return 1;
        OK(tutti_destroy_process_group(group));
    }
    return end_tree(&tree);
}

/* Rank 1 has no plug-in.  No other rank may start MPI, which would wait for rank 1 forever. */
static int lacks_plug_in(void)
{
    tutti_group *group = NULL;
    if (rank == 1) setenv("TUTTI_BACKEND_PATH", "/nonexistent", 1);
    EXPECT(tutti_create_group("mpi", shared, rank, size, NULL, &group) == TUTTI_ERR_BACKEND);
    EXPECT(strstr(tutti_last_error(), "backend \"mpi\" was not found") != NULL);
    OK(tutti_create_group("cpu:mpi|tcp", shared, rank, size, NULL, &group)); /* tcp has been loaded already */
    EXPECT(strcmp(tutti_get_backend(group), "cpu:tcp") == 0);
    if (use(group, 7) != 0) return 1;
    OK(tutti_destroy_process_group(group));
    return 0;
}

static void *make_pair(void *argument)
{
    struct tree *tree = argument;
    const int ranks[] = {0, 1};
    tutti_group *group = NULL;
    int status = tutti_new_group(ranks, 2, &(tutti_group_opts){.parent = tree->group}, &group);
    const char *why =
        rank == 0 ? "rank 1: MPI cannot be called from this thread" : "started it for its main thread only";
    tree->failed = status != TUTTI_ERR_BACKEND || strstr(tutti_last_error(), why) == NULL;
    if (tree->failed) fprintf(stderr, "rank %d: new_group returned %d: %s\n", rank, status, tutti_last_error());
    return NULL;
}

/* MPI belongs to the main thread, and on rank 1 another thread makes a group.  Rank 0 must not wait for it in MPI. */
static int in_the_wrong_thread(void)
{
    struct tree tree = {0};
    if (make(&tree, 0) != 0) return 1;
    if (rank == 0) make_pair(&tree);
    if (rank == 1 && pthread_create(&tree.thread, NULL, make_pair, &tree) == 0) pthread_join(tree.thread, NULL);
    if (tree.failed) return 1;
    return use(tree.group, 3) != 0 || end_tree(&tree) != 0;
}

/* Mixes ranks of two jobs of two ranks each: the first of one with the second of the other, twice. */
static int mixed(const char *path, int job)
{
    const char *mpi_rank = getenv("OMPI_COMM_WORLD_RANK");
    char name[20];
    tutti_store *store = NULL, *part = NULL;
    tutti_group *group = NULL;
    OK(tutti_store_file(path, NULL, &store));
    snprintf(name, sizeof name, "world%d", job ^ (mpi_rank != NULL && *mpi_rank == '1'));
    OK(tutti_store_prefix(store, name, &part));
    rank = job;
    EXPECT(tutti_create_group("mpi", part, job, 2, NULL, &group) == TUTTI_ERR_BACKEND);
    EXPECT(strstr(tutti_last_error(), "start all ranks with one mpirun") != NULL);
    tutti_store_free(part);
    tutti_store_free(store);
    printf("all right\n");
    return 0;
}

static int rank_main(const char *part, const char *argument)
{
    int failed = open_shared_store();
    if (failed != 0) return failed;
    failed = 1;
    if (strcmp(part, "at_once") == 0) failed = at_once();
    if (strcmp(part, "in_turn") == 0) failed = in_turn();
    if (strcmp(part, "again") == 0) failed = again(argument);
    if (strcmp(part, "subgroups") == 0) failed = subgroups();
    if (strcmp(part, "wrong_thread") == 0) failed = in_the_wrong_thread();
    if (strcmp(part, "lacks_plug_in") == 0) failed = lacks_plug_in();
    if (failed != 0) return failed;
    OK(tutti_barrier(NULL));
    tutti_store_free(shared);
    OK(tutti_destroy_process_group(NULL));
    printf("all right\n");
    return 0;
}

/* ---- under the launchers ---------------------------------------------------------------------------------------- */

static const struct {
    const char *name, *library, *other;
} mpis[] = {{"openmpi", "libmpi.so.40", "mpi_mpich"}, {"mpich", "libmpich.so.12", "mpi_openmpi"}};

static void expect_of(int mpi, const char *environment, const char *part)
{
    struct launch launch;
    char arguments[80];
    if (!mpi_launch_has(mpis[mpi].name)) return;
    snprintf(arguments, sizeof arguments, "%s %s", part, mpis[mpi].other);
    mpi_launch_run(mpis[mpi].name, environment, 2, self, arguments, &launch);
    if (launch.status != 0 || launch.out.data == NULL || text_count(launch.out.data, "all right") != 2)
        fail_msg("%s %s: status %d\n%s", mpis[mpi].name, part, launch.status, launch.err.data);
    launch_free(&launch);
}

static void made_at_once(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) expect_of(i, "", "at_once");
}

/* Runs with an MPI that grants this level of threads. */
static void expect_with_level(int level, const char *part)
{
    for (int i = 0; i < 2; i++) {
        char environment[4200];
        snprintf(environment, sizeof environment,
                 "LD_PRELOAD=%s/tests/plugins/libtutti_few_threads.so FEW_THREADS=%d FEW_THREADS_OF=%s",
                 TUTTI_BUILD_DIR, level, mpis[i].library);
        expect_of(i, environment, part);
    }
}

static void one_thread_at_a_time(void **state)
{
    (void)state;
    expect_with_level(2, "in_turn");
}

static void one_thread_alone(void **state)
{
    (void)state;
    expect_with_level(1, "wrong_thread");
}

static void made_again(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) expect_of(i, "", "again");
}

/* Open MPI's tag for making a communicator may equal a message's. */
static void subgroups_with_any_tag(void **state)
{
    (void)state;
    expect_of(0, "LD_PRELOAD=" TUTTI_BUILD_DIR "/tests/plugins/libtutti_one_tag.so", "subgroups");
    expect_of(1, "", "subgroups");
}

static void plug_in_is_missing(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) expect_of(i, "", "lacks_plug_in");
}

/* The two jobs' ranks have the same numbers in MPI, and the same library. */
static void jobs_are_mixed(void **state)
{
    char path[] = "/tmp/tutti-test-mpi-XXXXXX", command[9000];
    (void)state;
    if (!mpi_launch_has("openmpi")) skip();
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    unlink(path);
    setenv("TUTTI_BACKEND_PATH", TUTTI_BACKENDS_DIR, 1);
    snprintf(command, sizeof command,
             "exec timeout -k 5 50 mpirun.openmpi --allow-run-as-root --oversubscribe -n 2 %s %s $RANK", self, path);
    struct launch launch = RUN("-n", "2", "sh", "-c", command);
    unlink(path);
    if (launch.status != 0 || launch.out.data == NULL || text_count(launch.out.data, "all right") != 4)
        fail_msg("status %d\n%s", launch.status, launch.err.data);
    launch_free(&launch);
}

int main(int argc, char **argv)
{
    if (argc > 2 && *argv[1] == '/') return mixed(argv[1], atoi(argv[2]));
    if (argc > 2) return rank_main(argv[1], argv[2]);
    if (realpath("/proc/self/exe", self) == NULL) return 1;
    if (!mpi_launch_has("openmpi") && !mpi_launch_has("mpich")) {
        fprintf(stderr, "skipped: no mpi backend was built, or no launcher of its MPI is installed\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(made_at_once),       cmocka_unit_test(one_thread_at_a_time),
                                       cmocka_unit_test(made_again),         cmocka_unit_test(subgroups_with_any_tag),
                                       cmocka_unit_test(plug_in_is_missing), cmocka_unit_test(one_thread_alone),
                                       cmocka_unit_test(jobs_are_mixed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
