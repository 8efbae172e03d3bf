/* What the nccl backend must do, written once: on a GPU (nccl_cases.c, ranks are processes) and on the stand-ins of
 * tests/fakes (tests/conformance/test_nccl_fake.c, ranks are threads).  A case returns 0, or the line where it found
 * something wrong. */
#ifndef NCCL_CASES_H
#define NCCL_CASES_H

#include <string.h>
#include <time.h>
#include <tutti/tutti.h>

#include "cuda_shim.h"

#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: rank %d: %s; last error: %s\n", __FILE__, __LINE__, tutti_get_rank(group),         \
                    #condition, tutti_last_error());                                                                   \
            return __LINE__;                                                                                           \
        }                                                                                                              \
    } while (0)

enum { CASES_RANKS = 16 };

typedef int (*case_fn)(tutti_group *group, int rank, int size);

/* ---- numbers of any dtype ---------------------------------------------------------------------------------- */

static inline void number_put(tutti_dtype dtype, void *at, int64_t i, double value)
{
    float single = (float)value;
    uint32_t bits;
    memcpy(&bits, &single, sizeof bits);
    switch (dtype) {
    case TUTTI_BOOL:
    case TUTTI_UINT8:
        ((uint8_t *)at)[i] = (uint8_t)value;
        break;
    case TUTTI_INT8:
        ((int8_t *)at)[i] = (int8_t)value;
        break;
    case TUTTI_INT16:
        ((int16_t *)at)[i] = (int16_t)value;
        break;
    case TUTTI_INT32:
    case TUTTI_UINT32:
        ((int32_t *)at)[i] = (int32_t)value;
        break;
    case TUTTI_INT64:
    case TUTTI_UINT64:
        ((int64_t *)at)[i] = (int64_t)value;
        break;
    case TUTTI_FLOAT16: /* small whole and half numbers are exact */
        ((uint16_t *)at)[i] =
            value == 0 ? 0
                       : (uint16_t)((bits >> 16 & 0x8000) | (((bits >> 23 & 0xff) - 112) << 10) | (bits >> 13 & 0x3ff));
        break;
    case TUTTI_BFLOAT16:
        ((uint16_t *)at)[i] = (uint16_t)(bits >> 16);
        break;
    case TUTTI_FLOAT32:
        ((float *)at)[i] = single;
        break;
    case TUTTI_FLOAT64:
        ((double *)at)[i] = value;
        break;
    case TUTTI_COMPLEX64:
        ((float *)at)[2 * i] = single;
        ((float *)at)[2 * i + 1] = -single;
        break;
    case TUTTI_COMPLEX128:
        ((double *)at)[2 * i] = value;
        ((double *)at)[2 * i + 1] = -value;
        break;
    default:
        break;
    }
}

static inline bool numbers_are(tutti_dtype dtype, const void *at, int64_t n,
                               double (*value)(int64_t i, const int *what), const int *what)
{
    size_t bytes = (size_t)tutti_dtype_bytes(dtype);
    for (int64_t i = 0; i < n; i++) {
        char one[16] = {0};
        number_put(dtype, one, 0, value(i, what));
        if (memcmp(one, (const char *)at + (size_t)i * bytes, bytes) == 0) continue;
        fprintf(stderr, "element %lld of dtype 0x%x: not %g\n", (long long)i, (unsigned)dtype, value(i, what));
        return false;
    }
    return true;
}

/* ---- tensors on the device --------------------------------------------------------------------------------- */

static inline tutti_tensor on_device(tutti_group *group, int64_t numel, tutti_dtype dtype)
{
    tutti_tensor x = {NULL, numel, dtype, tutti_get_device(group)};
    TUTTI_CHECK(tutti_alloc(group, numel * tutti_dtype_bytes(dtype), &x.data));
    return x;
}

static inline tutti_tensor part(tutti_tensor x, int64_t from, int64_t numel)
{
    return (tutti_tensor){(char *)x.data + from * tutti_dtype_bytes(x.dtype), numel, x.dtype, x.device};
}

static inline size_t bytes_of(tutti_tensor x)
{
    return (size_t)(x.numel * tutti_dtype_bytes(x.dtype));
}

/* Host memory for the tensor's elements. */
static inline void *to_host(tutti_tensor x)
{
    void *host = malloc(bytes_of(x) + 1);
    if (x.numel > 0 && cu.copy((cu_memory)(uintptr_t)host, (cu_memory)(uintptr_t)x.data, bytes_of(x)) != 0) abort();
    return host;
}

/* Element i becomes value(i, what). */
static inline void fill(tutti_tensor x, double (*value)(int64_t i, const int *what), const int *what)
{
    void *host = malloc(bytes_of(x) + 16);
    for (int64_t i = 0; i < x.numel; i++) number_put(x.dtype, host, i, value(i, what));
    if (x.numel > 0 && cu.copy((cu_memory)(uintptr_t)x.data, (cu_memory)(uintptr_t)host, bytes_of(x)) != 0) abort();
    free(host);
}

static inline bool holds(tutti_tensor x, double (*value)(int64_t i, const int *what), const int *what)
{
    void *host = to_host(x);
    bool same = numbers_are(x.dtype, host, x.numel, value, what);
    free(host);
    return same;
}

/* what: rank, the first element's place, and for reductions the op and the group's size. */
static inline double of_rank(int64_t i, const int *what)
{
    return (double)((i + what[1]) % 5 + what[0] + 1);
}

static inline double reduced(int64_t i, const int *what)
{
    double all = 0;
    for (int r = 0; r < what[3]; r++) {
        double x = of_rank(i, (int[]){r, what[1]});
        switch (what[2]) {
        case TUTTI_PRODUCT:
            all = r == 0 ? x : all * x;
            break;
        case TUTTI_MIN:
            all = r == 0 || x < all ? x : all;
            break;
        case TUTTI_MAX:
            all = r == 0 || x > all ? x : all;
            break;
        case TUTTI_PREMUL_SUM:
            all += x / 2;
            break;
        default:
            all += x;
        }
    }
    return what[2] == TUTTI_AVG ? all / what[3] : all;
}

/* Integers truncate. */
static inline double reduced_whole(int64_t i, const int *what)
{
    return (double)(int64_t)reduced(i, what);
}

static inline cu_stream new_stream(void)
{
    cu_stream stream = NULL;
    if (cu.stream_new(&stream, CU_STREAM_NONBLOCKING) != 0) abort();
    return stream;
}

static inline void wait_stream(cu_stream stream)
{
    int result = cu.stream_wait(stream);
    if (result != 0) fprintf(stderr, "cuStreamSynchronize: %d\n", result);
}

static inline void drop(tutti_group *group, tutti_tensor x)
{
    TUTTI_CHECK(tutti_free(group, x.data));
}

/* ---- reductions -------------------------------------------------------------------------------------------- */

static inline int one_reduction(tutti_group *group, int rank, int size, tutti_dtype dtype, tutti_reduce_op op,
                                int64_t n)
{
    cu_stream stream = new_stream();
    tutti_opts opts = {.group = group, .stream = stream, .factor = 0.5};
    tutti_tensor in = on_device(group, n * size, dtype), out = on_device(group, n * size, dtype);
    int mine[4] = {rank, 0}, all[4] = {0, 0, (int)op, size};
    bool whole = (dtype >> 8) < 2;
    double (*result)(int64_t, const int *) = whole ? reduced_whole : reduced;
    bool exact = op != TUTTI_AVG || whole || (size & (size - 1)) == 0;

    fill(in, of_rank, mine);
    EXPECT(tutti_all_reduce_into(part(out, 0, n), part(in, 0, n), op, &opts) == TUTTI_OK);
    wait_stream(stream);
    EXPECT(!exact || holds(part(out, 0, n), result, all));
    EXPECT(holds(part(in, 0, n), of_rank, mine));
    EXPECT(tutti_reduce_scatter_tensor(part(out, 0, n), in, op, &opts) == TUTTI_OK);
    wait_stream(stream);
    EXPECT(!exact || holds(part(out, 0, n), result, (int[]){0, (int)(rank * n), (int)op, size}));
    for (int root = 0; root < size; root++) {
        fill(out, of_rank, mine);
        EXPECT(tutti_reduce(part(out, 0, n), root, op, &opts) == TUTTI_OK);
        wait_stream(stream);
        EXPECT(rank == root ? !exact || holds(part(out, 0, n), result, all) : holds(part(out, 0, n), of_rank, mine));
    }
    EXPECT(tutti_all_reduce(part(in, 0, n), op, &opts) == TUTTI_OK);
    wait_stream(stream);
    EXPECT(!exact || holds(part(in, 0, n), result, all));
    drop(group, in);
    drop(group, out);
    cu.stream_free(stream);
    return 0;
}

static inline int case_reductions(tutti_group *group, int rank, int size)
{
    static const tutti_dtype dtypes[] = {TUTTI_INT8,    TUTTI_UINT8,   TUTTI_INT32,     TUTTI_UINT32,
                                         TUTTI_INT64,   TUTTI_UINT64,  TUTTI_FLOAT16,   TUTTI_BFLOAT16,
                                         TUTTI_FLOAT32, TUTTI_FLOAT64, TUTTI_COMPLEX64, TUTTI_COMPLEX128};
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
        for (int op = TUTTI_SUM; op <= TUTTI_PREMUL_SUM; op++) {
            bool complex = dtypes[d] >= TUTTI_COMPLEX64, whole = (dtypes[d] >> 8) < 2;
            if (complex && (op == TUTTI_PRODUCT || op == TUTTI_MIN || op == TUTTI_MAX)) continue;
            if (whole && op == TUTTI_PREMUL_SUM) continue;
            if (op == TUTTI_PRODUCT && (size > 2 || tutti_dtype_bytes(dtypes[d]) < 4) && size > 1)
                continue; /* not exact */
            int line = one_reduction(group, rank, size, dtypes[d], (tutti_reduce_op)op, 1 + 37 * (int)d);
            if (line != 0) {
                fprintf(stderr, "rank %d: dtype 0x%x, op %d\n", rank, (unsigned)dtypes[d], op);
                return line;
            }
        }
    return one_reduction(group, rank, size, TUTTI_FLOAT32, TUTTI_SUM, 70001);
}

static inline double is_rank_zero(int64_t i, const int *what)
{
    return what[0] == 0 && i % 2 == 0;
}

static inline int case_bool(tutti_group *group, int rank, int size)
{
    static const struct {
        tutti_reduce_op op;
        bool any;
    } ops[] = {{TUTTI_SUM, true}, {TUTTI_MAX, true}, {TUTTI_BOR, true}, {TUTTI_PRODUCT, false}, {TUTTI_BAND, false}};
    tutti_tensor x = on_device(group, 9, TUTTI_BOOL);
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        fill(x, is_rank_zero, &rank);
        EXPECT(tutti_all_reduce(x, ops[i].op, &(tutti_opts){.group = group}) == TUTTI_OK);
        wait_stream(NULL);
        int stays = ops[i].any || size == 1 ? 0 : 1;
        EXPECT(holds(x, is_rank_zero, &stays));
    }
    drop(group, x);
    return 0;
}

/* ---- moves ------------------------------------------------------------------------------------------------- */

static inline int one_move(tutti_group *group, int rank, int size, tutti_dtype dtype, int64_t n)
{
    cu_stream stream = new_stream();
    tutti_opts opts = {.group = group, .stream = stream};
    tutti_tensor one = on_device(group, n, dtype), all = on_device(group, n * size, dtype),
                 other = on_device(group, n * size, dtype);
    int mine[2] = {rank, 0};
    for (int root = 0; root < size; root++) {
        fill(one, of_rank, mine);
        EXPECT(tutti_broadcast(one, root, &opts) == TUTTI_OK);
        wait_stream(stream);
        EXPECT(holds(one, of_rank, (int[]){root, 0}));
        fill(one, of_rank, mine);
        EXPECT(tutti_gather_into_tensor(all, one, root, &opts) == TUTTI_OK);
        wait_stream(stream);
        for (int r = 0; r < size && rank == root; r++) EXPECT(holds(part(all, r * n, n), of_rank, (int[]){r, 0}));
        for (int r = 0; r < size; r++) fill(part(all, r * n, n), of_rank, (int[]){r, root + 1});
        EXPECT(tutti_scatter_tensor(one, all, root, &opts) == TUTTI_OK);
        wait_stream(stream);
        EXPECT(holds(one, of_rank, (int[]){rank, root + 1}));
    }
    fill(one, of_rank, mine);
    EXPECT(tutti_all_gather_into_tensor(all, one, &opts) == TUTTI_OK);
    wait_stream(stream);
    for (int r = 0; r < size; r++) EXPECT(holds(part(all, r * n, n), of_rank, (int[]){r, 0}));
    for (int r = 0; r < size; r++) fill(part(all, r * n, n), of_rank, (int[]){rank, r});
    EXPECT(tutti_all_to_all_single(other, all, NULL, NULL, &opts) == TUTTI_OK);
    wait_stream(stream);
    for (int r = 0; r < size; r++) EXPECT(holds(part(other, r * n, n), of_rank, (int[]){r, rank}));
    drop(group, one);
    drop(group, all);
    drop(group, other);
    cu.stream_free(stream);
    return 0;
}

static inline int case_moves(tutti_group *group, int rank, int size)
{
    static const int64_t counts[] = {0, 1, 7, 1000, 70001};
    static const tutti_dtype dtypes[] = {TUTTI_INT32, TUTTI_INT16, TUTTI_BOOL, TUTTI_COMPLEX128};
    int line = 0;
    for (size_t c = 0; c < sizeof counts / sizeof *counts && line == 0; c++)
        line = one_move(group, rank, size, TUTTI_FLOAT32, counts[c]);
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes && line == 0; d++)
        line = one_move(group, rank, size, dtypes[d], 33);
    return line;
}

/* Rank r's part has base + r elements. */
static inline int case_uneven(tutti_group *group, int rank, int size)
{
    cu_stream stream = new_stream();
    tutti_opts opts = {.group = group, .stream = stream};
    int64_t base = 11, most = base + size, total = 0, in_total = 0;
    tutti_tensor list[CASES_RANKS], other[CASES_RANKS], one = on_device(group, base + rank, TUTTI_INT32);
    int64_t in_splits[CASES_RANKS], out_splits[CASES_RANKS];
    for (int r = 0; r < size; r++) list[r] = on_device(group, base + r, TUTTI_INT32);
    for (int r = 0; r < size; r++) other[r] = on_device(group, base + rank, TUTTI_INT32);
    fill(one, of_rank, &(int[]){rank, 0}[0]);
    EXPECT(tutti_all_gather(list, size, one, &opts) == TUTTI_OK);
    wait_stream(stream);
    for (int r = 0; r < size; r++) EXPECT(holds(list[r], of_rank, (int[]){r, 0}));
    for (int root = 0; root < size; root++) {
        bool is_root = rank == root;
        for (int r = 0; r < size; r++) fill(list[r], of_rank, (int[]){r, 3});
        fill(one, of_rank, &(int[]){rank, 1}[0]);
        EXPECT(tutti_gather(one, is_root ? list : NULL, is_root ? size : 0, root, &opts) == TUTTI_OK);
        wait_stream(stream);
        for (int r = 0; r < size && is_root; r++) EXPECT(holds(list[r], of_rank, (int[]){r, 1}));
        for (int r = 0; r < size; r++) fill(list[r], of_rank, (int[]){r, 2});
        EXPECT(tutti_scatter(one, is_root ? list : NULL, is_root ? size : 0, root, &opts) == TUTTI_OK);
        wait_stream(stream);
        EXPECT(holds(one, of_rank, (int[]){rank, 2}));
    }
    for (int r = 0; r < size; r++) fill(list[r], of_rank, (int[]){rank, 0});
    EXPECT(tutti_reduce_scatter(one, list, size, TUTTI_SUM, &opts) == TUTTI_OK);
    EXPECT(tutti_all_to_all(other, list, size, &opts) == TUTTI_OK);
    wait_stream(stream);
    EXPECT(holds(one, reduced, (int[]){0, 0, TUTTI_SUM, size}));
    for (int r = 0; r < size; r++) EXPECT(holds(other[r], of_rank, (int[]){r, 0}));
    tutti_tensor from = on_device(group, most * size, TUTTI_INT32), to = on_device(group, most * size, TUTTI_INT32);
    for (int r = 0; r < size; r++) { /* rank a sends (a + b) % size elements to b: zeros too */
        in_splits[r] = out_splits[r] = (rank + r) % size;
        fill(part(from, in_total, in_splits[r]), of_rank, (int[]){rank, r});
        in_total += in_splits[r];
    }
    EXPECT(tutti_all_to_all_single(part(to, 0, in_total), part(from, 0, in_total), out_splits, in_splits, &opts) ==
           TUTTI_OK);
    wait_stream(stream);
    for (int r = 0; r < size; total += out_splits[r++])
        EXPECT(holds(part(to, total, out_splits[r]), of_rank, (int[]){r, rank}));
    for (int r = 0; r < size; r++) {
        drop(group, list[r]);
        drop(group, other[r]);
    }
    drop(group, one);
    drop(group, from);
    drop(group, to);
    cu.stream_free(stream);
    return 0;
}

/* ---- messages ---------------------------------------------------------------------------------------------- */

static inline int case_messages(tutti_group *group, int rank, int size)
{
    if (size == 1) return 0;
    int to = (rank + 1) % size, from = (rank + size - 1) % size;
    int64_t n = 2 << 20;
    tutti_tensor a = on_device(group, n, TUTTI_INT32), b = on_device(group, n, TUTTI_INT32);
    cu_stream stream = new_stream();
    tutti_opts opts = {.group = group, .stream = stream};
    for (int round = 0; round < 3; round++) { /* all send first */
        tutti_work *works[2];
        fill(a, of_rank, (int[]){rank, round});
        EXPECT(tutti_isend(a, to, &opts, &works[0]) == TUTTI_OK);
        EXPECT(tutti_irecv(b, from, &opts, &works[1]) == TUTTI_OK);
        EXPECT(tutti_wait_all(works, 2, 60000) == TUTTI_OK);
        EXPECT(holds(b, of_rank, (int[]){from, round}));
    }
    for (int round = 0; round < 4; round++) { /* in order, one blocking, one not */
        tutti_work *work = NULL;
        fill(part(a, 0, 10), of_rank, (int[]){rank, round});
        if (rank % 2 == 0) {
            EXPECT(tutti_send(part(a, 0, 10), to, &opts) == TUTTI_OK);
            EXPECT(tutti_isend(part(a, 0, 10), to, &opts, &work) == TUTTI_OK);
        }
        if (from % 2 == 0) {
            int source = -1;
            EXPECT(tutti_recv(part(b, 0, 10), from,
                              &(tutti_opts){.group = group, .stream = stream, .source = &source}) == TUTTI_OK);
            EXPECT(tutti_recv(part(b, 10, 10), from, &opts) == TUTTI_OK);
            wait_stream(stream);
            EXPECT(source == from && holds(part(b, 0, 10), of_rank, (int[]){from, round}) &&
                   holds(part(b, 10, 10), of_rank, (int[]){from, round}));
        }
        if (work != NULL) EXPECT(tutti_wait(&work, 60000) == TUTTI_OK);
    }
    wait_stream(stream);
    /* a receive that waits does not hold up collectives */
    tutti_work *late = NULL;
    EXPECT(tutti_irecv(part(b, 0, 5), from, &opts, &late) == TUTTI_OK);
    EXPECT(tutti_barrier(&opts) == TUTTI_OK);
    EXPECT(!tutti_work_is_completed(late));
    EXPECT(tutti_barrier(&opts) == TUTTI_OK);
    EXPECT(tutti_send(part(a, 0, 5), to, &opts) == TUTTI_OK);
    EXPECT(tutti_wait(&late, 60000) == TUTTI_OK);
    wait_stream(stream);
    drop(group, a);
    drop(group, b);
    cu.stream_free(stream);
    return 0;
}

/* ---- streams ----------------------------------------------------------------------------------------------- */

static inline void sleep_here(void *ms)
{
    int64_t n = *(const int *)ms;
    nanosleep(&(struct timespec){n / 1000, n % 1000 * 1000000}, NULL);
}

struct gate {
    bool open;
};

static inline void wait_at(void *argument)
{
    struct gate *gate = argument;
    while (!__atomic_load_n(&gate->open, __ATOMIC_ACQUIRE)) nanosleep(&(struct timespec){0, 100000}, NULL);
}

/* The caller's stream sleeps, then writes: what follows must see it. */
static inline int case_streams(tutti_group *group, int rank, int size)
{
    static int delay_ms = 60;
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
        struct timespec begin, end;
        bool async = round % 2 != 0;
        cu.fill((cu_memory)(uintptr_t)x.data, 1000, N, stream);
        wait_stream(stream);
        clock_gettime(CLOCK_MONOTONIC, &begin);
        cu.call_host(stream, sleep_here, &delay_ms);
        cu.fill((cu_memory)(uintptr_t)x.data, (unsigned)rank + 1, N, stream);
        opts.async_op = async ? &work : NULL;
        EXPECT(tutti_all_reduce(x, TUTTI_SUM, &opts) == TUTTI_OK);
        EXPECT(!async || !tutti_work_is_completed(work));
        if (async) EXPECT(tutti_wait_stream(work, second) == TUTTI_OK);
        clock_gettime(CLOCK_MONOTONIC, &end); /* neither has waited */
        double ms = (double)(end.tv_sec - begin.tv_sec) * 1e3 + (double)(end.tv_nsec - begin.tv_nsec) / 1e6;
        EXPECT(ms < delay_ms);
        cu.copy_out(host, (cu_memory)(uintptr_t)x.data, N * sizeof *host, async ? second : stream);
        wait_stream(async ? second : stream);
        for (int i = 0; i < N; i++) EXPECT(host[i] == size * (size + 1) / 2);
        if (async) EXPECT(tutti_wait(&work, 60000) == TUTTI_OK);
    }
    /* asynchronous ones, then a blocking one, all on the same memory: as if one after the other */
    tutti_work *works[3];
    cu.call_host(stream, sleep_here, &delay_ms);
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
    /* a wait with a time limit, after which it goes on */
    opts.stream = stream;
    opts.async_op = &work;
    cu.call_host(stream, sleep_here, &delay_ms);
    EXPECT(tutti_all_reduce(x, TUTTI_MAX, &opts) == TUTTI_OK);
    EXPECT(tutti_wait(&work, 1) == TUTTI_ERR_TIMEOUT && work != NULL);
    EXPECT(tutti_wait(&work, 60000) == TUTTI_OK);
    drop(group, x);
    free(host);
    cu.stream_free(stream);
    cu.stream_free(second);
    return 0;
}

/* As long as it ran on the device: what the stream held before does not count. */
static inline int case_duration(tutti_group *group, int rank, int size)
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
    EXPECT(took > 0 && took < ms + 1);
    tutti_work_free(work);
    drop(group, x);
    cu.stream_free(stream);
    return 0;
}

/* The strictest; where ranks are threads another one's waiting would end it. */
static int capture_mode = CU_CAPTURE_GLOBAL;

static inline int case_capture(tutti_group *group, int rank, int size)
{
    enum { N = 100 };
    cu_stream stream = new_stream();
    tutti_opts opts = {.group = group, .stream = stream};
    tutti_tensor x = on_device(group, N, TUTTI_INT32), y = on_device(group, N, TUTTI_INT32);
    tutti_work *work = NULL;
    void *graph = NULL, *exec = NULL;
    EXPECT(tutti_all_reduce_into(y, x, TUTTI_SUM, &opts) == TUTTI_OK); /* opens and connects */
    wait_stream(stream);
    EXPECT(cu.capture(stream, capture_mode) == 0);
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

/* Twice: once while communicators are still to be opened and connected, once after. */
static inline int case_coalesced(tutti_group *group, int rank, int size)
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

/* ---- groups, and what is refused --------------------------------------------------------------------------- */

static inline int case_groups(tutti_group *group, int rank, int size)
{
    int evens[CASES_RANKS], n = 0;
    tutti_group *even = NULL, *half = NULL;
    for (int r = 0; r < size; r += 2) evens[n++] = r;
    EXPECT(tutti_new_group(evens, n, &(tutti_group_opts){.parent = group, .high_priority = true}, &even) == TUTTI_OK);
    EXPECT(tutti_split_group(rank % 2, -rank, &(tutti_group_opts){.parent = group}, &half) == TUTTI_OK);
    tutti_tensor x = on_device(group, 3, TUTTI_INT64);
    if (rank % 2 == 0) {
        fill(x, of_rank, (int[]){0, 0});
        EXPECT(tutti_all_reduce(x, TUTTI_SUM, &(tutti_opts){.group = even}) == TUTTI_OK);
        wait_stream(NULL);
        int64_t *host = to_host(x);
        bool right = host[0] == n;
        free(host);
        EXPECT(right);
    }
    fill(x, of_rank, (int[]){rank, 0});
    int lowest = rank % 2, members = tutti_get_world_size(half);
    EXPECT(members == (size - lowest + 1) / 2);
    EXPECT(tutti_broadcast(x, lowest, &(tutti_opts){.group = half}) == TUTTI_OK);
    EXPECT(tutti_barrier(&(tutti_opts){.group = half}) == TUTTI_OK);
    wait_stream(NULL);
    EXPECT(holds(x, of_rank, (int[]){lowest, 0}));
    EXPECT(tutti_barrier(&(tutti_opts){.group = group}) == TUTTI_OK);
    drop(group, x);
    EXPECT(tutti_destroy_process_group(even) == TUTTI_OK && tutti_destroy_process_group(half) == TUTTI_OK);
    return 0;
}

/* A stream of a device that no rank has, where there is one. */
static inline int foreign_stream(tutti_group *group, tutti_tensor x, int size)
{
    int devices = 0;
    cu.count(&devices);
    if (devices <= size) return 0;
    EXPECT(cu_use(devices - 1));
    cu_stream far = new_stream();
    EXPECT(cu_use(tutti_get_device(group).index));
    EXPECT(tutti_all_reduce(x, TUTTI_SUM, &(tutti_opts){.group = group, .stream = far}) == TUTTI_ERR_INVALID_ARGUMENT);
    EXPECT(strstr(tutti_last_error(), "belongs to another device") != NULL);
    cu.stream_free(far);
    cu.release(devices - 1);
    return 0;
}

static inline int case_refused(tutti_group *group, int rank, int size)
{
    tutti_opts opts = {.group = group};
    tutti_tensor x = on_device(group, 8, TUTTI_INT32), mine = x;
    EXPECT(tutti_all_reduce(x, TUTTI_BXOR, &opts) == TUTTI_ERR_UNSUPPORTED);
    EXPECT(tutti_all_reduce((tutti_tensor){x.data, 4, TUTTI_INT16, x.device}, TUTTI_SUM, &opts) ==
           TUTTI_ERR_UNSUPPORTED);
    EXPECT(tutti_all_reduce((tutti_tensor){x.data, 4, TUTTI_COMPLEX64, x.device}, TUTTI_PRODUCT, &opts) ==
           TUTTI_ERR_UNSUPPORTED);
    int32_t *host = calloc(8, sizeof *host);
    mine.data = host;
    EXPECT(tutti_all_reduce(mine, TUTTI_SUM, &opts) == TUTTI_ERR_INVALID_ARGUMENT);
    EXPECT(strstr(tutti_last_error(), "memory that CUDA does not know") != NULL);
    free(host);
    mine = x;
    mine.device.index += 1;
    EXPECT(tutti_all_reduce(mine, TUTTI_SUM, &opts) == TUTTI_ERR_INVALID_ARGUMENT);
    EXPECT(strstr(tutti_last_error(), "this rank's device") != NULL);
    EXPECT(foreign_stream(group, x, size) == 0);
    if (size > 1) {
        int peer = (rank + 1) % size;
        tutti_opts tagged = {.group = group, .tag = 5};
        EXPECT(tutti_send(x, peer, &tagged) == TUTTI_ERR_UNSUPPORTED);
        EXPECT(tutti_recv(x, TUTTI_ANY_SOURCE, &opts) == TUTTI_ERR_UNSUPPORTED);
    }
    EXPECT(tutti_barrier(&opts) == TUTTI_OK); /* the group is as it was */
    drop(group, x);
    return 0;
}

static const struct {
    const char *name;
    case_fn fn;
} nccl_cases[] = {{"moves", case_moves},         {"reductions", case_reductions}, {"bool", case_bool},
                  {"uneven", case_uneven},       {"messages", case_messages},     {"streams", case_streams},
                  {"coalesced", case_coalesced}, {"capture", case_capture},       {"groups", case_groups},
                  {"duration", case_duration},   {"refused", case_refused}};

enum { NCCL_CASES = sizeof nccl_cases / sizeof *nccl_cases };

#endif
