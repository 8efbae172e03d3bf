/* Rendezvous in a file, and in stores that other programs have written to. */
#include <sched.h>
#include <signal.h>

#include "portable/process.h"
#include "rendezvous_ranks.h"

static void test_file(void **state)
{
    (void)state;
    char url[96], path[64];
    pid_t children[3];
    snprintf(path, sizeof path, "/tmp/test_rendezvous.%d", (int)getpid());
    snprintf(url, sizeof url, "file://%s?world_size=3", path);
    for (int round = 0; round < 2; round++) { /* rank 0 removes the file, so that the next run can use the path */
        for (int i = 0; i < 3; i++) {
            struct rendezvous_args args = {.init_method = url, .rank = i, .world_size = -1, .timeout_ms = 20000};
            children[i] = rendezvous_ranks_start(i, "X=1", &args);
        }
        for (int i = 0; i < 3; i++) rendezvous_ranks_wait(children[i]);
        for (int i = 0; i < 3; i++) rendezvous_ranks_expect_joined(i, i, 3);
        assert_int_not_equal(access(path, F_OK), 0);
    }
}

/* Waits until rank 0 has written its name. */
static void await_rank_0(const char *path)
{
    const char *const name[] = {"tutti/world/rank/0"};
    tutti_store *store;
    assert_int_equal(tutti_store_file(path, NULL, &store), TUTTI_OK);
    assert_int_equal(tutti_store_wait(store, name, 1, 20000), TUTTI_OK);
    tutti_store_free(store);
}

static void test_file_of_a_dead_rank(void **state)
{
    (void)state;
    char url[96], path[64], scope[128];
    int killed;
    process_scope(scope, sizeof scope);
    if (scope[0] == '\0') {
        print_message("skipped: this build cannot tell that a process of an earlier run has ended\n");
        skip();
    }
    snprintf(path, sizeof path, "/tmp/test_rendezvous.left.%d", (int)getpid());
    snprintf(url, sizeof url, "file://%s?world_size=2", path);
    struct rendezvous_args args = {.init_method = url, .rank = 0, .world_size = -1, .timeout_ms = 20000};
    pid_t child = rendezvous_ranks_start(0, "X=1", &args);
    await_rank_0(path);
    kill(child, SIGKILL);
    waitpid(child, &killed, 0);
    args.rank = 1;
    rendezvous_ranks_wait(rendezvous_ranks_start(1, "X=1", &args));
    rendezvous_ranks_expect(1, TUTTI_ERR_STORE, "left over from an earlier run (rank 0 was ");
    unlink(path);
}

/* The file's ranks have registered and ended without leaving. */
static void test_file_left_over(void **state)
{
    (void)state;
    char url[96], path[64];
    struct rendezvous met;
    snprintf(path, sizeof path, "/tmp/test_rendezvous.registered.%d", (int)getpid());
    snprintf(url, sizeof url, "file://%s?world_size=1&rank=0", path);
    struct rendezvous_args args = {.init_method = url, .rank = -1, .world_size = -1, .timeout_ms = 20000};
    assert_int_equal(rendezvous_join(&args, &met), TUTTI_OK);
    rendezvous_ranks_wait(rendezvous_ranks_start(0, "X=1", &args));
    rendezvous_ranks_expect(0, TUTTI_ERR_STORE, "left over from an earlier run (its ranks had registered)");
    rendezvous_leave(&met);
}

/* The ranks of two containers on one host: neither container knows the pids of the other. */
static void test_file_across_containers(void **state)
{
    (void)state;
    enum { CANNOT = 77 };
    char url[96], path[64];
    snprintf(path, sizeof path, "/tmp/test_rendezvous.apart.%d", (int)getpid());
    snprintf(url, sizeof url, "file://%s?world_size=2", path);
    struct rendezvous_args args = {.init_method = url, .rank = 0, .world_size = -1, .timeout_ms = 20000};
    pid_t first = rendezvous_ranks_start(0, "X=1", &args);
    await_rank_0(path);
    pid_t second = fork();
    if (second == 0) {
        int result = -1;
        if (unshare(CLONE_NEWPID) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) _exit(CANNOT);
        args.rank = 1;
        pid_t child = rendezvous_ranks_start(1, "X=1", &args); /* has pid 1 in its container */
        waitpid(child, &result, 0);
        _exit(result != 0);
    }
    int result = -1;
    waitpid(second, &result, 0);
    if (WIFEXITED(result) && WEXITSTATUS(result) == CANNOT) {
        kill(first, SIGKILL);
        waitpid(first, &result, 0);
        unlink(path);
        print_message("skipped: pid namespaces are not permitted here\n");
        skip();
    }
    assert_int_equal(result, 0);
    rendezvous_ranks_wait(first);
    for (int i = 0; i < 2; i++) rendezvous_ranks_expect_joined(i, i, 2);
}

/* Another program's entry is no verdict, and above all not "all have joined". */
static void test_no_verdict(void **state)
{
    (void)state;
    static const char *const verdicts[] = {"", "met", "0", "7 a", "-99 b", "0x c"};
    for (size_t i = 0; i < sizeof verdicts / sizeof *verdicts; i++) {
        struct rendezvous met;
        tutti_store *store;
        assert_int_equal(tutti_store_memory(NULL, &store), TUTTI_OK);
        assert_int_equal(tutti_store_set(store, "tutti/world/verdict", verdicts[i], strlen(verdicts[i])), TUTTI_OK);
        struct rendezvous_args args = {.store = store, .rank = 0, .world_size = 2, .timeout_ms = 5000};
        int status = rendezvous_join(&args, &met);
        if (status != TUTTI_ERR_STORE || strstr(error_text(), "the verdict in the store is malformed") == NULL)
            fail_msg("\"%s\": %d, %s", verdicts[i], status, status != TUTTI_OK ? error_text() : "met");
        tutti_store_free(store);
    }
}

/* A rank died after its name was written and before it was counted. */
static void test_died_before_it_was_counted(void **state)
{
    (void)state;
    struct rendezvous met;
    tutti_store *store;
    assert_int_equal(tutti_store_memory(NULL, &store), TUTTI_OK);
    assert_int_equal(tutti_store_set(store, "tutti/world/rank/1", "there:7 8", 9), TUTTI_OK);
    assert_int_equal(tutti_store_append(store, "tutti/world/processes", "1 there\n", 8), TUTTI_OK);
    struct rendezvous_args args = {.store = store, .rank = 0, .world_size = 2, .timeout_ms = 50};
    int status = rendezvous_join(&args, &met);
    if (status != TUTTI_ERR_TIMEOUT || strstr(error_text(), "all 2 ranks started, but one of them died") == NULL)
        fail_msg("%d, %s", status, status != TUTTI_OK ? error_text() : "met");
    tutti_store_free(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_file),           cmocka_unit_test(test_file_of_a_dead_rank),
        cmocka_unit_test(test_file_left_over), cmocka_unit_test(test_file_across_containers),
        cmocka_unit_test(test_no_verdict),     cmocka_unit_test(test_died_before_it_was_counted),
    };
    return cmocka_run_group_tests(tests, rendezvous_ranks_setup, NULL);
}
