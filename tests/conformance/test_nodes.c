/* Local rank, node and ranks of a node, under every installed launcher.  Also ranks given as arguments, as in the
 * tutorials' setup(), with MASTER_ADDR and MASTER_PORT from the environment. */
#include <sys/wait.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include "loopback.h"
#include "mpi_launch.h"

#define SELF TUTTI_BUILD_DIR "/tests/test_nodes"

/* Runs as a launched rank. */
static int run_rank(const char *backend)
{
    if (tutti_get_local_rank() != -1 || tutti_get_local_world_size() != -1 || tutti_get_node_rank() != -1) return 2;
    TUTTI_CHECK(tutti_init_process_group(backend, NULL));
    printf("rank %d of %d is %d of %d on node %d\n", tutti_get_rank(NULL), tutti_get_world_size(NULL),
           tutti_get_local_rank(), tutti_get_local_world_size(), tutti_get_node_rank());
    return tutti_destroy_process_group(NULL);
}

static int setup(int rank, int world_size)
{
    TUTTI_CHECK(tutti_init_process_group("tcp", &(tutti_init_opts){.rank = rank, .world_size = world_size}));
    int sum = tutti_get_rank(NULL);
    TUTTI_CHECK(tutti_all_reduce(tutti_view(&sum, 1), TUTTI_SUM, NULL));
    bool right = tutti_get_rank(NULL) == rank && sum == world_size * (world_size - 1) / 2 &&
                 tutti_get_local_rank() == rank && tutti_get_local_world_size() == world_size &&
                 tutti_get_node_rank() == 0;
    if (!right)
        fprintf(stderr, "rank %d: sum %d, local %d of %d, node %d\n", rank, sum, tutti_get_local_rank(),
                tutti_get_local_world_size(), tutti_get_node_rank());
    return tutti_destroy_process_group(NULL) == TUTTI_OK && right ? 0 : 1;
}

static void expect_ranks(const struct launch *launch, int n)
{
    for (int rank = 0; rank < n; rank++) {
        char line[100];
        snprintf(line, sizeof line, "rank %d of %d is %d of %d on node 0\n", rank, n, rank, n);
        if (strstr(launch->out.data, line) == NULL)
            fail_msg("no \"%s\" in: %s%s", line, launch->out.data, launch->err.data);
    }
    assert_int_equal(launch->status, 0);
}

static void test_tutti_run(void **state)
{
    struct launch launch = RUN("-n", "3", SELF, "rank", "tcp");
    (void)state;
    expect_ranks(&launch, 3);
    launch_free(&launch);
    /* the backend determines the local rank without the launcher */
    launch = RUN("-n", "3", "/usr/bin/env", "-u", "LOCAL_RANK", "-u", "LOCAL_WORLD_SIZE", "-u", "GROUP_RANK", "-u",
                 "NODE_RANK", SELF, "rank", "tcp");
    expect_ranks(&launch, 3);
    launch_free(&launch);
}

static void test_mpi(void **state)
{
    static const char *const mpis[] = {"openmpi", "mpich"}, *const backends[] = {"rank tcp", "rank mpi"};
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct launch launch;
        if (!mpi_launch_has(mpis[i / 2])) continue;
        mpi_launch_run(mpis[i / 2], "", 3, SELF, backends[i % 2], &launch);
        expect_ranks(&launch, 3);
        launch_free(&launch);
    }
}

/* The ranks of the environment are ignored. */
static void test_setup(void **state)
{
    char port[16];
    (void)state;
    snprintf(port, sizeof port, "%d", loopback_free_port());
    pid_t ranks[2];
    for (int i = 0; i < 2; i++) {
        ranks[i] = fork();
        if (ranks[i] != 0) continue;
        setenv("MASTER_ADDR", "127.0.0.1", 1);
        setenv("MASTER_PORT", port, 1);
        setenv("RANK", "5", 1);
        setenv("WORLD_SIZE", "9", 1);
        alarm(60);
        exit(setup(i, 2));
    }
    for (int i = 0; i < 2; i++) {
        int status = -1;
        assert_int_equal(waitpid(ranks[i], &status, 0), ranks[i]);
        assert_int_equal(status, 0);
    }
}

static void test_refused(void **state)
{
    (void)state;
    assert_int_equal(tutti_init_process_group("tcp", &(tutti_init_opts){.rank = 1}), TUTTI_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(tutti_last_error(), "rank is 1 without a world_size"));
    assert_int_equal(tutti_init_process_group("tcp", &(tutti_init_opts){.rank = 2, .world_size = 2}),
                     TUTTI_ERR_INVALID_ARGUMENT);
}

int main(int argc, char **argv)
{
    setenv("TUTTI_BACKEND_PATH", TUTTI_BACKENDS_DIR, 1);
    if (argc == 3 && strcmp(argv[1], "rank") == 0) return run_rank(argv[2]);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_tutti_run), cmocka_unit_test(test_mpi),
                                       cmocka_unit_test(test_setup), cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
