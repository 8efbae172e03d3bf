/* tutti-run --mpi: an MPI launcher starts the ranks, and tutti-run's guarantees hold for them, too.  Skipped for an MPI
 * that the backend was not built for, or whose launcher is not installed. */
#include "launch.h"

#include <signal.h>
#include <unistd.h>

#define RANK_IS(n) "test $OMPI_COMM_WORLD_RANK$PMI_RANK = " #n

static const struct mpi {
    const char *name, *option, *launcher;
} mpis[] = {{"openmpi", "--mpi=openmpi", "mpirun.openmpi"}, {"mpich", "--mpi=mpich", "mpiexec.mpich"}};

static bool has(const struct mpi *mpi)
{
    char text[4200];
    snprintf(text, sizeof text, TUTTI_BACKENDS_DIR "/libtutti_mpi_%s.so", mpi->name);
    if (access(text, F_OK) != 0) return false;
    snprintf(text, sizeof text, "command -v %s >/dev/null", mpi->launcher);
    return system(text) == 0;
}

/* Each test is run with each MPI. */
#define EACH(mpi)                                                                                                      \
    for (const struct mpi *mpi = mpis; mpi < mpis + 2; mpi++)                                                          \
        if (has(mpi))

static void starts_ranks_of_mpi(void **state)
{
    (void)state;
    setenv("RANK", "7", 1); /* variable of an outer job */
    setenv("MASTER_ADDR", "nowhere.invalid", 1);
    EACH(mpi)
    {
        struct launch launch = RUN(mpi->option, "-n", "3", TUTTI_EXAMPLES_DIR "/all_reduce", "mpi");
        assert_int_equal(launch.status, 0);
        for (int rank = 0; rank < 3; rank++) {
            char line[100];
            snprintf(line, sizeof line, "[%d] Rank %d has the sum of the ranks [3]\n", rank, rank);
            assert_has(&launch.out, line);
        }
        launch_free(&launch);
    }
    struct launch launch = RUN("--mpi", "-n", "2", TUTTI_EXAMPLES_DIR "/hello", "tcp"); /* the first installed one */
    assert_int_equal(launch.status, 0);
    assert_int_equal(text_count(launch.out.data, "out of 2 processes"), 2);
    launch_free(&launch);
    unsetenv("RANK");
    unsetenv("MASTER_ADDR");
}

static void says_which_rank_failed(void **state)
{
    (void)state;
    EACH(mpi)
    {
        struct launch launch = RUN(mpi->option, "-n", "3", "sh", "-c", RANK_IS(1) " && exit 42; exec sleep 600");
        assert_int_equal(launch.status, 42);
        assert_has(&launch.err, "tutti-run: rank 1 (pid ");
        assert_has(&launch.err, "exited with code 42\n");
        assert_has_not(&launch.err, "rank 0 (pid ");
        launch_free(&launch);
        launch = RUN(mpi->option, "-n", "2", "sh", "-c", RANK_IS(0) " || kill -SEGV $$; exec sleep 600");
        assert_int_equal(launch.status, 128 + SIGSEGV);
        assert_has(&launch.err, "died of SIGSEGV");
        launch_free(&launch);
        launch = RUN(mpi->option, "-n", "2", "./no-such-program");
        assert_int_equal(launch.status, 127);
        assert_has(&launch.err, "cannot run ./no-such-program");
        launch_free(&launch);
    }
}

static void takes_the_output_options(void **state)
{
    (void)state;
    EACH(mpi)
    {
        struct launch launch =
            RUN(mpi->option, "--hosts=localhost:2", "--no-prefix", "-x", "GIVEN=plain", "sh", "-c", "echo $GIVEN");
        assert_int_equal(text_count(launch.out.data, "plain\n"), 2);
        assert_has_not(&launch.out, "[");
        launch_free(&launch);
        char folder[] = "/tmp/tutti-mpi-XXXXXX", path[100], text[16];
        assert_non_null(mkdtemp(folder));
        launch = RUN(mpi->option, "-n", "2", "--log-dir", folder, "sh", "-c", RANK_IS(1) " && echo filed >&2; true");
        assert_int_equal(launch.status, 0);
        launch_free(&launch);
        snprintf(path, sizeof path, "%s/rank_1.err", folder);
        FILE *file = fopen(path, "r");
        assert_non_null(file);
        assert_non_null(fgets(text, sizeof text, file));
        assert_string_equal(text, "filed\n");
        fclose(file);
        snprintf(path, sizeof path, "rm -r %s", folder);
        assert_int_equal(system(path), 0);
    }
}

/* launch_wait and launch_nothing_left check that no process stays, however it ends */
static void ends_all_ranks(void **state)
{
    (void)state;
    static const int signals[] = {SIGINT, SIGTERM, SIGKILL};
    EACH(mpi)
    {
        for (int i = 0; i < 3; i++) {
            struct launch launch = launch_start(ARGS(mpi->option, "-n", "2", "sh", "-c", "echo here; exec sleep 600"));
            launch_expect(&launch, "here", 2);
            kill(launch.pid, signals[i]);
            launch_finish(&launch);
            assert_int_not_equal(launch.status, 0);
            launch_nothing_left();
            launch_free(&launch);
        }
        struct launch launch = RUN(mpi->option, "-n", "2", "--timeout", "1", "sleep", "600");
        assert_int_equal(launch.status, 124);
        assert_has(&launch.err, "the job ran longer than 1 s");
        launch_free(&launch);
    }
}

static void refuses_what_it_cannot_do(void **state)
{
    (void)state;
    launch_assert_refused(ARGS("--mpi=lam", "true"), 2, "openmpi or mpich, not \"lam\"");
    launch_assert_refused(ARGS("--mpi", "--nnodes=2", "--node-rank=0", "true"), 2, "list the hosts with --hosts");
    launch_assert_refused(ARGS("--mpi", "--hosts=root@a", "true"), 2, "not \"root@a\"; set users in ~/.ssh/config");
    launch_assert_refused(ARGS("--mpi", "--hosts=[::1]:2", "true"), 2, "an address of IPv4, not \"::1\"");
    if (has(&mpis[1]))
        launch_assert_refused(ARGS("--mpi=mpich", "--hosts=a", "--ssh-command=ssh -v", "true"), 1,
                              "takes the path of a program, not \"ssh -v\"");
    launch_assert_refused(ARGS("--mpi-rank", "true"), 1, "use --mpi");
    char *path = strdup(getenv("PATH"));
    setenv("PATH", "/nowhere", 1);
    launch_assert_refused(ARGS("--mpi", "true"), 1, "--mpi found no MPI to start the ranks with");
    setenv("PATH", path, 1);
    free(path);
}

/* A program without an MPI launcher gets an error that says so. */
static void an_error_points_to_it(void **state)
{
    (void)state;
    struct launch launch = RUN("-n", "2", TUTTI_EXAMPLES_DIR "/hello", "mpi");
    assert_int_not_equal(launch.status, 0);
    assert_has(&launch.err, "start it with tutti-run --mpi");
    launch_free(&launch);
}

int main(void)
{
    if (!has(&mpis[0]) && !has(&mpis[1])) {
        fprintf(stderr,
                "skipped: no mpi backend was built, or neither mpirun.openmpi nor mpiexec.mpich is installed\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(starts_ranks_of_mpi),       cmocka_unit_test(says_which_rank_failed),
        cmocka_unit_test(takes_the_output_options),  cmocka_unit_test(ends_all_ranks),
        cmocka_unit_test(refuses_what_it_cannot_do), cmocka_unit_test(an_error_points_to_it)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
