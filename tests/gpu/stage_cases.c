/* CUDA tensors on CPU backends, through host memory: cases for "cuda:tcp" and for the operations of "cuda:nccl|tcp"
 * that NCCL does not have. */
#include <stdlib.h>
#include <string.h>

#include "gpu/cases.h"

/* ---- what NCCL does not have ------------------------------------------------------------------------------- */

static double bits_of(int64_t i, const int *what)
{
    return (double)((i + what[0] * 3) % 8);
}

/* Returns the combined bits of all ranks. what: the op and the group's size */
static double bits_reduced(int64_t i, const int *what)
{
    int all = (int)bits_of(i, (int[]){0});
    for (int r = 1; r < what[1]; r++) {
        int x = (int)bits_of(i, (int[]){r});
        all = what[0] == TUTTI_BAND ? all & x : what[0] == TUTTI_BOR ? all | x : all ^ x;
    }
    return all;
}

int case_bitwise(tutti_group *group, int rank, int size)
{
    static const tutti_dtype dtypes[] = {TUTTI_INT32, TUTTI_UINT8, TUTTI_INT16, TUTTI_INT64};
    cu_stream stream = new_stream();
    tutti_opts opts = {.group = group, .stream = stream};
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
        for (int op = TUTTI_BAND; op <= TUTTI_BXOR; op++) {
            tutti_tensor x = on_device(group, 1001, dtypes[d]), out = on_device(group, 1001, dtypes[d]);
            fill(x, bits_of, &rank);
            EXPECT(tutti_all_reduce_into(out, x, (tutti_reduce_op)op, &opts) == TUTTI_OK);
            EXPECT(tutti_reduce(x, 0, (tutti_reduce_op)op, &opts) == TUTTI_OK);
            wait_stream(stream);
            EXPECT(holds(out, bits_reduced, (int[]){op, size}));
            EXPECT(rank == 0 ? holds(x, bits_reduced, (int[]){op, size}) : holds(x, bits_of, &rank));
            drop(group, x);
            drop(group, out);
        }
    EXPECT(one_reduction(group, rank, size, TUTTI_INT16, TUTTI_SUM, 333) == 0);
    if (size <= 2) EXPECT(one_reduction(group, rank, size, TUTTI_INT16, TUTTI_PRODUCT, 5) == 0);
    cu.stream_free(stream);
    return 0;
}

/* Receives the second tag first, from any source.  Runs a barrier that names stragglers, and all_to_all in place. */
int case_beyond_nccl(tutti_group *group, int rank, int size)
{
    cu_stream stream = new_stream();
    tutti_opts opts = {.group = group, .stream = stream};
    tutti_tensor x = on_device(group, 9 * size, TUTTI_INT32), y = on_device(group, 9 * size, TUTTI_INT32);
    EXPECT(tutti_monitored_barrier(&opts) == TUTTI_OK);
    for (int r = 0; r < size; r++) fill(part(x, r * 9, 9), of_rank, (int[]){rank, r});
    EXPECT(tutti_all_to_all_single(x, x, NULL, NULL, &opts) == TUTTI_OK);
    wait_stream(stream);
    for (int r = 0; r < size; r++) EXPECT(holds(part(x, r * 9, 9), of_rank, (int[]){r, rank}));
    if (size > 1 && rank > 0) {
        fill(part(x, 0, 9), of_rank, (int[]){rank, 1});
        fill(part(x, 9, 9), of_rank, (int[]){rank, 2});
        EXPECT(tutti_send(part(x, 0, 9), 0, &(tutti_opts){.group = group, .stream = stream, .tag = 7}) == TUTTI_OK);
        EXPECT(tutti_send(part(x, 9, 9), 0, &(tutti_opts){.group = group, .stream = stream, .tag = 8}) == TUTTI_OK);
    }
    for (int tag = 8; tag >= 7 && rank == 0; tag--) {
        bool seen[CASES_RANKS] = {false};
        for (int i = 1; i < size; i++) {
            int source = -1;
            tutti_opts any = {.group = group, .stream = stream, .tag = tag, .source = &source};
            tutti_work *work = NULL;
            if (i % 2 == 0) {
                EXPECT(tutti_recv(part(y, 0, 9), TUTTI_ANY_SOURCE, &any) == TUTTI_OK);
            } else {
                EXPECT(tutti_irecv(part(y, 0, 9), TUTTI_ANY_SOURCE, &any, &work) == TUTTI_OK);
                EXPECT(tutti_work_wait(work, 60000) == TUTTI_OK && tutti_work_source(work) == source);
                EXPECT(tutti_work_op(work) == TUTTI_RECV);
                tutti_work_free(work);
            }
            EXPECT(source > 0 && source < size && !seen[source]);
            seen[source] = true;
            wait_stream(stream);
            EXPECT(holds(part(y, 0, 9), of_rank, (int[]){source, tag - 6}));
        }
    }
    EXPECT(tutti_barrier(&opts) == TUTTI_OK);
    drop(group, x);
    drop(group, y);
    cu.stream_free(stream);
    return 0;
}

/* ---- large: several chunks --------------------------------------------------------------------------------- */

static int one_large(tutti_group *group, int rank, int size, int64_t n)
{
    cu_stream stream = new_stream();
    tutti_opts opts = {.group = group, .stream = stream};
    tutti_tensor one = on_device(group, n, TUTTI_INT32), all = on_device(group, n * size, TUTTI_INT32),
                 other = on_device(group, n * size, TUTTI_INT32);
    int mine[2] = {rank, 0}, root = size - 1, whole[4] = {0, 0, TUTTI_SUM, size};
    fill(one, of_rank, mine);
    EXPECT(tutti_all_reduce_into(part(all, 0, n), one, TUTTI_SUM, &opts) == TUTTI_OK);
    EXPECT(tutti_reduce_into(part(other, 0, n), one, root, TUTTI_SUM, &opts) == TUTTI_OK);
    wait_stream(stream);
    EXPECT(holds(part(all, 0, n), reduced, whole) && (rank != root || holds(part(other, 0, n), reduced, whole)));
    EXPECT(tutti_broadcast(part(all, 0, n), root, &opts) == TUTTI_OK);
    EXPECT(tutti_all_gather_into_tensor(all, one, &opts) == TUTTI_OK);
    EXPECT(tutti_gather_into_tensor(other, one, root, &opts) == TUTTI_OK);
    wait_stream(stream);
    for (int r = 0; r < size; r++) {
        EXPECT(holds(part(all, r * n, n), of_rank, (int[]){r, 0}));
        EXPECT(rank != root || holds(part(other, r * n, n), of_rank, (int[]){r, 0}));
    }
    for (int r = 0; r < size; r++) fill(part(all, r * n, n), of_rank, (int[]){rank, r});
    EXPECT(tutti_all_to_all_single(other, all, NULL, NULL, &opts) == TUTTI_OK);
    EXPECT(tutti_reduce_scatter_tensor(one, all, TUTTI_SUM, &opts) == TUTTI_OK);
    wait_stream(stream);
    for (int r = 0; r < size; r++) EXPECT(holds(part(other, r * n, n), of_rank, (int[]){r, rank}));
    EXPECT(holds(one, reduced, (int[]){0, rank, TUTTI_SUM, size}));
    EXPECT(tutti_scatter_tensor(one, all, root, &opts) == TUTTI_OK);
    wait_stream(stream);
    EXPECT(holds(one, of_rank, (int[]){root, rank}));
    EXPECT(tutti_all_to_all_single(all, all, NULL, NULL, &opts) == TUTTI_OK); /* in place */
    EXPECT(tutti_all_gather_into_tensor(other, part(other, rank * n, n), &opts) == TUTTI_OK);
    wait_stream(stream);
    for (int r = 0; r < size; r++) {
        EXPECT(holds(part(all, r * n, n), of_rank, (int[]){r, rank}));
        EXPECT(holds(part(other, r * n, n), of_rank, (int[]){r, r}));
    }
    drop(group, one);
    drop(group, all);
    drop(group, other);
    cu.stream_free(stream);
    return 0;
}

/* A chunk is 4 MiB or more: of all ranks' blocks together, or of one tensor if there are no blocks. */
int case_large(tutti_group *group, int rank, int size)
{
    int line = size <= 2 ? one_large(group, rank, size, (9 << 20) / 4 + 3) : 0;
    if (line == 0) line = one_large(group, rank, size, (4 << 20) / 4 / size);
    return line == 0 ? one_large(group, rank, size, (4 << 20) / 4 / size + 1) : line;
}

/* Asynchronous operations on the same memory, large and small, act as if run one after the other. */
int case_in_order(tutti_group *group, int rank, int size)
{
    enum { N = (5 << 20) / 4, TIMES = 4 };
    cu_stream stream = new_stream();
    tutti_work *works[2 * TIMES];
    tutti_tensor x = on_device(group, N, TUTTI_INT32);
    cu.fill((cu_memory)(uintptr_t)x.data, 1, N, stream);
    for (int i = 0; i < TIMES; i++) {
        tutti_opts opts = {.group = group, .stream = stream, .async_op = &works[2 * i]};
        EXPECT(tutti_all_reduce(x, TUTTI_SUM, &opts) == TUTTI_OK);
        opts.async_op = &works[2 * i + 1];
        EXPECT(tutti_all_reduce(part(x, 10, 10), TUTTI_SUM, &opts) == TUTTI_OK);
    }
    uint64_t before = 0;
    for (int i = 0; i < 2 * TIMES; i++) {
        EXPECT(tutti_work_op(works[i]) == TUTTI_ALL_REDUCE && tutti_work_sequence(works[i]) > before);
        before = tutti_work_sequence(works[i]);
    }
    EXPECT(tutti_wait_all(works, 2 * TIMES, 60000) == TUTTI_OK);
    int32_t *host = to_host(x), once = 1, twice = 1;
    for (int i = 0; i < TIMES; i++) {
        once *= size;
        twice *= size * size;
    }
    bool right = true;
    for (int i = 0; i < N; i++) right &= host[i] == (i >= 10 && i < 20 ? twice : once);
    free(host);
    EXPECT(right);
    (void)rank;
    drop(group, x);
    cu.stream_free(stream);
    return 0;
}

/* ---- streams ----------------------------------------------------------------------------------------------- */

/* The given stream waits, then writes.  The operation follows it, and an asynchronous call does not wait. */
int case_staged_streams(tutti_group *group, int rank, int size)
{
    enum { N = 1000 };
    cu_stream stream = new_stream(), second = new_stream();
    tutti_tensor x = on_device(group, N, TUTTI_INT32);
    tutti_work *work = NULL;
    int32_t *host = malloc(sizeof *host * N);
    for (int round = 0; round < 3; round++) {
        struct gate gate = {false};
        tutti_opts opts = {.group = group, .stream = stream, .async_op = &work};
        cu.fill((cu_memory)(uintptr_t)x.data, 1000, N, stream);
        wait_stream(stream);
        cu.call_host(stream, wait_at, &gate);
        cu.fill((cu_memory)(uintptr_t)x.data, (unsigned)rank + 1, N, stream);
        EXPECT(tutti_all_reduce(x, TUTTI_SUM, &opts) == TUTTI_OK);
        EXPECT(!tutti_work_is_completed(work));
        EXPECT(tutti_wait(&work, 20) == TUTTI_ERR_TIMEOUT && work != NULL);
        __atomic_store_n(&gate.open, true, __ATOMIC_RELEASE);
        if (round == 0) EXPECT(tutti_wait_stream(work, second) == TUTTI_OK);
        if (round > 0) EXPECT(tutti_wait(&work, 60000) == TUTTI_OK);
        cu.copy_out(host, (cu_memory)(uintptr_t)x.data, N * sizeof *host, second);
        wait_stream(second);
        for (int i = 0; i < N; i++) EXPECT(host[i] == size * (size + 1) / 2);
        if (work != NULL) EXPECT(tutti_wait(&work, 60000) == TUTTI_OK);
    }
    cu.fill((cu_memory)(uintptr_t)x.data, 1, N, stream); /* a blocking call, then work on its stream */
    EXPECT(tutti_all_reduce(x, TUTTI_SUM, &(tutti_opts){.group = group, .stream = stream}) == TUTTI_OK);
    cu.copy_out(host, (cu_memory)(uintptr_t)x.data, N * sizeof *host, stream);
    wait_stream(stream);
    for (int i = 0; i < N; i++) EXPECT(host[i] == size);
    drop(group, x);
    free(host);
    cu.stream_free(stream);
    cu.stream_free(second);
    return 0;
}

/* Messages of one pair and tag keep their order, even if the first one's stream is late. */
int case_message_order(tutti_group *group, int rank, int size)
{
    cu_stream late = new_stream(), early = new_stream();
    tutti_tensor x = on_device(group, 10, TUTTI_INT32), y = on_device(group, 10, TUTTI_INT32);
    struct gate gate = {false};
    tutti_work *works[2] = {NULL, NULL};
    if (size > 1 && rank == 0) {
        fill(y, of_rank, (int[]){0, 2});
        cu.call_host(late, wait_at, &gate);
        cu.fill((cu_memory)(uintptr_t)x.data, 77, 10, late);
        tutti_opts first = {.group = group, .stream = late}, second = {.group = group, .stream = early};
        EXPECT(tutti_isend(x, 1, &first, &works[0]) == TUTTI_OK);
        EXPECT(tutti_isend(y, 1, &second, &works[1]) == TUTTI_OK);
        EXPECT(tutti_wait(&works[1], 50) == TUTTI_ERR_TIMEOUT && works[1] != NULL);
        __atomic_store_n(&gate.open, true, __ATOMIC_RELEASE);
        EXPECT(tutti_wait_all(works, 2, 60000) == TUTTI_OK);
    } else if (size > 1 && rank == 1) {
        EXPECT(tutti_recv(x, 0, &(tutti_opts){.group = group}) == TUTTI_OK);
        EXPECT(tutti_recv(y, 0, &(tutti_opts){.group = group}) == TUTTI_OK);
        int32_t *host = to_host(x);
        bool right = host[0] == 77 && host[9] == 77;
        free(host);
        EXPECT(right && holds(y, of_rank, (int[]){0, 2}));
    }
    EXPECT(tutti_barrier(&(tutti_opts){.group = group}) == TUTTI_OK);
    drop(group, x);
    drop(group, y);
    cu.stream_free(late);
    cu.stream_free(early);
    return 0;
}

/* On "cuda:nccl|tcp": staged operations between those of NCCL, all asynchronous, on the same memory. */
int case_mixed(tutti_group *group, int rank, int size)
{
    enum { N = 2000 };
    static int delay_ms = 30;
    cu_stream stream = new_stream();
    tutti_work *works[6];
    tutti_tensor x = on_device(group, N, TUTTI_INT32);
    for (int round = 0; round < 3; round++) {
        cu.call_host(stream, sleep_here, &delay_ms);
        cu.fill((cu_memory)(uintptr_t)x.data, 1u << rank, N, stream);
        for (int i = 0; i < 6; i++) { /* or: all ones; sum: times the size */
            tutti_opts opts = {.group = group, .stream = stream, .async_op = &works[i]};
            EXPECT(tutti_all_reduce(x, i % 2 == 0 ? TUTTI_BOR : TUTTI_SUM, &opts) == TUTTI_OK);
        }
        EXPECT(tutti_wait_all(works, 6, 60000) == TUTTI_OK);
        int32_t *host = to_host(x), ones = (1 << size) - 1;
        bool right = true;
        for (int i = 0; i < N; i++) right &= host[i] == ones * size * size * size;
        free(host);
        EXPECT(right);
    }
    drop(group, x);
    cu.stream_free(stream);
    return 0;
}

/* In a coalesced run, the middle operation is one that NCCL does not have.  The last one waits for it, and the first
 * one runs meanwhile. */
int case_coalesced_mixed(tutti_group *group, int rank, int size)
{
    enum { N = 1000 };
    cu_stream stream = new_stream();
    tutti_opts opts = {.group = group, .stream = stream};
    tutti_tensor x = on_device(group, N, TUTTI_INT32), y = on_device(group, N, TUTTI_INT32),
                 z = on_device(group, N, TUTTI_INT32);
    for (int round = 0; round < 3; round++) {
        tutti_work *work = NULL;
        fill(x, of_rank, (int[]){rank, round});
        fill(y, bits_of, &rank);
        fill(z, of_rank, (int[]){rank, round});
        EXPECT(tutti_coalesce_begin(group) == TUTTI_OK);
        EXPECT(tutti_all_reduce(x, TUTTI_SUM, &opts) == TUTTI_OK);
        EXPECT(tutti_all_reduce(y, TUTTI_BXOR, &opts) == TUTTI_OK);
        if (rank == 0 && size > 1) EXPECT(tutti_send(z, 1, &opts) == TUTTI_OK);
        if (rank == 1) EXPECT(tutti_recv(z, 0, &opts) == TUTTI_OK);
        EXPECT(tutti_coalesce_end(group, &work) == TUTTI_OK);
        EXPECT(tutti_wait(&work, 60000) == TUTTI_OK);
        EXPECT(holds(x, reduced, (int[]){0, round, TUTTI_SUM, size}));
        EXPECT(holds(y, bits_reduced, (int[]){TUTTI_BXOR, size}));
        EXPECT(holds(z, of_rank, (int[]){rank == 1 ? 0 : rank, round}));
    }
    drop(group, x);
    drop(group, y);
    drop(group, z);
    cu.stream_free(stream);
    return 0;
}

/* ---- what is refused --------------------------------------------------------------------------------------- */

int case_staged_refused(tutti_group *group, int rank, int size)
{
    cu_stream stream = new_stream();
    tutti_opts opts = {.group = group, .stream = stream};
    tutti_tensor x = on_device(group, 8, TUTTI_INT32);
    EXPECT(own_op_is_refused(group, x, &opts) == 0);
    EXPECT(foreign_memory(group, x, &opts) == 0);
    EXPECT(foreign_stream(group, x, size) == 0);
    void *graph = NULL;
    EXPECT(cu.capture(stream, capture_mode) == 0);
    EXPECT(tutti_all_reduce(x, TUTTI_BXOR, &opts) == TUTTI_ERR_INVALID_ARGUMENT);
    EXPECT(strstr(tutti_last_error(), "captured into a graph") != NULL);
    EXPECT(cu.capture_end(stream, &graph) == 0);
    cu.graph_free(graph);
    fill(x, of_rank, (int[]){rank, 0});
    EXPECT(tutti_all_reduce(x, TUTTI_SUM, &opts) == TUTTI_OK); /* the group is still usable */
    wait_stream(stream);
    EXPECT(holds(x, reduced, (int[]){0, 0, TUTTI_SUM, size}));
    drop(group, x);
    cu.stream_free(stream);
    return 0;
}

const struct device_case stage_cases[] = {{"bitwise", case_bitwise},
                                          {"beyond_nccl", case_beyond_nccl},
                                          {"large", case_large},
                                          {"in_order", case_in_order},
                                          {"message_order", case_message_order},
                                          {"staged_streams", case_staged_streams},
                                          {"mixed", case_mixed},
                                          {"staged_refused", case_staged_refused},
                                          {"coalesced_mixed", case_coalesced_mixed},
                                          {NULL, NULL}};
