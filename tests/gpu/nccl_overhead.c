/* The cost of Tutti above NCCL: all_reduce of float32, each size called directly and through Tutti, alternating in one
 * run. "host" is the time of one call that enqueues, and "end" the time a call of a series until the stream is empty.
 * The best round counts.  Run it under tutti-run. */
#include <dlfcn.h>
#include <nccl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <tutti/tutti.h>

#include "gpu/cuda_shim.h"

enum { TURNS = 15 };

static struct {
    __typeof__(ncclGetUniqueId) *unique_id;
    __typeof__(ncclCommInitRankConfig) *init;
    __typeof__(ncclCommGetAsyncError) *state;
    __typeof__(ncclAllReduce) *all_reduce;
    __typeof__(ncclCommDestroy) *destroy;
    __typeof__(ncclGetVersion) *version;
} nccl;

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static void must(bool good, const char *what)
{
    if (good) return;
    fprintf(stderr, "nccl_overhead: %s\n", what);
    exit(1);
}

/* Makes a communicator beside Tutti's.  Its id is broadcast through Tutti. */
static ncclComm_t direct_communicator(int rank, int size)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t comm = NULL;
    ncclUniqueId id;
    tutti_tensor x = {NULL, sizeof id, TUTTI_UINT8, tutti_get_device(NULL)};
    TUTTI_CHECK(tutti_alloc(NULL, sizeof id, &x.data));
    if (rank == 0) {
        must(nccl.unique_id(&id) == ncclSuccess, "no unique id");
        cu.copy((cu_memory)(uintptr_t)x.data, (cu_memory)(uintptr_t)&id, sizeof id);
    }
    TUTTI_CHECK(tutti_broadcast(x, 0, NULL));
    cu.stream_wait(NULL);
    cu.copy((cu_memory)(uintptr_t)&id, (cu_memory)(uintptr_t)x.data, sizeof id);
    TUTTI_CHECK(tutti_free(NULL, x.data));
    config.blocking = 0; /* as Tutti's */
    ncclResult_t state = nccl.init(&comm, size, id, rank, &config);
    while (state == ncclInProgress && nccl.state(comm, &state) == ncclSuccess) continue;
    must(state == ncclSuccess, "no communicator");
    return comm;
}

static struct {
    ncclComm_t comm;
    cu_stream stream;
    tutti_tensor in, out;
} bench;

static void call(bool direct)
{
    if (!direct) {
        TUTTI_CHECK(tutti_all_reduce_into(bench.out, bench.in, TUTTI_SUM, &(tutti_opts){.stream = bench.stream}));
        return;
    }
    ncclResult_t state = nccl.all_reduce(bench.in.data, bench.out.data, (size_t)bench.in.numel, ncclFloat32, ncclSum,
                                         bench.comm, (cudaStream_t)bench.stream);
    while (state == ncclInProgress && nccl.state(bench.comm, &state) == ncclSuccess) continue;
    must(state == ncclSuccess, "ncclAllReduce failed");
}

struct cost {
    double host, end;
};

static struct cost turn(bool direct, int calls)
{
    TUTTI_CHECK(tutti_barrier(NULL));
    double begin = now_us();
    for (int i = 0; i < calls; i++) call(direct);
    double enqueued = now_us();
    cu.stream_wait(bench.stream);
    return (struct cost){(enqueued - begin) / calls, (now_us() - begin) / calls};
}

static void one_size(int rank, int64_t bytes)
{
    struct cost best[2] = {{1e18, 1e18}, {1e18, 1e18}};
    int calls = bytes <= 1 << 20 ? 100 : bytes <= 64 << 20 ? 20 : 4;
    bench.in.numel = bench.out.numel = bytes / 4;
    for (int direct = 0; direct < 2; direct++) turn(direct, 2);
    for (int t = 0; t < 2 * TURNS; t++) {
        struct cost cost = turn(t % 2, calls);
        if (cost.host < best[t % 2].host) best[t % 2].host = cost.host;
        if (cost.end < best[t % 2].end) best[t % 2].end = cost.end;
    }
    if (rank == 0)
        printf("%12lld %10.2f %10.2f %+8.2f %12.2f %12.2f %7.3f\n", (long long)bytes, best[1].host, best[0].host,
               best[0].host - best[1].host, best[1].end, best[0].end, best[0].end / best[1].end);
}

int main(int argc, char **argv)
{
    int64_t most = argc > 1 ? atoll(argv[1]) : 1 << 30;
    int version = 0;
    must(cu_load(), "no driver");
    TUTTI_CHECK(tutti_init_process_group("nccl", NULL));
    int rank = tutti_get_rank(NULL), size = tutti_get_world_size(NULL);
    must(cu_use(tutti_get_device(NULL).index), "no context");
    void *library = dlopen("libnccl.so.2", RTLD_NOW); /* the library that the plug-in has loaded */
    must(library != NULL, "no NCCL");
    *(void **)&nccl.unique_id = dlsym(library, "ncclGetUniqueId");
    *(void **)&nccl.init = dlsym(library, "ncclCommInitRankConfig");
    *(void **)&nccl.state = dlsym(library, "ncclCommGetAsyncError");
    *(void **)&nccl.all_reduce = dlsym(library, "ncclAllReduce");
    *(void **)&nccl.destroy = dlsym(library, "ncclCommDestroy");
    *(void **)&nccl.version = dlsym(library, "ncclGetVersion");
    nccl.version(&version);
    bench.comm = direct_communicator(rank, size);
    must(cu.stream_new(&bench.stream, CU_STREAM_NONBLOCKING) == 0, "no stream");
    bench.in = bench.out = (tutti_tensor){NULL, most / 4, TUTTI_FLOAT32, tutti_get_device(NULL)};
    TUTTI_CHECK(tutti_alloc(NULL, most, &bench.in.data));
    TUTTI_CHECK(tutti_alloc(NULL, most, &bench.out.data));
    if (rank == 0) {
        printf("all_reduce of float32, %d rank%s, NCCL %d; microseconds a call, best of %d turns\n", size,
               size == 1 ? "" : "s", version, TURNS);
        printf("%12s %10s %10s %8s %12s %12s %7s\n", "bytes", "host NCCL", "host Tutti", "more", "end NCCL",
               "end Tutti", "ratio");
    }
    for (int64_t bytes = 1024; bytes <= most; bytes *= bytes < 1 << 20 ? 32 : 16) one_size(rank, bytes);
    if (most >= 1 << 30 && rank >= 0) one_size(rank, 1 << 30);
    nccl.destroy(bench.comm);
    TUTTI_CHECK(tutti_free(NULL, bench.in.data));
    TUTTI_CHECK(tutti_free(NULL, bench.out.data));
    TUTTI_CHECK(tutti_destroy_process_group(NULL));
    return 0;
}
