/* The differences of older NCCL versions, on the stand-ins of tests/fakes.  The version is read once per process. */
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

static void *stand_in(const char *name)
{
    return dlsym(dlopen("libnccl.so.2", RTLD_NOW), name);
}

static size_t allocated(void)
{
    size_t (*there)(void) = NULL;
    *(void **)&there = stand_in("fake_nccl_allocated");
    return there != NULL ? there() : SIZE_MAX;
}

/* A small allocation takes no more device memory than its size.  A large one comes from NCCL. */
static int memory(tutti_group *group, int rank, int size)
{
    tutti_tensor little[4];
    (void)rank;
    (void)size;
    for (int i = 0; i < 4; i++) little[i] = on_device(group, 1000, TUTTI_FLOAT32);
    EXPECT(allocated() == 0);
    tutti_tensor much = on_device(group, 300 << 20, TUTTI_UINT8);
    EXPECT(allocated() == 512 << 20);
    EXPECT(tutti_all_reduce(little[0], TUTTI_SUM, &(tutti_opts){.group = group}) == TUTTI_OK);
    wait_stream(NULL);
    for (int i = 0; i < 4; i++) drop(group, little[i]);
    drop(group, much);
    return 0;
}

/* An operation hangs, and the communicators are aborted. */
static int hang(tutti_group *group, int rank, int size)
{
    tutti_tensor x = on_device(group, 10, TUTTI_INT32);
    tutti_opts opts = {.group = group, .timeout_ms = 300};
    tutti_work *work = NULL;
    (void)rank;
    (void)size;
    EXPECT(tutti_barrier(&(tutti_opts){.group = group}) == TUTTI_OK);
    opts.async_op = &work;
    EXPECT(tutti_all_reduce(x, TUTTI_SUM, &opts) == TUTTI_OK);
    EXPECT(tutti_work_wait(work, 5000) != TUTTI_OK);
    tutti_work_free(work);
    return 0; /* the memory belongs to the process */
}

static int count(const char *name)
{
    int (*there)(void) = NULL;
    *(void **)&there = stand_in(name);
    return there != NULL ? there() : -1;
}

/* Two operations of different communicators that one thread begins at once would corrupt both.  The plug-in therefore
 * begins them one after the other, also when groups end. */
static void test_threads(void **state)
{
    static const case_fn cases[] = {case_messages, case_coalesced, case_groups, case_streams, case_capture};
    (void)state;
    for (int late = 0; late < 2; late++) {
        setenv("FAKE_NCCL_LATE_US", late == 0 ? "0" : "300", 1);
        for (int size = 1; size <= 3; size++)
            for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) run_ranks("nccl", size, cases[i], 20000);
    }
    unsetenv("FAKE_NCCL_LATE_US");
    setenv("TUTTI_NCCL_EAGER", "1", 1);
    run_ranks("nccl", 3, case_groups, 20000);
    unsetenv("TUTTI_NCCL_EAGER");
    setenv("FAKE_NCCL_FAULT", "hang@0:2", 1);
    run_ranks("nccl", 2, hang, 20000);
    unsetenv("FAKE_NCCL_FAULT");
    double begin = monotonic_s();
    while (count("fake_nccl_communicators") > 0 && monotonic_s() - begin < 10) sleep_here(&(int){5});
    assert_int_equal(count("fake_nccl_communicators"), 0);
    assert_int_equal(count("fake_nccl_misuses"), 0);
}

static void test_memory(void **state)
{
    (void)state;
    run_ranks("nccl", 1, memory, 20000);
}

static int run(const char *version)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_threads),
    };
    setenv("FAKE_NCCL_VERSION", version, 1);
    if (!fakes_are_here()) return 77;
    return cmocka_run_group_tests_name(version, tests, NULL, NULL);
}

/* Before NCCL 2.23 the state of a call must be kept until the communicator's next call. */
int main(void)
{
    static const char *const versions[] = {"21903", "22506"};
    for (int i = 0; i < 2; i++) {
        int status = 0;
        pid_t child = fork();
        if (child == 0) _exit(run(versions[i]));
        if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status)) return 1;
        if (WEXITSTATUS(status) != 0) return WEXITSTATUS(status);
    }
    return 0;
}
