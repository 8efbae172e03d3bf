/* The nccl plug-in on the stand-ins of tests/fakes.  Ranks are threads, each with a FAKE GPU of its own.  First come
 * the cases that also run on a GPU (tests/gpu), then faults that the stand-ins produce on request. */
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

static void test_cases(void **state)
{
    (void)state;
    for (int size = 1; size <= 4; size++)
        for (int i = 0; nccl_cases[i].name != NULL; i++) {
            print_message("%s, %d ranks\n", nccl_cases[i].name, size);
            run_ranks("nccl", size, nccl_cases[i].fn, 30000);
        }
}

/* As with NCCL 2.23 and newer: a call completes while the plug-in polls, then long after. */
static void test_late(void **state)
{
    static const char *const late_us[] = {"30", "3000"};
    (void)state;
    for (int late = 0; late < 2; late++) {
        setenv("FAKE_NCCL_LATE_US", late_us[late], 1);
        for (int i = 0; nccl_cases[i].name != NULL; i++) {
            if (late == 1 && nccl_cases[i].fn == case_reductions) continue; /* many operations */
            print_message("%s, each call late by %s us\n", nccl_cases[i].name, late_us[late]);
            run_ranks("nccl", 2, nccl_cases[i].fn, 30000);
        }
    }
    unsetenv("FAKE_NCCL_LATE_US");
}

/* ---- faults ------------------------------------------------------------------------------------------------ */

/* Bound on what must not take as long as the 10 s of the waits. */
enum { SOON_S = 8 };

static atomic_int issued;

/* Counts this rank's operation as issued, and waits until all n have been. */
static void await_issued(int n)
{
    double begin = monotonic_s();
    atomic_fetch_add(&issued, 1);
    while (atomic_load(&issued) < n && monotonic_s() - begin < 20) sleep_here(&(int){1});
}

/* One operation succeeds.  Then rank 1 meets an asynchronous error, and the store notifies the others, which have begun
 * before. */
static int asynchronous_error(tutti_group *group, int rank, int size)
{
    tutti_work *work = NULL;
    tutti_tensor x = on_device(group, 100, TUTTI_FLOAT32);
    tutti_opts opts = {.group = group};
    EXPECT(tutti_all_reduce(x, TUTTI_SUM, &opts) == TUTTI_OK);
    opts.async_op = &work;
    if (rank == 1) await_issued(size);
    double begin = monotonic_s();
    int status = tutti_all_reduce(x, TUTTI_SUM, &opts);
    if (rank != 1) atomic_fetch_add(&issued, 1);
    EXPECT(status == TUTTI_OK);
    status = tutti_wait(&work, 10000);
    EXPECT(status == TUTTI_ERR_PEER_LOST);
    EXPECT(strstr(tutti_last_error(), "a peer's connection broke") != NULL);
    EXPECT(strstr(tutti_last_error(), "driver for CUDA") != NULL); /* the versions */
    EXPECT(monotonic_s() - begin < SOON_S);
    opts.async_op = NULL;
    EXPECT(tutti_all_reduce(x, TUTTI_SUM, &opts) == TUTTI_ERR_ABORTED);
    wait_stream(NULL); /* pending operations have released the stream */
    drop(group, x);
    return 0;
}

static int hang_of_async(tutti_group *group, int rank, int size)
{
    tutti_work *work = NULL;
    tutti_tensor x = on_device(group, 100, TUTTI_FLOAT32);
    tutti_opts opts = {.group = group, .async_op = &work};
    (void)rank;
    (void)size;
    double begin = monotonic_s();
    EXPECT(tutti_all_reduce(x, TUTTI_SUM, &opts) == TUTTI_OK);
    EXPECT(tutti_wait(&work, 100) == TUTTI_ERR_TIMEOUT &&
           work != NULL); /* the wait has a timeout of its own, and the operation continues */
    EXPECT(tutti_wait(&work, 10000) == TUTTI_ERR_TIMEOUT && work == NULL);
    EXPECT(monotonic_s() - begin < SOON_S);
    opts.async_op = NULL;
    EXPECT(tutti_barrier(&opts) == TUTTI_ERR_ABORTED);
    drop(group, x);
    return 0;
}

/* The call has returned, so only the library can notice that the operation never ends. */
static int hang_of_blocking(tutti_group *group, int rank, int size)
{
    tutti_tensor x = on_device(group, 100, TUTTI_FLOAT32);
    tutti_opts opts = {.group = group};
    (void)rank;
    (void)size;
    double begin = monotonic_s(); /* before any rank's operation: the first timeout ends all of them */
    EXPECT(tutti_barrier(&opts) == TUTTI_OK);
    EXPECT(tutti_all_reduce(x, TUTTI_SUM, &opts) == TUTTI_OK);
    wait_stream(NULL); /* the abort ends the operation */
    EXPECT(monotonic_s() - begin > 0.5 && monotonic_s() - begin < SOON_S);
    int status = tutti_all_reduce(x, TUTTI_SUM, &opts);
    EXPECT(status == TUTTI_ERR_TIMEOUT ||
           status == TUTTI_ERR_ABORTED); /* depends on whether a peer was notified first */
    EXPECT(tutti_all_reduce(x, TUTTI_SUM, &opts) == TUTTI_ERR_ABORTED);
    EXPECT(strstr(tutti_last_error(), "has not completed within its timeout") != NULL);
    drop(group, x);
    return 0;
}

/* A hanging stream is noticed although the program keeps enqueueing. */
static int hang_of_busy(tutti_group *group, int rank, int size)
{
    tutti_tensor x = on_device(group, 100, TUTTI_FLOAT32);
    tutti_opts opts = {.group = group};
    double begin = monotonic_s();
    int status = tutti_barrier(&opts);
    (void)rank;
    (void)size;
    EXPECT(status == TUTTI_OK);
    while (status == TUTTI_OK && monotonic_s() - begin < 8) {
        status = tutti_all_reduce(x, TUTTI_SUM, &opts);
        sleep_here(&(int){5});
    }
    EXPECT(status == TUTTI_ERR_TIMEOUT || status == TUTTI_ERR_ABORTED);
    EXPECT(strstr(tutti_last_error(), "has not completed within its timeout") != NULL);
    wait_stream(NULL);
    drop(group, x);
    return 0;
}

static int out_of_memory(tutti_group *group, int rank, int size)
{
    tutti_tensor x = on_device(group, 1, TUTTI_FLOAT32);
    int status = tutti_all_reduce(x, TUTTI_SUM, &(tutti_opts){.group = group});
    (void)rank;
    (void)size;
    EXPECT(status == TUTTI_ERR_BACKEND); /* the other rank is notified */
    EXPECT(strstr(tutti_last_error(), "cannot create a communicator on rank 0") !=
           NULL); /* in this call, not in a later one */
    EXPECT(strstr(tutti_last_error(), "out of memory") != NULL);
    drop(group, x);
    return 0;
}

static int abort_of_waiting(tutti_group *group, int rank, int size)
{
    tutti_work *work = NULL;
    tutti_tensor x = on_device(group, 1000, TUTTI_FLOAT32);
    tutti_opts opts = {.group = group};
    EXPECT(tutti_barrier(&opts) == TUTTI_OK);
    if (rank != 1) { /* rank 1 never calls the operation */
        opts.async_op = &work;
        EXPECT(tutti_all_reduce(x, TUTTI_SUM, &opts) == TUTTI_OK);
        await_issued(size - 1);
        if (rank == 0) EXPECT(tutti_wait(&work, 50) == TUTTI_ERR_TIMEOUT);
        double begin = monotonic_s();
        if (rank == 0) EXPECT(tutti_abort(group, "the test says so") == TUTTI_OK);
        EXPECT(tutti_wait(&work, 10000) == TUTTI_ERR_ABORTED && strstr(tutti_last_error(), "the test says so") != NULL);
        EXPECT(monotonic_s() - begin < SOON_S);
    }
    drop(group, x);
    return 0;
}

/* Ranks 0 and 1 wait in messages, rank 0 for rank 1, which it asks for its state.  Rank 1 is still notified of the
 * abort. */
static int abort_after_questions(tutti_group *group, int rank, int size)
{
    tutti_work *work = NULL;
    tutti_tensor x = on_device(group, 100, TUTTI_INT32);
    EXPECT(tutti_barrier(&(tutti_opts){.group = group}) == TUTTI_OK);
    if (rank < 2) {
        EXPECT(tutti_irecv(x, (rank + 1) % size, &(tutti_opts){.group = group}, &work) == TUTTI_OK);
        EXPECT(tutti_wait(&work, 20000) == TUTTI_ERR_ABORTED && strstr(tutti_last_error(), "the test says so") != NULL);
    } else {
        sleep_here(&(int){1500}); /* the ranks poll every 300 ms */
        EXPECT(tutti_abort(group, "the test says so") == TUTTI_OK);
    }
    drop(group, x);
    return 0;
}

static struct gate gates[CASES_RANKS];

/* The operation waits behind the program's own work, which the abort does not end.  The operation owns the memory until
 * then. */
static int abort_behind_work(tutti_group *group, int rank, int size)
{
    tutti_work *work = NULL;
    tutti_tensor x = on_device(group, 1000, TUTTI_FLOAT32);
    cu_stream stream = new_stream();
    tutti_opts opts = {.group = group, .stream = stream};
    (void)size;
    EXPECT(tutti_all_reduce(x, TUTTI_SUM, &opts) == TUTTI_OK);
    EXPECT(tutti_barrier(&opts) == TUTTI_OK);
    gates[rank].open = false;
    cu.call_host(stream, wait_at, &gates[rank]);
    opts.async_op = &work;
    EXPECT(tutti_all_reduce(x, TUTTI_SUM, &opts) == TUTTI_OK);
    EXPECT(tutti_wait(&work, 50) == TUTTI_ERR_TIMEOUT);
    EXPECT(tutti_abort(group, "the test says so") == TUTTI_OK);
    bool ended = tutti_work_is_completed(work);
    __atomic_store_n(&gates[rank].open, true, __ATOMIC_RELEASE);
    EXPECT(!ended);
    EXPECT(tutti_wait(&work, 20000) == TUTTI_ERR_ABORTED && strstr(tutti_last_error(), "the test says so") != NULL);
    drop(group, x);
    cu.stream_free(stream);
    return 0;
}

static int mismatch(tutti_group *group, int rank, int size)
{
    tutti_work *work = NULL;
    tutti_tensor x = on_device(group, 100, TUTTI_FLOAT32);
    tutti_opts opts = {.group = group, .async_op = &work};
    (void)size;
    EXPECT(tutti_all_reduce(part(x, 0, rank == 0 ? 10 : 11), TUTTI_SUM, &opts) == TUTTI_OK);
    int status = tutti_wait(&work, 10000);
    EXPECT(status == TUTTI_ERR_BACKEND || status == TUTTI_ERR_TIMEOUT); /* real NCCL does not notice it */
    drop(group, x);
    return 0;
}

static int message_times_out(tutti_group *group, int rank, int size)
{
    tutti_work *work = NULL;
    tutti_tensor x = on_device(group, 100, TUTTI_INT32);
    tutti_opts opts = {.group = group}, brief = {.group = group, .timeout_ms = 300};
    int peer = rank ^ 1;
    (void)size;
    if (rank == 0) EXPECT(tutti_send(x, peer, &opts) == TUTTI_OK);
    if (rank == 1) EXPECT(tutti_recv(x, peer, &opts) == TUTTI_OK);
    if (rank == 1) {
        EXPECT(tutti_irecv(x, peer, &brief, &work) == TUTTI_OK);
        EXPECT(tutti_wait(&work, 10000) == TUTTI_ERR_TIMEOUT);
    }
    EXPECT(tutti_all_reduce(x, TUTTI_SUM, &opts) == TUTTI_OK); /* the group is still usable */
    wait_stream(NULL);
    drop(group, x);
    return 0;
}

static void with_fault(const char *fault, int size, case_fn fn, int64_t timeout_ms)
{
    setenv("FAKE_NCCL_FAULT", fault, 1);
    run_ranks("nccl", size, fn, timeout_ms);
    unsetenv("FAKE_NCCL_FAULT");
}

/* ---- ending ------------------------------------------------------------------------------------------------ */

/* Sends in both directions at once: each rank opens its sending side first. */
static int exchange(tutti_group *group, int rank, int size)
{
    tutti_tensor x = on_device(group, 100, TUTTI_INT32), y = on_device(group, 100, TUTTI_INT32);
    tutti_opts opts = {.group = group};
    tutti_work *works[2];
    EXPECT(tutti_barrier(&opts) == TUTTI_OK);
    EXPECT(tutti_isend(x, size - 1 - rank, &opts, &works[0]) == TUTTI_OK);
    EXPECT(tutti_irecv(y, size - 1 - rank, &opts, &works[1]) == TUTTI_OK);
    EXPECT(tutti_wait_all(works, 2, 20000) == TUTTI_OK);
    drop(group, x);
    drop(group, y);
    return 0;
}

/* Operations of two communicators hang. */
static int two_hang(tutti_group *group, int rank, int size)
{
    tutti_tensor x = on_device(group, 100, TUTTI_INT32), y = on_device(group, 100, TUTTI_INT32);
    tutti_opts opts = {.group = group};
    tutti_work *works[2];
    EXPECT(exchange(group, rank, size) == 0);
    opts.async_op = &works[0];
    EXPECT(tutti_all_reduce(x, TUTTI_SUM, &opts) == TUTTI_OK);
    opts.async_op = NULL;
    if (rank == 0) EXPECT(tutti_isend(y, 1, &opts, &works[1]) == TUTTI_OK);
    if (rank == 1) EXPECT(tutti_irecv(y, 0, &opts, &works[1]) == TUTTI_OK);
    EXPECT(tutti_wait(&works[1], 100) == TUTTI_ERR_TIMEOUT);
    if (rank == 0) EXPECT(tutti_abort(group, "the test says so") == TUTTI_OK);
    EXPECT(tutti_wait_all(works, 2, 20000) == TUTTI_ERR_ABORTED);
    drop(group, x);
    drop(group, y);
    return 0;
}

/* The group is destroyed while an operation has not begun.  Its call waits for it or has returned. */
static int ended_early(tutti_group *group, int rank, int size)
{
    tutti_tensor x = on_device(group, 100, TUTTI_INT32);
    tutti_work *work = NULL;
    cu_stream stream = new_stream();
    (void)size;
    EXPECT(tutti_barrier(&(tutti_opts){.group = group}) == TUTTI_OK);
    cu.call_host(stream, wait_at, &gates[rank]);
    tutti_opts opts = {.group = group, .stream = stream, .async_op = rank == 0 ? &work : NULL};
    EXPECT(tutti_all_reduce(x, TUTTI_SUM, &opts) == TUTTI_OK);
    if (rank == 0) tutti_work_free(work);
    return 0;
}

static int number(const char *name)
{
    int (*there)(void) = NULL;
    *(void **)&there = dlsym(dlopen("libnccl.so.2", RTLD_NOW), name);
    return there != NULL ? there() : -1;
}

/* True if all communicators have ended, which may happen after the end of their group. */
static bool none_is_left(void)
{
    double begin = monotonic_s();
    while (number("fake_nccl_communicators") > 0 && monotonic_s() - begin < 10) sleep_here(&(int){5});
    return number("fake_nccl_communicators") == 0;
}

static void test_ending(void **state)
{
    (void)state;
    assert_true(none_is_left());
    run_ranks("nccl", 2, exchange, 20000);
    assert_true(none_is_left());
    with_fault("hang@0:2", 2, two_hang, 20000);
    assert_true(none_is_left());
    run_ranks("nccl", 2, ended_early, 20000);
    for (int i = 0; i < 2; i++) __atomic_store_n(&gates[i].open, true, __ATOMIC_RELEASE);
    assert_true(none_is_left());
    assert_int_equal(number("fake_nccl_misuses"), 0);
}

static void test_asynchronous_error(void **state)
{
    (void)state;
    issued = 0;
    with_fault("error@1:2", 3, asynchronous_error, 10000);
}

static void test_hang(void **state)
{
    (void)state;
    with_fault("hang@0:1", 2, hang_of_async, 800);
    with_fault("hang@1:2", 2, hang_of_blocking, 800);
    with_fault("hang@1:2", 2, hang_of_busy, 800);
}

static void test_out_of_memory(void **state)
{
    (void)state;
    with_fault("oom@0:0", 2, out_of_memory, 10000);
}

static void test_slow(void **state)
{
    (void)state;
    with_fault("slow@1:20", 2, case_streams, 20000);
    with_fault("slow@1:20", 2, case_messages, 20000);
}

static void test_abort(void **state)
{
    (void)state;
    issued = 0;
    run_ranks("nccl", 3, abort_of_waiting, 20000);
    run_ranks("nccl", 3, abort_after_questions, 20000);
    run_ranks("nccl", 2, abort_behind_work, 20000);
}

static void test_mismatch(void **state)
{
    (void)state;
    run_ranks("nccl", 2, mismatch, 1500);
}

static void test_message_times_out(void **state)
{
    (void)state;
    run_ranks("nccl", 2, message_times_out, 10000);
}

int main(void)
{
    if (!fakes_are_here()) return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),    cmocka_unit_test(test_late),
        cmocka_unit_test(test_ending),   cmocka_unit_test(test_asynchronous_error),
        cmocka_unit_test(test_hang),     cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_slow),     cmocka_unit_test(test_abort),
        cmocka_unit_test(test_mismatch), cmocka_unit_test(test_message_times_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
