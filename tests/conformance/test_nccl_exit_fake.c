/* The exit of a program whose communicators still end, on the stand-ins of tests/fakes. */
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "fake_ranks.h"

enum { LATE_MS = 2500, SOON_MS = 500 }; /* longer than destroying a group waits, and less */

static tutti_store *store;

/* Makes a group of one rank, and uses it. */
static tutti_group *make_group(const char *name)
{
    tutti_group *group = NULL;
    tutti_group_opts opts = {.device = {TUTTI_CUDA, 0}, .name = name};
    if (!cu_load() || !cu_use(0)) _exit(2);
    if (store == NULL && tutti_store_memory(NULL, &store) != TUTTI_OK) _exit(3);
    if (tutti_create_group("nccl", store, 0, 1, &opts, &group) != TUTTI_OK) _exit(4);
    if (tutti_barrier(&(tutti_opts){.group = group}) != TUTTI_OK) _exit(5);
    return group;
}

static void end_group(tutti_group *group)
{
    if (tutti_destroy_process_group(group) != TUTTI_OK) _exit(6);
}

static void use_and_exit(void)
{
    end_group(make_group("one"));
}

static void *end_group_main(void *group)
{
    end_group(group);
    return NULL;
}

/* Exits while another thread ends the communicators and waits for them. */
static void exit_under_another_thread(void)
{
    pthread_t thread;
    int (*ending)(void) = NULL;
    tutti_group *group = make_group("one");
    void *nccl = dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD);
    if (nccl != NULL) *(void **)&ending = dlsym(nccl, "fake_nccl_ending");
    if (ending == NULL || pthread_create(&thread, NULL, end_group_main, group) != 0) _exit(10);
    while (ending() == 0) usleep(1000);
}

static tutti_group *last;

static void end_the_last(void)
{
    end_group(last);
}

/* Ends one group in main and another one in a handler of its own, which runs after the plug-in's. */
static void end_in_a_handler(void)
{
    tutti_group *first = make_group("one");
    last = make_group("two");
    atexit(end_the_last);
    end_group(first);
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

static void run_in_child(void (*fn)(void), int late_ms)
{
    int status = -1;
    char fault[32];
    snprintf(fault, sizeof fault, "late@0:%d", late_ms);
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
    run_in_child(use_and_exit, LATE_MS);
}

static void test_exit_waits_for_another_thread(void **state)
{
    (void)state;
    run_in_child(exit_under_another_thread, SOON_MS);
}

static void test_exit_waits_after_handlers(void **state)
{
    (void)state;
    run_in_child(end_in_a_handler, LATE_MS);
}

static void test_forked_process_does_not_wait(void **state)
{
    (void)state;
    run_in_child(use_and_fork, LATE_MS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exit_waits), cmocka_unit_test(test_exit_waits_for_another_thread),
        cmocka_unit_test(test_exit_waits_after_handlers), cmocka_unit_test(test_forked_process_does_not_wait)};
    if (!fakes_are_here()) return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
