/* The cases of nccl_cases.h on this process's rank, under tutti-run; on a GPU, or with TUTTI_FAKES on the stand-ins. */
#include "nccl_cases.h"

int main(int argc, char **argv)
{
    int failed = 0;
    if (!cu_load()) return 77;
    TUTTI_CHECK(tutti_init_process_group("nccl", NULL));
    int rank = tutti_get_rank(NULL), size = tutti_get_world_size(NULL), device = tutti_get_device(NULL).index;
    if (!cu_use(device)) return 1;
    for (int i = 0; i < NCCL_CASES; i++) {
        if (argc > 1 && strcmp(argv[1], nccl_cases[i].name) != 0) continue;
        struct timespec begin, end;
        clock_gettime(CLOCK_MONOTONIC, &begin);
        int line = nccl_cases[i].fn(NULL, rank, size);
        clock_gettime(CLOCK_MONOTONIC, &end);
        double s = (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) / 1e9;
        if (rank == 0 || line != 0)
            printf("case %-10s rank %d of %d: %s (%.2f s)\n", nccl_cases[i].name, rank, size,
                   line == 0 ? "ok" : "FAILED", s);
        failed += line != 0;
        if (line != 0) break; /* the ranks are out of step */
    }
    int devices = 0;
    cu.count(&devices);
    for (int i = 0; i < devices; i++) {
        unsigned flags = 0;
        int active = 0;
        cu.state(i, &flags, &active);
        if (i == device || !active) continue;
        printf("rank %d: a context on cuda:%d, which nobody named: FAILED\n", rank, i);
        failed++;
    }
    TUTTI_CHECK(tutti_destroy_process_group(NULL));
    return failed > 0;
}
