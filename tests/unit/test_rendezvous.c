/* Rendezvous, case by case: environments, disagreements, URLs. */
#include <signal.h>
#include <sys/socket.h>

#include "bootstrap/rendezvous_spec.h"
#include "loopback.h"
#include "rendezvous_ranks.h"

enum { SOON_MS = 15000 }; /* for what must not take until a timeout of 20 s */

/* Behaves as the C library's function does in a set-uid program.  Tutti's objects find this definition first. */
char *secure_getenv(const char *name)
{
    return getenv("TEST_IS_SET_UID") != NULL ? NULL : getenv(name);
}

static void one_rank(const char *environment)
{
    char environments[1][256];
    snprintf(environments[0], 256, "%s", environment);
    rendezvous_ranks_run(1, environments, NULL);
}

/* ---- env:// --------------------------------------------------------------------------------------------------- */

static void test_env(void **state)
{
    (void)state;
    char environments[4][256];
    int port = loopback_free_port();
    for (int i = 0; i < 4; i++)
        snprintf(environments[i], 256,
                 "MASTER_ADDR=127.0.0.1 MASTER_PORT=%d RANK=%d WORLD_SIZE=4 LOCAL_RANK=%d LOCAL_WORLD_SIZE=2", port, i,
                 i % 2);
    rendezvous_ranks_run(4, environments, NULL);
    for (int i = 0; i < 4; i++) {
        rendezvous_ranks_expect_joined(i, i, 4);
        assert_int_equal(rendezvous_results[i].local_rank, i % 2);
        assert_int_equal(rendezvous_results[i].local_world_size, 2);
    }
}

/* The tutorials' setup(): the environment says where to meet.  The arguments give rank and size, and take precedence
 * over the environment. */
static void test_ranks_by_argument(void **state)
{
    static const char *const forms[] = {
        "MASTER_ADDR=127.0.0.1 MASTER_PORT=%d",
        "MASTER_ADDR=127.0.0.1 MASTER_PORT=%d RANK=7 WORLD_SIZE=9 LOCAL_RANK=5",
        "MASTER_ADDR=127.0.0.1 MASTER_PORT=%d RANK=none WORLD_SIZE=2",
        "MASTER_ADDR=127.0.0.1 MASTER_PORT=%d SLURM_PROCID=1 SLURM_NTASKS=4 SLURM_LOCALID=1",
    };
    (void)state;
    for (size_t form = 0; form < sizeof forms / sizeof *forms; form++) {
        char environment[256];
        pid_t children[2];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        snprintf(environment, sizeof environment, forms[form], loopback_free_port());
#pragma GCC diagnostic pop
        for (int i = 0; i < 2; i++) {
            struct rendezvous_args args = {.rank = i, .world_size = 2, .timeout_ms = 20000};
            children[i] = rendezvous_ranks_start(i, environment, &args);
        }
        for (int i = 0; i < 2; i++) rendezvous_ranks_wait(children[i]);
        for (int i = 0; i < 2; i++) rendezvous_ranks_expect_joined(i, i, 2);
        for (int i = 0; i < 2; i++) assert_int_equal(rendezvous_results[i].local_rank, -1);
    }
    char as_launched[1][256] = {"RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 GROUP_RANK=3"},
         alone[1][256] = {"X=1"};
    struct rendezvous_args args = {.rank = 0, .world_size = 1, .timeout_ms = 20000};
    rendezvous_ranks_run(1, as_launched, &args);
    rendezvous_ranks_expect_joined(0, 0, 1);
    assert_int_equal(rendezvous_results[0].node_rank, 3);
    rendezvous_ranks_run(1, alone, &args);
    rendezvous_ranks_expect_joined(0, 0, 1);
    args.world_size = 2;
    rendezvous_ranks_run(1, alone, &args);
    rendezvous_ranks_expect(0, TUTTI_ERR_INVALID_ARGUMENT,
                            "env:// needs MASTER_ADDR, which is not set, or empty (rank 0 of 2 is given by");
    rendezvous_ranks_run(1, alone, &(struct rendezvous_args){.init_method = "env://", .rank = 2, .world_size = 2});
    rendezvous_ranks_expect(0, TUTTI_ERR_INVALID_ARGUMENT, "");
}

/* Launchers describe a rank's node. */
static void test_nodes(void **state)
{
    static const struct {
        const char *environment;
        int local_rank, local_world_size, node_rank;
    } rows[] = {
        {"RANK=4 WORLD_SIZE=6 LOCAL_RANK=1 LOCAL_WORLD_SIZE=3 GROUP_RANK=1", 1, 3, 1},
        {"SLURM_PROCID=6 SLURM_NTASKS=7 SLURM_LOCALID=0 SLURM_NODEID=3 SLURM_STEP_TASKS_PER_NODE=2(x3),1", 0, 1, 3},
        {"SLURM_PROCID=3 SLURM_NTASKS=7 SLURM_LOCALID=1 SLURM_NODEID=1 SLURM_STEP_TASKS_PER_NODE=2(x3),1", 1, 2, 1},
        {"SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_LOCALID=0 SLURM_NODEID=9 SLURM_STEP_TASKS_PER_NODE=2", 0, -1, 9},
        {"SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_STEP_TASKS_PER_NODE=x", 0, -1, 0},
        {"OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=3 OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=1", 0,
         1, -1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct rendezvous_spec *place = malloc(sizeof *place);
        rendezvous_ranks_setenv(rows[i].environment);
        rendezvous_ranks_setenv("MASTER_ADDR=127.0.0.1 MASTER_PORT=1");
        int status = rendezvous_spec_parse("env://", place);
        rendezvous_ranks_setup(NULL);
        assert_int_equal(status, TUTTI_OK);
        assert_int_equal(place->local_rank, rows[i].local_rank);
        assert_int_equal(place->local_world_size, rows[i].local_world_size);
        assert_int_equal(place->node_rank, rows[i].node_rank);
        free(place);
    }
}

static void test_env_names_what_is_wrong(void **state)
{
    (void)state;
    static const struct {
        const char *environment, *part;
    } rows[] = {
        {"MASTER_PORT=1 RANK=0 WORLD_SIZE=2", "MASTER_ADDR"},
        {"MASTER_ADDR= MASTER_PORT=1 RANK=0 WORLD_SIZE=2", "MASTER_ADDR"},
        {"MASTER_ADDR=x RANK=0 WORLD_SIZE=2", "MASTER_PORT"},
        {"MASTER_ADDR=x MASTER_PORT=http RANK=0 WORLD_SIZE=2", "MASTER_PORT is \"http\""},
        {"MASTER_ADDR=x MASTER_PORT=65536 RANK=0 WORLD_SIZE=2", "MASTER_PORT is \"65536\""},
        {"MASTER_ADDR=x MASTER_PORT=0 RANK=0 WORLD_SIZE=2", "MASTER_PORT is \"0\""},
        {"MASTER_ADDR=x MASTER_PORT=1 WORLD_SIZE=2", "RANK"},
        {"MASTER_ADDR=x MASTER_PORT=1 RANK=0", "WORLD_SIZE"},
        {"MASTER_ADDR=x MASTER_PORT=1 RANK=one WORLD_SIZE=2", "RANK is \"one\""},
        {"MASTER_ADDR=x MASTER_PORT=1 RANK=1x WORLD_SIZE=2", "RANK is \"1x\""},
        {"MASTER_ADDR=x MASTER_PORT=1 RANK=-1 WORLD_SIZE=2", "RANK is \"-1\""},
        {"MASTER_ADDR=x MASTER_PORT=1 RANK=0 WORLD_SIZE=0", "WORLD_SIZE is \"0\""},
        {"MASTER_ADDR=x MASTER_PORT=1 RANK=2 WORLD_SIZE=2", "rank is 2"},
        {"MASTER_ADDR=x MASTER_PORT=1 RANK=0 WORLD_SIZE=2 LOCAL_RANK=z", "LOCAL_RANK is \"z\""},
        {"OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2", "MASTER_ADDR"},
        {"PMIX_RANK=0", "WORLD_SIZE"},
        {"OMPI_COMM_WORLD_SIZE=2", "needs RANK, which is not set, or empty (OMPI_COMM_WORLD_SIZE)"},
        {"PMI_SIZE=2", "needs RANK, which is not set, or empty (PMI_SIZE)"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        one_rank(rows[i].environment);
        rendezvous_ranks_expect(0, TUTTI_ERR_INVALID_ARGUMENT, rows[i].part);
        assert_true(rendezvous_results[0].ms < SOON_MS);
    }
}

static void test_nobody_launched_us(void **state)
{
    (void)state;
    one_rank("UNRELATED=1");
    rendezvous_ranks_expect_joined(0, 0, 1);
    one_rank("OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1");
    rendezvous_ranks_expect_joined(0, 0, 1);
}

/* Otherwise each rank would silently be a world of its own. */
static void test_set_uid(void **state)
{
    (void)state;
    static const char *const environments[] = {
        "MASTER_ADDR=127.0.0.1 MASTER_PORT=1 RANK=0 WORLD_SIZE=2 TEST_IS_SET_UID=1",
        "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 TEST_IS_SET_UID=1",
        "SLURM_PROCID=0 SLURM_NTASKS=2 TEST_IS_SET_UID=1"};
    static const char *const named[] = {"env://: RANK is set", "OMPI_COMM_WORLD_RANK is set", "SLURM_PROCID is set"};
    for (int i = 0; i < 3; i++) {
        one_rank(environments[i]);
        rendezvous_ranks_expect(0, TUTTI_ERR_INVALID_ARGUMENT, named[i]);
        rendezvous_ranks_expect(0, TUTTI_ERR_INVALID_ARGUMENT, "set-uid");
    }
    one_rank("TEST_IS_SET_UID=1");
    rendezvous_ranks_expect_joined(0, 0, 1);
}

static void test_other_launchers(void **state)
{
    (void)state;
    static const char *const forms[] = {
        "OMPI_COMM_WORLD_RANK=%d OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2",
        "PMI_RANK=%d PMI_SIZE=2 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2",
        "PMIX_RANK=%d SLURM_NTASKS=2 SLURM_LOCALID=1",
        "SLURM_PROCID=%d SLURM_NTASKS=2 SLURM_LOCALID=1",
        "RANK=%d WORLD_SIZE=2 LOCAL_RANK=1 OMPI_COMM_WORLD_RANK=7 OMPI_COMM_WORLD_SIZE=9", /* Tutti's own variables take
                                                                                              precedence */
        /* nested: mpirun closes the descriptor that mpiexec opened */
        "PMI_RANK=%d PMI_SIZE=2 PMI_FD=77 MPI_LOCALRANKID=1 OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1",
        "OMPI_COMM_WORLD_RANK=%d OMPI_COMM_WORLD_SIZE=2 PMI_RANK=0 PMI_SIZE=1 PMI_FD=78 OMPI_COMM_WORLD_LOCAL_RANK=1",
    };
    int wire[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, wire), 0);
    assert_int_equal(dup2(wire[0], 77), 77);
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        char environments[2][256];
        int port = loopback_free_port();
        for (int rank = 0; rank < 2; rank++) {
            int used = snprintf(environments[rank], 256, "MASTER_ADDR=127.0.0.1 MASTER_PORT=%d ", port);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
            snprintf(environments[rank] + used, 256 - (size_t)used, forms[i], rank);
#pragma GCC diagnostic pop
        }
        rendezvous_ranks_run(2, environments, NULL);
        for (int rank = 0; rank < 2; rank++) {
            rendezvous_ranks_expect_joined(rank, rank, 2);
            assert_int_equal(rendezvous_results[rank].local_rank, 1);
        }
    }
    for (int i = 0; i < 2; i++) close(wire[i]);
    close(77);
}

static void test_hosted(void **state)
{
    (void)state;
    char environments[2][256];
    tutti_store *store;
    /* the store is opened before the ranks fork, which only use its port */
    assert_int_equal(tutti_store_tcp("127.0.0.1", 0, &(tutti_store_opts){.server = true}, &store), TUTTI_OK);
    for (int i = 0; i < 2; i++)
        snprintf(environments[i], 256, "TUTTI_STORE_HOSTED=1 MASTER_ADDR=localhost MASTER_PORT=%d RANK=%d WORLD_SIZE=2",
                 tutti_store_port(store), i);
    rendezvous_ranks_run(2, environments, NULL);
    for (int i = 0; i < 2; i++) rendezvous_ranks_expect_joined(i, i, 2);
    tutti_store_free(store);
}

/* Runs world after world in the launcher's store, which removes the keys of earlier worlds. */
static void test_hosted_many(void **state)
{
    (void)state;
    enum { WORLDS = 10 };
    tutti_store *store;
    int64_t first = 0, last = 0;
    char environment[256];
    assert_int_equal(tutti_store_tcp("127.0.0.1", 0, &(tutti_store_opts){.server = true}, &store), TUTTI_OK);
    snprintf(environment, sizeof environment,
             "TUTTI_STORE_HOSTED=1 MASTER_ADDR=localhost MASTER_PORT=%d RANK=0 WORLD_SIZE=1", tutti_store_port(store));
    rendezvous_ranks_setenv(environment);
    for (int i = 0; i < WORLDS; i++) {
        struct result result = {0};
        rendezvous_ranks_main(&(struct rendezvous_args){.rank = -1, .world_size = -1, .timeout_ms = 20000}, &result);
        assert_int_equal(result.status, TUTTI_OK);
        assert_true(result.exchanged);
        assert_int_equal(tutti_store_num_keys(store, i == 4 ? &first : &last), TUTTI_OK);
    }
    static const char *const set[] = {"TUTTI_STORE_HOSTED", "MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE"};
    for (size_t i = 0; i < sizeof set / sizeof *set; i++) unsetenv(set[i]);
    if (last > first) fail_msg("%d keys after the first worlds, %d after %d", (int)first, (int)last, WORLDS);
    tutti_store_free(store);
}

/* ---- disagreements -------------------------------------------------------------------------------------------- */

static void test_world_sizes_differ(void **state)
{
    (void)state;
    for (int form = 0; form < 2; form++) {
        char environments[2][256];
        int port = loopback_free_port();
        for (int i = 0; i < 2; i++)
            snprintf(environments[i], 256, "MASTER_ADDR=127.0.0.1 MASTER_PORT=%d RANK=%d WORLD_SIZE=%d", port, i,
                     i == form ? 2 : 3);
        rendezvous_ranks_run(2, environments, NULL);
        for (int i = 0; i < 2; i++) {
            rendezvous_ranks_expect(i, TUTTI_ERR_MISMATCH, form == 0 ? "rank 1 says 3" : "rank 1 says 2");
            rendezvous_ranks_expect(i, TUTTI_ERR_MISMATCH, form == 0 ? "rank 0 says 2" : "rank 0 says 3");
            assert_true(rendezvous_results[i].ms < SOON_MS);
        }
    }
}

static void test_rank_twice(void **state)
{
    (void)state;
    char environments[3][256];
    struct rendezvous_args args = {.rank = -1, .world_size = -1, .timeout_ms = 2000};
    int port = loopback_free_port(), second = 0;
    for (int i = 0; i < 3; i++)
        snprintf(environments[i], 256, "MASTER_ADDR=127.0.0.1 MASTER_PORT=%d RANK=%d WORLD_SIZE=3", port, i > 0);
    rendezvous_ranks_run(3, environments, &args);
    for (int i = 1; i < 3; i++) second += rendezvous_results[i].status == TUTTI_ERR_MISMATCH;
    assert_int_equal(second, 1);
    int twice = rendezvous_results[1].status == TUTTI_ERR_MISMATCH ? 1 : 2;
    rendezvous_ranks_expect(twice, TUTTI_ERR_MISMATCH, "rank 1 already joined from ");
    assert_true(rendezvous_results[twice].ms < 1900);
    rendezvous_ranks_expect(0, TUTTI_ERR_TIMEOUT, "joined 2 of 3, missing 2");
    rendezvous_ranks_expect(3 - twice, TUTTI_ERR_TIMEOUT, "joined 2 of 3, missing 2");
}

static void test_rank_missing(void **state)
{
    (void)state;
    char environments[2][256];
    struct rendezvous_args args = {.rank = -1, .world_size = -1, .timeout_ms = 1500}; /* both come within it */
    int port = loopback_free_port();
    for (int i = 0; i < 2; i++)
        snprintf(environments[i], 256, "MASTER_ADDR=127.0.0.1 MASTER_PORT=%d RANK=%d WORLD_SIZE=3", port, i * 2);
    rendezvous_ranks_run(2, environments, &args);
    for (int i = 0; i < 2; i++) {
        rendezvous_ranks_expect(i, TUTTI_ERR_TIMEOUT, "joined 2 of 3, missing 1");
        assert_true(rendezvous_results[i].ms >= 1000 && rendezvous_results[i].ms < SOON_MS);
    }
    args.timeout_ms = 600;
    snprintf(environments[0], 256, "MASTER_ADDR=127.0.0.1 MASTER_PORT=%d RANK=1 WORLD_SIZE=3", port);
    rendezvous_ranks_run(1, environments, &args);
    rendezvous_ranks_expect(0, TUTTI_ERR_STORE, "rank 0's store cannot be reached");
    rendezvous_ranks_expect(0, TUTTI_ERR_STORE, "Connection refused");
}

/* Waits until a rank has joined. */
static void await_rank(int port, int rank)
{
    char name[32];
    const char *const names[] = {name};
    tutti_store *store;
    snprintf(name, sizeof name, "tutti/world/rank/%d", rank);
    assert_int_equal(tutti_store_tcp("127.0.0.1", (uint16_t)port, NULL, &store), TUTTI_OK);
    assert_int_equal(tutti_store_wait(store, names, 1, 20000), TUTTI_OK);
    tutti_store_free(store);
}

/* Rank 0 is killed while the others wait. */
static void test_rank_0_killed(void **state)
{
    (void)state;
    struct rendezvous_args args = {.rank = -1, .world_size = -1, .timeout_ms = 20000};
    char environment[256], address[32];
    int port = loopback_free_port(), killed;
    pid_t children[2];
    for (int i = 0; i < 2; i++) {
        snprintf(environment, sizeof environment, "MASTER_ADDR=127.0.0.1 MASTER_PORT=%d RANK=%d WORLD_SIZE=3", port, i);
        children[i] = rendezvous_ranks_start(i, environment, &args);
    }
    await_rank(port, 1);
    kill(children[0], SIGKILL);
    int64_t begun = clock_now_ns();
    rendezvous_ranks_wait(children[1]);
    assert_true(clock_now_ns() - begun < SOON_MS * INT64_C(1000000));
    waitpid(children[0], &killed, 0);
    snprintf(address, sizeof address, "127.0.0.1:%d", port);
    rendezvous_ranks_expect(1, TUTTI_ERR_STORE, address);
}

static void test_two_rank_0(void **state)
{
    (void)state;
    char environments[2][256];
    struct rendezvous_args args = {.rank = -1, .world_size = -1, .timeout_ms = 1500};
    int port = loopback_free_port();
    for (int i = 0; i < 2; i++)
        snprintf(environments[i], 256, "MASTER_ADDR=127.0.0.1 MASTER_PORT=%d RANK=0 WORLD_SIZE=2", port);
    rendezvous_ranks_run(2, environments, &args);
    int refused = rendezvous_results[0].status == TUTTI_ERR_STORE ? 0 : 1;
    rendezvous_ranks_expect(refused, TUTTI_ERR_STORE, "in use");
    rendezvous_ranks_expect(1 - refused, TUTTI_ERR_TIMEOUT, "joined 1 of 2, missing 1");
}

static void test_wrong_token(void **state)
{
    (void)state;
    char environments[2][256];
    struct rendezvous_args args = {.rank = -1, .world_size = -1, .timeout_ms = 1500};
    int port = loopback_free_port();
    for (int i = 0; i < 2; i++)
        snprintf(environments[i], 256, "TUTTI_TOKEN=%064d MASTER_ADDR=127.0.0.1 MASTER_PORT=%d RANK=%d WORLD_SIZE=2",
                 i + 1, port, i);
    rendezvous_ranks_run(2, environments, &args);
    rendezvous_ranks_expect(0, TUTTI_ERR_TIMEOUT, "joined 1 of 2, missing 1");
    rendezvous_ranks_expect(1, TUTTI_ERR_AUTH, "token");
}

/* ---- URLs ------------------------------------------------------------------------------------------------------ */

static void test_url_parsing(void **state)
{
    (void)state;
    struct rendezvous_spec *place = malloc(sizeof *place);
    assert_int_equal(rendezvous_spec_parse("tcp://[::1]:80?rank=3&world_size=4", place), TUTTI_OK);
    assert_string_equal(place->host, "::1");
    assert_int_equal(place->port, 80);
    assert_int_equal(place->rank, 3);
    assert_int_equal(place->world_size, 4);
    assert_int_equal(rendezvous_spec_parse("tcp://node-1.example:29500", place), TUTTI_OK);
    assert_string_equal(place->host, "node-1.example");
    assert_int_equal(place->rank, -1);
    assert_int_equal(rendezvous_spec_parse("file:///tmp/a b?world_size=2", place), TUTTI_OK);
    assert_string_equal(place->path, "/tmp/a b");
    static const struct {
        const char *url, *part;
    } bad[] = {
        {"", "must begin with"},
        {"http://x:1", "http://x:1"},
        {"env://?rank=1", "takes no parameters"},
        {"tcp://", "no host"},
        {"tcp://:80", "no host"},
        {"tcp://host", "no port"},
        {"tcp://host:", "port is \"\""},
        {"tcp://host:0", "port is \"0\""},
        {"tcp://host:80x", "port is \"80x\""},
        {"tcp://::1:80", "[address]:port"},
        {"tcp://[::1:80", "closing ]"},
        {"tcp://[::1]", "no port"},
        {"tcp://h:1?rank=", "rank is \"\""},
        {"tcp://h:1?rank=x", "rank is \"x\""},
        {"tcp://h:1?rank", "rank is \"\""},
        {"tcp://h:1?world_size=0", "world_size is \"0\""},
        {"tcp://h:1?colour=red", "unknown parameter \"colour\""},
        {"tcp://h:1?rank=1&rank=2", "twice"},
        {"file://relative", "absolute"},
        {"file:///", "absolute"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(rendezvous_spec_parse(bad[i].url, place), TUTTI_ERR_INVALID_ARGUMENT);
        if (strstr(error_text(), bad[i].part) == NULL) fail_msg("%s: %s", bad[i].url, error_text());
    }
    free(place);
}

static void test_tcp_url(void **state)
{
    (void)state;
    char url[64], environments[2][256] = {"X=1", "X=1"};
    snprintf(url, sizeof url, "tcp://127.0.0.1:%d?world_size=2", loopback_free_port());
    pid_t children[2];
    for (int i = 0; i < 2; i++) {
        struct rendezvous_args args = {.init_method = url, .rank = i, .world_size = -1, .timeout_ms = 20000};
        children[i] = rendezvous_ranks_start(i, environments[i], &args);
    }
    for (int i = 0; i < 2; i++) rendezvous_ranks_wait(children[i]);
    for (int i = 0; i < 2; i++) rendezvous_ranks_expect_joined(i, i, 2);
}

static void test_arguments_contradict(void **state)
{
    (void)state;
    struct rendezvous met;
    tutti_store *store;
    struct rendezvous_args args = {.init_method = "tcp://h:1?rank=1&world_size=2", .rank = 0, .world_size = -1};
    assert_int_equal(rendezvous_join(&args, &met), TUTTI_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(error_text(), "rank is 0 by argument and 1"));
    args = (struct rendezvous_args){.init_method = "tcp://h:1", .rank = 0, .world_size = -1};
    assert_int_equal(rendezvous_join(&args, &met), TUTTI_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(error_text(), "world_size is missing"));
    assert_int_equal(tutti_store_memory(NULL, &store), TUTTI_OK);
    args = (struct rendezvous_args){.init_method = "env://", .store = store, .rank = 0, .world_size = 1};
    assert_int_equal(rendezvous_join(&args, &met), TUTTI_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(error_text(), "and a store are both given"));
    args = (struct rendezvous_args){.store = store, .rank = 0, .world_size = 1, .timeout_ms = -3};
    assert_int_equal(rendezvous_join(&args, &met), TUTTI_ERR_INVALID_ARGUMENT);
    rendezvous_leave(&met);
    /* one store, two worlds */
    args = (struct rendezvous_args){.store = store, .rank = 0, .world_size = 1};
    assert_int_equal(rendezvous_join(&args, &met), TUTTI_OK);
    rendezvous_leave(&met);
    assert_int_equal(rendezvous_join(&args, &met), TUTTI_ERR_MISMATCH);
    args.prefix = "another";
    assert_int_equal(rendezvous_join(&args, &met), TUTTI_OK);
    rendezvous_leave(&met);
    tutti_store_free(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_env),
        cmocka_unit_test(test_ranks_by_argument),
        cmocka_unit_test(test_nodes),
        cmocka_unit_test(test_env_names_what_is_wrong),
        cmocka_unit_test(test_nobody_launched_us),
        cmocka_unit_test(test_set_uid),
        cmocka_unit_test(test_other_launchers),
        cmocka_unit_test(test_hosted),
        cmocka_unit_test(test_hosted_many),
        cmocka_unit_test(test_world_sizes_differ),
        cmocka_unit_test(test_rank_twice),
        cmocka_unit_test(test_rank_missing),
        cmocka_unit_test(test_rank_0_killed),
        cmocka_unit_test(test_two_rank_0),
        cmocka_unit_test(test_wrong_token),
        cmocka_unit_test(test_url_parsing),
        cmocka_unit_test(test_tcp_url),
        cmocka_unit_test(test_arguments_contradict),
    };
    return cmocka_run_group_tests(tests, rendezvous_ranks_setup, NULL);
}
