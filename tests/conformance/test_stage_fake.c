/* CUDA tensors on CPU backends: staged through pinned host memory by the cuda plug-in, on the stand-ins of tests/fakes.
 */
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "fake_ranks.h"

static void run_all(const char *backend, const case_fn *cases, size_t n)
{
    for (int size = 1; size <= 4; size++)
        for (size_t i = 0; i < n; i++) run_ranks(backend, size, cases[i], 30000);
}

/* Runs the nccl cases, except those that depend on a blocking call which only enqueues. */
static void test_as_on_nccl(void **state)
{
    static const case_fn cases[] = {case_moves,    case_reductions, case_bool,  case_uneven,
                                    case_messages, case_coalesced,  case_groups};
    (void)state;
    run_all("cuda:tcp", cases, sizeof cases / sizeof *cases);
}

static void test_staged(void **state)
{
    static const case_fn cases[] = {case_bitwise,  case_beyond_nccl,    case_large,         case_message_order,
                                    case_in_order, case_staged_streams, case_staged_refused};
    (void)state;
    run_all("cuda:tcp", cases, sizeof cases / sizeof *cases);
}

static void test_fallback_of_nccl(void **state)
{
    static const case_fn cases[] = {case_bitwise,   case_beyond_nccl, case_mixed,   case_staged_refused, case_streams,
                                    case_coalesced, case_messages,    case_capture, case_groups};
    (void)state;
    run_all("cuda:nccl|tcp", cases, sizeof cases / sizeof *cases);
    run_ranks("cpu:tcp,cuda:nccl", 3, case_bitwise, 30000); /* the backend of CPU tensors is named once */
    run_ranks("cpu:tcp,cuda:nccl", 2, case_beyond_nccl, 30000);
}

/* The last rank begins its part of NCCL's operations late.  No rank may count them as complete before. */
static void test_coalesced_mixed(void **state)
{
    (void)state;
    for (int size = 1; size <= 4; size++) run_ranks("cuda:nccl|tcp", size, case_coalesced_mixed, 30000);
    setenv("FAKE_NCCL_FAULT", "slow@2:50", 1);
    run_ranks("cuda:nccl|tcp", 3, case_coalesced_mixed, 30000);
    unsetenv("FAKE_NCCL_FAULT");
}

/* A graph is captured in the strictest mode.  Nothing may end the capture. */
static int beside_capture(tutti_group *group, int rank, int size)
{
    cu_stream captured = new_stream(), stream = new_stream();
    tutti_tensor x = on_device(group, 100, TUTTI_INT32);
    tutti_opts opts = {.group = group, .stream = stream};
    void *graph = NULL;
    fill(x, of_rank, (int[]){rank, 0});
    EXPECT(cu.capture(captured, CU_CAPTURE_GLOBAL) == 0);
    int status = tutti_all_reduce(x, TUTTI_SUM, &opts);
    EXPECT(cu.capture_end(captured, &graph) == 0);
    EXPECT(status == TUTTI_OK && holds(x, reduced, (int[]){0, 0, TUTTI_SUM, size}));
    cu.graph_free(graph);
    drop(group, x);
    cu.stream_free(stream);
    cu.stream_free(captured);
    return 0;
}

static void test_beside_capture(void **state)
{
    (void)state;
    run_ranks("cuda:tcp", 1, beside_capture, 20000);
}

/* ---- idle ------------------------------------------------------------------------------------------------- */

/* True if an eventfd of this process is readable. */
static bool something_rings(void)
{
    for (int fd = 0; fd < 256; fd++) {
        char path[40], what[60] = "";
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        if (readlink(path, what, sizeof what - 1) < 0 || strstr(what, "[eventfd]") == NULL) continue;
        struct pollfd asked = {fd, POLLIN, 0};
        if (poll(&asked, 1, 0) > 0) return true;
    }
    return false;
}

static atomic_int at_rest;

/* A copy's doorbell must be drained, or the core would never sleep.  A wait without result makes progress. */
static int rests(tutti_group *group, int rank, int size)
{
    tutti_tensor x = on_device(group, 100, TUTTI_INT32);
    tutti_opts opts = {.group = group};
    tutti_work *work = NULL;
    int word = 0, peer = size - 1 - rank;
    for (int i = 0; i < 10; i++) EXPECT(tutti_all_reduce(x, TUTTI_SUM, &opts) == TUTTI_OK);
    EXPECT(tutti_irecv(tutti_view(&word, 1), peer, &opts, &work) == TUTTI_OK);
    bool quiet = false;
    for (int i = 0; i < 100 && !quiet; i++) {
        EXPECT(tutti_wait(&work, 20) == TUTTI_ERR_TIMEOUT);
        quiet = !something_rings();
    }
    atomic_fetch_add(&at_rest, 1);
    while (atomic_load(&at_rest) < size) sleep_here(&(int){1});
    EXPECT(tutti_send(tutti_view(&word, 1), peer, &opts) == TUTTI_OK);
    EXPECT(tutti_wait(&work, 20000) == TUTTI_OK);
    EXPECT(quiet);
    drop(group, x);
    return 0;
}

static void test_rests(void **state)
{
    (void)state;
    run_ranks("cpu:tcp,cuda:tcp", 2, rests, 30000);
}

/* ---- faults ----------------------------------------------------------------------------------------------- */

/* One rank has more chunks than the other.  The error names the whole call, not a chunk's. */
static int counts_differ(tutti_group *group, int rank, int size)
{
    int64_t n = 3 << 20;
    tutti_tensor x = on_device(group, n + 10, TUTTI_INT32);
    tutti_opts opts = {.group = group};
    (void)size;
    EXPECT(tutti_all_reduce(part(x, 0, rank == 1 ? n + 10 : n), TUTTI_SUM, &opts) == TUTTI_ERR_MISMATCH);
    EXPECT(strstr(tutti_last_error(), "3145728 elements") != NULL &&
           strstr(tutti_last_error(), "3145738 elements") != NULL);
    EXPECT(tutti_all_reduce(x, TUTTI_SUM, &opts) == TUTTI_ERR_ABORTED);
    drop(group, x);
    return 0;
}

/* Nothing is written, and the group is usable, also for a later message of the same pair. */
static int message_differs(tutti_group *group, int rank, int size)
{
    tutti_tensor x = on_device(group, 100, TUTTI_INT32);
    tutti_opts opts = {.group = group};
    (void)size;
    fill(x, of_rank, (int[]){rank, 0});
    if (rank == 0) {
        EXPECT(tutti_send(part(x, 0, 10), 1, &opts) <= TUTTI_OK);
        EXPECT(tutti_send(part(x, 0, 20), 1, &opts) == TUTTI_OK);
    } else {
        EXPECT(tutti_recv(part(x, 0, 11), 0, &opts) == TUTTI_ERR_MISMATCH);
        EXPECT(holds(x, of_rank, (int[]){1, 0}));
        EXPECT(tutti_recv(part(x, 0, 20), 0, &opts) == TUTTI_OK);
        wait_stream(NULL);
        EXPECT(holds(part(x, 0, 20), of_rank, (int[]){0, 0}));
    }
    EXPECT(tutti_barrier(&opts) == TUTTI_OK);
    drop(group, x);
    return 0;
}

/* Rank 0 never calls. */
static atomic_int gone, issued;

static int one_is_missing(tutti_group *group, int rank, int size)
{
    tutti_tensor x = on_device(group, 3 << 20, TUTTI_INT32);
    double begin = monotonic_s();
    if (rank > 0) {
        EXPECT(tutti_all_reduce(x, TUTTI_SUM, &(tutti_opts){.group = group}) == TUTTI_ERR_TIMEOUT);
        EXPECT(strstr(tutti_last_error(), "all_reduce #1 of group own") != NULL &&
               strstr(tutti_last_error(), "rank 0") != NULL);
        EXPECT(monotonic_s() - begin < 15);
        atomic_fetch_add(&gone, 1);
    } else {
        while (atomic_load(&gone) < size - 1 && monotonic_s() - begin < 20) sleep_here(&(int){1});
    }
    drop(group, x);
    return 0;
}

static struct gate gates[CASES_RANKS];

/* The stream that the operation must follow hangs, so the copy never begins. */
static int stream_stands_still(tutti_group *group, int rank, int size)
{
    tutti_tensor x = on_device(group, 1000, TUTTI_INT32);
    cu_stream stream = new_stream();
    tutti_opts opts = {.group = group, .stream = stream};
    double begin = monotonic_s();
    (void)size;
    fill(x, of_rank, (int[]){rank, 0});
    if (rank == 1) cu.call_host(stream, wait_at, &gates[rank]);
    EXPECT(tutti_all_reduce(x, TUTTI_SUM, &opts) == TUTTI_ERR_TIMEOUT);
    EXPECT(monotonic_s() - begin < 15);
    EXPECT(tutti_all_reduce(x, TUTTI_SUM, &opts) == TUTTI_ERR_ABORTED);
    __atomic_store_n(&gates[rank].open, true, __ATOMIC_RELEASE);
    wait_stream(stream);
    EXPECT(holds(x, of_rank, (int[]){rank, 0})); /* nothing was written */
    drop(group, x);
    cu.stream_free(stream);
    return 0;
}

static int aborted(tutti_group *group, int rank, int size)
{
    tutti_tensor x = on_device(group, 3 << 20, TUTTI_INT32);
    tutti_work *work = NULL;
    double begin = monotonic_s();
    if (rank > 0) {
        EXPECT(tutti_all_reduce(x, TUTTI_SUM, &(tutti_opts){.group = group, .async_op = &work}) == TUTTI_OK);
        atomic_fetch_add(&issued, 1);
        while (atomic_load(&issued) < size - 1) sleep_here(&(int){1});
        if (rank == 1) EXPECT(tutti_wait(&work, 50) == TUTTI_ERR_TIMEOUT && work != NULL);
        begin = monotonic_s();
    }
    if (rank == 1) EXPECT(tutti_abort(group, "the test says so") == TUTTI_OK);
    if (rank > 0) {
        EXPECT(tutti_wait(&work, 20000) == TUTTI_ERR_ABORTED);
        EXPECT(strstr(tutti_last_error(), "the test says so") != NULL && monotonic_s() - begin < 15);
        atomic_fetch_add(&gone, 1);
    } else {
        while (atomic_load(&gone) < size - 1 && monotonic_s() - begin < 20) sleep_here(&(int){1});
    }
    drop(group, x);
    return 0;
}

/* The call is refused before anything is sent, alike on every rank.  The group stays usable. */
static int no_pinned_memory(tutti_group *group, int rank, int size)
{
    tutti_tensor x = on_device(group, 3 << 20, TUTTI_INT32);
    tutti_opts opts = {.group = group};
    EXPECT(tutti_all_reduce(x, TUTTI_SUM, &opts) == TUTTI_ERR_NO_MEMORY);
    EXPECT(strstr(tutti_last_error(), "bytes of pinned host memory") != NULL);
    fill(part(x, 0, 10), of_rank, (int[]){rank, 0});
    EXPECT(tutti_all_reduce(part(x, 0, 10), TUTTI_SUM, &opts) == TUTTI_OK);
    EXPECT(holds(part(x, 0, 10), reduced, (int[]){0, 0, TUTTI_SUM, size}));
    drop(group, x);
    return 0;
}

/* The group is destroyed while operations are pending.  Handles are freed after that. */
static int destroyed_early(tutti_group *group, int rank, int size)
{
    tutti_tensor x = on_device(group, 3 << 20, TUTTI_INT32);
    tutti_work *work = NULL;
    (void)size;
    (void)rank;
    EXPECT(tutti_all_reduce(x, TUTTI_SUM, &(tutti_opts){.group = group, .async_op = &work}) == TUTTI_OK);
    tutti_work_free(work);
    return 0; /* the group as well; the memory belongs to the process */
}

static void *break_soon(void *gate)
{
    void (*fake_break)(int device, bool broken) = NULL;
    *(void **)&fake_break = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "fake_break");
    sleep_here(&(int){50});
    if (fake_break != NULL) fake_break(0, gate != NULL);
    if (gate != NULL) __atomic_store_n(&((struct gate *)gate)->open, true, __ATOMIC_RELEASE);
    return NULL;
}

/* The device meets an error while the host waits.  The host polls for it now and then, because no driver call reports
 * it. */
static int device_breaks(tutti_group *group, int rank, int size)
{
    pthread_t thread;
    cu_stream stream = new_stream();
    struct gate gate = {false};
    tutti_tensor x = on_device(group, 1000, TUTTI_INT32);
    tutti_work *work = NULL;
    (void)rank;
    (void)size;
    cu.call_host(stream, wait_at, &gate);
    EXPECT(tutti_all_reduce(x, TUTTI_SUM, &(tutti_opts){.group = group, .stream = stream, .async_op = &work}) ==
           TUTTI_OK);
    EXPECT(pthread_create(&thread, NULL, break_soon, &gate) == 0);
    EXPECT(tutti_wait(&work, 8000) == TUTTI_ERR_BACKEND); /* less than the operation has */
    EXPECT(strstr(tutti_last_error(), "cannot copy a tensor") != NULL);
    pthread_join(thread, NULL);
    break_soon(NULL); /* the device works again */
    drop(group, x);
    cu.stream_free(stream);
    return 0;
}

static void test_failures(void **state)
{
    (void)state;
    run_ranks("cuda:tcp", 1, device_breaks, 10000);
    run_ranks("cuda:tcp", 3, counts_differ, 10000);
    run_ranks("cuda:tcp", 2, message_differs, 10000);
    run_ranks("cuda:tcp", 3, one_is_missing, 800);
    run_ranks("cuda:tcp", 2, stream_stands_still, 800);
    gone = 0;
    run_ranks("cuda:tcp", 3, aborted, 20000);
    run_ranks("cuda:tcp", 3, destroyed_early, 20000);
    setenv("FAKE_CUDA_PINNED_MOST", "1000000", 1);
    run_ranks("cuda:tcp", 2, no_pinned_memory, 10000);
    unsetenv("FAKE_CUDA_PINNED_MOST");
}

/* The error reports what is missing, also with the backend's own reason. */
static int refused_with_reason(tutti_group *group, int rank, int size)
{
    tutti_tensor x = on_device(group, 8, TUTTI_INT32);
    EXPECT(tutti_send(x, (rank + 1) % size, &(tutti_opts){.group = group, .tag = 5}) == TUTTI_ERR_UNSUPPORTED);
    EXPECT(strstr(tutti_last_error(), "not supported by backend cuda:nccl") != NULL);
    EXPECT(strstr(tutti_last_error(), "NCCL has no tags") != NULL);
    drop(group, x);
    return 0;
}

static void test_reason(void **state)
{
    (void)state;
    run_ranks("nccl", 2, refused_with_reason, 10000);
}

int main(void)
{
    if (!fakes_are_here()) return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_on_nccl),      cmocka_unit_test(test_staged), cmocka_unit_test(test_fallback_of_nccl),
        cmocka_unit_test(test_coalesced_mixed), cmocka_unit_test(test_rests),  cmocka_unit_test(test_beside_capture),
        cmocka_unit_test(test_failures),        cmocka_unit_test(test_reason),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
