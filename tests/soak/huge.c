/* More than 2 GiB in one operation: counts and offsets must not pass through 32 bits anywhere.
 *
 *    tutti-run -n 2 huge [BACKEND]
 *
 * Each rank holds one tensor of 2^31 + 5 bytes at a time, besides the library's memory for the reduction.  All values
 * are checked.  They have a period of 251, so an error by any power of two is seen. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <tutti/tutti.h>

#define COUNT ((INT64_C(1) << 31) + 5)
enum { PERIOD = 251 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int8_t *map_pages(int64_t bytes)
{
    void *memory =
        mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory != MAP_FAILED) return memory;
    fprintf(stderr, "no memory for %lld bytes: %s\n", (long long)bytes, strerror(errno));
    exit(1);
}

static void unmap_pages(int8_t *memory, int64_t bytes)
{
    munmap(memory, (size_t)bytes);
}

/* Sets element i to (i % PERIOD + seed) * factor, wrapped. */
static void make_period(int8_t period[2 * PERIOD], int seed, int factor)
{
    for (int i = 0; i < 2 * PERIOD; i++) period[i] = (int8_t)(uint8_t)((i % PERIOD + seed) * factor);
}

static void fill(int8_t *x, int64_t n, int seed)
{
    int8_t period[2 * PERIOD];
    make_period(period, seed, 1);
    for (int64_t i = 0; i < n; i += PERIOD) memcpy(x + i, period, (size_t)(n - i < PERIOD ? n - i : PERIOD));
}

static void check(const char *what, const int8_t *x, int64_t n, int seed, int factor)
{
    int8_t period[2 * PERIOD];
    make_period(period, seed, factor);
    for (int64_t i = 0; i < n; i += PERIOD) {
        size_t left = (size_t)(n - i < PERIOD ? n - i : PERIOD);
        if (memcmp(x + i, period, left) == 0) continue;
        for (size_t k = 0; k < left; k++)
            if (x[i + (int64_t)k] != period[k])
                fprintf(stderr, "%s: rank %d: element %lld is %d, not %d\n", what, tutti_get_rank(NULL),
                        (long long)i + (long long)k, x[i + (int64_t)k], period[k]);
        exit(1);
    }
}

static void print_rate(const char *what, double since)
{
    double s = now() - since;
    if (tutti_get_rank(NULL) == 0)
        printf("%-32s %10lld elements %7.2f s %7.3f GB/s\n", what, (long long)COUNT, s, (double)COUNT / s / 1e9);
    fflush(stdout);
    TUTTI_CHECK(tutti_barrier(NULL));
}

int main(int argc, char **argv)
{
    TUTTI_CHECK(tutti_init_process_group(argc > 1 ? argv[1] : "tcp", NULL));
    int rank = tutti_get_rank(NULL), size = tutti_get_world_size(NULL);
    int8_t *x = map_pages(COUNT);

    fill(x, COUNT, rank);
    double start = now();
    TUTTI_CHECK(tutti_broadcast(tutti_view(x, COUNT), size - 1, NULL));
    print_rate("broadcast", start);
    check("broadcast", x, COUNT, size - 1, 1);

    fill(x, COUNT, 0);
    start = now();
    TUTTI_CHECK(tutti_all_reduce(tutti_view(x, COUNT), TUTTI_SUM, NULL));
    print_rate("all_reduce", start);
    check("all_reduce", x, COUNT, 0, size);

    if (rank == 0) fill(x, COUNT, 9);
    if (rank == 1) memset(x, 0, (size_t)COUNT);
    TUTTI_CHECK(tutti_barrier(NULL));
    start = now();
    if (rank == 0) TUTTI_CHECK(tutti_send(tutti_view(x, COUNT), 1, NULL));
    if (rank == 1) TUTTI_CHECK(tutti_recv(tutti_view(x, COUNT), 0, NULL));
    print_rate("send, recv", start);
    if (rank == 1) check("recv", x, COUNT, 9, 1);
    unmap_pages(x, COUNT);

    /* parts beyond 2 GiB also start beyond it; each rank's own part is in place */
    int64_t part = COUNT / size + 1, all = part * size;
    x = map_pages(all);
    fill(x + rank * part, part, 3 * rank);
    start = now();
    TUTTI_CHECK(tutti_all_gather_into_tensor(tutti_view(x, all), tutti_view(x + rank * part, part), NULL));
    print_rate("all_gather_into_tensor", start);
    for (int r = 0; r < size; r++) check("all_gather_into_tensor", x + r * part, part, 3 * r, 1);
    unmap_pages(x, all);

    /* more than 2 GiB from the first rank, a small block from the others */
    tutti_tensor blocks[64];
    if (size <= 64) {
        int64_t at = 0;
        x = map_pages(COUNT + size * 1000);
        for (int r = 0; r < size; r++) {
            blocks[r] = tutti_view(x + at, r == 0 ? COUNT : 1000 + r);
            at += blocks[r].numel;
        }
        fill(blocks[rank].data, blocks[rank].numel, 5 + rank);
        start = now();
        TUTTI_CHECK(tutti_all_gather(blocks, size, blocks[rank], NULL));
        print_rate("all_gather, first block of all", start);
        for (int r = 0; r < size; r++) check("all_gather", blocks[r].data, blocks[r].numel, 5 + r, 1);
        unmap_pages(x, COUNT + size * 1000);
    }
    TUTTI_CHECK(tutti_destroy_process_group(NULL));
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    if (rank == 0) printf("ok; a rank took %.1f GiB at most\n", (double)usage.ru_maxrss / (1 << 20));
    return 0;
}
