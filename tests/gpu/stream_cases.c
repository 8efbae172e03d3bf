/* Streams: the order of the nccl backend's operations and of other work in a stream. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "gpu/cases.h"

void sleep_here(void *ms)
{
    int64_t n = *(const int *)ms;
    nanosleep(&(struct timespec){n / 1000, n % 1000 * 1000000}, NULL);
}

void wait_at(void *argument)
{
    struct gate *gate = argument;
    while (!__atomic_load_n(&gate->open, __ATOMIC_ACQUIRE)) nanosleep(&(struct timespec){0, 100000}, NULL);
}

static void open_gate(struct gate *gate)
{
    __atomic_store_n(&gate->open, true, __ATOMIC_RELEASE);
}

/* The caller's stream waits, then writes.  Later work must see the data, and no call may wait for the stream: it is
 * released only after the calls. */
int case_streams(tutti_group *group, int rank, int size)
{
    enum { N = 1000 };
    cu_stream stream = new_stream(), second = new_stream();
    tutti_opts opts = {.group = group, .stream = stream};
    tutti_tensor x = on_device(group, N, TUTTI_INT32);
    int32_t *host = malloc(sizeof *host * N);
    tutti_work *work = NULL;
    cu.fill((cu_memory)(uintptr_t)x.data, 1000, N, stream);
    EXPECT(tutti_all_reduce(x, TUTTI_SUM, &opts) == TUTTI_OK); /* connects */
    wait_stream(stream);
    for (int round = 0; round < 4; round++) {
        struct gate gate = {false};
        bool async = round % 2 != 0;
        cu.fill((cu_memory)(uintptr_t)x.data, 1000, N, stream);
        wait_stream(stream);
        cu.call_host(stream, wait_at, &gate);
        cu.fill((cu_memory)(uintptr_t)x.data, (unsigned)rank + 1, N, stream);
        opts.async_op = async ? &work : NULL;
        int status = tutti_all_reduce(x, TUTTI_SUM, &opts);
        bool completed = async && tutti_work_is_completed(work);
        if (async && status == TUTTI_OK) status = tutti_wait_stream(work, second);
        open_gate(&gate);
        EXPECT(status == TUTTI_OK && !completed);
        cu.copy_out(host, (cu_memory)(uintptr_t)x.data, N * sizeof *host, async ? second : stream);
        wait_stream(async ? second : stream);
        for (int i = 0; i < N; i++) EXPECT(host[i] == size * (size + 1) / 2);
        if (async) EXPECT(tutti_wait(&work, 60000) == TUTTI_OK);
    }
    /* asynchronous operations, then a blocking one, all on the same memory, act as if run one after the other */
    tutti_work *works[3];
    cu.call_host(stream, sleep_here, &(int){60});
    cu.fill((cu_memory)(uintptr_t)x.data, 1, N, stream);
    for (int i = 0; i < 3; i++) {
        opts.async_op = &works[i];
        EXPECT(tutti_all_reduce(x, TUTTI_SUM, &opts) == TUTTI_OK);
    }
    opts.async_op = NULL;
    opts.stream = second;
    EXPECT(tutti_all_reduce(x, TUTTI_SUM, &opts) == TUTTI_OK);
    cu.copy_out(host, (cu_memory)(uintptr_t)x.data, N * sizeof *host, second);
    wait_stream(second);
    for (int i = 0; i < N; i++) EXPECT(host[i] == size * size * size * size);
    EXPECT(tutti_wait_all(works, 3, 60000) == TUTTI_OK);
    /* a wait with a timeout, after which the operation continues */
    struct gate gate = {false};
    opts.stream = stream;
    opts.async_op = &work;
    cu.call_host(stream, wait_at, &gate);
    int begun = tutti_all_reduce(x, TUTTI_MAX, &opts), waited = tutti_wait(&work, 1);
    open_gate(&gate);
    EXPECT(begun == TUTTI_OK && waited == TUTTI_ERR_TIMEOUT && work != NULL);
    EXPECT(tutti_wait(&work, 60000) == TUTTI_OK);
    drop(group, x);
    free(host);
    cu.stream_free(stream);
    cu.stream_free(second);
    return 0;
}

/* Receives that wait in more streams than the device has queues delay no other operation. */
static int crowd(tutti_group *group, int rank, int size, bool reversed)
{
    enum { SUBGROUPS = 12 };
    tutti_group *sub[SUBGROUPS] = {NULL};
    tutti_work *works[SUBGROUPS];
    tutti_tensor x = on_device(group, SUBGROUPS, TUTTI_INT32), y = on_device(group, 1000, TUTTI_INT32);
    tutti_opts opts = {.group = group, .timeout_ms = 30000};
    for (int g = 0; g < SUBGROUPS && size > 1; g++) {
        EXPECT(tutti_new_group((int[]){0, 1}, 2, &(tutti_group_opts){.parent = group}, &sub[g]) == TUTTI_OK);
        if (rank == 0) EXPECT(tutti_send(part(x, g, 1), 1, &(tutti_opts){.group = sub[g]}) == TUTTI_OK); /* connects */
        if (rank == 1) EXPECT(tutti_recv(part(x, g, 1), 0, &(tutti_opts){.group = sub[g]}) == TUTTI_OK);
    }
    EXPECT(tutti_all_reduce(y, TUTTI_SUM, &opts) == TUTTI_OK);
    wait_stream(NULL);
    fill(x, of_rank, (int[]){rank, 0});
    fill(y, of_rank, (int[]){rank, 1});
    for (int g = 0; g < SUBGROUPS && rank == 1; g++)
        EXPECT(tutti_irecv(part(x, g, 1), 0, &(tutti_opts){.group = sub[g]}, &works[g]) == TUTTI_OK);
    EXPECT(tutti_all_reduce(y, TUTTI_SUM, &opts) == TUTTI_OK);
    EXPECT(tutti_barrier(&opts) == TUTTI_OK);
    for (int i = 0; i < SUBGROUPS && rank == 0 && size > 1; i++) {
        int g = reversed ? SUBGROUPS - 1 - i : i;
        EXPECT(tutti_send(part(x, g, 1), 1, &(tutti_opts){.group = sub[g]}) == TUTTI_OK);
    }
    if (rank == 1) EXPECT(tutti_wait_all(works, SUBGROUPS, 30000) == TUTTI_OK);
    wait_stream(NULL);
    EXPECT(rank > 1 || holds(x, of_rank, (int[]){0, 0}));
    EXPECT(holds(y, reduced, (int[]){0, 1, TUTTI_SUM, size}));
    for (int g = 0; g < SUBGROUPS; g++) EXPECT(sub[g] == NULL || tutti_destroy_process_group(sub[g]) == TUTTI_OK);
    drop(group, x);
    drop(group, y);
    return 0;
}

int case_crowded(tutti_group *group, int rank, int size)
{
    return crowd(group, rank, size, false);
}

int case_crowded_reversed(tutti_group *group, int rank, int size)
{
    return crowd(group, rank, size, true);
}

/* Measures the time on the device only: earlier work of the stream does not count. */
int case_duration(tutti_group *group, int rank, int size)
{
    enum { HELD_MS = 100 };
    cu_stream stream = new_stream();
    tutti_tensor x = on_device(group, 1000, TUTTI_INT32);
    struct gate gate = {false};
    struct timespec opened, ended;
    tutti_work *work = NULL;
    (void)rank;
    (void)size;
    EXPECT(tutti_all_reduce(x, TUTTI_SUM, &(tutti_opts){.group = group, .stream = stream}) == TUTTI_OK);
    EXPECT(tutti_barrier(&(tutti_opts){.group = group}) == TUTTI_OK);
    cu.call_host(stream, wait_at, &gate);
    tutti_opts opts = {.group = group, .stream = stream, .async_op = &work};
    EXPECT(tutti_all_reduce(x, TUTTI_SUM, &opts) == TUTTI_OK && tutti_work_duration_ns(work) == -1);
    sleep_here(&(int){HELD_MS});
    clock_gettime(CLOCK_MONOTONIC, &opened);
    __atomic_store_n(&gate.open, true, __ATOMIC_RELEASE);
    EXPECT(tutti_work_wait(work, 60000) == TUTTI_OK);
    clock_gettime(CLOCK_MONOTONIC, &ended);
    double ms = (double)(ended.tv_sec - opened.tv_sec) * 1e3 + (double)(ended.tv_nsec - opened.tv_nsec) / 1e6;
    double took = (double)tutti_work_duration_ns(work) / 1e6;
    EXPECT(took >= 0 &&
           took <
               ms + 1); /* one rank in place has nothing to do; CUDA's clock has a resolution of half a microsecond */
    tutti_work_free(work);
    drop(group, x);
    cu.stream_free(stream);
    return 0;
}

int capture_mode = CU_CAPTURE_GLOBAL;

int case_capture(tutti_group *group, int rank, int size)
{
    enum { N = 100 };
    cu_stream stream = new_stream();
    tutti_opts opts = {.group = group, .stream = stream};
    tutti_tensor x = on_device(group, N, TUTTI_INT32), y = on_device(group, N, TUTTI_INT32);
    tutti_work *work = NULL;
    void *graph = NULL, *exec = NULL;
    EXPECT(tutti_all_reduce_into(y, x, TUTTI_SUM, &opts) == TUTTI_OK); /* opens and connects */
    wait_stream(stream);
    tutti_work *before = NULL;
    EXPECT(tutti_all_reduce(y, TUTTI_SUM, &(tutti_opts){.group = group, .async_op = &before}) == TUTTI_OK);
    EXPECT(cu.capture(stream, capture_mode) == 0);
    EXPECT(tutti_wait_stream(before, stream) ==
           TUTTI_OK); /* the capture does not include the operation, so the host waits and the capture continues */
    tutti_work_free(before);
    EXPECT(tutti_all_reduce_into(y, x, TUTTI_SUM, &opts) == TUTTI_OK);
    EXPECT(tutti_all_reduce(y, TUTTI_SUM, &opts) == TUTTI_OK);
    opts.async_op = &work;
    EXPECT(tutti_all_reduce(y, TUTTI_SUM, &opts) == TUTTI_ERR_INVALID_ARGUMENT);
    EXPECT(strstr(tutti_last_error(), "captured") != NULL);
    EXPECT(cu.capture_end(stream, &graph) == 0);
    EXPECT(cu.instantiate(&exec, graph, 0) == 0);
    for (int round = 1; round < 4; round++) {
        cu.fill((cu_memory)(uintptr_t)x.data, (unsigned)(round * (rank + 1)), N, stream);
        EXPECT(cu.launch(exec, stream) == 0);
        wait_stream(stream);
        int32_t *host = to_host(y);
        bool right = host[0] == round * size * size * (size + 1) / 2 && host[N - 1] == host[0];
        free(host);
        EXPECT(right);
    }
    cu.exec_free(exec);
    cu.graph_free(graph);
    drop(group, x);
    drop(group, y);
    cu.stream_free(stream);
    return 0;
}

/* A stream that waits for the legacy stream is captured.  The legacy stream then accepts no work, and neither the
 * capture nor the group suffers from the attempt. */
int case_capture_legacy(tutti_group *group, int rank, int size)
{
    enum { N = 10 };
    cu_stream stream = NULL;
    void *graph = NULL;
    tutti_opts opts = {.group = group}, own = {.group = group};
    tutti_tensor x = on_device(group, N, TUTTI_INT32);
    EXPECT(cu.stream_new(&stream, 0) == 0);
    own.stream = stream;
    fill(x, of_rank, (int[]){rank, 0});
    EXPECT(tutti_broadcast(x, 0, &own) == TUTTI_OK);
    wait_stream(stream);
    EXPECT(cu.capture(stream, capture_mode) == 0);
    EXPECT(tutti_all_reduce(x, TUTTI_SUM, &opts) == TUTTI_ERR_INVALID_ARGUMENT);
    EXPECT(strstr(tutti_last_error(), "legacy default stream") != NULL);
    EXPECT(tutti_all_reduce(x, TUTTI_SUM, &own) == TUTTI_OK);
    EXPECT(cu.capture_end(stream, &graph) == 0);
    cu.graph_free(graph);
    fill(x, of_rank, (int[]){rank, 0});
    EXPECT(tutti_all_reduce(x, TUTTI_SUM, &opts) == TUTTI_OK);
    wait_stream(NULL);
    EXPECT(holds(x, reduced, (int[]){0, 0, TUTTI_SUM, size}));
    drop(group, x);
    cu.stream_free(stream);
    return 0;
}

/* Runs coalesced operations twice: while communicators are still to be opened and connected, and after. */
int case_coalesced(tutti_group *group, int rank, int size)
{
    enum { N = 3000 };
    cu_stream stream = new_stream();
    tutti_opts opts = {.group = group, .stream = stream};
    tutti_tensor x = on_device(group, N, TUTTI_INT32), y = on_device(group, N * size, TUTTI_INT32),
                 z = on_device(group, N, TUTTI_INT32);
    int to = (rank + 1) % size, from = (rank + size - 1) % size;
    for (int round = 0; round < 3; round++) {
        tutti_work *work = NULL;
        fill(x, of_rank, (int[]){rank, round});
        EXPECT(tutti_coalesce_begin(group) == TUTTI_OK);
        EXPECT(tutti_all_gather_into_tensor(y, x, &opts) == TUTTI_OK);
        if (size > 1) EXPECT(tutti_send(x, to, &opts) == TUTTI_OK);
        if (size > 1) EXPECT(tutti_recv(z, from, &opts) == TUTTI_OK);
        EXPECT(tutti_coalesce_end(group, round == 1 ? &work : NULL) == TUTTI_OK);
        if (work != NULL) EXPECT(tutti_wait(&work, 60000) == TUTTI_OK);
        for (int r = 0; r < size; r++) EXPECT(holds(part(y, r * N, N), of_rank, (int[]){r, round}));
        if (size > 1) EXPECT(holds(z, of_rank, (int[]){from, round}));
        EXPECT(tutti_all_reduce(x, TUTTI_SUM, &opts) == TUTTI_OK);
        wait_stream(stream);
        EXPECT(holds(x, reduced, (int[]){0, round, TUTTI_SUM, size}));
    }
    drop(group, x);
    drop(group, y);
    drop(group, z);
    cu.stream_free(stream);
    return 0;
}
