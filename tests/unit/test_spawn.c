/* tutti_spawn: ranks that are forks of the program.  A rank reports by its exit status or through shared memory.  Only
 * the parent asserts. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include <cmocka.h>

#include "usage.h"

enum { RANKS = 4, HANG_S = 60 };

/* Results of the ranks for the parent. */
struct shared {
    atomic_int entered, terminated;
    int rank[RANKS], world[RANKS], fds[RANKS];
    char port[RANKS][8];
    uint8_t token[RANKS][TUTTI_TOKEN_BYTES];
    pid_t pid[RANKS];
};

static struct shared *shared;

static int set_up(void **state)
{
    (void)state;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    alarm(HANG_S); /* ends the test with SIGALRM if a wait never ends */
    return shared == MAP_FAILED;
}

static int tear_down(void **state)
{
    (void)state;
    alarm(0);
    return munmap(shared, sizeof *shared);
}

static void assert_no_child_left(void)
{
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
}

static void assert_fails(int (*fn)(int, void *), int nprocs, const char *part)
{
    assert_int_equal(tutti_spawn(fn, NULL, nprocs), TUTTI_ERR_SYSTEM);
    if (!strstr(tutti_last_error(), part)) fail_msg("no \"%s\" in: %s", part, tutti_last_error());
    assert_no_child_left();
}

static int variable(const char *name)
{
    const char *text = getenv(name);
    return text ? atoi(text) : -1;
}

static int record_everything(int rank, void *argument)
{
    shared->rank[rank] = variable("RANK") == variable("LOCAL_RANK") ? variable("RANK") : -2;
    shared->world[rank] = variable("WORLD_SIZE") == variable("LOCAL_WORLD_SIZE") ? variable("WORLD_SIZE") : -2;
    shared->fds[rank] = usage_fds();
    snprintf(shared->port[rank], sizeof shared->port[rank], "%s", getenv("MASTER_PORT"));
    if (pread(variable("TUTTI_TOKEN_FD"), shared->token[rank], TUTTI_TOKEN_BYTES, 0) != TUTTI_TOKEN_BYTES) return 1;
    if (strcmp(getenv("MASTER_ADDR"), "127.0.0.1") != 0 || variable("TUTTI_STORE_HOSTED") != 1) return 2;
    return *(int *)argument == 17 ? 0 : 3;
}

static void each_rank_finds_its_place(void **state)
{
    (void)state;
    static const uint8_t none[TUTTI_TOKEN_BYTES];
    int argument = 17, before = usage_fds();
    setenv("RANK", "99", 1); /* variable of an outer job */
    assert_int_equal(tutti_spawn(record_everything, &argument, RANKS), TUTTI_OK);
    assert_string_equal(getenv("RANK"), "99");
    unsetenv("RANK");
    for (int i = 0; i < RANKS; i++) {
        assert_int_equal(shared->rank[i], i);
        assert_int_equal(shared->world[i], RANKS);
        assert_int_equal(shared->fds[i], before + 1); /* one more: the token's descriptor */
        assert_true(atoi(shared->port[i]) > 0);
        assert_string_equal(shared->port[i], shared->port[0]);
        assert_memory_equal(shared->token[i], shared->token[0], TUTTI_TOKEN_BYTES);
    }
    assert_memory_not_equal(shared->token[0], none, TUTTI_TOKEN_BYTES);
    assert_no_child_left();
}

/* The ranks join in the parent's store, with the token of the environment. */
static int join(int rank, void *argument)
{
    tutti_store *store;
    (void)rank, (void)argument;
    if (tutti_store_tcp(getenv("MASTER_ADDR"), (uint16_t)variable("MASTER_PORT"), NULL, &store) != TUTTI_OK) {
        fprintf(stderr, "rank %d: %s\n", rank, tutti_last_error());
        return 1;
    }
    int status = tutti_store_barrier(store, "all", RANKS, 30000);
    tutti_store_free(store);
    return status == TUTTI_OK ? 0 : 2;
}

static void the_ranks_join_in_the_parents_store(void **state)
{
    (void)state;
    int before = usage_fds();
    for (int i = 0; i < 10; i++) {
        int status = tutti_spawn(join, NULL, RANKS);
        if (status != TUTTI_OK) fail_msg("%s", tutti_last_error());
    }
    assert_int_equal(usage_fds(), before);
    assert_no_child_left();
}

static void on_sigterm(int signal)
{
    (void)signal;
    atomic_fetch_add(&shared->terminated, 1);
    _exit(0);
}

/* Rank 1 fails when all have joined.  The others would never end. */
static int one_returns_7(int rank, void *argument)
{
    (void)argument;
    shared->pid[rank] = getpid();
    signal(SIGTERM, on_sigterm);
    atomic_fetch_add(&shared->entered, 1);
    while (rank != 1) pause();
    while (atomic_load(&shared->entered) < RANKS) usleep(1000);
    return 7;
}

static void a_failure_ends_the_others_and_is_named(void **state)
{
    (void)state;
    int before = usage_fds();
    assert_fails(one_returns_7, RANKS, "rank 1 exited with code 7");
    for (int i = 0; i < RANKS; i++) assert_int_equal(kill(shared->pid[i], 0), -1);
    assert_int_equal(shared->terminated, RANKS - 1);
    assert_int_equal(usage_fds(), before);
}

static int one_segfaults(int rank, void *argument)
{
    (void)argument;
    while (rank != 2) pause();
    signal(SIGSEGV, SIG_DFL); /* a sanitizer's handler would turn it into an exit */
    raise(SIGSEGV);
    return 0;
}

static void a_signal_is_named(void **state)
{
    (void)state;
    assert_fails(one_segfaults, RANKS, "rank 2 died of SIGSEGV");
}

static int return_256(int rank, void *argument)
{
    (void)rank, (void)argument;
    return 256;
}

static int return_an_error(int rank, void *argument)
{
    (void)rank, (void)argument;
    return TUTTI_ERR_TIMEOUT;
}

static void no_failure_passes_for_success(void **state)
{
    (void)state;
    assert_fails(return_256, 1, "rank 0 exited with code 1");
    assert_fails(return_an_error, 1, "rank 0 exited with code 253");
}

static int ignore_sigterm(int rank, void *argument)
{
    (void)argument;
    signal(SIGTERM, SIG_IGN);
    atomic_fetch_add(&shared->entered, 1);
    while (rank == 0) pause();
    while (atomic_load(&shared->entered) < 2) usleep(1000);
    return 3;
}

static void a_rank_that_ignores_sigterm_is_killed(void **state)
{
    (void)state;
    assert_fails(ignore_sigterm, 2, "rank 1 exited with code 3");
}

/* Buffered output is written once: by the parent before the fork, and by each rank when it ends. */
static int print_unflushed(int rank, void *argument)
{
    (void)rank;
    fputs("rank\n", argument);
    return 0;
}

static void buffered_output_is_written_once(void **state)
{
    (void)state;
    char text[64] = "";
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    FILE *file = fdopen(ends[1], "w");
    assert_non_null(file);
    fputs("parent\n", file);
    assert_int_equal(tutti_spawn(print_unflushed, file, 2), TUTTI_OK);
    fclose(file);
    assert_int_equal(read(ends[0], text, sizeof text - 1), 17);
    assert_string_equal(text, "parent\nrank\nrank\n");
    close(ends[0]);
}

static int exit_77(int rank, void *argument)
{
    (void)rank, (void)argument;
    return 77;
}

/* tutti_spawn ignores the program's own child processes, dead or alive. */
static void other_children_are_left_alone(void **state)
{
    (void)state;
    int status;
    pid_t other = fork();
    if (other == 0) _exit(5);
    assert_int_equal(tutti_spawn(record_everything, &(int){17}, 2), TUTTI_OK);
    assert_int_equal(waitpid(other, &status, 0), other);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 5);
}

static void an_ignored_sigchld_is_no_success(void **state)
{
    (void)state;
    signal(SIGCHLD, SIG_IGN);
    int status = tutti_spawn(exit_77, NULL, 2);
    signal(SIGCHLD, SIG_DFL);
    assert_int_equal(status, TUTTI_ERR_SYSTEM);
    assert_non_null(strstr(tutti_last_error(), "SIGCHLD"));
}

static void on_tick(int signal)
{
    (void)signal;
}

static void signals_do_not_disturb(void **state)
{
    (void)state;
    struct sigaction tick = {.sa_handler = on_tick}; /* no SA_RESTART: each wait is interrupted */
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    struct itimerspec often = {{0, 500000}, {0, 500000}};
    timer_t timer;
    sigaction(SIGUSR1, &tick, NULL);
    assert_int_equal(timer_create(CLOCK_MONOTONIC, &event, &timer), 0);
    assert_int_equal(timer_settime(timer, 0, &often, NULL), 0);
    for (int i = 0; i < 20; i++)
        if (tutti_spawn(join, NULL, RANKS) != TUTTI_OK) fail_msg("%s", tutti_last_error());
    timer_delete(timer);
    signal(SIGUSR1, SIG_DFL);
}

/* The program itself is killed, and its ranks must not outlive it.  The test adopts them to see that. */
static int stay(int rank, void *argument)
{
    (void)argument;
    signal(SIGTERM, SIG_IGN);
    shared->pid[rank] = getpid();
    atomic_fetch_add(&shared->entered, 1);
    for (;;) pause();
    return 0;
}

static void ranks_end_with_a_killed_program(void **state)
{
    (void)state;
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) { /* qemu's user mode */
        print_message("skipped: this system does not let a process adopt others\n");
        skip();
    }
    pid_t program = fork();
    if (program == 0) _exit(tutti_spawn(stay, NULL, RANKS) != TUTTI_OK);
    while (atomic_load(&shared->entered) < RANKS) usleep(1000);
    kill(program, SIGKILL);
    for (int i = 0; i < RANKS + 1; i++) { /* the alarm bounds it */
        int status;
        assert_true(waitpid(-1, &status, 0) > 0);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    }
    assert_no_child_left();
}

static void bad_arguments_are_refused(void **state)
{
    (void)state;
    assert_int_equal(tutti_spawn(NULL, NULL, 2), TUTTI_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(tutti_last_error(), "fn is NULL"));
    assert_int_equal(tutti_spawn(join, NULL, 0), TUTTI_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(tutti_last_error(), "nprocs is 0"));
    assert_int_equal(tutti_spawn(join, NULL, -3), TUTTI_ERR_INVALID_ARGUMENT);
}

/* A spawned rank would inherit the default group and could not make its own. */
static void not_where_the_default_group_exists(void **state)
{
    tutti_store *store = NULL;
    (void)state;
    assert_int_equal(tutti_store_memory(NULL, &store), TUTTI_OK);
    tutti_init_opts alone = {.store = store, .world_size = 1};
    assert_int_equal(tutti_init_process_group(TUTTI_BUILD_DIR "/tests/plugins/libtutti_loop.so", &alone), TUTTI_OK);
    assert_int_equal(tutti_spawn(join, NULL, 2), TUTTI_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(tutti_last_error(), "the default group exists"));
    assert_int_equal(tutti_destroy_process_group(NULL), TUTTI_OK);
    tutti_store_free(store);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(each_rank_finds_its_place),
        TEST(the_ranks_join_in_the_parents_store),
        TEST(a_failure_ends_the_others_and_is_named),
        TEST(a_signal_is_named),
        TEST(no_failure_passes_for_success),
        TEST(a_rank_that_ignores_sigterm_is_killed),
        TEST(buffered_output_is_written_once),
        TEST(other_children_are_left_alone),
        TEST(an_ignored_sigchld_is_no_success),
        TEST(signals_do_not_disturb),
        TEST(ranks_end_with_a_killed_program),
        TEST(bad_arguments_are_refused),
        TEST(not_where_the_default_group_exists),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
