/* The nccl plug-in on the stand-ins of tests/fakes: how groups open their communicators, and the effect of options. */
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fake_ranks.h"

struct start {
    pthread_t thread;
    tutti_store *store;
    int rank;
    bool refused;
};

static void *on_device_zero(void *argument)
{
    struct start *start = argument;
    tutti_group *group = NULL;
    tutti_group_opts opts = {.device = {TUTTI_CUDA, 0}};
    int status = tutti_create_group("nccl", start->store, start->rank, 2, &opts, &group);
    start->refused = status == TUTTI_ERR_INVALID_ARGUMENT &&
                     strstr(tutti_last_error(), "ranks 0 and 1 both use one GPU") &&
                     strstr(tutti_last_error(), "NCCL_HOSTID");
    return NULL;
}

static void test_one_gpu_for_two(void **state)
{
    struct start start[2] = {{.rank = 0}, {.rank = 1}};
    tutti_store *store = NULL;
    (void)state;
    assert_int_equal(tutti_store_memory(NULL, &store), TUTTI_OK);
    for (int i = 0; i < 2; i++) {
        start[i].store = store;
        assert_int_equal(pthread_create(&start[i].thread, NULL, on_device_zero, &start[i]), 0);
    }
    for (int i = 0; i < 2; i++) pthread_join(start[i].thread, NULL);
    tutti_store_free(store);
    assert_true(start[0].refused && start[1].refused);
}

/* Communicators are opened with their groups.  A subgroup's communicator is split from its parent's, unless the members
 * make the group alone. */
static int eager_groups(tutti_group *group, int rank, int size)
{
    int pair[2] = {0, 1}, (*splits)(void) = NULL;
    void *nccl = dlopen("libnccl.so.2", RTLD_NOW);
    tutti_group *alone = NULL;
    *(void **)&splits = dlsym(nccl, "fake_nccl_splits");
    EXPECT(splits != NULL);
    int before = splits();
    tutti_tensor x = on_device(group, 100, TUTTI_INT32);
    tutti_work *work = NULL;
    EXPECT(tutti_all_reduce(x, TUTTI_SUM, &(tutti_opts){.group = group, .async_op = &work}) == TUTTI_OK);
    int line = case_groups(group, rank, size); /* while it is pending */
    EXPECT(tutti_wait(&work, 10000) == TUTTI_OK && line == 0);
    EXPECT(splits() >= before + 2); /* this rank's two, and some of the others' */
    if (rank < 2) {
        tutti_group_opts members = {.parent = group, .members_only = true};
        EXPECT(tutti_new_group(pair, 2, &members, &alone) == TUTTI_OK);
        EXPECT(tutti_barrier(&(tutti_opts){.group = alone}) == TUTTI_OK);
        EXPECT(tutti_destroy_process_group(alone) == TUTTI_OK);
    }
    EXPECT(tutti_barrier(&(tutti_opts){.group = group}) == TUTTI_OK);
    drop(group, x);
    return 0;
}

/* A missing rank leads to an error in time. */
static int split_alone(tutti_group *group, int rank, int size)
{
    int ranks[2] = {0, 1};
    tutti_group *sub = NULL;
    (void)size;
    double begin = monotonic_s();
    EXPECT(tutti_barrier(&(tutti_opts){.group = group}) == TUTTI_OK);
    if (rank == 0) {
        EXPECT(tutti_new_group(ranks, 2, &(tutti_group_opts){.parent = group}, &sub) == TUTTI_ERR_TIMEOUT);
        EXPECT(strstr(tutti_last_error(), "a rank did not arrive") != NULL);
        EXPECT(monotonic_s() - begin < 15);
    }
    return 0;
}

static void test_eager(void **state)
{
    (void)state;
    setenv("TUTTI_NCCL_EAGER", "1", 1);
    for (int size = 2; size <= 4; size++) run_ranks("nccl", size, eager_groups, 20000);
    run_ranks("nccl", 2, split_alone, 800);
    unsetenv("TUTTI_NCCL_EAGER");
}

/* Each rank's memory is a window while it is allocated.  A missing rank leads to a timeout. */
static int windows(tutti_group *group, int rank, int size)
{
    int (*there)(void) = NULL;
    void *memory = NULL;
    *(void **)&there = dlsym(dlopen("libnccl.so.2", RTLD_NOW), "fake_nccl_windows");
    EXPECT(there != NULL);
    tutti_tensor x = on_device(group, 100, TUTTI_INT32), y = on_device(group, 50 + rank, TUTTI_INT32);
    EXPECT(there() >= 2);
    fill(x, of_rank, (int[]){rank, 0});
    EXPECT(tutti_all_reduce(x, TUTTI_SUM, &(tutti_opts){.group = group}) == TUTTI_OK);
    wait_stream(NULL);
    EXPECT(holds(x, reduced, (int[]){0, 0, TUTTI_SUM, size}));
    drop(group, x);
    drop(group, y);
    EXPECT(tutti_barrier(&(tutti_opts){.group = group}) == TUTTI_OK && there() == 0);
    EXPECT(tutti_barrier(&(tutti_opts){.group = group}) == TUTTI_OK);
    if (rank > 0) return 0;
    EXPECT(size == 1 || tutti_alloc(group, 100, &memory) == TUTTI_ERR_TIMEOUT);
    EXPECT(size == 1 || strstr(tutti_last_error(), "a rank did not arrive") != NULL);
    return 0;
}

static void test_windows(void **state)
{
    (void)state;
    setenv("TUTTI_NCCL_WINDOWS", "1", 1);
    for (int size = 1; size <= 3; size++) run_ranks("nccl", size, windows, 1500);
    unsetenv("TUTTI_NCCL_WINDOWS");
}

/* The last rank leaves.  The others continue with a communicator of their own. */
static int survivors(tutti_group *group, int rank, int size)
{
    tutti_tensor x = on_device(group, 100, TUTTI_INT32);
    tutti_opts opts = {.group = group};
    tutti_group *smaller = NULL;
    EXPECT(tutti_all_reduce(x, TUTTI_SUM, &opts) == TUTTI_OK);
    wait_stream(NULL);
    if (rank == size - 1) return 0;
    tutti_work *work = NULL;
    opts.async_op = &work;
    int status = tutti_all_reduce(x, TUTTI_SUM, &opts);
    if (status == TUTTI_OK) status = tutti_wait(&work, 10000);
    EXPECT(status == TUTTI_ERR_TIMEOUT || status == TUTTI_ERR_PEER_LOST || status == TUTTI_ERR_ABORTED);
    EXPECT(tutti_shrink_group(group, &smaller) == TUTTI_OK);
    EXPECT(tutti_get_world_size(smaller) == size - 1 && tutti_get_rank(smaller) == rank);
    tutti_tensor y = on_device(smaller, 100, TUTTI_INT32);
    fill(y, of_rank, (int[]){rank, 0});
    EXPECT(tutti_all_reduce(y, TUTTI_SUM, &(tutti_opts){.group = smaller}) == TUTTI_OK);
    wait_stream(NULL);
    EXPECT(holds(y, reduced, (int[]){0, 0, TUTTI_SUM, size - 1}));
    drop(smaller, y);
    drop(group, x);
    return tutti_destroy_process_group(smaller);
}

static void test_shrink(void **state)
{
    (void)state;
    run_ranks("cpu:tcp,cuda:nccl", 3, survivors, 2000);
}

/* the device's highest priority is -5 here */
static int priority(tutti_group *group, int rank, int size)
{
    int ranks[CASES_RANKS], (*streams)(int) = NULL;
    tutti_group *high = NULL;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    for (int i = 0; i < size; i++) ranks[i] = i;
    *(void **)&streams = dlsym(driver, "fake_streams_of_priority");
    EXPECT(streams != NULL);
    EXPECT(tutti_barrier(&(tutti_opts){.group = group}) == TUTTI_OK && streams(-5) == 0);
    EXPECT(tutti_new_group(ranks, size, &(tutti_group_opts){.parent = group, .high_priority = true}, &high) ==
           TUTTI_OK);
    EXPECT(tutti_barrier(&(tutti_opts){.group = high}) == TUTTI_OK && streams(-5) == 1);
    (void)rank;
    return tutti_destroy_process_group(high);
}

static void test_priority(void **state)
{
    (void)state;
    run_ranks("nccl", 1, priority, 10000);
}

static void count_crowds(const tutti_log_line *line, void *argument)
{
    if (strstr(line->text, "CUDA_DEVICE_MAX_CONNECTIONS") != NULL) atomic_fetch_add((atomic_int *)argument, 1);
}

/* More streams of messages than queues are reported once. */
static void test_crowd(void **state)
{
    static atomic_int warnings;
    (void)state;
    tutti_set_logger(count_crowds, &warnings);
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
    run_ranks("nccl", 2, case_crowded, 20000);
    assert_int_equal(atomic_load(&warnings), 0);
    unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
    for (int i = 0; i < 2; i++) run_ranks("nccl", 2, case_crowded, 20000);
    assert_int_equal(atomic_load(&warnings), 1);
    tutti_set_logger(NULL, NULL);
}

static void test_no_such_gpu(void **state)
{
    tutti_store *store = NULL;
    tutti_group *group = NULL;
    (void)state;
    assert_int_equal(tutti_store_memory(NULL, &store), TUTTI_OK);
    tutti_group_opts opts = {.device = {TUTTI_CUDA, 11}};
    assert_int_equal(tutti_create_group("nccl", store, 0, 1, &opts, &group), TUTTI_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(tutti_last_error(), "cuda:11"));
    assert_non_null(strstr(tutti_last_error(), "sees 8 GPUs"));
    tutti_store_free(store);
}

int main(void)
{
    if (!fakes_are_here()) return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_gpu_for_two), cmocka_unit_test(test_eager),    cmocka_unit_test(test_windows),
        cmocka_unit_test(test_shrink),          cmocka_unit_test(test_priority), cmocka_unit_test(test_crowd),
        cmocka_unit_test(test_no_such_gpu),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
