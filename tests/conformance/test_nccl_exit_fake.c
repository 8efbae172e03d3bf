/* The exit of a program whose communicators still end, on the stand-ins of tests/fakes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "fake_ranks.h"

enum { LATE_MS = 2500 }; /* longer than destroying a group waits */

/* Makes a group of one rank, uses it, destroys it and exits. */
static void use_and_exit(void)
{
    tutti_store *store = NULL;
    tutti_group *group = NULL;
    tutti_group_opts opts = {.device = {TUTTI_CUDA, 0}};
    if (!cu_load() || !cu_use(0)) _exit(2);
    if (tutti_store_memory(NULL, &store) != TUTTI_OK) _exit(3);
    if (tutti_create_group("nccl", store, 0, 1, &opts, &group) != TUTTI_OK) _exit(4);
    if (tutti_barrier(&(tutti_opts){.group = group}) != TUTTI_OK) _exit(5);
    if (tutti_destroy_process_group(group) != TUTTI_OK) _exit(6);
    tutti_store_free(store);
}

/* A forked process has none of the threads, and waits for none. */
static void use_and_fork(void)
{
    char text[200] = "";
    int ends[2], status = -1;
    use_and_exit();
    if (pipe(ends) != 0) _exit(7);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        exit(0);
    }
    close(ends[1]);
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) _exit(8);
    if (read(ends[0], text, sizeof text - 1) != 0) {
        fprintf(stderr, "the forked process says: %s\n", text);
        _exit(9);
    }
}

static void run_in_child(void (*fn)(void))
{
    int status = -1;
    char fault[32];
    snprintf(fault, sizeof fault, "late@0:%d", LATE_MS);
    setenv("FAKE_NCCL_FAULT", fault, 1);
    pid_t child = fork();
    if (child == 0) {
        fn();
        exit(0);
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    unsetenv("FAKE_NCCL_FAULT");
}

static void test_exit_waits(void **state)
{
    (void)state;
    run_in_child(use_and_exit);
}

static void test_forked_process_does_not_wait(void **state)
{
    (void)state;
    run_in_child(use_and_fork);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_exit_waits),
                                       cmocka_unit_test(test_forked_process_does_not_wait)};
    if (!fakes_are_here()) return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
