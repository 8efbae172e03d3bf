/* The tcp backend's own paths, named like algorithms: by TUTTI_ALGO, by a group, by a tuning file.  The ranks are
 * threads that share memory. */
#include <limits.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conformance/explained.h"
#include "ranks.h"
#include "sanitizer.h"

/* ---- TUTTI_ALGO -------------------------------------------------------------------------------------------------- */

static const char *const paths[] = {"eager", "lockstep", "pipelined", "direct"};

static int named_rank(tutti_group *group, int rank, int size, void *argument)
{
    static const tutti_kind kinds[] = {TUTTI_BROADCAST, TUTTI_ALL_REDUCE, TUTTI_REDUCE,         TUTTI_ALL_GATHER,
                                       TUTTI_GATHER,    TUTTI_SCATTER,    TUTTI_REDUCE_SCATTER, TUTTI_ALL_TO_ALL};
    char line[64];
    (void)rank;
    (void)size;
    snprintf(line, sizeof line, "algorithm %s: TUTTI_ALGO or TUTTI_DETERMINISTIC asks", (const char *)argument);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) EXPECT(explained(group, kinds[i], 4096, line));
    return 0;
}

static void test_by_name(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        setenv("TUTTI_ALGO", paths[i], 1);
        ranks_run(2, named_rank, (void *)(uintptr_t)paths[i]);
    }
    unsetenv("TUTTI_ALGO");
}

/* A named path that is not possible for a size, and a kind that is not named, run as without the variable.  A named
 * plan runs. */
static int mixed_rank(tutti_group *group, int rank, int size, void *argument)
{
    (void)rank;
    (void)size;
    (void)argument;
    EXPECT(explained(group, TUTTI_ALL_REDUCE, 4096, "algorithm eager: TUTTI_ALGO"));
    EXPECT(explained(group, TUTTI_ALL_REDUCE, 1 << 20, "algorithm pipelined: the backend selects"));
    EXPECT(explained(group, TUTTI_BROADCAST, 4096, "algorithm chain: TUTTI_ALGO"));
    EXPECT(explained(group, TUTTI_BARRIER, 0, "algorithm eager: the backend selects"));
    EXPECT(explained(group, TUTTI_SEND, 4096, "tcp: one message, copied into the receiver's ring"));
    EXPECT(explained(group, TUTTI_SEND, 4096, "algorithm eager: the backend selects"));
    EXPECT(explained(group, TUTTI_SEND, 1 << 20, "algorithm fifo: TUTTI_ALGO"));
    return 0;
}

static void test_mixed(void **state)
{
    (void)state;
    setenv("TUTTI_ALGO", "all_reduce=eager,broadcast=chain,send=fifo", 1);
    ranks_run(3, mixed_rank, NULL);
    unsetenv("TUTTI_ALGO");
}

static int unknown_rank(tutti_group *group, int rank, int size, void *argument)
{
    int64_t x = rank;
    (void)size;
    (void)argument;
    EXPECT(tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM, tutti_with(.group = group)) == TUTTI_ERR_INVALID_ARGUMENT);
    EXPECT(strstr(tutti_last_error(), "no algorithm \"eagr\"; use one of: ") != NULL);
    EXPECT(strstr(tutti_last_error(), ", eager") != NULL);
    return 0;
}

static void test_unknown(void **state)
{
    (void)state;
    setenv("TUTTI_ALGO", "eagr", 1);
    ranks_run(2, unknown_rank, NULL);
    unsetenv("TUTTI_ALGO");
}

static void run_with_path(const char *program, const char *path)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        char file[PATH_MAX];
        snprintf(file, sizeof file, TUTTI_BUILD_DIR "/tests/%s", program);
        setenv("TUTTI_ALGO", path, 1);
        execl(file, program, (char *)NULL);
        _exit(127);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    if (status != 0) fail_msg("%s fails with TUTTI_ALGO=%s", program, path);
}

/* Runs all collectives of two test programs by each path.  Under a sanitizer by those that the programs alone take
 * least. */
static void test_results(void **state)
{
    (void)state;
    for (size_t i = SANITIZED; i < sizeof paths / sizeof *paths; i += 1 + SANITIZED) {
        run_with_path("test_collectives", paths[i]);
        run_with_path("test_coalesced", paths[i]);
    }
}

/* ---- a group's own algorithm ------------------------------------------------------------------------------------- */

static int own_rank(tutti_group *group, int rank, int size, void *argument)
{
    tutti_group *part = NULL, *inner = NULL;
    int64_t x = 1;
    (void)argument;
    tutti_group_opts opts = {.parent = group, .algorithm = "all_reduce=pipelined,send=read"};
    EXPECT(tutti_new_group((int[]){0, 1}, 2, &opts, &part) == TUTTI_OK);
    EXPECT(explained(group, TUTTI_ALL_REDUCE, 8, "algorithm eager: the backend selects"));
    if (rank < 2) {
        EXPECT(explained(part, TUTTI_ALL_REDUCE, 8, "algorithm pipelined: the group asks for \"all_reduce=pipelined"));
        EXPECT(explained(part, TUTTI_SEND, 40000, "algorithm read: the group asks for"));
        EXPECT(explained(group, TUTTI_SEND, 40000, "algorithm eager: the backend selects"));
        EXPECT(tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM, tutti_with(.group = part)) == TUTTI_OK && x == 2);
        EXPECT(tutti_new_group((int[]){1, 0}, 2, &(tutti_group_opts){.parent = part}, &inner) == TUTTI_OK);
        EXPECT(explained(inner, TUTTI_ALL_REDUCE, 8, "algorithm pipelined: the group asks"));
        EXPECT(tutti_destroy_process_group(inner) == TUTTI_OK);
    }
    EXPECT(tutti_destroy_process_group(part) == TUTTI_OK);
    opts.algorithm = rank == 1 ? "ring" : NULL;
    EXPECT(tutti_new_group((int[]){0, 1, 2}, size, &opts, &part) == TUTTI_ERR_MISMATCH);
    EXPECT(strstr(tutti_last_error(), "and algorithm ring\"") != NULL);
    return 0;
}

static void test_of_a_group(void **state)
{
    (void)state;
    ranks_run(3, own_rank, NULL);
}

/* ---- tuning ------------------------------------------------------------------------------------------------------ */

static int tuned_rank(tutti_group *group, int rank, int size, void *argument)
{
    (void)rank;
    (void)size;
    (void)argument;
    EXPECT(explained(group, TUTTI_ALL_REDUCE, 64, "algorithm direct: TUTTI_TUNING selects it"));
    EXPECT(explained(group, TUTTI_ALL_REDUCE, 65, "algorithm ring: TUTTI_TUNING selects it"));
    EXPECT(explained(group, TUTTI_ALL_REDUCE, 4000, "algorithm eager: the backend selects"));
    return 0;
}

static void test_tuned(void **state)
{
    static const char rows[] = "tutti tuning 1\ntcp 2 1 all_reduce 64 direct\ntcp 2 1 all_reduce 1000 ring\n"
                               "mpi 2 1 all_reduce any native\n";
    char path[] = "/tmp/tutti-paths-XXXXXX";
    int fd = mkstemp(path);
    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(write(fd, rows, sizeof rows - 1), sizeof rows - 1);
    setenv("TUTTI_TUNING", path, 1);
    ranks_run(2, tuned_rank, NULL);
    unsetenv("TUTTI_TUNING");
    close(fd);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_name),    cmocka_unit_test(test_mixed), cmocka_unit_test(test_unknown),
        cmocka_unit_test(test_of_a_group), cmocka_unit_test(test_tuned), cmocka_unit_test(test_results),
    };
    ranks_setup();
    setenv("TUTTI_TEST_BACKEND", "tcp", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
